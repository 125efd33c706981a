"""The target of a redesign on the any-order clock, in a fixed order: p0(x)^sharpness exp(strength * reward(x)).

Sites are drawn from the base tilted by the pull, and weighed by the species head. The next site needs a network pass on
the same state anyway, so the head costs no extra pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.target import Constant, Remedies, Target
from ..core.types import Tokens
from ..targets.composed import Composed
from ..targets.stage import Stage


@dataclass(frozen=True)
class PulledTarget(Composed):
    """pi ~ p0(x)^sharpness exp(strength * reward(x)): a twist weighs intermediate states, a guide tilts the draws.

    Args:
        guide_values: A function with `site_values` (the values of all tokens of a site at once), by which draws are
            tilted. All others as in `tt.Composed`; the order is part of the definition of p0 and must be given.
    """

    how: ClassVar[str] = "reveals sites in a fixed order as the pull says, weighs by the species head"
    guide_values: Any = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order is None:
            raise InvalidInput("a redesign needs an order of its sites, which defines p0; give a tuple of all of them")

    def guide(self, ends: Stage) -> Stage:
        return ends._replace(potentials=(self.guide_values,))

    def reward_of(self, x: Tokens) -> Tensor:
        """What finished states [B, D] are worth, in nats; 0 without a reward."""
        if self.reward is None:
            return torch.zeros(len(x), dtype=torch.float64, device=x.device)
        return self.strength * self.reward(x, 0.0)

    @property
    def target(self) -> Target:
        told = super().target
        final = {**told.final, "order": self.order}
        return Target(final, told.way, Constant(f"log sum of {told.formula}"), told.formula)

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller alpha, pull or sharpness", "", "", steps="one site a step", twist="the species head")
