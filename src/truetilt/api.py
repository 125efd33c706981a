"""What a user calls: `sample` for a model, `run` for any Feynman-Kac value."""

from __future__ import annotations

import math
import platform
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch

from . import __version__
from .core.eval_mode import hidden_in_training
from .core.fingerprints import fingerprint
from .core.parameter_names import spelled
from .core.target import NO_WEIGHTS, UNKNOWN
from .core.types import (
    FeynmanKac,
    InvalidInput,
    Model,
    Particles,
    Resampler,
    Schedule,
    StepInfo,
    check_model,
    check_sampled,
    function,
    has,
    path_of,
    whole,
)
from .diffusion.kernels import Kernel
from .diffusion.processes import Masking
from .diffusion.schedules import check_whole, masked_fraction_grid, uniform_grid
from .result import Result
from .runtime.checkpoints import EVERY, Checkpoints, Record
from .runtime.memory import check_room, fitting_chunk
from .runtime.snapshots import chosen_steps, stacked
from .smc.coupling import Coupling, independent
from .smc.resampling import adaptive, described, name_of, never, systematic
from .smc.sampler import Rejuvenation, Source, check_shape, onward, trace
from .smc.shards import WHOLE, Shard
from .smc.stream import Stream, check_seed
from .targets.any_order import AnyOrder
from .targets.base import check_alpha
from .targets.defaults import default_sampler
from .targets.ramps import FULL, Ramp
from .targets.time_grid import Tempered

Callback = Callable[[int, int, StepInfo], None]  # (steps done, steps in all, what happened)
Watch = Callable[[int, Particles, StepInfo], None]  # (steps done, the particles, what happened)


