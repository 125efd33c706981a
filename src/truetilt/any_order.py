"""The any-order clock: every particle reveals the same number of masked sites a step, and no clock time is involved.

Ratios telescope, so there is no time error: with exact conditionals the limit is the target itself, in D steps of one
site. The weight of a site is known before its token is drawn (fully adapted), so particles are resampled first and
drawn after. How many sites a step reveals is what the grid says: `masked_fraction_grid` with D steps reveals one each.
Several at once are drawn as if independent: that factorisation is the only error left, and it has no other name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from .feynman_kac import FULL, Ramp, check_alpha, check_ramp, evaluate
from .guidance import check_strength, interpolate, strength
from .laws import invert_cdf
from .processes import Masking
from .types import NEG_INF, Aux, InvalidInput, LogWeights, Model, Particles, Schedule, SiteLogits, Tokens, take


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


@dataclass(frozen=True)
class AnyOrder:
    """pi ~ p0(x) p(zeta|x)^alpha, revealing uniformly chosen sites, or sites in a given order.

    `beta` is how tokens are proposed: None for the adapted law p (p_zeta/p)^alpha, a number for posterior guidance.
    `ramp` lets the exponent grow from 1 to alpha with elapsed time; it is in full force from the start by default.
    """

    model: Model
    alpha: float
    beta: float | Schedule | None = None
    order: tuple[int, ...] | None = None
    ramp: Ramp = FULL

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
        return self._reveal(particles, self._sites(particles.x, t, s, u), (t, s))

    def branches(self, particles: Particles, t: float, s: float) -> list[tuple[Tensor, RevealMove]]:
        """Every set of sites a step may reveal, with its probability, for particles [N, D]."""
        count, length = self._count(t, s), self.model.length
        if self.order is not None or count == 0:
            sites = self._sites(particles.x, t, s, particles.log_w[..., None])
            return [(torch.zeros_like(particles.log_w), self._reveal(particles, sites, (t, s)))]
        masked = particles.x == self.model.process.states - 1
        subsets = torch.combinations(torch.arange(length, device=masked.device), count)
        out = []
        for subset in subsets:
            allowed = masked[:, subset].all(-1)
            log_ways = math.log(math.comb(self._masked(t), count))
            log_p = torch.zeros_like(particles.log_w).masked_fill(~allowed, NEG_INF) - log_ways
            out.append((log_p, self._reveal(particles, subset.expand(len(masked), count), (t, s))))
        return out

    def exponent(self, t: float) -> float:
        """alpha in force at time t."""
        return 1 + (self.alpha - 1) * self.ramp(1 - t)

    def _reveal(self, particles: Particles, sites: Tensor, interval: tuple[float, float]) -> RevealMove:
        (t, s), x, log_ratio = interval, particles.x, particles.aux["log_ratio"]
        p, p_zeta = posteriors(self.model, x, t, sites)
        adapted, log_mass = tilted_rows(p, p_zeta, self.exponent(s))
        log_before = log_mass.sum(-1)
        change = self.exponent(s) - self.exponent(t)
        if change != 0:
            log_before = log_before + change * log_ratio
        if self.beta is None:
            return RevealMove(RevealLaw(x, sites, adapted), log_before, p, p_zeta, log_ratio, None)
        guided = interpolate(p.rows, p_zeta.rows, strength(self.beta, t)).log_softmax(-1)
        strayed = torch.where(guided > NEG_INF, adapted.rows - guided, NEG_INF)
        return RevealMove(
            RevealLaw(x, sites, p.with_rows(guided)), log_before, p, p_zeta, log_ratio, p.with_rows(strayed)
        )

    def _sites(self, x: Tokens, t: float, s: float, u: Tensor) -> Tensor:
        """The sites to reveal now, int64 [..., count]."""
        count, length = self._count(t, s), self.model.length
        if self.order is not None or count == 0:
            first = length - self._masked(t)
            now = torch.tensor((self.order or ())[first : first + count], dtype=torch.int64, device=x.device)
            return now.expand(*x.shape[:-1], count)
        masked = x == self.model.process.states - 1
        if count == 1:  # the k-th masked site
            left = masked.sum(-1, keepdim=True)
            k = (u * left).long().clamp(max=left - 1)
            return (masked.cumsum(-1) > k).long().argmax(-1, keepdim=True)
        return torch.where(masked, u, 2.0).topk(count, largest=False).indices

    def _masked(self, t: float) -> int:
        return cast("Masking", self.model.process).count_masked(self.model.length, t)

    def _count(self, t: float, s: float) -> int:
        return self._masked(t) - self._masked(s)


def posteriors(model: Model, x: Tokens, t: float, sites: Tensor) -> tuple[SiteLogits, SiteLogits]:
    """log p(v | x) and log p(v | x, zeta) at chosen sites, over one index."""
    both = [("base", model.base), ("conditional", model.conditional)]
    found = [evaluate(model, name, score, x, t).at(sites) for name, score in both]
    p, p_zeta = (model.process.posterior(logits, x, t) for logits in found)
    p, p_zeta = p.aligned(p_zeta)
    return p, p_zeta


def tilted_rows(p: SiteLogits, p_zeta: SiteLogits, alpha: float) -> tuple[SiteLogits, Tensor]:
    """The adapted law p (p_zeta/p)^alpha, normalised, and the log of its mass at each site."""
    rows = interpolate(p.rows, p_zeta.rows, alpha)
    log_mass = rows.logsumexp(-1, keepdim=True)
    adapted = torch.where(log_mass > NEG_INF, rows - log_mass, p.rows)  # a row without mass draws, and dies
    return p.with_rows(adapted), p.per_site(log_mass.squeeze(-1))
