"""The any-order clock: every particle reveals the same number of masked sites a step, and no clock time is involved.

Ratios telescope, so there is no time error: with exact conditionals the limit is the target itself, in D steps of one
site. The weight of a site is known before its token is drawn (fully adapted), so particles are resampled first and
drawn after. How many sites a step reveals is what the grid says: `masked_fraction_grid` with D steps reveals one each.
Several at once are drawn as if independent: that factorisation is the only error left, and it has no other name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from .feynman_kac import FULL, Ramp, check_alpha, check_ramp, evaluate
from .guidance import check_strength, interpolate, strength
from .laws import invert_cdf
from .processes import Masking
from .types import NEG_INF, Aux, InvalidInput, LogWeights, Model, Particles, Schedule, SiteLogits, Tokens, take

Answers = tuple[SiteLogits, SiteLogits]  # of the base and of the conditional network


@dataclass(frozen=True)
class RevealLaw:
    """Tokens for chosen sites [..., k] of x, each from its own row of normalised log-probabilities."""

    x: Tokens
    sites: Tensor
    logits: SiteLogits  # over the chosen sites

    def sample(self, u: Tensor) -> Tokens:
        size = self.logits.vocabulary
        cdf = self.logits.rows.double().exp().cumsum(-1)
        start = self.logits.index * size
        total = cdf[:, -1][self.logits.index]
        height = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
        return self.x.scatter(-1, self.sites, invert_cdf(cdf.reshape(-1), start, size, height))

    def log_prob(self, y: Tokens) -> Tensor:
        drawn = y.gather(-1, self.sites)
        kept = (y == self.x.scatter(-1, self.sites, drawn)).all(-1)
        inside = drawn < self.logits.vocabulary
        log_q = torch.where(inside, self.logits.pick(torch.where(inside, drawn, 0)), NEG_INF).sum(-1)
        return torch.where(kept, log_q, NEG_INF)

    def support(self) -> tuple[Tokens, Tensor]:
        """Every way to fill the sites, for flat particles [N, D]: y [N, S^k, D] and its log-probability."""
        n, k = self.sites.shape
        size = self.logits.vocabulary
        fill = torch.cartesian_prod(*[torch.arange(size, device=self.x.device)] * k).reshape(-1, k) if k else None
        if fill is None:
            return self.x[:, None], torch.zeros(n, 1, dtype=torch.float64, device=self.x.device)
        wide = self.sites[:, None].expand(n, len(fill), k)
        y = self.x[:, None].expand(n, len(fill), -1).scatter(-1, wide, fill.expand(n, -1, -1))
        log_q = SiteLogits(self.logits.rows, self.logits.index[:, None]).pick(fill.expand(n, -1, -1)).sum(-1)
        return y, log_q

    def take(self, ancestors: Tensor) -> RevealLaw:
        return RevealLaw(take(self.x, ancestors), take(self.sites, ancestors), self.logits.take(ancestors))


@dataclass(frozen=True)
class RevealMove:
    """Reveal chosen sites: the adapted mass is weighed before the draw, what the proposal strays from it after."""

    law: RevealLaw
    log_before: LogWeights
    base: SiteLogits  # log p(v | x) at the sites
    conditional: SiteLogits  # log p(v | x, zeta) there
    log_ratio: LogWeights  # log p(zeta|x) / p(zeta) so far
    strayed: SiteLogits | None  # log of adapted over proposed; None when they are the same

    @property
    def uniforms(self) -> int:
        return self.law.sites.shape[-1]

    @property
    def labels(self) -> Tensor:
        return torch.cat([self.law.x, self.law.sites], -1)

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        drawn = y.gather(-1, self.law.sites)
        gain = self.conditional.pick(drawn) - self.base.pick(drawn)
        gain = torch.where(self.base.pick(drawn) == NEG_INF, NEG_INF, gain).sum(-1)
        dead = self.log_ratio == NEG_INF
        log_w = torch.zeros_like(self.log_ratio) if self.strayed is None else self.strayed.pick(drawn).sum(-1)
        return log_w, {"log_ratio": torch.where(dead, NEG_INF, self.log_ratio + gain)}

    def take(self, ancestors: Tensor) -> RevealMove:
        return RevealMove(
            self.law.take(ancestors),
            take(self.log_before, ancestors),
            self.base.take(ancestors),
            self.conditional.take(ancestors),
            take(self.log_ratio, ancestors),
            None if self.strayed is None else self.strayed.take(ancestors),
        )


class SiteChoice(Protocol):
    """Log-probabilities of revealing each site [..., D], from who is masked and (if asked) their adapted log-masses."""

    def __call__(self, masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor: ...


def uniform_sites(masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor:
    """Any masked site alike; no network is asked."""
    return torch.where(masked, -masked.sum(-1, keepdim=True).double().log(), NEG_INF)


def adapted_sites(masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor:
    """In proportion to its adapted mass, so that the weight does not depend on the site; reads every masked site."""
    return torch.where(masked, log_mass(), NEG_INF).log_softmax(-1)


@dataclass(frozen=True)
class AnyOrder:
    """pi ~ p0(x) p(zeta|x)^alpha, revealing sites chosen at random (`choose`), or in a given `order`.

    `beta` is how tokens are proposed: None for the adapted law p (p_zeta/p)^alpha, a number for posterior guidance.
    `ramp` lets the exponent grow from 1 to alpha with elapsed time; it is in full force from the start by default.
    """

    model: Model
    alpha: float
    beta: float | Schedule | None = None
    order: tuple[int, ...] | None = None
    ramp: Ramp = FULL
    choose: SiteChoice = uniform_sites

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_ramp(self.ramp)
        if self.beta is not None:
            check_strength(self.beta)
        if not isinstance(self.model.process, Masking):
            raise InvalidInput(
                f"the any-order clock reveals masked sites, and {type(self.model.process).__name__} has no mask; "
                "use Tilted there"
            )
        if self.model.conditional is None:
            raise InvalidInput("AnyOrder needs a conditional score; give the model one")
        if self.order is not None and sorted(self.order) != list(range(self.model.length)):
            raise InvalidInput(f"order is {self.order}; it must name each of the {self.model.length} sites once")

    def start(self, shape: tuple[int, ...], t: float) -> RevealMove:
        """Nothing is revealed yet, and nothing is known of zeta."""
        device, process = self.model.device, self.model.process
        x = torch.full((*shape, self.model.length), process.states - 1, device=device)
        sites = torch.zeros((*shape, 0), dtype=torch.int64, device=device)
        none = SiteLogits(torch.zeros(1, process.vocabulary, dtype=torch.float64, device=device), sites)
        zeros = torch.zeros(shape, dtype=torch.float64, device=device)
        return RevealMove(RevealLaw(x, sites, none), zeros, none, none, zeros, None)

    def choices(self, t: float, s: float) -> int:
        """One uniform picks a site; several sites need one each for all."""
        count = self._count(t, s)
        return 0 if self.order is not None or count == 0 else 1 if count == 1 else self.model.length

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> RevealMove:
        answers = answer(self.model, particles.x, t)
        sites, log_odds = self._sites(answers, particles.x, (t, s), u)
        return self._reveal(particles, answers, sites, (t, s), log_odds)

    def branches(self, particles: Particles, t: float, s: float) -> list[tuple[Tensor, RevealMove]]:
        """Every set of sites a step may reveal, with its probability, for particles [N, D]."""
        count, x, answers = self._count(t, s), particles.x, answer(self.model, particles.x, t)
        none = torch.zeros_like(particles.log_w)
        if self.order is not None or count == 0:
            sites, log_odds = self._sites(answers, x, (t, s), none[..., None])
            return [(none, self._reveal(particles, answers, sites, (t, s), log_odds))]
        masked = x == self.model.process.states - 1
        log_choice = self._log_choice(answers, masked, (t, s)) if count == 1 else None
        log_ways = math.log(math.comb(self._masked(t), count))
        out = []
        for subset in torch.combinations(torch.arange(self.model.length, device=x.device), count):
            log_p = none.masked_fill(~masked[:, subset].all(-1), NEG_INF) - log_ways
            log_chosen = log_p if log_choice is None else log_choice[:, int(subset[0])]
            log_odds = torch.where(log_chosen > NEG_INF, log_p - log_chosen, 0.0)
            sites = subset.expand(len(x), count)
            out.append((log_chosen, self._reveal(particles, answers, sites, (t, s), log_odds)))
        return out

    def exponent(self, t: float) -> float:
        """alpha in force at time t."""
        return 1 + (self.alpha - 1) * self.ramp(1 - t)

    def _reveal(
        self, particles: Particles, answers: Answers, sites: Tensor, interval: tuple[float, float], log_odds: Tensor
    ) -> RevealMove:
        """Reveal these sites; `log_odds` is what choosing them counts for (uniform over chosen)."""
        (t, s), x, log_ratio = interval, particles.x, particles.aux["log_ratio"]
        p, p_zeta = posteriors(self.model, x, t, answers, sites)
        adapted, log_mass = tilted_rows(p, p_zeta, self.exponent(s))
        log_before = log_mass.sum(-1) + log_odds
        change = self.exponent(s) - self.exponent(t)
        if change != 0:
            log_before = log_before + change * log_ratio
        if self.beta is None:
            return RevealMove(RevealLaw(x, sites, adapted), log_before, p, p_zeta, log_ratio, None)
        guided = interpolate(p.rows, p_zeta.rows, strength(self.beta, t)).log_softmax(-1)
        strayed = torch.where(guided > NEG_INF, adapted.rows - guided, NEG_INF)
        law = RevealLaw(x, sites, p.with_rows(guided))
        return RevealMove(law, log_before, p, p_zeta, log_ratio, p.with_rows(strayed))

    def _sites(self, answers: Answers, x: Tokens, interval: tuple[float, float], u: Tensor) -> tuple[Tensor, Tensor]:
        """The sites to reveal now, int64 [..., count], and log of uniform over chosen probability."""
        count, length, none = self._count(*interval), self.model.length, torch.zeros(x.shape[:-1], dtype=torch.float64)
        if self.order is not None or count == 0:
            first = length - self._masked(interval[0])
            now = torch.tensor((self.order or ())[first : first + count], dtype=torch.int64, device=x.device)
            return now.expand(*x.shape[:-1], count), none.to(x.device)
        masked = x == self.model.process.states - 1
        if count > 1:
            return torch.where(masked, u, 2.0).topk(count, largest=False).indices, none.to(x.device)
        log_choice = self._log_choice(answers, masked, interval)
        cdf = log_choice.exp().cumsum(-1)
        height = torch.minimum(u * cdf[..., -1:], torch.nextafter(cdf[..., -1:], torch.zeros_like(u)))
        site = (cdf > height).long().argmax(-1, keepdim=True)
        return site, -log_choice.gather(-1, site).squeeze(-1) - math.log(self._masked(interval[0]))

    def _log_choice(self, answers: Answers, masked: Tensor, interval: tuple[float, float]) -> Tensor:
        def log_mass() -> Tensor:
            p, p_zeta = (self.model.process.posterior(logits, masked, interval[0]) for logits in answers)
            return tilted_rows(*p.aligned(p_zeta), self.exponent(interval[1]))[1]

        return self.choose(masked, log_mass)

    def _masked(self, t: float) -> int:
        return cast("Masking", self.model.process).count_masked(self.model.length, t)

    def _count(self, t: float, s: float) -> int:
        return self._masked(t) - self._masked(s)


def answer(model: Model, x: Tokens, t: float) -> Answers:
    """What the base and the conditional network say of x: one round of evaluation."""
    return evaluate(model, "base", model.base, x, t), evaluate(model, "conditional", model.conditional, x, t)


def posteriors(model: Model, x: Tokens, t: float, answers: Answers, sites: Tensor) -> Answers:
    """log p(v | x) and log p(v | x, zeta) at chosen sites, over one index."""
    p, p_zeta = (model.process.posterior(logits.at(sites), x, t) for logits in answers)
    p, p_zeta = p.aligned(p_zeta)
    return p, p_zeta


def tilted_rows(p: SiteLogits, p_zeta: SiteLogits, alpha: float) -> tuple[SiteLogits, Tensor]:
    """The adapted law p (p_zeta/p)^alpha, normalised, and the log of its mass at each site."""
    rows = interpolate(p.rows, p_zeta.rows, alpha)
    log_mass = rows.logsumexp(-1, keepdim=True)
    adapted = torch.where(log_mass > NEG_INF, rows - log_mass, p.rows)  # a row without mass draws, and dies
    return p.with_rows(adapted), p.per_site(log_mass.squeeze(-1))