@spelled(lambda: run)
def sample(
    model: Model,
    alpha: float,
    beta: float | Schedule | None = None,
    *,
    particles: int = 64,
    populations: int = 1,
    num_inference_steps: int = 100,
    seed: int = 0,
    kernel: Kernel | None = None,
    **options: Any,
) -> Result:
    """Weighted samples of p0(x) p(zeta|x)^alpha: the first function to call.

    With a potential the conditional model is tilted (recommended); without one, or when a proposal strength `beta` is
    given, the paper's edge ratios are used.

    Args:
        model: What to sample: a `tt.Model` with a base score, a conditional score and, best, a potential.
        alpha: Exponent of the condition, 0 to 1e9. 0 is the model itself, 1 the model given zeta; more leans further.
        beta: Strength of the guided proposal, a number or a function of time, for edge ratios. None (the default) tilts
            where the model has a potential, and proposes with strength 1 where it has none.
        particles: Particles in each population, 1 or more; 64 by default.
        populations: Populations that never mix, 1 or more; 1 by default, 16 for error bars.
        num_inference_steps: Equal time steps from noise to data, 1 to 999,999; 100 by default.
        seed: Seed of the run, 0 to 2^63 - 1; 0 by default. The same seed gives the same bits.
        kernel: How a step is taken: `tweedie` for masking and `euler` for uniform by default. Tweedie steps reveal by
            the schedule alone: a lazily evaluated vocabulary head then runs only at revealed sites, and `beta` guides
            posteriors. `euler` takes the paper's steps, guided at the level of rates.
        **options: Every other parameter of `run`: `resample`, `moves`, `chunk`, `snapshots`, `checkpoint`, ...

    Returns:
        The weighted particles, log Z and the record of the run.
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
    return run(fk, grid, particles=particles, populations=populations, seed=seed, **options)


@spelled(lambda: run)
def reveal(
    model: Model,
    alpha: float,
    beta: float | Schedule | None = None,
    *,
    sites_per_step: int = 1,
    order: Sequence[int] | None = None,
    ramp: Ramp = FULL,
    particles: int = 64,
    **options: Any,
) -> Result:
    """Weighted samples of p0(x) p(zeta|x)^alpha on the any-order clock: for masking, and exact at one site a step.

    Several sites a step are drawn as if independent given the rest: that factorisation is the only error of the limit.
    Weights are ratios of the two scores; a potential is not used, so for learned networks `sample` may aim at a
    slightly different law.

    Args:
        model: What to sample: a `tt.Model` on `tt.Masking` with a base and a conditional score.
        alpha: Exponent of the condition, 0 to 1e9.
        beta: Strength of the guided proposal, a number or a function of time. None (the default) draws from the adapted
            law p (p_zeta / p)^alpha, whose weight is known before the draw.
        sites_per_step: Sites that each step reveals, 1 to the model's length; 1 by default.
        order: The order in which sites are revealed, a permutation of 0 .. D - 1. None (the default): a random order.
        ramp: How the exponent grows with elapsed time, a function from [0, 1] that ends at 1. By default it is in full
            force from the start; where single sites say little of the condition, let it grow late (see `tt.pilot`).
        particles: Particles in each population, 1 or more; 64 by default.
        **options: Every other parameter of `run`: `populations`, `seed`, `resample`, `couple`, `moves`, ...

    Returns:
        The weighted particles, log Z and the record of the run.
    """
    check_model(model)
    fk = AnyOrder(model, alpha, beta, cast("tuple[int, ...] | None", order), ramp=ramp)
    sites_per_step = whole("sites_per_step", sites_per_step, 1, model.length)
    schedule = cast("Masking", model.process).schedule
    grid = masked_fraction_grid(schedule, math.ceil(model.length / sites_per_step))
    return run(fk, grid, particles=particles, **options)


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
    """Run sequential Monte Carlo on any Feynman-Kac value (`tt.Tilted`, `tt.AnyOrder`, ...) over a time grid.

    Args:
        fk: What to sample: how particles move, and what each move weighs.
        grid: Times that fall strictly from 1 (noise) to 0 (data), such as `tt.uniform_grid(100)`.
        particles: Particles in each population, 1 or more; 64 by default.
        populations: Populations that never mix, 1 or more; 1 by default, 16 for error bars.
        seed: Seed of the run, 0 to 2^63 - 1; 0 by default. The same seed gives the same bits.
        resample: Resampling scheme, a function of (log-weights, uniforms). None (the default) is
            `tt.adaptive(tt.systematic, 0.5)`: resample where the effective sample size is below half.
        couple: How the uniforms of particles in equal states depend on one another: `tt.independent` (the default),
            `tt.systematic_draws` or `tt.stratified_draws`.
        moves: Rejuvenation moves, `tt.Rejuvenation(kernel, ...)`, for the same target. None (the default): no moves.
        chunk: Particles that are drawn at a time, 1 or more, to bound memory; "auto" is as many as fit. None (the
            default) draws all at once. It changes no bit.
        first_population: Number of the first population, 0 to 2^62; 0 by default. Population k of a run is the run with
            `first_population=k` alone.
        snapshots: Particles to keep on the way: how many steps, evenly spaced with the first draw and the end among
            them, or a list of steps from 0 to the last. None (the default) keeps none.
        callback_on_step_end: Called after every step as f(steps done, steps in all, `StepInfo`). None by default.
        watch: Called after every step as f(steps done, particles, `StepInfo`); what it raises ends the run. None by
            default.
        checkpoint: Folder where the run is saved, also on SIGTERM, which ends it with `tt.Stopped`. The same call with
            that folder continues from there, to the same bits. None (the default) saves nothing.
        checkpoint_every: Steps between two checkpoints, 1 or more; 10 by default.
        shard: This process's share of the particles in a run over several ranks, `tt.distributed.particle_shard(...)`;
            by default all of them.

    Returns:
        The weighted particles, log Z and the record of the run.
    """
    check_sampled(fk)
    grid = check_whole(grid)
    wanted = chosen_steps(snapshots, len(grid) - 1)
    _check(fk, resample, moves)
    _check_options(couple, callback_on_step_end, watch, chunk, shard)
    checkpoint = None if checkpoint is None else path_of("checkpoint", checkpoint)
    checkpoint_every = whole("checkpoint_every", checkpoint_every, 1)
    populations, particles = check_shape((populations, particles))
    seed, first_population = check_seed(seed), whole("first_population", first_population, 0, 2**62)
    resample = resample or adaptive(systematic, 0.5)
    told = _ways(fk, resample, couple, moves) | {"seed": seed, "particles": particles, "populations": populations}
    told |= {"first_population": first_population, "steps": len(grid) - 1}
    shard.compare(told | {"grid": grid, "snapshots": wanted})
    device = getattr(getattr(fk, "model", None), "device", "cpu")
    check_room(fk, (populations, shard.share(particles)), len(grid) - 1, device)
    chunk = fitting_chunk(fk, (populations, shard.share(particles)), device) if chunk == "auto" else chunk
    source = Source(Stream(seed, first_population, device), couple, chunk, shard=shard)
    settings = told | _versions(device)
    checkpoints, record = None, Record(keep=wanted)
    if checkpoint is not None:
        identity = settings | {"grid": grid, "snapshots": wanted, "device": torch.device(device).type}
        identity["networks"] = fingerprint((fk, resample, couple, moves))
        checkpoints = Checkpoints(checkpoint, checkpoint_every, identity, shard)
    with checkpoints or nullcontext():
        if checkpoints:
            record = checkpoints.load(record, device)
        fresh, begun, parts = (populations, particles), (record.step, record.particles), (resample, source, moves)
        steps = trace(fk, grid, fresh, *parts) if record.step < 0 else onward(fk, grid, begun, *parts)
        for state, info in steps:
            record.add(state, info)
            if watch:
                watch(record.step, state, info)
            if callback_on_step_end:
                callback_on_step_end(record.step, len(grid) - 1, info)
            if checkpoints:
                checkpoints.after_step(record, len(grid) - 1)
    return _result(record, settings, shard)


def _ways(fk: FeynmanKac, resample: Resampler, couple: Coupling, moves: Rejuvenation | None) -> dict[str, Any]:
    """How a run goes, as plain data."""
    ways: dict[str, Any] = {"model": describe(fk), "resampler": described(resample), "coupling": name_of(couple)}
    ways["moves"] = None if moves is None else _described(fk, moves)
    target, remedies = getattr(fk, "target", None), getattr(fk, "remedies", UNKNOWN)
    if target is not None and target.constant is not None:
        ways["log_z"] = target.constant._asdict()
    return ways | {"remedies": (remedies if moves is None else remedies._replace(move=""))._asdict()}


def _versions(device: torch.device | str) -> dict[str, Any]:
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    return {"version": __version__, "versions": versions, "device": str(device)}


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


def _check(fk: FeynmanKac, resample: Resampler | None, moves: Rejuvenation | None) -> None:
    """What would fail in the middle of a run, or run for another target, fails here."""
    if resample is not None:
        function("resample", resample, "(log_w, u)", "a resampler such as tt.systematic or tt.adaptive(...)")
    if nets := hidden_in_training(fk):
        warnings.warn(
            f"a function of this model calls a {type(nets[0]).__name__} in train mode, where dropout makes answers "
            "random and batches of particles change one another; call its eval() first",
            stacklevel=3,
        )
    if moves is None:
        return
    if not isinstance(moves, Rejuvenation):
        raise InvalidInput(
            f"moves is a {type(moves).__name__}; say how often it moves, tt.Rejuvenation(kernel, at_end=3)"
        )
    for side in (fk, moves.kernel):
        if getattr(side, "target", None) is None:
            warnings.warn(
                f"{type(side).__name__} does not say what its target is, so nobody checks that the moves leave the "
                "run's alone; give it a property `target` that returns a tt.Target",
                stacklevel=4,
            )
    found = _differences(fk, moves)
    if found and resample is not never:  # particles that are never resampled may start on their way to any target
        ends_differ = _differences(fk, replace(moves, each_step=0, after_resampling=0))
        what = "aim at different targets" if ends_differ else "reach their target by different ways (move at_end only)"
        raise InvalidInput(
            f"the run and its moves {what}: they differ in {', '.join(found)}; build the moves from the run's own "
            "model, exponent and ramp"
        )


def _differences(fk: FeynmanKac, moves: Rejuvenation) -> list[str]:
    """What differs between the targets of a run and of its moves: the final ones, and where it moves earlier, all."""
    mine, theirs = (getattr(side, "target", None) or NO_WEIGHTS for side in (fk, moves.kernel))
    return mine.differences(theirs, on_the_way=moves.each_step + moves.after_resampling > 0)


def _check_options(couple: object, callback: object, watch: object, chunk: object, shard: object) -> None:
    """What a run is told beside its model."""
    function("couple", couple, "(u, labels, spare)", "such as tt.independent or tt.systematic_draws")
    if callback is not None:
        function("callback_on_step_end", callback, "(done, steps, info)")
    if watch is not None:
        function("watch", watch, "(done, particles, info)")
    if isinstance(chunk, str) and chunk != "auto":
        raise InvalidInput(f'chunk is {chunk!r}; give how many particles draw at a time, "auto", or None for all')
    if chunk is not None and not isinstance(chunk, str):
        whole("chunk", chunk, 1)
    has("shard", shard, ("share", "everyone", "draw"), "leave it out, or give tt.distributed.particle_shard(particles)")


def _described(fk: FeynmanKac, moves: Rejuvenation) -> dict[str, Any]:
    kernel = describe(moves.kernel)
    target = getattr(moves.kernel, "fk", None)
    plain = describe(moves) | {"kernel": kernel | ({} if target is None else {"fk": describe(target)})}
    return plain | ({"towards another target": found} if (found := _differences(fk, moves)) else {})


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def describe(fk: Any) -> dict[str, Any]:
    """The name and the plain settings of a Feynman-Kac value, fit for JSON."""
    out: dict[str, Any] = {"name": type(fk).__name__}
    for f in fields(fk) if is_dataclass(fk) else ():
        value = getattr(fk, f.name)
        if isinstance(value, int | float | str):
            out[f.name] = value
        elif callable(value):
            plain = _ADDRESS.sub("", repr(value))  # the same in every process
            out[f.name] = getattr(value, "__name__", None) or plain[:80]
    return out
