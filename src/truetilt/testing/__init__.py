"""Checks of a part of one's own: a resampler, a kernel, a target, a move, a network. Five lines, and no pytest needed.

Each check is a function that returns nothing where a part keeps what its kind promises, and raises `Rejected` with the
figures where it does not, or with what is wrong in the form of what it returned. Seeds are fixed: a check says the same
of the same code every time. Names are imported when first used.
"""

from __future__ import annotations

from ..core.lazy import lazy_names

_HOME = {
    "kernels": ("check_kernel",),
    "moves": ("check_move",),
    "networks": ("check_potential", "check_score"),
    "resamplers": ("check_resampler",),
    "targets": ("check_target",),
    "verdicts": ("Rejected",),
}
__all__, __getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
