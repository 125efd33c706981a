"""Draws from the base, scored at the end: best of N, and importance sampling."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.arguments import whole_number
from ..core.binding import bind
from ..core.budget import Budget
from ..core.evaluation import CountedFunction, RunLog
from ..core.spent import Spent
from ..core.types import Model, Tokens
from ..rewards.calls import Rewarding, call_reward, check_reward_of, scaled
from .base_draws import WalkMaker, base_draws, site_by_site
from .record import Baseline


@torch.no_grad()
def best_of_n(
    model: Model,
    reward: Rewarding,
    *,
    budget: Budget,
    particles: int = 64,
    each: int | None = None,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """The best of N base draws for each returned state; N is what the budget affords.

    No target: the law of the best of N is p0(x) N F(r(x))^(N - 1), which no strength of a reward gives. `each` bounds
    N; None (the default): all that the budget affords.
    """
    check_reward_of(reward, 1.0)
    way, particles = walk(model), whole_number("particles", particles, 1)
    each = budget.most(particles * way.steps, particles, f"draws for each of {particles} particles", each)
    x, values, spent = _called(model, reward, walk, particles * each, seed)
    best = values.reshape(particles, each).argmax(-1)
    kept = x.reshape(particles, each, -1)[torch.arange(particles, device=x.device), best]
    return Baseline(kept, None, None, spent, each)


@torch.no_grad()
def importance(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    budget: Budget,
    draws: int | None = None,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """Importance sampling: as many base draws as the budget affords, weighed by exp(strength r).

    E[exp(log_z)] is Z at any number of draws. The number needed grows as the exponential of the divergence of the
    target from p0. `draws` bounds it; None (the default): all that the budget affords.
    """
    strength = check_reward_of(reward, strength)
    count = budget.most(walk(model).steps, 1, "draws", draws)
    x, values, spent = _called(model, reward, walk, count, seed)
    log_w = scaled(values, strength)
    return Baseline(x, log_w, float(log_w.logsumexp(0)) - math.log(count), spent, count)


def _called(model: Model, reward: Rewarding, walk: WalkMaker, count: int, seed: int) -> tuple[Tokens, Tensor, Spent]:
    """Base draws, their rewards, and the cost of both."""
    log = RunLog()
    x = base_draws(walk(bind(model, log)), count, seed)
    values = call_reward(CountedFunction(reward, log), x)
    return x, values, log.spent
