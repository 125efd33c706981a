"""The parts of a target of one's own, under one roof: `docs/extend.md` builds one from them."""

from __future__ import annotations

from .targets.base import ClockMove, Proposal, Tilt, check_alpha, powers
from .targets.time_grid import OnClock, Steered, Tempered, Tilted, Unweighted, evaluate

__all__ = [
    "ClockMove",
    "OnClock",
    "Proposal",
    "Steered",
    "Tempered",
    "Tilt",
    "Tilted",
    "Unweighted",
    "check_alpha",
    "evaluate",
    "powers",
]
