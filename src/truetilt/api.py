"""What a user calls: `sample` for a model, `run` for any Feynman-Kac value."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict, Unpack, cast

import torch

from . import __version__
from .core.arguments import whole_number
from .core.bases import FeynmanKac, check_sampled
from .core.binding import bind
from .core.errors import InvalidInput
from .core.evaluation import RunLog
from .core.model_diagnostics import ModelDiagnostics
from .core.parameter_names import spelled
from .core.types import Model, Resampler, Schedule, check_model
from .diffusion.grids import check_full_grid, masked_fraction_grid, uniform_grid
from .diffusion.kernels import Kernel
from .diffusion.processes import Masking
from .result import Result
from .runtime.checkpoints import EVERY
from .runtime.run_plan import Callback, Options, RunPlan, Watch
from .runtime.settings import weights_of
from .runtime.snapshots import Record, stacked
from .smc.rejuvenation import Rejuvenation
from .smc.sampler import WHOLE, Coupling, independent
from .smc.shards import Shard
from .targets.any_order import AnyOrder
from .targets.consistency import disagreeing
from .targets.defaults import default_sampler
from .targets.diagnose_model import shared_measures
from .targets.on_clock import FULL, Ramp, Tempered
from .targets.potentials import check_alpha


class StepOptions(TypedDict, total=False):
    """The parameters of `run` that mean the same on every rank."""

    seed: int
    resample: Resampler | None
    couple: Coupling
    moves: Rejuvenation | None
    chunk: int | Literal["auto"] | None
    snapshots: int | Sequence[int] | None
    callback_on_step_end: Callback | None
    watch: Watch | None
    checkpoint_every: int


class PopulationOptions(StepOptions, total=False):
    """`StepOptions`, plus which populations to run and where to checkpoint."""

    populations: int
    first_population: int
    checkpoint: str | Path | None


class RunOptions(PopulationOptions, total=False):
    """The parameters of `run` that `sample` and `reveal` hand on to it."""

    shard: Shard


@spelled()
@torch.no_grad()
def run(
    fk: FeynmanKac,
    grid: Sequence[float] | None = None,
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
        grid: Times that fall strictly from 1 (noise) to 0 (data), such as `tt.uniform_grid(100)`. None (the default):
            the grid that the value has of its own (`tt.Composed`, `tt.AnyOrder`: one site a step; `tt.Annealed`).
        particles: Particles in each population, 1 or more; 64 by default.
        populations: Populations that never mix, 1 or more; 1 by default, 16 for error bars.
        seed: Seed of the run, 0 to $2^63 - 1$; 0 by default. The same seed gives the same bits.
        resample: Resampling scheme, a function of (log-weights, uniforms). None (the default) is
            `tt.adaptive(tt.systematic, 0.5)`: resample where the effective sample size is below half.
        couple: How the uniforms of particles in equal states depend on one another: `tt.independent` (the default),
            `tt.systematic_draws` or `tt.stratified_draws`.
        moves: Moves that bring diversity back, such as `tt.Rejuvenation(tt.Gibbs, at_end=3)`. None (the default): none.
        chunk: Particles that are drawn at a time, 1 or more, to bound memory; "auto" is as many as fit. None (the
            default) draws all at once. It changes no bit.
        first_population: Number of the first population, 0 to $2^62$; 0 by default. Population k of a run is the run
            with `first_population=k` alone.
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
    options = Options(
        particles, populations, seed, resample, couple, moves, chunk, first_population, snapshots, callback_on_step_end,
        watch, checkpoint, checkpoint_every, shard,
    )  # fmt: skip
    plan = RunPlan.checked(fk, check_full_grid(own_grid(fk) if grid is None else grid), options, __version__)
    log = RunLog()
    fk, moves = bind((plan.fk, plan.moves), log)
    record = plan.run(fk, moves, log).gathered(shard)
    return _result(plan, record, shared_measures(fk, moves, record.particles, shard), log)


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
    """Weighted samples of $p0(x) p(zeta|x)^alpha$: the first function to call.

    With a potential the conditional model is tilted (recommended); without one, or when a proposal strength `beta` is
    given, the paper's edge ratios are used.

    Args:
        model: What to sample: a `tt.Model` with a base score, a conditional score and, best, a potential.
        alpha: Exponent of the condition, 0 to 1e9. 0 is the model itself, 1 the model given zeta; more leans further.
        beta: Strength of the guided proposal, a number or a function of time, for edge ratios. None (the default) tilts
            where the model has a potential, and proposes with strength 1 where it has none.
        particles: Particles in each population, 1 or more; 64 by default.
        num_inference_steps: Equal time steps from noise to data, 1 to 999,999; 100 by default.
        kernel: How a step is taken: `tweedie` for masking and `euler` for uniform by default. Tweedie steps reveal by
            the schedule alone: a lazily evaluated vocabulary head then runs only at revealed sites, and `beta` guides
            posteriors. `euler` takes the paper's steps, guided at the level of rates.

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
    """Weighted samples of $p0(x) p(zeta|x)^alpha$ on the any-order clock: for masking, and exact at one site a step.

    Several sites a step are drawn as if independent given the rest: that factorisation is the only error of the limit.
    Weights are ratios of the two scores; a potential is not used, so for learned networks `sample` may aim at a
    slightly different law.

    Args:
        model: What to sample: a `tt.Model` on `tt.Masking` with a base and a conditional score.
        alpha: Exponent of the condition, 0 to 1e9.
        beta: Strength of the guided proposal, a number or a function of time. None (the default) draws from the adapted
            law $p (p_zeta / p)^alpha$, whose weight is known before the draw.
        sites_per_step: Sites that each step reveals, 1 to the model's length; 1 by default.
        order: The order in which sites are revealed, a permutation of 0 .. D - 1. None (the default): a random order.
        ramp: How the exponent grows with elapsed time, a function from [0, 1] that ends at 1. By default it is in full
            force from the start; where single sites say little of the condition, let it grow late (see `tt.pilot`).
        particles: Particles in each population, 1 or more; 64 by default.

    Returns:
        The weighted particles, log Z and the record of the run.
    """
    check_model(model)
    fk = AnyOrder(model, alpha, beta, cast("tuple[int, ...] | None", order), ramp=ramp)
    sites_per_step = whole_number("sites_per_step", sites_per_step, 1, model.length)
    schedule = cast("Masking", model.process).schedule
    grid = masked_fraction_grid(schedule, math.ceil(model.length / sites_per_step))
    return run(fk, grid, particles=particles, **options)


