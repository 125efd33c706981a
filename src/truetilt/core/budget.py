"""What a method may spend: network evaluations and calls of the reward."""

from __future__ import annotations

from typing import NamedTuple

from .types import InvalidInput, plain, shown


class Budget(NamedTuple):
    """Network evaluations and reward calls that may be spent, None for any number; a method ends with the first."""

    evaluations: int | None = None
    calls: int | None = None

    def most(self, evaluations: int, calls: int, what: str, at_most: int | None = None) -> int:
        """How many of something can be had that costs so many evaluations and calls each; at least one."""
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
            raise InvalidInput(
                f"a budget of {limit:,} {name}, and one of the {what} costs {each:,}; give at least that"
            )
        return count if at_most is None else min(count, at_most)
