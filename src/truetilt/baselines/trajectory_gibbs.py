"""Particle Gibbs over trajectories (Andrieu et al. 2010; for masked diffusion Dang et al. 2025).

A reference path is kept, FK steering is run beside it (conditional SMC), and a path drawn by the final weights is the
next reference. Each sweep leaves the law of the target's paths as it is, so more sweeps come nearer to the target with
few particles; how many are enough is not known beforehand, and no estimate of Z comes out.
"""

from __future__ import annotations

import torch

from ..core.batch import Meter, MeteredReward
from ..core.budget import Budget
from ..core.spent import Spent
from ..core.types import Model, function, whole
from ..smc.conditional import Rule, check_shape, swept
from ..smc.stream import Stream
from ..twists.calls import Rewarding, check_reward_of
from ..twists.lookahead import Lookahead
from .fk_steering import LogPotential, Steering, difference, looks_of
from .record import Baseline
from .walks import WalkMaker, remembering, site_by_site

_DROPPED = 4  # the first sweeps, one in so many, are not kept: the chains have not come near yet


@torch.no_grad()
def trajectory_gibbs(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    budget: Budget,
    particles: int = 16,
    chains: int = 1,
    completions: int = 4,
    potential: LogPotential = difference,
    every: int = 1,
    sweeps: int | None = None,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """Particle Gibbs with as many sweeps as the budget affords; it has a target, and no log Z.

    All particles of the last three quarters of the sweeps are returned, each sweep's weights summing to the same: less
    noise than the references alone, and the same limit.

    Args:
        model: A `tt.Model` on `tt.Masking`; only its base score is asked.
        reward: Function of clean states [B, D] that returns one number a state; -inf forbids.
        strength: Factor of the reward in the target, not 0; 1 by default.
        budget: Evaluations and calls that may be spent; a plain run that makes the first path is paid from it.
        particles: Particles of a sweep in each chain, the reference among them, 16 by default.
        chains: Independent chains, 1 by default.
        completions: One-shot completions of a state at a look, 4 by default; their log-mean-exp is its value.
        potential: `difference` (the default), or another of FK steering's.
        every: Steps between two looks, 1 by default.
        sweeps: So many at most. None (the default): as many as the budget affords if no call is repeated.
        walk: How states are drawn: `site_by_site` (the default), `in_clock_time`.
        seed: Seed of the run, 0 by default.
    """
    strength, every = check_reward_of(reward, strength), whole("every", every, 1)
    function("potential", potential, "(now, last, largest, total)")
    shape = check_shape((chains, particles))
    meter = Meter()
    own = remembering(model, meter)
    way, counted = walk(own), MeteredReward(reward, meter)
    everyone = shape[0] * shape[1]
    calls = everyone * (looks_of(way, every) * completions + 1)
    first = Spent(0, everyone * way.steps, calls, calls)
    count = budget.less(first).most(everyone * way.steps, calls, "sweeps, after a first path was made,", sweeps)
    value = Lookahead(own, counted, strength, completions, seed=seed)
    fk = Steering(way.fk, value, counted, strength, potential, way.grid[::every])
    stream, path, states, log_w = Stream(seed, device=model.device), None, [], []
    for sweep in range(1 + count):
        path, found = swept(fk, way.grid, path, shape, (stream, sweep), Rule())
        if sweep > count // _DROPPED:
            states.append(found.x.flatten(0, 1))
            log_w.append(found.log_w.log_softmax(-1).flatten())
    return Baseline(torch.cat(states), torch.cat(log_w), None, meter.spent, count)