def own_grid(fk: FeynmanKac) -> Sequence[float]:
    """The time grid of a value that has one of its own."""
    if fk.grid is None:
        raise InvalidInput(
            f"{type(fk).__name__} has no time grid of its own; give one, such as tt.run(fk, tt.uniform_grid(100))"
        )
    return fk.grid


def _result(plan: RunPlan, whole: Record, measured: ModelDiagnostics, log: RunLog) -> Result:
    """The result of a finished run with the particles of all ranks; evaluations by the measures at its end count as its
    cost.
    """
    if measured.disagreement is not None and (problem := disagreeing(measured.disagreement)):
        warnings.warn(problem, stacklevel=4)
    infos, counts, kept = whole.infos, torch.stack([info.spent for info in whole.infos]), stacked(whole.kept)
    counts[-1] += plan.source.shard.summed(torch.tensor(log.lap())).to(counts.device)
    return Result(
        particles=whole.particles.x,
        log_weights=whole.particles.log_w,
        times=torch.tensor([info.s for info in infos], dtype=torch.float64),
        ess=torch.stack([info.ess for info in infos]),
        log_z_path=torch.stack([info.log_z for info in infos]),
        ancestors=torch.stack([info.ancestors for info in infos]),
        settings=plan.settings | {"weights": weights_of(plan.fk), "measured": measured.as_settings()},
        moved=torch.stack([info.moved for info in infos]),
        accepted=torch.stack([info.accepted for info in infos]),
        snapshot_steps=kept.steps,
        snapshot_particles=kept.particles,
        snapshot_log_weights=kept.log_weights,
        counts=counts,
    )
