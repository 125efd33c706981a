"""What a method may spend: network evaluations and calls of the reward."""

from __future__ import annotations

import math
from typing import NamedTuple

from .arguments import plain, shown
from .errors import InvalidInput
from .spent import Spent


class BudgetTooSmall(InvalidInput):
    """A budget that does not pay for the smallest run of a method; the message says what that costs."""


class Budget(NamedTuple):
    """Network evaluations and reward calls that may be spent, None for no limit; a method stops when either runs out.
    For a reward with a cache (`tt.Reward`) distinct calls are counted: a cached value costs nothing.
    """

    evaluations: int | None = None
    calls: int | None = None

    def most(self, evaluations: int, calls: int, what: str, at_most: int | None = None) -> int:
        """How many items the budget buys, each at this many evaluations and calls; raises if it does not buy one."""
        limits = [(self.evaluations, evaluations, "network evaluations"), (self.calls, calls, "reward calls")]
        for limit, _, name in limits:
            if limit is not None and (type(plain(limit)) is not int or plain(limit) < 0):
                raise InvalidInput(f"a budget of {shown(limit)} {name}; give a whole number, or None for any number")
        counts = [(limit // each, limit, each, name) for limit, each, name in limits if limit is not None and each > 0]
        if not counts and at_most is not None:
            return at_most
        if not counts:
            raise InvalidInput(f"nothing limits the number of {what}; give a budget of evaluations or of calls")
        count, limit, each, name = min(counts)
        if count < 1:
            raise BudgetTooSmall(
                f"{limit:,} {name} can be spent on this, and one of the {what} costs {each:,}; give at least that"
            )
        return count if at_most is None else min(count, at_most)

    def less(self, spent: Spent) -> Budget:
        """The budget that is left after this cost, at least 0."""
        left = [(self.evaluations, spent.evaluations), (self.calls, spent.distinct)]
        return Budget(*(None if limit is None else max(limit - used, 0) for limit, used in left))

    def share(self, spent: Spent) -> float:
        """The share of the budget that a cost takes, by the limit that is nearer: above 1 if it is exceeded, 0 without
        limits.
        """
        used = [(self.evaluations, spent.evaluations), (self.calls, spent.distinct)]
        return max((_part(part, limit) for limit, part in used if limit is not None), default=0.0)


def _part(used: int, limit: int) -> float:
    return used / limit if limit else math.inf if used else 1.0
