"""The ways that lead to a problem's target, from the simplest to the dearest, and how each is got ready."""

from __future__ import annotations

from ..core.types import Potential
from .account import Account
from .choose import Way
from .learning import learned
from .problem import Problem
from .routes import (
    ADAPTED,
    ANNEALED,
    FROM_BASE,
    IMPORTANCE,
    TWISTED,
    Route,
    adapted,
    annealed,
    annealed_cost,
    importance,
    twisted,
)
from .work import Work

AT_BEST = {TWISTED: 0.4, ANNEALED: 0.7, FROM_BASE: 0.7}  # worth of a particle; the first less what learning costs
_FIRST = "how far the simplest way goes is the first thing to know"
Built = tuple[Route, str] | None


def ways_of(problem: Problem, account: Account) -> list[Way]:
    """All ways to a problem's target."""
    if problem.reward is None:
        return [
            Way(ADAPTED, problem.draw, 1.0, lambda work: (adapted(problem), _FIRST)),
            Way(ANNEALED, annealed_cost(problem, account, FROM_BASE), AT_BEST[FROM_BASE], _annealed_from_base),
        ]
    first = Way(IMPORTANCE, problem.draw, 1.0, lambda work: (importance(problem), _FIRST))
    led = Way(TWISTED, problem.draw, AT_BEST[TWISTED], _twisted)
    if not problem.masks:
        return [first, led]
    dear = ((ANNEALED, _annealed), (FROM_BASE, _annealed_from_base))
    costs = [annealed_cost(problem, account, name) for name, _ in dear]
    ways = [Way(name, cost, AT_BEST[name], build) for (name, build), cost in zip(dear, costs, strict=True)]
    return [first, led, *ways]


def _twisted(work: Work) -> Built:
    twist = _twist(work)
    return None if twist is None else (twisted(work.problem, twist), _of_twist(twist))


def _annealed(work: Work) -> Built:
    twist = _twist(work)
    if twist is None or not work.movable:
        return None
    return annealed(work.problem, work.account, twist), "moves finish what the twist begins"


def _annealed_from_base(work: Work) -> Built:
    """Where a twist leads it is not begun from the base."""
    if work.twist is not None or not work.movable:
        return None
    return annealed(work.problem, work.account, None), "moves find what draws of the base do not"


def _twist(work: Work) -> Potential | None:
    """The twist: the user's, the one learned before, or one that is learned now if the budget buys the lessons."""
    if work.twist is None and not work.learned and work.problem.masks:
        work.learned = True
        work.twist = learned(work)
    return work.twist


def _of_twist(twist: Potential) -> str:
    held = getattr(twist, "held_out", None)
    return (
        "the twist is given" if held is None else f"the twist ({held.family}) leaves {held.spread:.2g} nats of spread"
    )
