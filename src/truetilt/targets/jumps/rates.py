"""The generator of the tempered target in continuous time, and the rates that propose jumps.

The weighted law obeys the generator A, in elapsed time: R g^alpha off the diagonal, -R(x) + alpha (R(x) - R1(x)) on it.
The proposal Q decides which paths are drawn and cancels in the weights. Rates are per unit of the process's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ...core.arguments import set_fields
from ...core.bases import FeynmanKac
from ...core.errors import InvalidInput, InvalidWeights
from ...core.evaluation import evaluate_all
from ...core.logits import take
from ...core.target import Remedies, Target, tempered
from ...core.types import NEG_INF, Jumps, Model, Schedule, Tokens, check_model
from ...diffusion.guidance import Guide, NoisyState, check_guide, check_strength, guided, rate_level, strength
from ..potentials import check_alpha, check_conditional


class Rates(NamedTuple):
    """Rates out of each state, per unit of the clock."""

    proposed: Jumps  # Q
    tilted: Jumps  # R g^alpha
    leave: Tensor  # [...], Q(x)
    exit: Tensor  # [...], R(x) - alpha (R(x) - R1(x)): minus the generator's diagonal


@dataclass(frozen=True)
class Generator:
    """The generator of the weighted law (alpha), and the rates by which particles jump (beta; None for R g^alpha
    itself).
    """

    model: Model
    alpha: float
    beta: float | Schedule | None
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        check_model(self.model)
        set_fields(self, alpha=check_alpha(self.alpha))
        if self.beta is not None:
            set_fields(self, beta=check_strength(self.beta))
        check_guide(self.guide)
        check_conditional("a sampler of jumps", self.model)
        if self.alpha == 0 and self.beta not in (0, None):
            raise InvalidInput(
                f"alpha = 0 targets p0 itself, and beta = {self.beta} can lose states p0 has; use beta = 0"
            )

    def __call__(self, x: Tokens, t: float, s: float) -> Rates:
        """The rates out of x with the networks read at t; s only sets the clock of the interval."""
        process, at = self.model.process, NoisyState(x, t)
        base, conditional = evaluate_all(self.model, x, t, base=self.model.base, conditional=self.model.conditional)
        r = _sum("base", process.jumps(base, x, t, s), t)
        r1 = _sum("conditional", process.jumps(conditional, x, t, s), t)
        tilted = process.jumps(rate_level(process, base, conditional, self.alpha, at), x, t, s)
        proposed = tilted
        if self.beta is not None:
            leaning = guided(self.guide, process, base, conditional, strength(self.beta, t), at)
            proposed = process.jumps(leaning, x, t, s)
        return Rates(proposed, tilted, site_rates(proposed).sum(-1), r - self.alpha * (r - r1))


def site_rates(jumps: Jumps) -> Tensor:
    """The rate at which each site jumps [..., D]."""
    return torch.where(jumps.movable, jumps.log_total.exp(), 0.0).double()


def edge(jumps: Jumps, x: Tokens, y: Tokens) -> Tensor:
    """log of the rate x -> y for y that differs from x at one site [...]; -inf where there is no such jump."""
    site = (x != y).long().argmax(-1, keepdim=True)
    v = y.gather(-1, site)
    possible = (v != x.gather(-1, site)) & (v < jumps.logits.vocabulary) & jumps.movable.gather(-1, site)
    log_rate = jumps.log_reference.gather(-1, site) + jumps.logits.at(site).pick(torch.where(possible, v, 0))
    return torch.where(possible, log_rate, NEG_INF).double().squeeze(-1)


def _sum(name: str, jumps: Jumps, t: float) -> Tensor:
    """The exit rate of a score [...], with NaN caught where it appears."""
    bad = jumps.movable & (jumps.log_total.isnan() | (jumps.log_total == NEG_INF))
    if bad.any():
        raise InvalidWeights(
            f"t = {t:.6g}: the {name} score returned NaN or only -inf for {int(bad.any(-1).sum())} of "
            f"{bad[..., 0].numel()} particles; check the network's output there (overflow in half precision?)"
        )
    return site_rates(jumps).sum(-1)


def take_jumps(jumps: Jumps, ancestors: Tensor) -> Jumps:
    """The rates out of the ancestors' states."""
    return Jumps(
        jumps.logits.take(ancestors),
        take(jumps.movable, ancestors),
        take(jumps.log_reference, ancestors),
        take(jumps.log_total, ancestors),
        jumps.log_clock,
    )


@dataclass(frozen=True)
class JumpTarget(FeynmanKac):
    """Base of the samplers with jumps at exact times, all of the tempered target by edge ratios: device, target and
    remedies.
    """

    how: ClassVar[str] = "jumps at exact times, weighs every jump"
    model: Model
    alpha: float

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller alpha", "a potential (tt.Tilted) instead of edge ratios")

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, self.alpha, weights="edge ratios")
