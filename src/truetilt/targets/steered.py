"""A reward over a time grid: the base model is weighed by it, and proposals lean towards a twist if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, cast

import torch

from ..core.arguments import function, set_fields
from ..core.errors import InvalidInput
from ..core.evaluation import evaluate_all, value_of
from ..core.logits import SiteLogits
from ..core.target import Remedies, Target, steered
from ..core.types import NEG_INF, Potential, Score, Tokens
from ..diffusion.kernels import tweedie
from ..diffusion.processes import Masking
from .advice import listed_ways, named_twist
from .on_clock import FINER, FULL, LINEAR, Growing, OnClockSites, Proposal, Ramp, Tilt, advise_pilot, at_end, check_ramp
from .potentials import EndsIn, as_potential, check_fits, check_reward, most_reward, token_values


@dataclass(frozen=True)
class Steered(OnClockSites):
    """$pi ~ p0(x) exp(strength * reward(x))$ in clock time: the base model weighed by a reward, led there by a twist.

    With reward $log p(zeta|x)$ and strength alpha this is the tempered target in potential form. On a masking process
    `tt.Composed` reaches the same target without time error.

    Args:
        model: A `tt.Model`; only its base score is used.
        reward: Function of a batch of states [B, D], or of it and a time, that returns one number a state [B]. Its
            value at $t = 0$ defines the target; -inf there is a hard constraint.
        strength: Factor of the reward, finite, -1e9 to 1e9; 1 by default.
        ramp: How the value's share grows with elapsed time, a function from [0, 1] that ends at 1. None (the default):
            full force throughout with a twist, linear without one; `tt.at_end` for a reward that makes sense on clean
            states only and has no twist.
        proposal: Score to draw steps from in place of the base, corrected by $p/q$. None (the default): with a twist
            the base led by it, else the base.
        twist: Function (x, t) of noised states, what they are worth in units of the reward. None (the default): the
            reward itself, which must then understand noised states.
        kernel: How a step is taken: `tt.euler` (the default), `tt.tweedie` or `tt.tau_leaping`.
    """

    how: ClassVar[str] = "moves by the base model, weighs by a reward whose share grows"
    reward: Potential
    strength: float = 1.0
    ramp: Ramp | None = None
    proposal: Score | None = None
    twist: Potential | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, reward=as_potential("the reward", self.reward))
        set_fields(self, strength=check_reward(self.reward, self.strength))
        if self.twist is not None:
            set_fields(self, twist=as_potential("the twist", self.twist))
        for potential in (self.reward, self.twist):
            check_fits(potential, self.model.length, self.model.process.vocabulary)
        set_fields(self, ramp=(LINEAR if self.twist is None else FULL) if self.ramp is None else self.ramp)
        if self.proposal is not None:
            function("proposal", self.proposal, "(x, t)")
        check_ramp(cast("Ramp", self.ramp))
        led = self.proposal is not None or self.twist is not None
        if led and self.kernel is tweedie and not self.model.process.bridge_keeps_support:
            raise InvalidInput(
                "tweedie steps of another score than the base's lose states of the base on this process; use "
                "kernel=tt.euler or tt.tau_leaping with a proposal or a twist"
            )

    @property
    def most_log_weight(self) -> float | None:
        return most_reward(self.reward, self.strength, self.model.potential)

    @property
    def remedies(self) -> Remedies:
        masking, blind = isinstance(self.model.process, Masking), self.ramp is at_end
        grown = "" if blind or self.twist is not None else advise_pilot(self.ramp, "ramp=tt.pilot(fk, grid)")
        if self.twist is not None:
            weigh = "tt.Composed with the same twist" if masking else "a better twist"
        elif masking:
            learned = "a twist (tt.learn_twist) on the any-order clock (tt.Composed(model, reward=, twist=))"
            weigh = listed_ways(grown, learned)
        else:
            weigh = listed_ways(grown, "a twist of noised states (twist=)")
        steps = "" if blind else FINER
        return Remedies("a smaller strength", weigh, self._moves("tt.Gibbs"), steps, named_twist(self.twist))

    @property
    def target(self) -> Target:
        return steered(self.model, self.reward, self.strength, weights="reward", ramp=self.ramp, twist=self.twist)

    @cached_property
    def tilt(self) -> Tilt:
        potential = self.reward if self.twist is None else EndsIn(self.twist, self.reward)
        return Tilt(potential, Growing(self.strength, cast("Ramp", self.ramp)))

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return {"base": self.model.base}

    def propose(self, x: Tokens, t: float, s: float) -> Proposal:
        if self.proposal is not None:
            base, proposal = evaluate_all(self.model, x, t, base=self.model.base, proposal=self.proposal)
        else:
            (base,) = evaluate_all(self.model, x, t, base=self.model.base)
            if self.twist is None:
                return Proposal(self.law("base", base, x, t, s))
            proposal = led_by(self.twist, base, x, s or t, float(self.tilt.exponent(s)))
        p, q = self.laws(x, t, s, base=base, proposal=proposal)
        return Proposal(q, ((1.0, p), (-1.0, q)))


def led_by(twist: Potential, base: SiteLogits, x: Tokens, t: float, factor: float) -> SiteLogits:
    """A score guided by a twist: factor times the change of the twist's value is added at every neighbour."""
    rows = base.dense()
    asked = rows > NEG_INF
    values = token_values(twist, x, torch.arange(x.shape[-1], device=x.device).expand(x.shape), t, asked)
    here = value_of(twist, x, t)[..., None, None]
    lean = torch.where(asked & values.isfinite() & here.isfinite(), factor * (values - here), 0.0)
    return SiteLogits.of(rows + lean)
