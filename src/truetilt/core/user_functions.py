"""Calls of users' functions on a batch of tokens; the error for a function written for strings says how to wrap it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .errors import InvalidInput

_LONGEST = 500  # characters of an error that a message quotes
SPELL = "spell states for it, tt.Reward(function, tokenizer=letters, one_at_a_time=True)"


def raised(error: BaseException) -> str:
    """An error of a user's function, as messages quote it: in one line of bounded length."""
    try:
        said = " ".join(str(error).split()).encode("utf-8", "backslashreplace").decode()
    except Exception:  # a user's error may not even be printed
        said = ""
    said = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 100]} ... {said[-100:]}"
    return f"{type(error).__name__}: {said}"


def call_user(name: str, function: Callable[..., Any], *given: Any) -> Any:
    """Call a function; if it fails because it expects strings, the error advises tt.Reward."""
    try:
        return function(*given)
    except (AttributeError, TypeError, RuntimeError) as error:
        check_strings(name, error, given[0])
        raise


def check_strings(name: str, error: BaseException, tokens: Tensor) -> None:
    """Raise advice on tt.Reward if an error looks like that of a function of strings that was given tokens."""
    if wants_strings(error):
        raise InvalidInput(
            f"{name} takes states for strings ({raised(error)}), and is given tokens {tuple(tokens.shape)}; {SPELL}"
        ) from error


def wants_strings(error: BaseException) -> bool:
    """Whether an error looks like that of a function of strings that was given a tensor."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, Tensor) and hasattr(str, error.name or "")
    said = raised(error)
    return "Tensor" in said and any(
        word in said for word in ("expected string", "got str", "a <class 'str'>", "not str")
    )
