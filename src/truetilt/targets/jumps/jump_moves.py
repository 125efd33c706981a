"""The laws and moves of a step in continuous time: one jump or none (`JumpMove`), or a whole path that its choices
determine (`PathMove`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from ...core.logits import kept_below, take
from ...core.types import NEG_INF, Aux, Jumps, LogWeights, SiteOdds, Tokens
from ...diffusion.kernels import SiteLaw
from .rates import edge, site_rates, take_jumps


@dataclass(frozen=True)
class JumpLaw:
    """Stay at x, or jump at one site: in proportion to `stay` and to the rates of the jumps."""

    x: Tokens
    jumps: Jumps
    stay: Tensor  # [...], in the units of the rates

    def sample(self, u: Tensor) -> Tokens:
        """From two uniforms [..., 2]: the first decides whether and at which site to jump, the second the token."""
        height = kept_below(u[..., 0] * self.total, self.total)[..., None]
        site = (self._cdf <= height).sum(-1, keepdim=True).clamp(max=self.x.shape[-1] - 1)
        here, leaves = self.x.gather(-1, site), torch.full_like(height, NEG_INF)
        v = SiteLaw(here, SiteOdds(self.jumps.logits.at(site), leaves, leaves)).sample(u[..., 1:])
        return torch.where(height < self._cdf[..., -1:], self.x.scatter(-1, site, v), self.x)

    def log_prob(self, y: Tokens) -> Tensor:
        changed = (y != self.x).sum(-1)
        jump = torch.where(changed == 1, edge(self.jumps, self.x, y), NEG_INF)
        return torch.where(changed == 0, self.stay.log(), jump) - self.total.log()

    def support(self) -> tuple[Tokens, Tensor]:
        """x itself and all its neighbours, for flat particles [N, D]: y [N, 1 + D S, D] and its log-probability."""
        (n, length), size = self.x.shape, self.jumps.logits.vocabulary
        y = self.x[:, None, None].repeat(1, length, size, 1)
        for d in range(length):
            y[:, d, :, d] = torch.arange(size, device=y.device)
        y = torch.cat([self.x[:, None], y.flatten(1, 2)], 1)
        parent = torch.arange(n, device=y.device).repeat_interleave(y.shape[1])
        log_q = self.take(parent).log_prob(y.flatten(0, 1)).reshape(n, -1)
        again = (y == self.x[:, None]).all(-1)  # the current token's entry is x itself, which counts once, as staying
        again[:, 0] = False
        return y, log_q.masked_fill(again, NEG_INF)

    def take(self, ancestors: Tensor) -> JumpLaw:
        return JumpLaw(take(self.x, ancestors), take_jumps(self.jumps, ancestors), take(self.stay, ancestors))

    @cached_property
    def total(self) -> Tensor:
        return self.stay + self._cdf[..., -1]

    @cached_property
    def _cdf(self) -> Tensor:
        return site_rates(self.jumps).cumsum(-1)


@dataclass(frozen=True)
class JumpMove:
    """A candidate event, the step I + A / bound: drawn from `law`, and weighed by the ratio of that step to `law`.

    Where the law is adapted, its mass is the weight before the draw (`log_before`) and the ratio after it is 1.
    """

    lazy: ClassVar[bool] = False  # its networks have been asked
    law: JumpLaw
    log_before: LogWeights
    log_stay: LogWeights
    tilted: Jumps | None  # None where the law is adapted: the weight after the draw is 1
    uniforms: int = 2

    @property
    def labels(self) -> Tensor:
        return self.law.x

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        if self.tilted is None:
            return torch.zeros_like(self.log_stay), {}
        x = self.law.x
        log_jump = edge(self.tilted, x, y) - edge(self.law.jumps, x, y)
        return torch.where((y == x).all(-1), self.log_stay, log_jump), {}

    def take(self, ancestors: Tensor) -> JumpMove:
        tilted = None if self.tilted is None else take_jumps(self.tilted, ancestors)
        before, stay = take(self.log_before, ancestors), take(self.log_stay, ancestors)
        return JumpMove(self.law.take(ancestors), before, stay, tilted)


@dataclass(frozen=True)
class PointLaw:
    """The law with probability 1 on one state."""

    x: Tokens

    def sample(self, u: Tensor) -> Tokens:
        return self.x

    def log_prob(self, y: Tokens) -> Tensor:
        return torch.where((y == self.x).all(-1), 0.0, NEG_INF).double()

    def support(self) -> tuple[Tokens, Tensor]:
        return self.x[:, None], torch.zeros(len(self.x), 1, dtype=torch.float64, device=self.x.device)

    def take(self, ancestors: Tensor) -> PointLaw:
        return PointLaw(take(self.x, ancestors))


@dataclass(frozen=True)
class PathMove:
    """A path that its choices (uniforms) determine: the law has probability 1 on its end, the weight is that of the
    whole path.
    """

    lazy: ClassVar[bool] = False  # its networks have been asked
    law: PointLaw
    log_before: LogWeights
    log_after: LogWeights
    uniforms: int = 0

    @property
    def labels(self) -> Tensor:
        return self.law.x

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        return self.log_after, {}

    def take(self, ancestors: Tensor) -> PathMove:
        before, after = take(self.log_before, ancestors), take(self.log_after, ancestors)
        return PathMove(self.law.take(ancestors), before, after)
