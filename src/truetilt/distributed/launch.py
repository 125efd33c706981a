"""Runs over several ranks, started by `torchrun`. Every rank calls the same function and gets the same result.

Results do not depend on the number of ranks: uniforms are keyed by global population and particle numbers, so 1, 2 and
4 ranks give the same bits (networks are evaluated in padded batches of one size). In a single process it is a plain
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Unpack

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from ..api import PopulationOptions, StepOptions, run
from ..core.arguments import whole_number
from ..core.bases import FeynmanKac
from ..core.errors import DegenerateWeights, InvalidInput
from ..core.model_diagnostics import as_numbers, from_numbers, worst
from ..result import Result
from ..smc.sampler import WHOLE, Whole
from ..smc.shards import Shard, SharedSettings
from .ranks import Ranks, compare, gathered
from .world import World, world


def particle_shard(particles: int) -> Shard:
    """This rank's share of each population, for `run(..., shard=)`, `sample` and `reveal`."""
    here, particles = world(), whole_number("particles", particles, 1)
    return WHOLE if here.size == 1 else Ranks(here, particles)


@record
def run_sharded(
    fk: FeynmanKac, grid: Sequence[float] | None = None, *, particles: int = 64, **options: Unpack[PopulationOptions]
) -> Result:
    """`tt.run` with the particles of each population sharded over all ranks: for populations too large for one machine.

    Ranks synchronise twice a step, to gather weights; particles are sent when resampling assigns them to another rank.
    Draws cannot be coupled.

    Args:
        fk: What to sample, as in `tt.run`.
        grid: Times that fall strictly from 1 (noise) to 0 (data). None (the default): the grid that the value has of
            its own.
        particles: Particles in each population, on all ranks together; 64 by default.
        **options: Further parameters of `tt.run`, the same on every rank: `populations`, `seed`, `resample`,
            `checkpoint`, ...
    """
    return run(fk, grid, particles=particles, shard=particle_shard(particles), **options)


@record
def run_populations(
    fk: FeynmanKac,
    grid: Sequence[float] | None = None,
    *,
    particles: int = 64,
    populations: int = 1,
    first_population: int = 0,
    checkpoint: str | Path | None = None,
    **options: Unpack[StepOptions],
) -> Result:
    """`tt.run` with whole populations on each rank; ranks synchronise only at the start and at the end.

    Args:
        fk: What to sample, as in `tt.run`.
        grid: Times that fall strictly from 1 (noise) to 0 (data). None (the default): the grid that the value has of
            its own.
        particles: Particles in each population, 1 or more; 64 by default.
        populations: Populations on all ranks together, at least one for each rank; 1 by default.
        first_population: Number of the first population, 0 to $2^62$; 0 by default.
        checkpoint: Folder where the run is saved; each rank has a folder of its own in it. None (the default) saves
            nothing.
        **options: Further parameters of `tt.run`, the same on every rank: `seed`, `resample`, `moves`, `snapshots`, ...
    """
    here = world()
    if here.size == 1:
        return run(
            fk, grid, particles=particles, populations=populations, first_population=first_population,
            checkpoint=checkpoint, **options,
        )  # fmt: skip
    populations = whole_number("populations", populations, 1)
    compare(here, {"populations": populations, "first_population": first_population})
    if populations < here.size:
        raise InvalidInput(
            f"{populations} populations over {here.size} ranks; give each at least one, or start fewer ranks"
        )
    cuts = here.cuts(populations)
    begin, end = cuts[here.rank], cuts[here.rank + 1]
    share = run(
        fk,
        grid,
        particles=particles,
        populations=end - begin,
        first_population=first_population + begin,
        checkpoint=None if checkpoint is None else _own_folder(Path(checkpoint), here, populations),
        shard=Whole(complete=False, meet=partial(_compare_shared, here)),
        **options,
    )
    return _united(share, here, cuts)


def _compare_shared(here: World, settings: SharedSettings) -> None:
    """Compare settings between ranks, except for the populations, of which each rank has its own."""
    compare(here, {name: value for name, value in settings.items() if name not in ("populations", "first_population")})


def _own_folder(folder: Path, here: World, populations: int) -> Path:
    """This rank's checkpoint folder.

    Refused if another number of ranks wrote there, because populations would be divided differently.
    """
    names = [f"rank-{rank}-of-{here.size}" for rank in range(here.size)]
    strange = sorted(path.name for path in folder.glob("rank-*-of-*") if path.name not in names)
    if strange:
        raise InvalidInput(
            f"{folder} holds {strange[0]}, and {here.size} ranks share out {populations} populations; start as many "
            "ranks as before, or choose another folder"
        )
    return folder / names[here.rank]


def _united(own: Result, here: World, cuts: Sequence[int]) -> Result:
    """The populations of all ranks in order, as a single process would have returned them."""

    def join(name: str, axis: int) -> torch.Tensor:
        tensor = getattr(own, name)
        return gathered(here, tensor, axis, cuts) if tensor.numel() else tensor  # no snapshots: nothing to gather

    ends = {name: join(name, 0) for name in ("particles", "log_weights")}
    steps = ("ess", "log_z_path", "ancestors", "moved", "accepted", "snapshot_particles", "snapshot_log_weights")
    whole = {"populations": cuts[-1], "first_population": own.settings["first_population"] - cuts[here.rank]}
    numbers = gathered(here, as_numbers(own.settings["measured"])[None], 0, range(here.size + 1))
    each = [from_numbers(one) for one in numbers]  # every rank measured its own populations
    whole["measured"] = worst(each).as_settings()
    result = replace(own, **ends, **{name: join(name, 1) for name in steps}, settings=own.settings | whole)
    if result.log_z == -torch.inf:
        raise DegenerateWeights(
            "every particle of every population on every rank has weight zero; use more particles or a smaller alpha"
        )
    return result
