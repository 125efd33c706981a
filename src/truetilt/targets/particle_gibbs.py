"""Particle Gibbs: Markov chains on whole trajectories, each step of which is a conditional SMC sweep.

Every sweep leaves the path law of the model invariant, with any number of particles of two or more, so the error of
plain SMC with few particles (a bias of order 1/N in a draw) vanishes with sweeps instead of particles. What is left is
the time error of the grid: the chains reach the law that `flow` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.arguments import LONGEST, shown, whole_number
from ..core.bases import FeynmanKac, check_sampled
from ..core.errors import InvalidInput
from ..core.parameter_names import spelled
from ..core.types import State
from ..diffusion.grids import check_full_grid
from ..runtime.memory import check_room
from ..smc.conditional import Lineage, Rule, Sweep, check_chains, conditional_smc, keep_lineage
from ..smc.paths import Trajectory
from ..smc.sampler import Stream


@dataclass(frozen=True)
class Sweeps:
    """The final state of every chain after each sweep, how much the paths moved, and the paths it ended with.

    Args:
        states: The final state of every chain after each sweep [sweeps, chains, ...].
        movement: Share of chains whose state changed in a sweep, at each time, float64 [sweeps, steps + 1]; the last is
            the final state's.
        last: The paths that the chains ended with: pass them as `reference` to go on.
    """

    states: State  # [sweeps, chains, ...]
    movement: Tensor  # float64 [sweeps, steps + 1]: the share of chains whose state changed, at each time; last: final
    last: Trajectory


@spelled()
@torch.no_grad()
def particle_gibbs(
    fk: FeynmanKac,
    grid: Sequence[float],
    reference: Trajectory | None = None,
    *,
    particles: int = 16,
    chains: int | None = None,
    sweeps: int = 20,
    seed: int = 0,
    threshold: float = 0.5,
    lineage: Lineage = keep_lineage,
    first_chain: int = 0,
    first_sweep: int = 0,
) -> Sweeps:
    """Run independent Markov chains on whole paths: each sweep is one conditional SMC run given the chain's last path.

    To go on, pass `last` as the reference and the sweeps done as `first_sweep`: the same chains, bit for bit. For the
    memory a sweep takes see `conditional_smc`.

    Args:
        fk: What to sample: how particles move, and what each move weighs (`tt.Tilted`, `tt.AnyOrder`, ...).
        grid: Times that fall strictly from 1 (noise) to 0 (data), such as `tt.uniform_grid(100)`.
        reference: The paths that the chains start from, such as `last` of earlier sweeps. None (the default): each
            chain starts from a path of a plain SMC run.
        particles: Particles in each sweep of a chain, the reference among them, 2 or more; 16 by default.
        chains: Chains that never mix, 1 or more. None (the default): as many as the reference has, 64 without one.
        sweeps: Sweeps of every chain, 1 to 1,000,000; 20 by default.
        seed: Seed of the chains, 0 to $2^63 - 1$; 0 by default. The same seed gives the same bits.
        threshold: Resample where the effective sample size is below this fraction of the particles, 0 to 1; 0.5 by
            default.
        lineage: Ancestor of the reference where particles are resampled: `tt.keep_lineage` (the default) or
            `tt.ancestor_sampling`, which mixes faster and evaluates the networks more often.
        first_chain: Number of the first chain, 0 to $2^62$; 0 by default. Chain k is the run with `first_chain=k`
            alone.
        first_sweep: Sweeps done before, 0 to $2^40$; 0 by default. Two sweeps of one number draw the same uniforms.
    """
    check_sampled(fk)
    grid, rule = check_full_grid(grid), Rule(threshold, lineage)
    sweeps, first_sweep = whole_number("sweeps", sweeps, 1, LONGEST), whole_number("first_sweep", first_sweep, 0, 2**40)
    if reference is not None and not isinstance(reference, Trajectory):
        raise InvalidInput(f"reference is {shown(reference)}; give a tt.Trajectory, such as `last` of earlier sweeps")
    if chains is None:
        chains = 64 if reference is None else reference.states.shape[1]
    stream = Stream(seed, first_chain, fk.device)
    shape = check_chains((chains, particles))
    check_room(fk, shape, 2 * len(grid), stream.device)
    path = conditional_smc(fk, grid, None, shape, Sweep(stream, 0), rule) if reference is None else reference
    states, movement = [], []
    for sweep in range(first_sweep + 1, first_sweep + sweeps + 1):
        before, path = path, conditional_smc(fk, grid, path, shape, Sweep(stream, sweep), rule)
        states.append(path.end)
        movement.append((path.states != before.states).flatten(2).any(-1).double().mean(-1))
    return Sweeps(torch.stack(states), torch.stack(movement), path)
