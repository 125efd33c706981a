"""Validation of arguments, where a value is built or a run begins: numbers, functions, tensors, devices.

Each returns the argument in its plain form (a Python number, a float64 tensor) or raises `InvalidInput` with the name
of the argument, what it was and what to give. Numbers may come as numpy scalars or tensors of one element; truth values
and texts are no numbers.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .errors import InvalidInput

_NAME, _PATH = 255, 3500  # bytes of a name and letters of a path, at most
_SHOWN = 60  # characters of a value that a message quotes
LONGEST = 1_000_000  # most entries read from an iterable, which may be endless
MOST_WHOLE = 2**63 - 1  # the largest whole number, where no smaller bound is named: that of a 64-bit word
FINITE = sys.float_info.max
ABOVE_ZERO = sys.float_info.min  # the least number above 0 whose digits are all kept
LARGEST = 1e9  # largest exponent or strength: log-weights times this keep their digits in float64


def shown(value: object) -> str:
    """Any value as error messages quote it, shortened."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim > 0:
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    try:
        text = repr(value)
    except Exception:  # a user's repr may raise anything
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... (a {type(value).__name__})"


def plain(value: Any) -> Any:
    """The Python number inside a numpy scalar or a tensor of one element; anything else as it is."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1:
        return value if isinstance(value, Tensor) and value.is_meta else value.item()
    return value


def number(name: str, value: object, need: str = "give a number") -> float:
    """A real number as a Python number; NaN and infinity pass, and the caller checks for them."""
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, Real):
        raise InvalidInput(f"{name} is {shown(value)}; {need}")
    if isinstance(found, float):
        return found
    try:
        exact = isinstance(found, int) and float(found) == found and -(2**53) < found < 2**53
        return found if exact else float(found)
    except OverflowError as error:
        raise InvalidInput(f"{name} is a number beyond float64; {need}") from error


def bounded(name: str, value: object, need: str, least: float = -LARGEST, most: float = LARGEST) -> float:
    """A real number within these bounds, both included, as a Python number; so never NaN."""
    found = number(name, value, need)
    if not least <= found <= most:
        raise InvalidInput(f"{name} is {found}; {need}")
    return found


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number within these bounds, as a plain int; None: at most that of a 64-bit word."""
    found, largest = plain(value), MOST_WHOLE if most is None else most
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= largest:
        beyond = isinstance(found, int) and found > largest
        upper = f" and at most {largest:,}" if beyond or most is not None else ""
        raise InvalidInput(f"{name} is {shown(value)}; give a whole number, at least {least}{upper}")
    return found


def truth(name: str, value: object) -> bool:
    """True or False."""
    found = plain(value)
    if not isinstance(found, bool):
        raise InvalidInput(f"{name} is {shown(value)}; give True or False")
    return found


def function(name: str, value: object, takes: str, hint: str = "", keywords: Iterable[str] = ()) -> None:
    """Raise unless the value can be called with these arguments, written as "(x, t)", and keywords; `hint` names what
    to give instead.
    """
    if not callable(value):
        raise InvalidInput(f"{name} is {shown(value)}; give a function of {takes}{hint and ', ' + hint}")
    count, own = takes.count(",") + 1, getattr(value, "called_with", takes)
    try:
        if isinstance(value, type):
            raise TypeError("a class, not a function")
        if own != takes:
            raise TypeError(f"it is called with {own}")
        signature = inspect.signature(value.forward if isinstance(value, torch.nn.Module) else value)
    except ValueError as error:  # builtins have no signature; those of torch take one tensor
        if count == 1:
            return
        raise InvalidInput(f"{name} is {shown(value)}; give a function of {takes}{hint and ', ' + hint}") from error
    except TypeError as error:
        raise InvalidInput(f"{name} is {shown(value)} ({error}); give a function of {takes}") from error
    try:
        signature.bind(*range(count), **dict.fromkeys(keywords))
    except TypeError as error:
        raise InvalidInput(
            f"{name} is called with {takes}, and {shown(value)} cannot be ({error}); give a function of "
            f"{takes}{hint and ', ' + hint}"
        ) from error


def takes_time(name: str, value: object, hint: str = "") -> bool:
    """Whether a function of states is one of (x, t), not of x alone; raises unless it is one of the two."""
    if callable(value) and not isinstance(value, type):
        try:
            inspect.signature(value.forward if isinstance(value, torch.nn.Module) else value).bind(0, 0)
        except (TypeError, ValueError):  # a function of x alone, or a builtin without a signature
            pass
        else:
            return True
    function(name, value, "(x)", hint)
    return False


def called(name: str, value: Callable[..., Any], *args: Any) -> Any:
    """Call a function; a TypeError, such as for a wrong number of arguments, becomes InvalidInput."""
    try:
        return value(*args)
    except TypeError as error:
        raise InvalidInput(f"{name} cannot be called with {', '.join(map(shown, args))} ({error})") from error


