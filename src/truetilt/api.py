"""What a user calls: `sample` for a model, `run` for any Feynman-Kac value."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

import torch

from . import __version__
from .core.fingerprints import fingerprint
from .core.parameter_names import spelled
from .core.target import contract_of
from .core.types import (
    FeynmanKac,
    Model,
    Particles,
    Resampler,
    Schedule,
    StepInfo,
    check_model,
    check_sampled,
    path_of,
    whole,
)
from .diffusion.kernels import Kernel
from .diffusion.processes import Masking
from .diffusion.schedules import check_whole, masked_fraction_grid, uniform_grid
from .result import Result
from .runtime.checkpoints import EVERY, Checkpoints, NoCheckpoints, Record
from .runtime.checks import check_model_functions, check_moves, check_observers, check_options
from .runtime.memory import check_room, fitting_chunk
from .runtime.settings import settings_of, versions_of
from .runtime.snapshots import chosen_steps, stacked
from .smc.coupling import Coupling, independent
from .smc.resampling import adaptive, systematic
from .smc.sampler import Begun, Rejuvenation, Source, check_shape, trace
from .smc.shards import WHOLE, Shard
from .smc.stream import Stream, check_seed
from .targets.any_order import AnyOrder
from .targets.base import check_alpha
from .targets.defaults import default_sampler
from .targets.ramps import FULL, Ramp
from .targets.time_grid import Tempered

Callback = Callable[[int, int, StepInfo], None]  # (steps done, steps in all, what happened)
Watch = Callable[[int, Particles, StepInfo], None]  # (steps done, the particles, what happened)


class RunOptions(TypedDict, total=False):
    """The parameters of `run` that `sample` and `reveal` hand on to it."""

    populations: int
    seed: int
    resample: Resampler | None
    couple: Coupling
    moves: Rejuvenation | None
    chunk: int | Literal["auto"] | None
    first_population: int
    snapshots: int | Sequence[int] | None
    callback_on_step_end: Callback | None
    watch: Watch | None
    checkpoint: str | Path | None
    checkpoint_every: int
    shard: Shard


@spelled()
@torch.no_grad()
def run(
    fk: FeynmanKac,
    grid: Sequence[float],
    *,
    particles: int = 64,
    populations: int = 1,
    seed: int = 0,
    resample: Resampler | None = None,
    couple: Coupling = independent,
    moves: Rejuvenation | None = None,
    chunk: int | Literal["auto"] | None = None,
    first_population: int = 0,
    snapshots: int | Sequence[int] | None = None,
    callback_on_step_end: Callback | None = None,
    watch: Watch | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = EVERY,
    shard: Shard = WHOLE,
) -> Result:
    """Run a Feynman-Kac value over a time grid. Population k of a run is the run with `first_population=k` alone.

    `snapshots` keeps the particles on the way: after so many steps, evenly spaced with the first draw and the end among
    them, or after the steps listed.

    `watch` sees the particles after every step, for those who look on; what it raises ends the run.

    `chunk` is how many particles draw at a time, "auto" as many as fit into memory: it changes no bit.

    `checkpoint` names a folder where the run is saved every `checkpoint_every` steps, and on SIGTERM, which ends it
    with `Stopped`. The same call with that folder goes on from there, to the same bits. `shard`: see `distributed`.
    """
    check_sampled(fk)
    check_options(couple, resample, chunk, shard)
    check_observers(callback_on_step_end, watch)
    check_model_functions(fk)
    check_moves(fk, moves, resample)
    grid, resample = check_whole(grid), resample or adaptive(systematic, 0.5)
    populations, particles = check_shape((populations, particles))
    wanted, steps = chosen_steps(snapshots, len(grid) - 1), len(grid) - 1
    first_population = whole("first_population", first_population, 0, 2**62)
    checkpoint_every = whole("checkpoint_every", checkpoint_every, 1)
    sizes = {"seed": check_seed(seed), "particles": particles, "populations": populations}
    sizes |= {"first_population": first_population, "steps": steps}
    settings = settings_of(fk, resample, couple, moves, sizes)
    shard.compare(settings | {"grid": grid, "snapshots": wanted})
    device, here = contract_of(fk).device, (populations, shard.share(particles))
    check_room(fk, here, steps, device)
    chunk = fitting_chunk(fk, here, device) if chunk == "auto" else chunk
    source = Source(Stream(sizes["seed"], first_population, device), couple, chunk, shard=shard)
    settings |= versions_of(device, __version__)
    saved: Checkpoints | NoCheckpoints = NoCheckpoints()
    if checkpoint is not None:
        identity = settings | {"grid": grid, "snapshots": wanted, "device": torch.device(device).type}
        identity["networks"] = fingerprint((fk, resample, couple, moves))
        saved = Checkpoints(path_of("checkpoint", checkpoint), checkpoint_every, identity, shard)
    with saved:
        record = saved.load(Record(keep=wanted), device)
        begin = None if record.step < 0 else Begun(record.step, record.particles)
        for state, info in trace(fk, grid, (populations, particles), resample, source, moves, begin):
            record.add(state, info)
            if watch:
                watch(record.step, state, info)
            if callback_on_step_end:
                callback_on_step_end(record.step, steps, info)
            saved.after_step(record, steps)
    return _result(record, settings, shard)


@spelled(run)
def sample(
    model: Model,
    alpha: float,
    beta: float | Schedule | None = None,
    *,
    particles: int = 64,
    num_inference_steps: int = 100,
    kernel: Kernel | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Weighted samples of p0(x) p(zeta|x)^alpha.

    With a potential the conditional model is tilted (recommended); without one, or when a proposal strength `beta` is
    given, the paper's edge ratios are used. `kernel` takes the steps: by default `tweedie` for masking, else `euler`.
    Tweedie steps reveal by the schedule alone. A lazy vocabulary head then runs only where something is revealed, and
    `beta` guides posteriors; give `euler` for the paper's steps, guided at the level of rates. `options` go to `run`.
    """
    check_model(model)
    alpha = check_alpha(alpha)
    fk = default_sampler(model, alpha, beta, kernel)
    if isinstance(fk, Tempered) and alpha > 2 and not model.process.edges_tolerate_grids:
        warnings.warn(
            f"edge ratios at alpha = {alpha} on this process need far smaller steps than a time grid has, and can be "
            "worse than guidance; give the model a potential log p(zeta|x, t), which tilts instead",
            stacklevel=3,
        )
    grid = uniform_grid(num_inference_steps)
    return run(fk, grid, particles=particles, **options)


