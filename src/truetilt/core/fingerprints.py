"""A hash of a value and of all that it refers to: equal for equal settings and weights, in every process.

Models with equal printed settings and other weights have other hashes. Records are hashed field by field, networks
weight by weight, functions by their name, their code and what they enclose. Nothing is executed, and no memory address
enters.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

_DEVICE = re.compile(r"(cpu|cuda)(:\d+)?")


def fingerprint(value: Any) -> str:
    """The hash of a value, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for piece in _pieces(value, ()):
        digest.update(piece + b"\0")
    return digest.hexdigest()


def alike(one: Any, other: Any, above: tuple[tuple[int, int], ...] = ()) -> bool:
    """Whether two values have equal fingerprints, without hashing objects that both refer to. `above` holds the pairs
    that are being compared, so that a reference cycle ends.
    """
    if one is other or (id(one), id(other)) in above:
        return True
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.device == other.device and one.dtype == other.dtype and not one.is_meta and torch.equal(one, other)
    plain = bool | int | float | str | bytes | torch.dtype | torch.device
    if one is None or other is None or isinstance(one, plain) or isinstance(other, plain):
        return not isinstance(one, Tensor) and not isinstance(other, Tensor) and one == other
    mine, theirs = list(_parts(one)), list(_parts(other))
    if _name(one) != _name(other) or [name for name, _ in mine] != [name for name, _ in theirs]:
        return False
    below = (*above, (id(one), id(other)))
    told = mine or hasattr(one, "__code__") or is_dataclass(one) or isinstance(one, list | tuple | Mapping)
    pairs = zip(mine, theirs, strict=True)
    return bool(told) and all(alike(a, b, below) for (_, a), (_, b) in pairs)


def _pieces(value: Any, above: tuple[int, ...]) -> Iterator[bytes]:
    """The value as bytes, piece by piece; `above` holds the values being visited, so that a reference cycle ends."""
    if id(value) in above:
        yield b"circle"
        return
    if isinstance(value, Tensor):
        yield f"{value.dtype}{tuple(value.shape)}".encode()
        yield _bytes(value)
        return
    if isinstance(value, torch.device) or (isinstance(value, str) and _DEVICE.fullmatch(value)):
        yield f"device {torch.device(value).type}".encode()  # ranks differ in its number
        return
    if value is None or isinstance(value, bool | int | float | str | bytes | torch.dtype):
        yield f"{type(value).__name__} {value!r}".encode()
        return
    yield _name(value).encode()
    for name, part in _parts(value):
        yield name.encode()
        yield from _pieces(part, (*above, id(value)))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value is made of, by name."""
    if isinstance(value, Mapping):
        yield from ((repr(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(number), part) for number, part in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield "members", sorted(map(repr, value))
    elif isinstance(value, nn.Module):
        yield from value.state_dict().items()
        yield "config", getattr(value, "config", None)
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((f.name, getattr(value, f.name)) for f in fields(value) if f.compare)
    elif hasattr(value, "__code__") or hasattr(value, "__func__"):
        yield from _enclosed(value)
    elif not isinstance(value, type) and hasattr(value, "__dict__"):
        yield from sorted(vars(value).items())


def _enclosed(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """A method's owner; a function's code, defaults and the variables it closes over."""
    if hasattr(function, "__self__"):
        yield "self", function.__self__
    code: Any = getattr(function, "__code__", None)
    if code is None:
        return
    yield "code", _compiled(code)
    yield "defaults", getattr(function, "__defaults__", None)
    cells = getattr(function, "__closure__", None) or ()
    yield from zip(code.co_freevars, (_content(cell) for cell in cells), strict=False)


def _compiled(code: CodeType) -> list[Any]:
    """Bytecode, the names it looks up, and its constants; functions within it the same way."""
    constants = [c for c in code.co_consts if isinstance(c, int | float | str | bytes | tuple | CodeType)]
    within = [_compiled(c) if isinstance(c, CodeType) else c for c in constants]
    return [code.co_code, list(code.co_names), within]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a cell of a closure that has no value yet
        return None


def _name(value: Any) -> str:
    """The name of a function or of a value's class; for this package's own without the module, which may be renamed."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    module = kind.__module__ or "none"  # a function may say that it is of no module
    package, _, rest = module.partition(".")
    if package != __name__.partition(".")[0]:
        return f"{module}.{kind.__qualname__}"
    return f"{package}.{'continuous.' * rest.startswith('continuous')}{kind.__qualname__}"


def _bytes(tensor: Tensor) -> bytes:
    if tensor.is_meta:  # it holds no numbers
        return b""
    return tensor.detach().cpu().to_dense().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
