"""Small tables with two conditions, a reward and a twist, and the exact target that they compose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import truetilt as tt
from truetilt.exact.flow import Limit
from truetilt.exact.tables import enumerate_states, flat_index

NEG_INF = -torch.inf


@dataclass(frozen=True)
class Rewarded:
    """p0, p(zeta_1|x) and p(zeta_2|x) and a reward as tables of clean states, a twist as a table of masked ones."""

    p0: Tensor
    likelihoods: tuple[Tensor, Tensor]
    rewards: Tensor
    twists: Tensor  # over the states with masks

    @property
    def vocabulary(self) -> int:
        return self.p0.shape[0]

    @property
    def length(self) -> int:
        return self.p0.dim()

    @cached_property
    def process(self) -> tt.Masking:
        return tt.Masking(self.vocabulary)

    @cached_property
    def tables(self) -> tuple[tt.Table, tt.Table]:
        one, two = (tt.Table(self.process, self.p0, likelihood) for likelihood in self.likelihoods)
        return one, two

    @cached_property
    def model(self) -> tt.Model:
        return self.tables[0].model()

    @cached_property
    def other(self) -> Any:
        """The score of the second condition."""
        return self.tables[1].model().conditional

    @cached_property
    def states(self) -> Tensor:
        return enumerate_states(self.vocabulary, self.length)

    @cached_property
    def grid(self) -> tuple[float, ...]:
        return tt.masked_fraction_grid(self.process.schedule, self.length)

    @cached_property
    def reward(self) -> Callable[[Tensor, float], Tensor]:
        def reward(x: Tensor, t: float) -> Tensor:
            assert (x < self.vocabulary).all(), "the reward is asked about a masked state"
            return self.rewards.reshape(-1)[flat_index(x, self.vocabulary)]

        return reward

    @cached_property
    def twist(self) -> Callable[[Tensor, float], Tensor]:
        def twist(x: Tensor, t: float) -> Tensor:
            return self.twists[flat_index(x, self.vocabulary + 1)]

        return twist

    def log_p0(self, x: Tensor) -> Tensor:
        return self.tables[0].p0.log().reshape(-1)[flat_index(x, self.vocabulary)]

    def log_target(self, gamma: float = 1.0, alphas: tuple[float, ...] = (), strength: float = 0.0) -> Tensor:
        """gamma log p0 + sum_k alpha_k log p(zeta_k|x)/p(zeta_k) + strength r(x), unnormalised [S^D]."""
        p0 = self.tables[0].p0
        total = gamma * p0.log()
        for alpha, problem in zip(alphas, self.tables, strict=False):
            total = total if alpha == 0 else total + alpha * (problem.likelihood / problem.evidence).log()
        if strength != 0:
            total = total + torch.where(self.rewards == NEG_INF, NEG_INF, strength * self.rewards)
        return torch.where(p0 > 0, total, NEG_INF).reshape(-1)

    def composed(
        self, gamma: float = 1.0, alphas: tuple[float, ...] = (), strength: float = 0.0, **options: Any
    ) -> tt.Composed:
        """The same target as a value; a strength of 0 has no reward."""
        scores = (self.model.conditional, self.other)
        given: dict[str, Any] = {"conditions": list(zip(scores, alphas, strict=False)), "sharpness": gamma}
        if strength != 0:
            given |= {"reward": self.reward, "strength": strength}
        return tt.Composed(self.model, **given | options)

    def flow(self, fk: Any, grid: tuple[float, ...] | None = None, moves: tt.Rejuvenation | None = None) -> Limit:
        return tt.flow(fk, grid or getattr(fk, "grid", self.grid), self.vocabulary + 1, self.length, moves)

    def gap(self, fk: Any, log_target: Tensor, **options: Any) -> float:
        """The largest error of a mass of the flow, each in units of the total: of the law and of Z at once."""
        limit = self.flow(fk, **options)
        clean = (limit.states < self.vocabulary).all(-1)
        assert (limit.log_mass[~clean] == NEG_INF).all()
        log_z = log_target.logsumexp(0)
        return float(((limit.log_mass[clean] - log_z).exp() - (log_target - log_z).exp()).abs().max())


def rewarded(vocabulary: int = 3, length: int = 3, seed: int = 1) -> Rewarded:
    """All of it at random: every state possible, rewards of standard deviation 1, a twist of 2 that knows nothing."""
    generator = torch.Generator().manual_seed(seed)
    shape = (vocabulary,) * length

    def rand() -> Tensor:
        return 0.05 + 0.9 * torch.rand(shape, generator=generator, dtype=torch.float64)

    p0, one, two = rand(), rand(), rand()
    rewards = torch.randn(shape, generator=generator, dtype=torch.float64)
    twists = 2 * torch.randn((vocabulary + 1) ** length, generator=generator, dtype=torch.float64)
    return Rewarded(p0 / p0.sum(), (one, two), rewards, twists)


def hard(seed: int = 1) -> Rewarded:
    """Zeros in p0, in both likelihoods and forbidden states, not in the same places; some state has all."""
    soft, generator = rewarded(seed=seed), torch.Generator().manual_seed(seed)

    def some() -> Tensor:
        return torch.rand(soft.p0.shape, generator=generator, dtype=torch.float64) < 0.25

    p0 = soft.p0.masked_fill(some(), 0.0)
    likelihoods = soft.likelihoods[0].masked_fill(some(), 0.0), soft.likelihoods[1].masked_fill(some(), 0.0)
    return Rewarded(p0 / p0.sum(), likelihoods, soft.rewards.masked_fill(some(), NEG_INF), soft.twists)