@spelled(run)
def reveal(
    model: Model,
    alpha: float,
    beta: float | Schedule | None = None,
    *,
    sites_per_step: int = 1,
    order: Sequence[int] | None = None,
    ramp: Ramp = FULL,
    particles: int = 64,
    **options: Unpack[RunOptions],
) -> Result:
    """Weighted samples of p0(x) p(zeta|x)^alpha on the any-order clock: for masking, and exact at one site a step.

    Several sites a step are drawn as if independent given the rest: that factorisation is the only error of the limit.
    Where single sites say little of the condition, let the exponent grow late (`ramp`; see `pilot`). Weights are ratios
    of the two scores; a potential is not asked, so for learned networks `sample` may aim at a slightly different law.
    `options` go to `run`.
    """
    check_model(model)
    fk = AnyOrder(model, alpha, beta, cast("tuple[int, ...] | None", order), ramp=ramp)
    sites_per_step = whole("sites_per_step", sites_per_step, 1, model.length)
    schedule = cast("Masking", model.process).schedule
    grid = masked_fraction_grid(schedule, math.ceil(model.length / sites_per_step))
    return run(fk, grid, particles=particles, **options)


def _result(record: Record, settings: dict[str, Any], shard: Shard) -> Result:
    """What a finished run gives back, every particle in it."""
    whole, infos = record.whole(shard), record.infos
    return Result(
        whole.particles.x,
        whole.particles.log_w,
        torch.tensor([info.s for info in infos], dtype=torch.float64),
        torch.stack([info.ess for info in infos]),
        torch.stack([info.log_z for info in infos]),
        torch.stack([info.ancestors for info in infos]),
        settings,
        torch.stack([info.moved for info in infos]),
        torch.stack([info.accepted for info in infos]),
        *stacked(whole.kept),
    )
