"""Checks of a part of one's own: a resampler, a kernel, a target, a move, a network. Five lines, and no pytest needed.

Each check is a function that returns nothing where a part keeps what its kind promises, and raises `Rejected` with the
figures where it does not, or with what is wrong in the form of what it returned. Seeds are fixed: a check says the same
of the same code every time. Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "kernels": ("check_kernel",),
    "moves": ("check_move",),
    "networks": ("check_potential", "check_score"),
    "resamplers": ("check_resampler",),
    "targets": ("check_target",),
    "verdicts": ("Rejected",),
}
_ROOM = {name: room for room, names in _HOME.items() for name in names}

__all__ = sorted(_ROOM)


def __getattr__(name: str) -> Any:
    if name not in _ROOM:
        raise AttributeError(f"module 'truetilt.testing' has no attribute {name!r}")
    return getattr(import_module(f".{_ROOM[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
