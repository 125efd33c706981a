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

from ..core.arguments import LONGEST, shown, whole
from ..core.errors import InvalidInput
from ..core.parameter_names import spelled
from ..core.target import contract_of
from ..core.types import FeynmanKac, State, check_sampled
from ..diffusion.grids import check_whole
from ..runtime.memory import check_room
from ..smc.conditional import Lineage, Rule, Sweep, check_chains, conditional_smc, keep_lineage
from ..smc.paths import Trajectory
from ..smc.sampler import Stream


@dataclass(frozen=True)
class Sweeps:
    """The final state of every chain after each sweep, how much the paths moved, and the paths it ended with."""

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
    """Run independent chains (64, or as many as the reference has) from a reference, or from a plain SMC run's paths.

    To go on, pass `last` as the reference and the sweeps done as `first_sweep`: the same chains, bit for bit. Chain k
    is the run with `first_chain=k` alone. For the memory a sweep takes see `conditional_smc`.
    """
    check_sampled(fk)
    grid, rule = check_whole(grid), Rule(threshold, lineage)
    sweeps, first_sweep = whole("sweeps", sweeps, 1, LONGEST), whole("first_sweep", first_sweep, 0, 2**40)
    if reference is not None and not isinstance(reference, Trajectory):
        raise InvalidInput(f"reference is {shown(reference)}; give a tt.Trajectory, such as `last` of earlier sweeps")
    if chains is None:
        chains = 64 if reference is None else reference.states.shape[1]
    stream = Stream(seed, first_chain, contract_of(fk).device)
    shape = check_chains((chains, particles))
    check_room(fk, shape, 2 * len(grid), stream.device)
    path = conditional_smc(fk, grid, None, shape, Sweep(stream, 0), rule) if reference is None else reference
    states, movement = [], []
    for sweep in range(first_sweep + 1, first_sweep + sweeps + 1):
        before, path = path, conditional_smc(fk, grid, path, shape, Sweep(stream, sweep), rule)
        states.append(path.end)
        movement.append((path.states != before.states).flatten(2).any(-1).double().mean(-1))
    return Sweeps(torch.stack(states), torch.stack(movement), path)
