"""The parts of a target of one's own, under one roof: `docs/extend.md` builds one from them."""

from __future__ import annotations

from .targets.time_grid import (
    ClockMove,
    OnClock,
    Proposal,
    Steered,
    Tempered,
    Tilt,
    Tilted,
    Unweighted,
    check_alpha,
    evaluate,
    powers,
)

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
