"""What revealing sites draws and weighs: tokens for chosen masked sites, each from a row of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.logits import draw_by_row
from ..core.types import NEG_INF, Aux, LogWeights, SiteLogits, Tokens, take


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
