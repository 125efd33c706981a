"""The law and the weight of revealing sites: tokens for chosen masked sites, each from a row of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..core.evaluation import Questions
from ..core.logits import SiteLogits, draw_by_row, take
from ..core.types import NEG_INF, Aux, LogWeights, Particles, Tokens
from .stage import SiteLaws, Stage, less


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
    """Draw tokens for chosen sites of states that have none there.

    The weight before the draw is the mass of the adapted law. After the draw come the ratio of the adapted to the
    proposed law and the values of the next stage that the adapted law did not hold. The memory (aux) follows the draw.
    """

    lazy: ClassVar[bool] = False  # its networks have been asked
    law: RevealLaw
    log_before: LogWeights
    laws: SiteLaws  # of the sites
    aux: Aux  # of the states without the sites: log_p, log_ratios, values
    ends: Stage  # what the weights mean afterwards
    log_held: Tensor | None = None  # [...], what the weight holds of the values of the states without the sites
    lift: Tensor | None = None  # [..., k, S], what values add to the log of each token's probability
    known: Tensor | None = None  # [..., 1, S, M], values with each token, where all have been asked about
    strayed: SiteLogits | None = None  # log of adapted over proposed; None when they are the same
    questions: Questions | None = None  # of the step, where its checks wait for the device

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
        log_w = torch.zeros_like(self.log_before) if self.strayed is None else self.strayed.pick(drawn).sum(-1)
        values = self._values(y, drawn)
        if self.log_held is not None and any(self.ends.factors):
            log_w = log_w + less(self.ends.total(values), self._held(self.log_held, drawn))
        return log_w, self.laws.grown(self.aux, drawn) | {"values": values}

    def _held(self, log_held: Tensor, drawn: Tensor) -> Tensor:
        """The part of the drawn states' values that the weight before the draw and the law have counted already."""
        if self.lift is None:
            return log_held
        return log_held + self.lift.gather(-1, drawn[..., None]).squeeze(-1).sum(-1)

    def _values(self, y: Tokens, drawn: Tensor) -> Tensor:
        """The values of the states drawn, as far as they count at the end."""
        if self.known is not None:
            index = drawn[..., None, None].expand(*drawn.shape, 1, self.known.shape[-1])
            return self.known.gather(-2, index)[..., 0, 0, :]
        return self.ends.values(y, self.questions) if any(self.ends.factors) else self.aux["values"]

    def take(self, ancestors: Tensor) -> RevealMove:
        def own(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else take(tensor, ancestors)

        return RevealMove(
            self.law.take(ancestors),
            take(self.log_before, ancestors),
            self.laws.take(ancestors),
            {key: take(value, ancestors) for key, value in self.aux.items()},
            self.ends,
            own(self.log_held),
            own(self.lift),
            own(self.known),
            None if self.strayed is None else self.strayed.take(ancestors),
            self.questions,
        )


def token_lift(
    guide: Stage, particles: Particles, laws: SiteLaws, sites: Tensor, fewest: int | None
) -> tuple[Tensor | None, Tensor | None]:
    """What a stage's values add to the log-probability of each token at masked sites [..., k, S], and those values.

    At least one factor of the stage must differ from 0. The values are computed for the base's `fewest` likeliest
    tokens only (None: all that it can draw); the others add 0. Without sites both results are None.
    """
    if sites.shape[-1] == 0:
        return None, None
    asked = laws.possible()
    if fewest is not None:
        likely = torch.zeros_like(laws.base.rows, dtype=torch.bool)
        likely = likely.scatter(-1, laws.base.rows.topk(fewest, -1).indices, value=True)
        asked &= likely[laws.base.index]
    asked &= (particles.x.gather(-1, sites) >= laws.base.vocabulary)[..., None]
    values = cast("Tensor", guide.token_values(particles.x, sites, asked, particles.questions))
    here = guide.total(particles.aux["values"])[..., None, None]
    return torch.where(asked, less(guide.total(values), here), 0.0), values


def log_strayed(adapted: Tensor, drawn: Tensor) -> Tensor:
    """log of the adapted over the proposed law, where anything is proposed."""
    return torch.where(drawn > NEG_INF, adapted - drawn, NEG_INF)
