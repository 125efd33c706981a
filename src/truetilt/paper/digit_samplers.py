"""The samplers of the digit experiments by name, and how they are run: all classes together, in clock time.

`alpha` is the exponent of the target; for guidance it is the strength beta.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..commands.costs import Cost, StateCounter, cost_of
from ..commands.samplers import SAMPLERS, FeynmanKac, NamedSampler
from ..core.bases import MoveKernel
from ..core.types import Model, Particles, Resampler
from ..diffusion.grids import uniform_grid
from ..models.conditions import per_condition
from ..models.hub import Digits
from ..result import Result
from ..smc.rejuvenation import Rejuvenation
from ..targets.any_order import AnyOrder, RevealLaw, RevealMove
from ..targets.moves import hide, without
from .annealing import DIGITS, Annealing, of_learned_nets

STEPS, QUICK_STEPS = 100, 50
MOVES, SITES = 100, 8  # Gibbs moves: their number, and the sites that each redraws
AT_ONCE = {"cpu": 256, "cuda": 2048}  # particles whose dense laws (a few MB each) fit into memory at once


@dataclass(frozen=True)
class DigitSampler:
    """A sampler, the networks it needs (`form`), its populations and its moves."""

    sampler: NamedSampler
    form: str = "cfg"
    populations: int = 1
    moves: int = 0
    annealing: Annealing | None = None  # if given, replaces the sampler: clean states are drawn, then annealed
    times: int = 1  # multiple of the number of samples


_SMC, _PARTIAL, _TILTED = (SAMPLERS[name] for name in ("tempered-euler", "tempered-euler-partial", "tilted-euler"))
DIGIT_SAMPLERS = {
    "guidance": DigitSampler(SAMPLERS["conditional"]),
    "guidance-deft": DigitSampler(SAMPLERS["conditional"], form="deft"),
    "guidance-rate": DigitSampler(SAMPLERS["guidance-rate"]),
    "guidance-posterior": DigitSampler(SAMPLERS["guidance-posterior"]),
    "smc": DigitSampler(_SMC),
    "smc-partial": DigitSampler(_PARTIAL),
    "smc-populations": DigitSampler(_SMC, populations=16),
    "smc-deft": DigitSampler(_SMC, form="deft"),
    "smc-deft-partial": DigitSampler(_PARTIAL, form="deft"),
    "tilted": DigitSampler(_TILTED, form="potential"),
    "tilted-full-exponent": DigitSampler(SAMPLERS["tilted-euler-full"], form="potential"),
    "tilted-populations": DigitSampler(_TILTED, form="potential", populations=16),
    "guidance-gibbs": DigitSampler(SAMPLERS["guidance-posterior"], moves=MOVES),
    "annealed": DigitSampler(_TILTED, form="potential", populations=16, annealing=DIGITS, times=4),
}


@dataclass(frozen=True)
class SeveralSites(MoveKernel):
    """A move that remasks a few sites and redraws them independently, without a correction.

    With one site it is `Gibbs`. Several distant pixels are nearly independent given all the others.
    """

    fk: AnyOrder
    size: int

    @property
    def choices(self) -> int:
        return self.fk.model.length

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> RevealMove:
        sites = u.topk(self.size, largest=False).indices
        old, hidden = particles.x.gather(-1, sites), hide(self.fk, particles.x, sites)
        stage, log = self.fk.stage(t), self.fk.log
        laws = self.fk.site_laws(hidden, self.fk.asked_at(t, self.size), sites, log)
        law = RevealLaw(hidden, sites, laws.tilted(stage, log=log)[0])
        aux = without(self.fk.recall(particles, t), laws, old)
        return RevealMove(law, torch.zeros_like(particles.log_w), laws, aux, stage)


class DigitRun(NamedTuple):
    """One run: the classes, samples of each, time steps, the seed, and the number of its first population."""

    conditions: tuple[int, ...]
    shape: tuple[int, int]  # populations and particles of each class
    steps: int
    seed: int
    first_population: int = 0


class SampledDigits(NamedTuple):
    """The populations of all classes, class by class, and the cost of one class."""

    result: Result
    cost: Cost


def shape_of(sampler: DigitSampler, samples: int) -> tuple[int, int]:
    """The samples of a class as (populations, particles); few samples make fewer populations of four."""
    populations = min(sampler.populations, max(1, samples // 4))
    return populations, sampler.times * samples // populations


@torch.no_grad()
def sample_digits(nets: Digits, sampler: DigitSampler, alpha: float, plan: DigitRun) -> SampledDigits:
    """Sample all classes in one run, and count its network evaluations."""
    meter, resample = StateCounter(), sampler.sampler.resample
    model = meter.watch(joint_model(nets, plan.conditions, sampler.form))
    begin = time.perf_counter()
    if sampler.annealing is None:
        result = launch(sampler.sampler.build(model, alpha), plan, resample, _moves(model, alpha, sampler.moves))
    else:
        fk = sampler.annealing(model, alpha)
        with of_learned_nets():
            result = launch(fk, plan, resample, grid=fk.grid)
    result = replace(result, log_weights=result.log_weights.cpu().to(result.log_weights.device))  # waits for the GPU
    classes = len(plan.conditions)
    return SampledDigits(
        result, cost_of(meter, classes * plan.shape[0] * plan.shape[1], (time.perf_counter() - begin) / classes)
    )


def joint_model(nets: Digits, conditions: Sequence[int], form: str) -> Model:
    """One model for several classes, each with an equal share of the populations."""
    return per_condition([nets.model(condition, form) for condition in conditions])


def launch(
    fk: FeynmanKac,
    plan: DigitRun,
    resample: Resampler,
    moves: Rejuvenation | None = None,
    grid: Sequence[float] | None = None,
) -> Result:
    """Run in chunks that fit into memory, over a uniform time grid unless one is given."""
    populations, particles = plan.shape[0] * len(plan.conditions), plan.shape[1]
    device = torch.device(fk.model.device)
    most = max(1, AT_ONCE["cpu" if device.type == "cpu" else "cuda"] // populations)
    return run(
        fk, grid or uniform_grid(plan.steps), particles=particles, populations=populations, seed=plan.seed,
        first_population=plan.first_population, resample=resample, moves=moves, chunk=min(most, particles),
    )  # fmt: skip


def _moves(model: Model, alpha: float, count: int) -> Rejuvenation | None:
    """`count` moves at the end that leave p0(x) p(zeta|x)^alpha invariant."""
    if count == 0:
        return None
    return Rejuvenation(SeveralSites(AnyOrder(model, alpha), min(SITES, model.length)), at_end=count)
