"""Spending a budget in full: the largest run of a method whose measured cost stays within the budget."""

from __future__ import annotations

from collections.abc import Callable

from ..core.arguments import LONGEST
from ..core.budget import Budget, BudgetTooSmall
from ..core.errors import InvalidInput
from ..rewards.calls import Rewarding
from ..rewards.reward import Reward
from .record import Baseline

Sized = Callable[[Budget, int | None], Baseline]  # a run with this budget, of this size at most
_ENOUGH = 0.98  # share of a budget that counts as all of it
_NEARLY = 0.9  # share of a budget above which one more step is tried only if it is predicted to fit
_FINE = 50  # sizes that differ by less than one part in this many count as equal
_MOST = 64  # times the planned size, at most: with unlimited evaluations and all states cached nothing else ends it


def largest(run: Sized, budget: Budget) -> Baseline:
    """The largest run whose spending, as measured, stays within the budget.

    A plan has to count every call as a new one. If states repeat and the reward has a cache, a run so planned leaves
    many calls unspent: larger ones are tried, and the largest that fits is returned. The search itself is not charged.
    That favours the method, since nobody who pays for calls could search this way.
    """
    best = _planned(run, budget)
    most, above = _MOST * best.size if budget.evaluations is None else LONGEST, None
    while budget.share(best.spent) < _ENOUGH and best.size < most:
        if above is not None and above - best.size <= max(best.size // _FINE, 1):
            break
        if budget.share(best.spent) > _NEARLY and budget.share(best.spent) * (best.size + 1) > best.size:
            break  # one more would exceed the rest of the budget
        found = run(Budget(), _next(best, budget, above, most))
        if budget.share(found.spent) <= 1:
            best = found
        else:
            above = found.size
    return best


def _planned(run: Sized, budget: Budget) -> Baseline:
    """The run that fits if all calls are new; if none does, the smallest run, provided that its measured cost fits."""
    try:
        return run(budget, None)
    except BudgetTooSmall:
        smallest = run(Budget(), 1)
        if budget.share(smallest.spent) > 1:
            raise
        return smallest


def _next(best: Baseline, budget: Budget, above: int | None, most: int) -> int:
    """The next size to try: extrapolated from the cost so far (at most four times as large), or the midpoint."""
    if above is not None:
        return (best.size + above) // 2
    promised = int(best.size / max(budget.share(best.spent), 0.25))
    return min(max(promised, best.size + max(best.size // _FINE, 1)), most)


def afresh(reward: Rewarding) -> Rewarding:
    """The same reward with an empty cache, so that a run pays for each state once, whatever was cached before.

    The given reward serves as the function and still answers from its own cache: a slow one is evaluated once per
    state.
    """
    if not isinstance(reward, Reward) or not reward.keeps:
        return reward
    return Reward(reward.__call__, vocabulary=reward.vocabulary)


def said_by_reward(error: InvalidInput) -> InvalidInput:
    """The error of the inner reward, taken out of the second one that the wrapper of `afresh` puts around it."""
    cause = error.__cause__
    return said_by_reward(cause) if isinstance(cause, InvalidInput) and str(cause) in str(error) else error
