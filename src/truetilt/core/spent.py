"""What a run, a pilot or a fit has cost: one meaning for each of four counts, and how they add up."""

from __future__ import annotations

from typing import NamedTuple


class Spent(NamedTuple):
    """What was asked: rounds and evaluations of the network, calls of the reward, and how many of those were distinct.

    A round is one batched pass of the network, an evaluation one sequence in one pass. A call is one state given to the
    reward, a distinct call one whose state had not been given before: what a cache cannot answer.
    """

    rounds: int = 0
    evaluations: int = 0
    calls: int = 0
    distinct: int = 0

    def plus(self, other: Spent) -> Spent:
        """Both together. Distinct calls add up as if no state was called in both: an upper bound."""
        return Spent(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))
