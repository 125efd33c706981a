"""Guidance: how a proposal leans towards a condition. Pure functions of two log-scores and beta.

Rate-level guidance multiplies rates, R^beta = R g^beta, and so changes how fast sites unmask; posterior-level guidance
mixes the posteriors and leaves the unmasking rate alone. Both keep the zeros of the base.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from .networks import check_logits, evaluating
from .types import NEG_INF, InvalidInput, Potential, Process, Schedule, Score, SiteLogits, Tokens, batch_of


class Guide(Protocol):
    def __call__(
        self, process: Process, base: SiteLogits, conditional: SiteLogits, beta: float, at: tuple[Tokens, float]
    ) -> SiteLogits: ...


def rate_level(
    process: Process, base: SiteLogits, conditional: SiteLogits, beta: float, at: tuple[Tokens, float]
) -> SiteLogits:
    """The paper's guided rate R^beta = R (R^1 / R)^beta (Definition 3.1); at beta = 1 the conditional rate itself."""
    if beta == 1:
        return conditional
    return base.join(conditional, lambda p, p_zeta: interpolate(p, p_zeta, beta))


def posterior_level(
    process: Process, base: SiteLogits, conditional: SiteLogits, beta: float, at: tuple[Tokens, float]
) -> SiteLogits:
    """softmax of (1 - beta) log p(x0|x) + beta log p(x0|x, zeta), at the base's unmasking rate."""
    p, p_zeta = process.posterior(base, *at), process.posterior(conditional, *at)
    return process.score(p.join(p_zeta, lambda p, p_zeta: interpolate(p, p_zeta, beta)).normalised(), *at)


def interpolate(base: Tensor, conditional: Tensor, beta: float) -> Tensor:
    """(1 - beta) base + beta conditional in log space; what the base cannot do stays impossible, and 0^0 = 1."""
    if beta == 0:
        return base
    mixed = torch.add(base, conditional - base, alpha=beta)
    return mixed.masked_fill_(base == NEG_INF, NEG_INF)


@dataclass(frozen=True)
class Guided:
    """A Score that leans: what plain guidance samples from."""

    process: Process
    base: Score
    conditional: Score
    beta: float | Schedule
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        check_strength(self.beta)

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        return self.guide(self.process, self.base(x, t), self.conditional(x, t), strength(self.beta, t), (x, t))


@dataclass(frozen=True)
class PosteriorScore:
    """The Score of a network of posteriors: net(x, t) returns logits of the clean token [B, D, S] of states [B, D].

    A torch module is asked in eval mode.
    """

    process: Process
    net: Callable[[Tokens, float], Tensor]

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        batch = batch_of(x)
        with evaluating(self.net):
            logits = self.net(batch, t)
        if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != batch.shape:
            found = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise InvalidInput(
                f"the network answered {found} to a batch of states {tuple(batch.shape)}; it must be [B, D, S], logits "
                "of the clean token"
            )
        check_logits(logits)
        return self.process.score(SiteLogits.of(logits.log_softmax(-1).reshape(*x.shape, -1)), x, t)


@dataclass(frozen=True)
class Predictor:
    """The conditional Score of a classifier log p_t(zeta|x), by exact ratios over every neighbour of x."""

    process: Process
    base: Score
    log_likelihood: Potential

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        base = self.base(x, t).dense()
        here = self._asked(x, t)[..., None]
        ratio = torch.stack([self._neighbours(x, t, d) for d in range(x.shape[-1])], -2) - here[..., None]
        return SiteLogits.of(base + torch.where((here == NEG_INF)[..., None], 0.0, ratio))

    def _neighbours(self, x: Tokens, t: float, d: int) -> Tensor:
        """log p_t(zeta|y) for y = x with site d set to each token [..., S]."""
        size = self.process.vocabulary
        y = x.unsqueeze(-2).expand(*x.shape[:-1], size, x.shape[-1]).clone()
        y[..., d] = torch.arange(size, device=x.device)
        return self._asked(y, t)

    def _asked(self, y: Tokens, t: float) -> Tensor:
        """log p_t(zeta|y) [...] of states [..., D], asked as one batch."""
        batch = batch_of(y)
        value = torch.as_tensor(self.log_likelihood(batch, t), device=y.device)
        if value.shape != batch.shape[:1]:
            raise InvalidInput(
                f"the classifier returned shape {tuple(value.shape)} for a batch of states {tuple(batch.shape)}; it "
                f"must return one log-probability a state, [{len(batch)}]"
            )
        return value.reshape(y.shape[:-1])


def strength(beta: float | Schedule, t: float) -> float:
    """beta at time t, checked: a schedule may misbehave anywhere."""
    value = float(cast("Schedule", beta)(t)) if callable(beta) else float(beta)
    if not 0 <= value < float("inf"):
        raise InvalidInput(f"beta is {value} at t = {t}; guidance strength must be finite and at least 0")
    return value


def check_strength(beta: float | Schedule) -> None:
    """Fail at construction, at both ends of a schedule."""
    for t in (1.0, 0.0):
        strength(beta, t)
