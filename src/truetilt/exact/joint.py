"""Exact joint transitions on a table: p(y|x) over whole states, all sites at once, without time error.

The reference for every clock-time model: with these laws the weighted limit is the target at any number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from ..core.bases import FeynmanKac
from ..core.logits import draw_by_row, take
from ..core.types import NEG_INF, Aux, LogWeights, Particles, Tokens
from .tables import Table, flat_index, noised


@dataclass(frozen=True)
class JointLaw:
    """A law over all states of the space, a row of log-probabilities per particle."""

    log_probs: Tensor  # [R, K]
    row: Tensor  # int64 [..., N]
    states: Tokens  # [K, D]
    size: int

    def sample(self, u: Tensor) -> Tokens:
        return self.states[draw_by_row(self.log_probs.exp().cumsum(-1), self.row, u[..., 0])]

    def log_prob(self, y: Tokens) -> Tensor:
        return self.log_probs[self.row, flat_index(y, self.size)]

    def support(self) -> tuple[Tokens, Tensor]:
        """Every state for every particle [N, K, D], and its log-probability [N, K]."""
        return self.states.expand(len(self.row), *self.states.shape), self.log_probs[self.row]

    def take(self, ancestors: Tensor) -> JointLaw:
        return replace(self, row=take(self.row, ancestors))


@dataclass(frozen=True)
class JointMove:
    """A move whose law is computed when it is built; `ratios` and `end` weigh as in a clock move."""

    lazy: ClassVar[bool] = False  # its laws are computed at construction
    law: JointLaw
    ratios: tuple[tuple[float, JointLaw], ...]
    log_tilt: LogWeights
    end: Callable[[Tokens], LogWeights]
    uniforms: int = 1

    @property
    def log_before(self) -> LogWeights:
        return torch.zeros_like(self.log_tilt)

    @property
    def labels(self) -> Tensor:
        return self.law.row.unsqueeze(-1)

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        log_end = self.end(y)
        start = torch.where(self.log_tilt == NEG_INF, torch.inf, self.log_tilt)
        log_w = sum((c * law.log_prob(y) for c, law in self.ratios), log_end - start)
        return log_w, {"log_tilt": log_end}

    def take(self, ancestors: Tensor) -> JointMove:
        ratios = tuple((c, law.take(ancestors)) for c, law in self.ratios)
        return replace(self, law=self.law.take(ancestors), ratios=ratios, log_tilt=take(self.log_tilt, ancestors))


@dataclass(frozen=True)
class JointTempered(FeynmanKac):
    """`Tempered` with exact joint transitions, proposing from the conditional model."""

    table: Table
    alpha: float

    def start(self, shape: tuple[int, ...], t: float) -> JointMove:
        prior = noised(self.table.process, self.table.p0, t).reshape(1, -1)
        given = self.table.conditional_marginal(t).reshape(1, -1)
        row = torch.zeros(shape, dtype=torch.int64)
        p, p_zeta = self._law(prior.log(), row), self._law(given.log(), row)
        return JointMove(p_zeta, self._ratios(p, p_zeta), torch.zeros(shape, dtype=torch.float64), self._no_tilt)

    def move(self, particles: Particles, t: float, s: float, u: Tensor | None = None) -> JointMove:
        row = flat_index(particles.x, self.table.process.states)
        p = self._law(transitions(self.table, self.table.p0, t, s), row)
        given = self.table.p0 * self.table.likelihood / self.table.evidence
        p_zeta = self._law(transitions(self.table, given, t, s), row)
        return JointMove(p_zeta, self._ratios(p, p_zeta), particles.aux["log_tilt"], self._no_tilt)

    def _ratios(self, p: JointLaw, p_zeta: JointLaw) -> tuple[tuple[float, JointLaw], ...]:
        both = ((1 - self.alpha, p), (self.alpha - 1, p_zeta))
        return tuple((c, law) for c, law in both if c != 0)

    def _law(self, log_probs: Tensor, row: Tensor) -> JointLaw:
        return JointLaw(log_probs, row, self.table.states, self.table.process.states)

    @staticmethod
    def _no_tilt(y: Tokens) -> LogWeights:
        return torch.zeros(y.shape[:-1], dtype=torch.float64)


@dataclass(frozen=True)
class JointTilted(FeynmanKac):
    """`Tilted` with exact joint transitions and any potential whose value at t = 0 is log p(zeta|x)."""

    table: Table
    alpha: float
    potential: Callable[[Tokens, float], Tensor]
    ramp: Callable[[float], float]

    def start(self, shape: tuple[int, ...], t: float) -> JointMove:
        law = JointTempered(self.table, 1.0).start(shape, t).law
        return JointMove(law, (), torch.zeros(shape, dtype=torch.float64), self._tilt(t))

    def move(self, particles: Particles, t: float, s: float, u: Tensor | None = None) -> JointMove:
        law = JointTempered(self.table, 1.0).move(particles, t, s).law
        return JointMove(law, (), particles.aux["log_tilt"], self._tilt(s))

    def _tilt(self, t: float) -> Callable[[Tokens], LogWeights]:
        return partial(self._tilted, t=t, share=(self.alpha - 1) * self.ramp(1 - t))

    def _tilted(self, y: Tokens, t: float, share: float) -> LogWeights:
        return share * self.potential(y, t) if share != 0 else torch.zeros(y.shape[:-1], dtype=torch.float64)


def transitions(table: Table, p0: Tensor, t: float, s: float) -> Tensor:
    """log p(x_s = y | x_t = x) [K, K] = p_s(y) q(x|y) / p_t(x), for x_0 ~ p0."""
    later, earlier = noised(table.process, p0, t).reshape(-1, 1), noised(table.process, p0, s).reshape(1, -1)
    joint = earlier * forward(table, s, t).T
    return torch.where(later > 0, joint / later, 1 / joint.shape[-1]).log()


def forward(table: Table, s: float, t: float) -> Tensor:
    """q(x_t = x | x_s = y) [K, K], rows y: each site independently, by the noise added between s and t."""
    process, size = table.process, table.process.states
    noise = process.schedule(t).value - process.schedule(s).value
    keep = torch.exp(-noise)
    site = torch.eye(size, dtype=torch.float64) * keep
    if size == process.vocabulary:
        site = site + (1 - keep) / size
    else:
        site[:, -1] += 1 - keep
    out = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(table.length):
        out = torch.kron(out, site)
    return out
