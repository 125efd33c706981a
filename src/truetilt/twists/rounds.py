"""A round of learning: draws of the model, led by the twist so far, mutants of them, and their rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.spent import Spent
from ..core.types import Model, Potential, Tokens
from ..rewards.calls import Rewarding, call_reward, scaled
from ..smc.sampler import OUTPUT, Stream
from .lessons import Lessons, Mutants, softened, together
from .recorded_draws import weighed_draws

_PURPOSE = 1 << 20  # random stream of the mutants, apart from those of runs


class Plan(NamedTuple):
    """Checked arguments: draws and mutants per round, number of refits, reveal order and seed."""

    strength: float
    draws: int
    mutants: int  # in each round
    refits: int
    order: tuple[int, ...] | None
    seed: int

    @property
    def calls(self) -> int:
        """Calls of the reward over all rounds."""
        return (1 + self.refits) * (self.draws + self.mutants)


class RoundLaw(NamedTuple):
    """The law p0 exp(twist) / Z that a round drew from: its twist, log Z, and the number of draws."""

    twist: Potential | None
    log_z: float
    draws: int
    device: torch.device | str

    def log_density(self, x: Tokens) -> Tensor:
        """Log of the expected number of its draws at each state [n], relative to p0."""
        value = 0.0 if self.twist is None else self.twist(x.to(self.device), 0.0).double().cpu()
        return torch.full((len(x),), math.log(self.draws) - self.log_z, dtype=torch.float64) + value


def weighed(rounds: Sequence[Lessons], laws: Sequence[RoundLaw]) -> Lessons:
    """All rounds as one sample of their mixture, each draw with its importance weight towards p0 exp(value)."""
    every = together(rounds)
    drawn = torch.stack([law.log_density(every.x) for law in laws]).logsumexp(0)
    return every._replace(log_weight=every.log_weight + every.value - drawn)


def one_round(
    model: Model, reward: Rewarding, plan: Plan, twist: Potential | None, turn: int
) -> tuple[Lessons, Tokens, RoundLaw, Spent]:
    """Draws and mutants with their values, the states evaluated, the law they were drawn from, and the cost."""
    drawn = weighed_draws(model, plan.draws, twist, plan.order, plan.seed, turn)
    x = drawn.x.cpu()
    mutants = _mutants(x, plan, turn, model.process.vocabulary)
    changed = x[mutants.draw].scatter(1, mutants.site[:, None], mutants.token[:, None])
    states = torch.cat([x, changed])
    value = softened(scaled(call_reward(reward, states.to(drawn.x.device)).cpu(), plan.strength))
    mutants = mutants._replace(value=value[len(x) :])
    log_z = float(drawn.log_w.logsumexp(0)) - math.log(len(x))
    own = drawn.log_w - log_z
    latest = torch.ones(len(x), dtype=torch.bool)
    lessons = Lessons(x, value[: len(x)], mutants, drawn.steps, model.process.states - 1, own, latest)
    return lessons, states, RoundLaw(twist, log_z, len(x), drawn.x.device), drawn.spent


def _mutants(x: Tokens, plan: Plan, turn: int, vocabulary: int) -> Mutants:
    """Each draw with one token changed, sites in turn: to another draw's token at that site, or to a random one."""
    n, length = x.shape
    count = plan.mutants
    u = Stream(plan.seed).uniforms(_PURPOSE + turn, OUTPUT, 3, count)
    every = torch.arange(count)
    draw, site = every * n // max(count, 1), (every * _stride(length)) % length
    others = x[(u[0] * n).long().clamp(max=n - 1), site]
    here = x[draw, site]
    another = (here + 1 + (u[2] * (vocabulary - 1)).long().clamp(max=vocabulary - 2)) % vocabulary
    token = torch.where((u[1] < 0.5) & (others != here), others, another)
    return Mutants(draw, site, token, torch.empty(0, dtype=torch.float64))


def _stride(length: int) -> int:
    """A number coprime to `length`, so that its multiples visit every site."""
    return next(k for k in range(int(0.618 * length) + 1, 2 * length + 2) if math.gcd(k, length) == 1)
