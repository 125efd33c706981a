"""Contract checks for a user's own parts: a resampler, a kernel, a target, a move, a network. No pytest needed.

Each check is a function that returns None if the part satisfies its contract, and raises `Rejected` if it does not,
with the measured figures or with what is wrong in the shape or type of its output. Seeds are fixed: a check gives the
same verdict on the same code every time. Names are imported when first used.
"""

from __future__ import annotations

from ..core.lazy_imports import lazy_names

_HOME = {
    "kernels": ("check_kernel",),
    "moves": ("check_move",),
    "scores": ("check_potential", "check_score"),
    "resamplers": ("check_resampler",),
    "targets": ("check_target",),
    "verdicts": ("Rejected",),
}
__all__, __getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
