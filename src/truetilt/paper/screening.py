"""Importance sampling for an expensive reward: a fitted surrogate screens many cheap draws, and few are called.

A pilot of base draws is called first. If its effective sample is good, more base draws are the right answer. If it is
not, a surrogate of strength * r is fitted to all calls; each draw of a large pool of base draws is called with a known
probability a(x) that grows with the surrogate; and so on until the calls are spent. A state was called with density
p0(x) (n + pool a_1(x) + pool a_2(x) + ...), so exp(strength r) over that bracket is its exact weight, whatever the
surrogates were.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..baselines.base_draws import Walk, base_draws
from ..core.types import Tokens
from ..rewards.reward import Reward

PILOT, STAGE, POOL = 500, 500, 40_000  # base draws called at first, calls of each stage, draws that are screened
GOOD = 0.5  # effective share of the pilot above which no surrogate is fitted
DEPTH = 6.0  # nats below the best, beyond which values are clipped for the surrogate
RIDGE = 3.0
FEW = 25  # calls that are too few for a stage


class Screened(NamedTuple):
    """Weighted states, log Z, the number of base draws, and whether a surrogate screened them."""

    x: Tokens
    log_weights: Tensor
    log_z: float
    draws: int
    guessed: bool


@dataclass(frozen=True)
class Screen:
    """The probability min(1, exp(shift + surrogate)) of calling a state; the surrogate has site and neighbour terms."""

    sites: Tensor  # [D, S]
    pairs: Tensor  # [D - 1, S, S]
    shift: float = 0.0

    def guess(self, x: Tokens) -> Tensor:
        d = torch.arange(x.shape[-1])
        return self.sites[d, x].sum(-1) + self.pairs[d[:-1], x[:, :-1], x[:, 1:]].sum(-1)

    def chance(self, x: Tokens) -> Tensor:
        return (self.guess(x) + self.shift).clamp(max=0.0).exp()


def fitted_screen(x: Tokens, values: Tensor, size: int) -> Screen:
    """Ridge regression of values (in nats) on tokens and neighbouring pairs; values far below the best are clipped."""
    goal = values.clamp(min=float(values.max()) - DEPTH)
    length = x.shape[-1]
    tokens = torch.nn.functional.one_hot(x, size).flatten(1)
    pairs = torch.nn.functional.one_hot(x[:, :-1] * size + x[:, 1:], size**2).flatten(1)
    rows = torch.cat([tokens, pairs], 1).double()
    gram = rows.T @ rows + RIDGE * torch.eye(rows.shape[1], dtype=torch.float64)
    solved = torch.linalg.solve(gram, rows.T @ (goal - goal.mean()))
    return Screen(solved[: length * size].reshape(length, size), solved[length * size :].reshape(-1, size, size))


def levelled(screen: Screen, pool: Tokens, count: int) -> Screen:
    """The screen that passes about `count` states of a pool."""
    guess = screen.guess(pool)
    low, high = -float(guess.max()) - 50.0, -float(guess.min())
    for _ in range(100):
        middle = (low + high) / 2
        over = float((guess + middle).clamp(max=0.0).exp().sum()) > count
        low, high = (low, middle) if over else (middle, high)
    return Screen(screen.sites, screen.pairs, low)


def let_through(chance: Tensor, u: float) -> Tensor:
    """Which states of a row are called, by one uniform: each with its probability, and nearly as many as expected."""
    steps = torch.cat([torch.zeros(1, dtype=torch.float64), chance.cumsum(0)]) + u
    return steps.floor().diff() > 0


def effective_share(log_w: Tensor) -> float:
    """Effective sample size over the number of weights."""
    return math.exp(2 * float(log_w.logsumexp(0)) - float((2 * log_w).logsumexp(0))) / len(log_w)


def within_calls(walk: Walk, distinct: int, count: int, seed: int) -> Tokens:
    """The first base draws, at most `count`, as long as they contain at most `distinct` states."""
    x = base_draws(walk, count, seed)
    _, number = torch.unique(x, dim=0, return_inverse=True)
    place = torch.full((int(number.max()) + 1,), len(x)).scatter_reduce(0, number, torch.arange(len(x)), "amin")
    new = torch.zeros(len(x)).index_fill(0, place, 1.0)  # 1 where a state occurs first
    return x[new.cumsum(0) <= distinct]


def screened_importance(
    walk: Walk, reward: Reward, strength: float, size: int, *, distinct: int, seed: int, good: float = GOOD
) -> Screened:
    """Weighted states from at most `distinct` distinct calls of the reward; see this module."""
    generator = torch.Generator().manual_seed(seed)
    pilot = within_calls(walk, distinct, PILOT, seed)
    log_w = strength * reward(pilot)
    if effective_share(log_w) >= good:
        x = torch.cat([pilot, within_calls(walk, distinct - reward.distinct, 20 * distinct, seed + (1 << 40))])
        log_w = strength * reward(x)
        return Screened(x, log_w, float(log_w.logsumexp(0)) - math.log(len(x)), len(x), False)
    states, screens = [pilot], []
    while distinct - reward.distinct > FEW and len(screens) < 20:
        known, values = reward.known()
        pool = base_draws(walk, POOL, seed + (len(screens) + 2 << 40))
        count = min(STAGE, distinct - reward.distinct - 1)
        screens.append(levelled(fitted_screen(known, strength * values, size), pool, count))
        passed = let_through(screens[-1].chance(pool), float(torch.rand(1, generator=generator)))
        states.append(pool[passed])
        reward(states[-1])
    x = torch.cat(states)
    asked = len(pilot) + POOL * torch.stack([screen.chance(x) for screen in screens]).sum(0)
    log_w = strength * reward(x) - asked.log()
    return Screened(x, log_w, float(log_w.logsumexp(0)), len(pilot) + POOL * len(screens), True)
