"""The target of a redesign on the any-order clock, in a fixed order: p0(x)^sharpness exp(reward(x)).

Sites are drawn from the base tilted by the pull, and weighed by what the species head then says. The next site needs a
pass of the network about the same state, so that the head costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.target import Constant, Remedies
from ..core.types import LARGEST, InvalidInput, Model, Potential, Score, Target, check_model, number, settle
from ..targets.any_order import RevealClock, SiteChoice, uniform_sites
from ..targets.stage import Stage


@dataclass(frozen=True)
class PulledTarget(RevealClock):
    """pi ~ p0(x)^sharpness exp(reward(x)): a twist weighs states on the way, a guide leads the draws.

    Args:
        model: The open residues given the others.
        reward: Of finished states, in nats.
        twist: What partly masked states are worth, in nats.
        guide: What draws adapt to: a function with `site_values`, the worth of all tokens of a site at once.
        sharpness: Exponent of p0, above 0.
        order: The order in which sites are revealed; with the network it defines p0.
    """

    how: ClassVar[str] = "reveals sites in a fixed order as the pull says, weighs by the species head"
    choose: ClassVar[SiteChoice] = staticmethod(uniform_sites)
    model: Model
    reward: Potential
    twist: Potential
    guide_values: Any
    sharpness: float
    order: tuple[int, ...] | None

    def __post_init__(self) -> None:
        check_model(self.model)
        need = "give an exponent of p0 above 0 (1 is the base itself)"
        settle(self, sharpness=number("sharpness", self.sharpness, need))
        if not 0 < self.sharpness <= LARGEST or not math.isfinite(self.sharpness):
            raise InvalidInput(f"sharpness is {self.sharpness}; {need}")
        if self.order is None:
            raise InvalidInput("a redesign needs an order of its sites, which defines p0; give a tuple of all of them")
        self.check_clock()

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return {"base": self.model.base}

    def stage(self, t: float) -> Stage:
        return Stage(t, self.sharpness, (), (self.reward if t == 0 else self.twist,), (1.0,))

    def guide(self, ends: Stage) -> Stage:
        return ends._replace(potentials=(self.guide_values,))

    @property
    def target(self) -> Target:
        law: dict[str, Any] = {"law": "p0(x)^sharpness exp(reward(x)), p0 in an order", "sharpness": self.sharpness}
        law |= {"reward": self.reward, "base": self.model.base, "order": self.order}
        base = "p0(x)" if self.sharpness == 1 else f"p0(x)^{self.sharpness:g}"
        words = f"{base} exp(reward(x))"
        return Target(law, {"twist": self.twist}, Constant(f"log sum of {words}"), words)

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller alpha, pull or sharpness", "", "", steps="one site a step", twist="the species head")
