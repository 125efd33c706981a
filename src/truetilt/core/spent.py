"""What a run, a pilot or a fit has cost: one meaning for each of four counts, and how they add up."""

from __future__ import annotations

from typing import NamedTuple


class Spent(NamedTuple):
    """The cost of a run or a fit, in evaluations of the network and calls of the reward.

    Args:
        rounds: Batched passes of the network; 0 by default.
        evaluations: Sequences evaluated, each pass of each counted; 0 by default.
        calls: States given to the reward; 0 by default.
        distinct: States given to it for the first time, which a cache cannot answer; 0 by default.
    """

    rounds: int = 0
    evaluations: int = 0
    calls: int = 0
    distinct: int = 0

    def plus(self, other: Spent) -> Spent:
        """Both together. Distinct calls add up as if no state was called in both: an upper bound."""
        return Spent(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))