def has(name: str, value: object, parts: Sequence[str], need: str) -> None:
    """Raise for a value that lacks one of these attributes; `need` says what to give."""
    if isinstance(value, type) or not all(hasattr(value, part) for part in parts):
        raise InvalidInput(f"{name} is {shown(value)}; {need}")


def reals(name: str, value: object, need: str, device: torch.device | str | None = None) -> Tensor:
    """Real numbers as a float64 tensor: of a tensor, an array or nested lists."""
    return tensor_of(name, value, need, device).double()


def tensor_of(name: str, value: object, need: str, device: torch.device | str | None = None) -> Tensor:
    """Real numbers as a tensor of their own dtype, without gradients: of a tensor, an array or nested lists."""
    if isinstance(value, Tensor):
        found = value.detach()
    elif not _numeric(value):
        raise InvalidInput(f"{name} is {shown(value)}; {need}")
    else:
        try:
            found = torch.as_tensor(value)
            if found.is_floating_point() and not isinstance(value, np.ndarray | np.generic):
                found = torch.as_tensor(value, dtype=torch.float64)  # Python's numbers keep their digits
        except (TypeError, ValueError, RuntimeError, OverflowError, IndexError) as error:
            raise InvalidInput(f"{name} is {shown(value)}, of which no tensor can be made ({error}); {need}") from error
    if found.is_complex() or found.is_meta or found.layout != torch.strided or found.is_quantized:
        raise InvalidInput(f"{name} is a tensor of {found.dtype} ({found.layout}, on {found.device}); {need}")
    return found if device is None else found.to(device)


def token_rows(name: str, value: object, need: str = "give tokens, an int64 tensor [..., D]") -> Tensor:
    """Whole numbers as an int64 tensor [..., D]; whether they are tokens of some vocabulary is not looked at."""
    found = tensor_of(name, value, need)
    if found.is_floating_point() or found.dtype == torch.bool or not found.dim() or not found.shape[-1]:
        raise InvalidInput(f"{name} is {shown(value)} of {found.dtype}; {need}")
    return found.long()


def _numeric(value: object) -> bool:
    """Whether a value can be converted to a tensor: a number, an array, or a list that is not too long."""
    if isinstance(value, np.ndarray | np.generic | int | float | Real):
        return True
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) <= LONGEST


def path_of(name: str, value: object) -> Path:
    """The path of a file or folder."""
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise InvalidInput(f"{name} is {shown(value)}; give a path")
    try:
        longest = max((len(os.fsencode(part)) for part in Path(value).parts), default=0)
    except UnicodeError as error:
        raise InvalidInput(f"{name} is {shown(value)}, which holds half a character; give a path") from error
    if longest > _NAME or len(os.fspath(value)) > _PATH:
        raise InvalidInput(f"{name} is {shown(value)}, which is too long for a path; give a shorter one")
    return Path(value)


def folder_of(name: str, value: object) -> Path:
    """The path of a folder; refused if it, or a folder above it, is a file."""
    found = path_of(name, value)
    taken = [part for part in (found, *found.parents) if part.is_file()]
    if taken:
        raise InvalidInput(f"{name} is {str(found)!r} and {taken[0]} is a file; give a folder")
    return found


def entries(name: str, value: object, need: str) -> Iterable[Any]:
    """Any iterable that is not a text, as it is, which may be endless."""
    one = isinstance(value, Tensor | np.ndarray) and value.ndim == 0  # iterable by its type alone
    if one or isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidInput(f"{name} is {shown(value)}; {need}")
    return value


def listed(name: str, value: object, need: str) -> list[Any]:
    """The entries of any iterable that is not a text or a mapping, at most `LONGEST` of them."""
    if isinstance(value, dict | set):
        raise InvalidInput(f"{name} is {shown(value)}; {need}")
    found = list(islice(entries(name, value, need), LONGEST + 1))
    if len(found) > LONGEST:
        raise InvalidInput(f"{name} has more than {LONGEST:,} entries; {need}")
    return found


def device_here(value: object, name: str = "device") -> None:
    """Raise for a device that this machine does not have."""
    try:
        found = torch.device(cast("str", value))
    except (RuntimeError, TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is {shown(value)}; give 'cpu' or 'cuda'") from error
    if isinstance(value, bool) or found.type == "meta":
        raise InvalidInput(f"{name} is {shown(value)}; give 'cpu' or 'cuda'")
    if found.type == "cuda" and not (found.index or 0) < torch.cuda.device_count():
        raise InvalidInput(
            f"{name} is {str(found)!r} and torch finds {torch.cuda.device_count()} CUDA devices here; give 'cpu', or "
            "install a torch built for the GPU of this machine"
        )
    if found.type not in ("cpu", "cuda"):
        try:
            torch.empty(0, device=found)
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            raise InvalidInput(f"{name} is {str(found)!r}, which torch cannot use here; give 'cpu'") from error


def set_fields(record: object, **values: object) -> None:
    """Set fields of a frozen dataclass, in its __post_init__, to arguments in their plain form."""
    for name, value in values.items():
        object.__setattr__(record, name, value)
