"""The tempered target on the any-order clock, by ratios of two scores: weight p (p_zeta/p)^alpha at each site.

With exact conditionals the limit is the target itself, in D steps of one site. The weight of a site is known before its
token is drawn (fully adapted), so particles are resampled first and drawn after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..core.target import Remedies, tempered
from ..core.types import InvalidInput, Model, Schedule, Score, SiteLogits, Target, check_model, settle
from ..diffusion.guidance import check_strength, interpolate, strength
from .advice import annealing, growing, listed_ways
from .base import check_alpha
from .reveal_clock import RevealClock, SiteChoice, uniform_sites
from .stage import SiteLaws, Stage
from .tilts import FULL, Ramp, check_ramp


@dataclass(frozen=True)
class AnyOrder(RevealClock):
    """pi ~ p0(x) p(zeta|x)^alpha, revealing sites chosen at random (`choose`), or in a given `order`.

    `beta` is how tokens are proposed: None for the adapted law p (p_zeta/p)^alpha, a number for posterior guidance.
    `ramp` lets the exponent grow from 1 to alpha with elapsed time; it is in full force from the start by default.
    """

    how: ClassVar[str] = "reveals sites in any order, weighs before it draws"
    model: Model
    alpha: float
    beta: float | Schedule | None = None
    order: tuple[int, ...] | None = None
    ramp: Ramp = FULL
    choose: SiteChoice = uniform_sites

    def __post_init__(self) -> None:
        check_model(self.model)
        settle(self, alpha=check_alpha(self.alpha))
        check_ramp(self.ramp)
        if self.beta is not None:
            settle(self, beta=check_strength(self.beta))
        self.check_clock()
        if self.model.conditional is None:
            raise InvalidInput("AnyOrder needs a conditional score; give the model one, or use Composed for a reward")
        if self.alpha == 0 and (self.beta not in (None, 0) or self.ramp is not FULL):
            raise InvalidInput(
                "alpha = 0 targets p0 itself, and a guided proposal or an exponent that starts at 1 loses states that "
                "p0 has; leave beta and ramp out"
            )

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return {"base": self.model.base, "conditional": self.model.conditional}

    @property
    def remedies(self) -> Remedies:
        goal = f"tt.Composed(model, conditions=[(model.conditional, {self.alpha:g})])"
        weigh = listed_ways(growing(self.ramp, "ramp=tt.pilot(fk, fk.grid)"), annealing(goal, self.model.length))
        return Remedies("a smaller alpha", weigh, "moves (tt.Gibbs)", steps="")

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, self.alpha, weights="revealed sites", ramp=self.ramp)

    def exponent(self, t: float) -> float:
        """alpha in force at time t."""
        return 1 + (self.alpha - 1) * self.ramp(1 - t)

    def stage(self, t: float) -> Stage:
        return Stage(t, conditions=(self.exponent(t),))

    def lean(self, laws: SiteLaws, t: float) -> SiteLogits | None:
        """The law of posterior guidance, where a strength is given."""
        if self.beta is None:
            return None
        beta, (conditional,) = strength(self.beta, t), laws.conditions
        return laws.base.with_rows(interpolate(laws.base.rows, conditional.rows, beta).log_softmax(-1))
