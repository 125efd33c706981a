"""The remedies that targets name for a run with bad weights: what to call next, without what the run already does."""

from __future__ import annotations

from typing import Any

from ..core.twists import Learned
from .potentials import OfFinished


def annealing(goal: str, length: int) -> str:
    """Annealing to a goal, one Gibbs sweep over each half of the way."""
    return f"annealing (tt.Annealed({goal}, shares={2 * length}))"


def listed_ways(*ways: str) -> str:
    """The pieces of advice that are not empty, joined by ", or "."""
    return ", or ".join(way for way in ways if way)


def named_twist(twist: Any) -> str:
    """The name of the twist, with the spread it leaves in the log-weights of held-out draws; empty without a twist."""
    if twist is None:
        return ""
    inner = twist.twist if isinstance(twist, Learned) else twist.function if isinstance(twist, OfFinished) else twist
    name = getattr(inner, "__name__", None) or type(inner).__name__
    told = f", held-out spread {twist.held_out.spread:.2g}" if isinstance(twist, Learned) else ""
    return f"the twist ({name}{told})"


def better_twist(twist: Any) -> str:
    """The remedy that concerns the twist: learn one, learn a better one, or improve your own."""
    if twist is None:
        return "a twist (tt.learn_twist(model, reward, strength, calls=...), given as twist=)"
    if isinstance(twist, Learned):
        return "a better twist (tt.learn_twist with more calls or another family)"
    return "a better twist (tt.learn_twist may find one)"
