"""What revealing sites draws and weighs: tokens for chosen masked sites, each from a row of its own.

Rows are of the base's and the conditional's posteriors, and of the adapted law p (p_zeta/p)^alpha made of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.logits import draw_by_row
from ..core.types import (
    NEG_INF,
    Aux,
    InvalidWeights,
    LogWeights,
    Model,
    Questions,
    SiteLogits,
    Sites,
    Tokens,
    check,
    take,
)
from ..diffusion.guidance import interpolate

Answers = tuple[SiteLogits, SiteLogits]  # of the base and of the conditional network


@dataclass(frozen=True)
class RevealLaw:
    """Tokens for chosen sites [..., k] of x, each from its own row of normalised log-probabilities."""

    x: Tokens
    sites: Tensor
    logits: SiteLogits  # over the chosen sites

    def sample(self, u: Tensor) -> Tokens:
        cdf = self.logits.rows.double().exp().cumsum(-1)
        return self.x.scatter(-1, self.sites, draw_by_row(cdf, self.logits.index, u))

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

    lazy: ClassVar[bool] = False  # its networks have been asked
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

    @property
    def log_accept(self) -> LogWeights:
        """As a move: always accepted."""
        return torch.zeros_like(self.log_before)

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        drawn = y.gather(-1, self.law.sites)
        log_p = self.base.pick(drawn)
        gain = (self.conditional.pick(drawn) - log_p).masked_fill_(log_p == NEG_INF, NEG_INF).sum(-1)
        log_w = torch.zeros_like(self.log_ratio) if self.strayed is None else self.strayed.pick(drawn).sum(-1)
        log_ratio = (self.log_ratio + gain).masked_fill_(self.log_ratio == NEG_INF, NEG_INF)
        return log_w, {"log_ratio": log_ratio}

    def take(self, ancestors: Tensor) -> RevealMove:
        return RevealMove(
            self.law.take(ancestors),
            take(self.log_before, ancestors),
            self.base.take(ancestors),
            self.conditional.take(ancestors),
            take(self.log_ratio, ancestors),
            None if self.strayed is None else self.strayed.take(ancestors),
        )


def posteriors(
    model: Model, x: Tokens, t: float, answers: Answers, sites: Tensor, questions: Questions | None = None
) -> Answers:
    """log p(v | x) and log p(v | x, zeta) at chosen sites, over one index; both are looked at for NaN at once."""
    chosen, process = Sites(sites), model.process
    base, conditional = answers[0].at(chosen), answers[1].at(chosen)
    p, p_zeta = process.posterior(base, x, t).aligned(process.posterior(conditional, x, t))
    found = p.per_site(p.rows[:, 0] + p_zeta.rows[:, 0]).isnan()
    check(
        found.any(),
        lambda: _flawed("base", p, t) if _flaws(p).any() else _flawed("conditional", p_zeta, t),
        questions,
    )
    return p, p_zeta


def posterior_at(
    model: Model,
    name: str,
    logits: SiteLogits,
    at: tuple[Tokens, float],
    sites: Tensor,
    questions: Questions | None = None,
) -> SiteLogits:
    """log p(v | x) at chosen sites, with NaN caught where it appears."""
    p = model.process.posterior(logits.at(sites), *at)
    check(_flaws(p).any(), lambda: _flawed(name, p, at[1]), questions)
    return p


def _flaws(p: SiteLogits) -> Tensor:
    """Where a normalised row is NaN, which normalising has spread over it."""
    return p.per_site(p.rows[:, 0]).isnan()


def _flawed(name: str, p: SiteLogits, t: float) -> InvalidWeights:
    bad = _flaws(p).any(-1)
    return InvalidWeights(
        f"t = {t:.6g}: the {name} score returned NaN or only -inf for {int(bad.sum())} of {bad.numel()} particles; "
        "check the network's output there (overflow in half precision?)"
    )


def tilted_rows(p: SiteLogits, p_zeta: SiteLogits, alpha: float) -> tuple[SiteLogits, Tensor]:
    """The adapted law p (p_zeta/p)^alpha, normalised, and the log of its mass at each site."""
    rows = interpolate(p.rows, p_zeta.rows, alpha)
    log_mass = rows.logsumexp(-1, keepdim=True)
    adapted = torch.where(log_mass > NEG_INF, rows - log_mass, p.rows)  # a row without mass draws, and dies
    return p.with_rows(adapted), p.per_site(log_mass.squeeze(-1))
