"""Particle Gibbs over trajectories (Andrieu et al. 2010; for masked diffusion Dang et al. 2025).

A reference path is kept, FK steering is run conditionally on it (conditional SMC), and a path drawn by the final
weights becomes the next reference. Each sweep leaves the target's law of paths invariant, so more sweeps come nearer to
the target with few particles. The number of sweeps needed is not known beforehand, and there is no estimate of Z.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any, NamedTuple

import torch

from ..core.arguments import function, whole_number
from ..core.budget import Budget, BudgetTooSmall
from ..core.evaluation import CountedFunction, RunLog
from ..core.spent import Spent
from ..core.types import LogWeights, Model, Tokens
from ..rewards.calls import Rewarding, check_reward_of
from ..smc.conditional import Rule, Sweep, check_chains, swept
from ..smc.sampler import Stream
from ..twists.lookahead import Lookahead
from .base_draws import WalkMaker, remembering, site_by_site
from .fk_steering import LogPotential, Steering, difference, looks_of
from .record import Baseline

_MOST = 100_000  # sweeps at most: with all states cached and unlimited evaluations nothing else ends them
PARTICLES = 16  # particles of a sweep
_DROPPED = 4  # the first sweeps, one part in this many, are dropped as burn-in


@torch.no_grad()
def trajectory_gibbs(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    budget: Budget,
    particles: int = PARTICLES,
    chains: int = 1,
    completions: int = 4,
    potential: LogPotential = difference,
    every: int = 1,
    sweeps: int | None = None,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """Particle Gibbs with as many sweeps as the budget affords; it has a target, and no log Z.

    All particles of the last three quarters of the sweeps are returned, with equal total weight per sweep: the limit of
    the references alone, with less noise.

    Args:
        model: A `tt.Model` on `tt.Masking`; only its base score is evaluated.
        reward: Function of clean states [B, D] that returns one number a state; -inf forbids.
        strength: Factor of the reward in the target, not 0; 1 by default.
        budget: Evaluations and calls that may be spent, including the plain run that makes the first path.
        particles: Particles of a sweep in each chain, including the reference, 16 by default.
        chains: Independent chains, 1 by default.
        completions: One-shot completions of a state at a look (an intermediate weighing), 4 by default; their
            log-mean-exp is its value.
        potential: `difference` (the default), or another of FK steering's.
        every: Steps between two looks, 1 by default.
        sweeps: Upper bound. None (the default): as many as the budget affords if no call is repeated.
        walk: How states are drawn: `site_by_site` (the default), `in_clock_time`.
        seed: Seed of the run, 0 by default.
    """
    how: dict[str, Any] = {"particles": particles, "chains": chains, "completions": completions, "every": every}
    most = 1 + _planned(model, budget, walk, sweeps, **how)
    return _together(list(islice(_sweeps(model, reward, strength, potential, walk, seed, **how), most)))


@torch.no_grad()
def gibbs_until_spent(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    budget: Budget,
    completions: int = 4,
    every: int = 1,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """One chain, swept until the next sweep exceeds the budget by measured cost; that sweep is discarded.

    If states repeat and the reward has a cache, these are many more sweeps than a plan can promise. The discarded sweep
    has been paid for: use this for comparisons, not for rewards that cost money.
    """
    how: dict[str, Any] = {"particles": PARTICLES, "chains": 1, "completions": completions, "every": every}
    kept: list[_ChainSweep] = []
    for sweep in _sweeps(model, reward, strength, difference, walk, seed, **how):
        if budget.share(sweep.spent) > 1 or len(kept) > _MOST:
            break
        kept.append(sweep)
    if len(kept) < 2:
        _planned(model, budget, walk, None, **how)
        raise BudgetTooSmall("the budget does not pay for a sweep after a first path was made; give twice as much")
    return _together(kept)


class _ChainSweep(NamedTuple):
    """The particles of a sweep, their weights, and what was spent on all sweeps up to it."""

    x: Tokens
    log_w: LogWeights
    spent: Spent


def _planned(
    model: Model, budget: Budget, walk: WalkMaker, sweeps: int | None, particles: int, chains: int, completions: int,
    every: int,
) -> int:  # fmt: skip
    """Number of sweeps that a budget affords after a first path if no call is repeated."""
    way, (chains, particles) = walk(model), check_chains((chains, particles))
    calls = chains * particles * (looks_of(way, whole_number("every", every, 1)) * completions + 1)
    each = chains * particles * way.steps
    left = budget.less(Spent(0, each, calls, calls))
    return left.most(each, calls, "sweeps, after a first path was made,", sweeps)


def _sweeps(
    model: Model, reward: Rewarding, strength: float, potential: LogPotential, walk: WalkMaker, seed: int,
    particles: int, chains: int, completions: int, every: int,
) -> Iterator[_ChainSweep]:  # fmt: skip
    """A first path, then one sweep after another, endlessly."""
    strength, every = check_reward_of(reward, strength), whole_number("every", every, 1)
    function("potential", potential, "(now, last, largest, total)")
    log, shape = RunLog(), check_chains((chains, particles))
    own = remembering(model, log)
    way, counted = walk(own), CountedFunction(reward, log)
    value = Lookahead(own, counted, strength, completions, seed=seed)
    fk = Steering(way.fk, value, counted, strength, potential, way.grid[::every])
    stream, path = Stream(seed, device=model.device), None
    for number in count():
        path, found = swept(fk, way.grid, path, shape, Sweep(stream, number), Rule())
        yield _ChainSweep(found.x.flatten(0, 1), found.log_w.log_softmax(-1).flatten(), log.spent)


def _together(sweeps: list[_ChainSweep]) -> Baseline:
    """The particles of the last three quarters of the sweeps; the first path is not a sweep."""
    size = len(sweeps) - 1
    kept = sweeps[size // _DROPPED + 1 :]
    states, log_w = torch.cat([one.x for one in kept]), torch.cat([one.log_w for one in kept])
    return Baseline(states, log_w, None, sweeps[-1].spent, size)
