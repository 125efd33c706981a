"""Calls of users' functions on a batch of tokens; the error for a function written for strings says how to wrap it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .errors import InvalidInput

SPELL = "spell states for it, tt.Reward(function, tokenizer=letters, one_at_a_time=True)"


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
            f"{name} takes states for strings ({type(error).__name__}: {error}), and is given tokens "
            f"{tuple(tokens.shape)}; {SPELL}"
        ) from error


def wants_strings(error: BaseException) -> bool:
    """Whether an error looks like that of a function of strings that was given a tensor."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, Tensor) and hasattr(str, error.name or "")
    said = str(error)
    return "Tensor" in said and any(
        word in said for word in ("expected string", "got str", "a <class 'str'>", "not str")
    )
