"""Spending a budget in full: the largest run of a method whose measured cost stays within it."""

from __future__ import annotations

from collections.abc import Callable

from ..core.budget import Budget, BudgetTooSmall
from ..core.types import LONGEST, InvalidInput
from ..rewards.reward import Reward
from ..twists.calls import Rewarding
from .record import Baseline

Sized = Callable[[Budget, int | None], Baseline]  # a run with so much to spend, of this size at most
_ENOUGH = 0.98  # of a budget: what is left of it is not worth another run
_NEARLY = 0.9  # of a budget: one step more is not tried where it promises to be too much
_FINE = 50  # sizes that differ by less than one part in so many are alike
_MOST = 64  # times the planned size, where evaluations are not limited: known states cost no calls, and nothing ends it


def largest(run: Sized, budget: Budget) -> Baseline:
    """The largest run whose spending, as measured, stays within the budget.

    A plan can only count every call as a new one. Where states repeat and the reward keeps its answers, a run so
    planned leaves much of its calls unspent: larger ones are tried, and the largest that fits is returned. What the
    search itself asks is not charged. That favours the method, since nobody who has to pay could search so.
    """
    best = _planned(run, budget)
    most, above = _MOST * best.size if budget.evaluations is None else LONGEST, None
    while budget.share(best.spent) < _ENOUGH and best.size < most:
        if above is not None and above - best.size <= max(best.size // _FINE, 1):
            break
        if budget.share(best.spent) > _NEARLY and budget.share(best.spent) * (best.size + 1) > best.size:
            break  # one more would cost more than is left
        found = run(Budget(), _next(best, budget, above, most))
        if budget.share(found.spent) <= 1:
            best = found
        else:
            above = found.size
    return best


def _planned(run: Sized, budget: Budget) -> Baseline:
    """The run that fits if all calls are new; where none does, the smallest there is, if it fits as measured."""
    try:
        return run(budget, None)
    except BudgetTooSmall:
        smallest = run(Budget(), 1)
        if budget.share(smallest.spent) > 1:
            raise
        return smallest


def _next(best: Baseline, budget: Budget, above: int | None, most: int) -> int:
    """A size to try: what the spending so far promises, at most four times as much, or the middle."""
    if above is not None:
        return (best.size + above) // 2
    promised = int(best.size / max(budget.share(best.spent), 0.25))
    return min(max(promised, best.size + max(best.size // _FINE, 1)), most)


def afresh(reward: Rewarding) -> Rewarding:
    """The same reward with an empty memory, so that a run pays for each state once whatever was asked before it.

    Its function is the reward given, which still answers from its own memory: a slow one is asked once about a state.
    """
    if not isinstance(reward, Reward) or not reward.keeps:
        return reward
    return Reward(reward.__call__, vocabulary=reward.vocabulary)


def said_by_reward(error: InvalidInput) -> InvalidInput:
    """What the reward itself said of a state that it has no value for, where `afresh` says it once more around it."""
    cause = error.__cause__
    return said_by_reward(cause) if isinstance(cause, InvalidInput) and str(cause) in str(error) else error
