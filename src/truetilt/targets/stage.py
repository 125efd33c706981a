"""Intermediate targets over the revealed sites U of a state, as products of powers.

    p(x_U)^gamma  prod_k (p(zeta_k|x_U) / p(zeta_k))^alpha_k  exp(sum_m f_m h_m(x_U))

A stage holds the exponents gamma and alpha_k, and the values h_m (twists, potentials, rewards) with their factors f_m.
A stage is all that revealing or redrawing a site needs: the law of the site's tokens under it is exact, and the weight
of going from one stage to the next is a difference of its parts. At the end all sites are revealed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from ..core.bases import FeynmanKac
from ..core.errors import InvalidInput, InvalidWeights
from ..core.evaluation import RunLog, check, evaluate_all, value_of
from ..core.logits import SiteLogits
from ..core.types import NEG_INF, Aux, Model, Particles, Potential, Score, Tokens
from ..diffusion.processes import Masking
from .potentials import token_values

Answers = tuple[SiteLogits, ...]  # of the base and of every conditional network


class Stage(NamedTuple):
    """An intermediate target: exponents of the base and of the conditions, and what states are worth.

    Args:
        t: The time at which potentials are asked.
        sharpness: Exponent gamma of the base; 1 by default.
        conditions: Exponents $alpha_k$, one for each score of `SiteTarget.scores` after the base; none by default.
        potentials: Functions $h_m$ (x, t) that return log-values [B] of states [B, D]; None for one that counts for
            nothing.
        factors: What each potential is multiplied by, $f_m$, as many as potentials.
        floor: Values below it count as this much; -inf by default.
    """

    t: float
    sharpness: float = 1.0
    conditions: tuple[float, ...] = ()
    potentials: tuple[Potential | None, ...] = (None,)
    factors: tuple[float, ...] = (0.0,)
    floor: float = NEG_INF

    def values(self, x: Tokens, log: RunLog | None = None) -> Tensor:
        """Every potential of states [..., D], float64 [..., M]; one that counts for nothing is not asked, and is 0."""
        none = torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
        each = zip(self.potentials, self.factors, strict=True)
        return torch.stack([none if h is None or f == 0 else value_of(h, x, self.t, log) for h, f in each], -1)

    def token_values(self, x: Tokens, sites: Tensor, asked: Tensor, log: RunLog | None = None) -> Tensor | None:
        """The potentials with each token at each of the sites [..., k, S, M], where `asked`; None if none counts."""
        if all(f == 0 for f in self.factors) or sites.shape[-1] == 0:
            return None
        none = torch.zeros(asked.shape, dtype=torch.float64, device=x.device)
        each = zip(self.potentials, self.factors, strict=True)
        ask = partial(token_values, x=x, sites=sites, t=self.t, asked=asked, log=log)
        return torch.stack([none if h is None or f == 0 else ask(h) for h, f in each], -1)

    def total(self, values: Tensor) -> Tensor:
        """$sum_m f_m h_m$ of values [..., M]; a value of -inf is impossible at any factor but 0."""
        total = torch.zeros(values.shape[:-1], dtype=torch.float64, device=values.device)
        for value, factor in zip(values.unbind(-1), self.factors, strict=False):
            value = value if self.floor == NEG_INF else value.clamp(min=self.floor)
            total = total if factor == 0 else total + torch.where(value == NEG_INF, NEG_INF, factor * value)
        return total

    def grown(self, before: Stage, aux: Aux, log: RunLog | None = None) -> Tensor:
        """What this stage adds to the log-weight of a state that comes from an earlier one and stays as it is."""
        total = torch.zeros_like(aux["log_p"])
        if any(self.factors) or any(before.factors):
            total = minus(self.total(aux["values"]), before.total(aux["values"]))
        ratios = aux["log_ratios"].unbind(-1)
        for alpha, ratio in zip(self.conditions, ratios, strict=True):
            if alpha < 0:
                check((ratio == NEG_INF).any(), _lost_support, log)
        conditions = zip(self.conditions, before.conditions, ratios, strict=True)
        parts = [(self.sharpness - before.sharpness, aux["log_p"]), *((b - a, ratio) for b, a, ratio in conditions)]
        for change, log_part in parts:
            total = total if change == 0 else total + torch.where(log_part == NEG_INF, NEG_INF, change * log_part)
        return total


def minus(value: Tensor, other: Tensor) -> Tensor:
    """value - other, and -inf where other is -inf: an impossible state stays impossible."""
    return torch.where(other == NEG_INF, NEG_INF, value - torch.where(other == NEG_INF, 0.0, other))


class SiteLaws(NamedTuple):
    """log p(v | x) at chosen sites, and log p(v | x, zeta_k) under each condition, over one index."""

    base: SiteLogits
    conditions: tuple[SiteLogits, ...]

    @staticmethod
    def of(fk: SiteTarget, t: float, answers: Answers, sites: Tensor, log: RunLog | None = None) -> SiteLaws:
        """The posteriors of every score at chosen masked sites [..., k]; one check looks for NaN in all of them."""
        laws = cast("Masking", fk.model.process).posteriors(sites, answers)
        total = laws[0].rows[:, 0]
        for law in laws[1:]:
            total = total + law.rows[:, 0]
        check(laws[0].per_site(total).isnan().any(), partial(_flawed, fk, laws, t), log)
        return SiteLaws(laws[0], tuple(laws[1:]))

    def mixed(self, stage: Stage, log: RunLog | None = None) -> SiteLogits:
        """gamma log p + sum_k alpha_k log (p_k / p), unnormalised; what the base cannot draw stays impossible."""
        p, gamma = self.base.rows, stage.sharpness
        rows = p if gamma == 1 else gamma * p
        for alpha, given in zip(stage.conditions, self.conditions, strict=True):
            rows = rows if alpha == 0 else torch.add(rows, given.rows - p, alpha=alpha)
        rows = rows if rows is p else rows.masked_fill(p == NEG_INF, NEG_INF)
        if min(stage.conditions, default=0.0) < 0:  # NaN: forbidden by one, and infinite by another
            check((~(rows < math.inf)).any(), _lost_support, log)
        return self.base.with_rows(rows)

    def tilted(self, stage: Stage, lift: Tensor | None = None, log: RunLog | None = None) -> tuple[SiteLogits, Tensor]:
        """The law of each site's token under a stage, and the log of its mass; without mass, the base's law.

        `lift` [..., k, S] is what the stage's values add to the log of each token's probability.
        """
        rows, base = self.mixed(stage, log), self.base
        if lift is not None:
            rows, base = SiteLogits.of(rows.dense() + lift), SiteLogits.of(base.dense())
        log_mass = rows.rows.logsumexp(-1, keepdim=True)
        law = torch.where(log_mass > NEG_INF, rows.rows - log_mass, base.rows)
        return rows.with_rows(law), rows.per_site(log_mass.squeeze(-1))

    def possible(self) -> Tensor:
        """Which tokens the base can draw at each site [..., k, S]."""
        return (self.base.rows > NEG_INF)[self.base.index]

    def parts(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """log p [...] and log p_k / p [..., K] of tokens at the sites, each summed over them."""
        p = self.base.pick(tokens)
        ratios = p.new_zeros(*tokens.shape[:-1], len(self.conditions))
        for k, law in enumerate(self.conditions):
            ratios[..., k] = (law.pick(tokens) - p).masked_fill_(p == NEG_INF, NEG_INF).sum(-1)
        return p.sum(-1), ratios

    def grown(self, aux: Aux, tokens: Tensor) -> Aux:
        """The memory (aux) of states after these tokens are drawn at the sites, without the values."""
        log_p, log_ratios = self.parts(tokens)
        ratios = (aux["log_ratios"] + log_ratios).masked_fill_(aux["log_ratios"] == NEG_INF, NEG_INF)
        return {"log_p": aux["log_p"] + log_p, "log_ratios": ratios}

    def take(self, ancestors: Tensor) -> SiteLaws:
        return SiteLaws(self.base.take(ancestors), tuple(given.take(ancestors) for given in self.conditions))


def nothing_known(x: Tokens, conditions: int, potentials: int = 1) -> Aux:
    """The memory (aux) of states in which nothing is revealed, or whose memory no later step reads: zeros."""
    zeros = torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
    return {
        "log_p": zeros,
        "log_ratios": zeros.new_zeros(*zeros.shape, conditions),
        "values": zeros.new_zeros(*zeros.shape, potentials),
    }


class SiteTarget(FeynmanKac):
    """A value whose target is known site by site at every time: what moves that redraw sites are made from."""

    level: ClassVar[bool] = False  # whether at every time all particles have equally many sites revealed

    if TYPE_CHECKING:

        @property
        def model(self) -> Model: ...

    @property
    @abstractmethod
    def scores(self) -> Mapping[str, Score | None]:
        """The scores that it asks, by name; first the one that plays the base."""

    @abstractmethod
    def stage(self, t: float) -> Stage:
        """The intermediate target at time t."""

    @property
    def revealer(self) -> SiteTarget:
        """The value that reveals the sites: itself, unless it anneals what another one reveals."""
        return self

    @property
    def order(self) -> tuple[int, ...] | None:
        """The order in which sites are revealed; None for any order."""
        return None

    def masked(self, t: float) -> int:
        """How many sites are masked at time t, where that is the same for all particles."""
        return cast("Masking", self.model.process).count_masked(self.model.length, t)

    def asked_at(self, t: float, hidden: int) -> float:
        """The time to pass to a network for a state with `hidden` more masks than one at t; never that of no mask."""
        masked, length = self.masked(t) if self.level else 0, self.model.length
        if masked + hidden > length:
            raise InvalidInput(
                f"{masked} of {length} sites are masked at t = {t:g}, and {hidden} more cannot be; a move on the way "
                "leaves particles alone where too few sites are revealed"
            )
        time = cast("Masking", self.model.process).time_masked(length, masked + hidden)
        return time if self.level else max(t, time)

    def recall(self, particles: Particles, t: float) -> Aux:
        """log_p, log_ratios and values of the particles, as far as later steps of this model need them."""
        return nothing_known(particles.x, len(self.scores) - 1)

    def values(self, particles: Particles, t: float) -> Tensor:
        """The values of the particles under the stage of time t [..., M]."""
        return self.stage(t).values(particles.x, self.log)

    def keep(self, aux: Aux, stage: Stage) -> Aux:
        """The recalled memory in the form in which this model's particles store it (aux)."""
        return aux

    def answers(self, x: Tokens, t: float) -> Answers:
        """The scores at x: one round of evaluation."""
        return tuple(evaluate_all(self.model, x, t, **self.scores))

    def site_laws(self, x: Tokens, t: float, sites: Tensor, log: RunLog | None = None) -> SiteLaws:
        """The laws of chosen sites [..., k] of states that have no token there."""
        return SiteLaws.of(self, t, self.answers(x, t), sites, log)


def _lost_support() -> InvalidInput:
    return InvalidInput(
        "a condition with a negative exponent rules out a token that the base allows, which would count infinitely; "
        "give it a conditional score that keeps the base's support, or an exponent of at least 0"
    )


def _flawed(fk: SiteTarget, laws: Sequence[SiteLogits], t: float) -> InvalidWeights:
    """The error that names the first score with a NaN; normalising has spread it over its row."""
    flaws = [law.per_site(law.rows[:, 0]).isnan().any(-1) for law in laws]
    name, bad = next((name, bad) for name, bad in zip(fk.scores, flaws, strict=False) if bad.any())
    return InvalidWeights(
        f"t = {t:.6g}: the {name} score returned NaN or only -inf for {int(bad.sum())} of {bad.numel()} particles; "
        "check the network's output there (overflow in half precision?)"
    )
