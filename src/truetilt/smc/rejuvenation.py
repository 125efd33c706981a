"""Moves between two steps of a run: a Markov kernel with how often it is applied, and what its moves did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ..core.arguments import LONGEST, has, settle, whole
from ..core.target import NO_WEIGHTS, Target, contract_of
from ..core.types import MoveKernel


@dataclass(frozen=True)
class Rejuvenation:
    """A Markov kernel and how often it moves: after each step, more after a step that resampled, more at the end.

    Moves after resampling depend on the weights: the answer stays consistent, but Z-hat is no longer unbiased at few
    particles. Use `each_step` or `at_end` where that matters.
    """

    kernel: MoveKernel
    each_step: int = 0
    after_resampling: int = 0
    at_end: int = 0

    def __post_init__(self) -> None:
        has("kernel", self.kernel, ("move", "choices"), "give moves, such as tt.Gibbs(tt.AnyOrder(model, alpha))")
        whole("the number of choices of the kernel", self.kernel.choices, 0)
        given = {"each_step": self.each_step, "after_resampling": self.after_resampling, "at_end": self.at_end}
        for name, count in given.items():
            settle(self, **{name: whole(f"a number of moves, {name},", count, 0, LONGEST)})

    def differences(self, target: Target | None) -> list[str]:
        """How a run's target and the kernel's differ: in the final law, and where it moves earlier in any."""
        mine, theirs = target or NO_WEIGHTS, contract_of(self.kernel).target or NO_WEIGHTS
        return mine.differences(theirs, on_the_way=self.each_step + self.after_resampling > 0)

    def counts(self, resampled: Tensor, last: bool) -> Tensor:
        """How many moves each population makes now [populations]."""
        return self.each_step + self.after_resampling * resampled.long() + self.at_end * last

    def before(self, number: int) -> int:
        """The number of this step's first move, counted over the whole run, so that a scan goes on where it stopped."""
        return (number - 1) * (self.each_step + self.after_resampling)


class Moved(NamedTuple):
    """What moves did to each population: the share of particles a move changed, and how likely it was accepted."""

    share: Tensor  # [populations]
    accepted: Tensor
