"""The account of a `steer` call: what of the budget is spent, what is left, and how much of something that buys."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..core.budget import Budget
from ..core.spent import Spent


class Price(NamedTuple):
    """An upper bound of a cost: network evaluations, and calls of the reward."""

    evaluations: float
    calls: float

    def times(self, count: float) -> Price:
        return Price(self.evaluations * count, self.calls * count)

    def plus(self, other: Price) -> Price:
        return Price(self.evaluations + other.evaluations, self.calls + other.calls)


NOTHING = Price(0, 0)
ANY_NUMBER = 1 << 40


class Account:
    """A budget and what is spent of it. Calls are counted once per distinct state: a cached state costs nothing.

    `limits` is the part of the budget that can run out: a budget of calls that is no smaller than the number of
    `states` cannot.
    """

    def __init__(self, budget: Budget, states: float = math.inf) -> None:
        self.budget, self.spent = budget, Spent()
        self.limits = budget if budget.calls is None or budget.calls < states else budget._replace(calls=None)

    def pay(self, spent: Spent) -> None:
        self.spent = self.spent.plus(spent)

    @property
    def left(self) -> Price:
        """What is left; infinity where there is no limit."""
        return Price(*(math.inf if limit is None else limit for limit in self.limits.less(self.spent)))

    @property
    def used(self) -> float:
        """The share of the budget that is spent: the larger of the shares of evaluations and of calls."""
        return self.budget.share(self.spent)

    def buys(self, each: Price, share: float = 1.0, once: Price = NOTHING) -> int:
        """How many items at price `each` a share of what is left buys, after paying `once`."""
        triples = zip(self.left, each, once, strict=True)
        most = [(share * left - first) / one for left, one, first in triples if one > 0 and left < math.inf]
        return max(math.floor(min(most, default=ANY_NUMBER)), 0)

    def weight(self, cost: Price) -> float:
        """The share of the whole budget that a cost takes."""
        pairs = zip(self.limits, cost, strict=True)
        return max((part / limit for limit, part in pairs if limit is not None), default=0.0)
