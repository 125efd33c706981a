"""The samplers of the text experiments by name: guidance, prompts, the paper's SMC, populations, tilted, moves.

`alpha` is the exponent of the target and `beta` how the proposal is guided. The paper's own forms (guidance-rate, smc,
smc-partial and their DEFT kin) guide rates and take Euler steps; all others reveal sites by the schedule alone, so that
errors in the size of learned rates do not count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from functools import partial as given
from typing import Any, NamedTuple

import torch

from ..any_order import AnyOrder
from ..api import run
from ..feynman_kac import Tempered, Tilted, Unweighted
from ..guidance import Guide, Guided, posterior_level, rate_level
from ..kernels import Kernel, euler, tweedie
from ..models.hub import load
from ..models.infilling import filled
from ..models.reviews import Reviews
from ..rejuvenation import Gibbs
from ..result import Result
from ..schedules import masked_fraction_grid, uniform_grid
from ..smc.resampling import adaptive, never, partial, systematic
from ..smc.sampler import Rejuvenation
from ..smc.stream import OUTPUT, Stream
from ..types import FeynmanKac, InvalidInput, Model, Resampler, Score, Tokens
from .digits import Cost, Meter, cost_of

PARTICLES, FEW = 50, 4  # of a population: the paper's, and where there are many populations
MOVES = 64  # Gibbs moves at the end, as many as sites
AT_ONCE = {"cpu": 64, "cuda": 2048}  # particles held together
BATCH = {"cpu": 16, "cuda": 512}

_HALF = adaptive(systematic, 0.5)
_PARTIAL = adaptive(partial(systematic, 0.5), 0.5)


class Case(NamedTuple):
    """One row to be: a method, its strengths, time steps, the class, and how many populations of how many particles."""

    method: str
    condition: str
    alpha: float | None
    beta: float | None
    steps: int
    shape: tuple[int, int]
    claim: bool = False  # one draw of each population, all independent; else as many as particles

    @property
    def name(self) -> str:
        strengths = [
            f"{letter}{value:g}" for letter, value in (("a", self.alpha), ("b", self.beta)) if value is not None
        ]
        return "-".join([self.method, self.condition, *strengths, str(self.steps), *["claim"] * self.claim])


@dataclass(frozen=True)
class Sampler:
    """How a method is built from a model, alpha and beta; which nets it asks; how its particles are grouped."""

    build: Callable[[Model, float, float], FeynmanKac]
    resample: Resampler = never
    form: str = "cfg"
    particles: int = PARTICLES
    any_order: bool = False
    moves: int = 0


def _needed(model: Model) -> Score:
    if model.conditional is None:
        raise InvalidInput("the text samplers need a conditional score and the model has none")
    return model.conditional


def _guided(guide: Guide, kernel: Kernel, model: Model, alpha: float, beta: float) -> FeynmanKac:
    """At strength 1 the conditional net alone, at 0 the base alone: one evaluation a step."""
    if beta in (0, 1):
        return Unweighted(model, _needed(model) if beta else model.base, kernel=kernel)
    return Unweighted(model, Guided(model.process, model.base, _needed(model), beta, guide), kernel=kernel)


def _tempered(guide: Guide, kernel: Kernel, model: Model, alpha: float, beta: float) -> FeynmanKac:
    return Tempered(model, alpha, beta, guide, kernel=kernel)


def _tilted(model: Model, alpha: float, beta: float) -> FeynmanKac:
    return Tilted(model, alpha, kernel=tweedie)


def _any_order(model: Model, alpha: float, beta: float) -> FeynmanKac:
    return AnyOrder(model, alpha)


def _base_alone(model: Model, alpha: float, beta: float) -> FeynmanKac:
    return Unweighted(model, model.base, kernel=tweedie)


_PAPER, _OURS = given(_tempered, rate_level, euler), given(_tempered, posterior_level, tweedie)
SAMPLERS = {
    "guidance-rate": Sampler(given(_guided, rate_level, euler)),
    "guidance-posterior": Sampler(given(_guided, posterior_level, tweedie)),
    "guidance-deft": Sampler(given(_guided, rate_level, euler), form="deft"),
    "prompting": Sampler(_base_alone),
    "smc": Sampler(_PAPER, _HALF),
    "smc-partial": Sampler(_PAPER, _PARTIAL),
    "smc-deft": Sampler(_PAPER, _HALF, form="deft"),
    "smc-deft-partial": Sampler(_PAPER, _PARTIAL, form="deft"),
    "smc-posterior": Sampler(_OURS, _PARTIAL),
    "smc-populations": Sampler(_OURS, _HALF, particles=FEW),
    "tilted": Sampler(_tilted, _HALF, form="potential"),
    "tilted-populations": Sampler(_tilted, _HALF, form="potential", particles=FEW),
    "any-order": Sampler(_any_order, _HALF, any_order=True),
    "any-order-populations": Sampler(_any_order, _HALF, particles=FEW, any_order=True),
    "guidance-gibbs": Sampler(given(_guided, posterior_level, tweedie), moves=MOVES),
}


class Drawn(NamedTuple):
    """Texts of each living population, and what they cost a particle."""

    texts: list[list[str]]
    result: Result
    cost: Cost


@lru_cache(maxsize=1)
def bundle(name: str, device: str) -> Reviews:
    """The nets, loaded once a process; on a GPU in float16, whose rounding adds less to log-ratios than bfloat16's."""
    kind = torch.device(device).type
    found = load(name, device, batch=BATCH.get(kind, 512), dtype=None if kind == "cpu" else torch.float16)
    if not isinstance(found, Reviews):
        raise InvalidInput(f"{name} holds {type(found).__name__}; the text tasks need a bundle of text nets")
    return found


@torch.no_grad()
def sample_texts(nets: Reviews, case: Case, seed: int, prompt: str | None = None) -> Drawn:
    """Run a case, as many populations together as memory likes, and draw its texts."""
    sampler, meter = SAMPLERS[case.method], Meter()
    model = meter.watch(_model(nets, case, sampler.form, prompt))
    alpha, beta = 1.0 if case.alpha is None else case.alpha, 1.0 if case.beta is None else case.beta
    fk = sampler.build(model, alpha, alpha if sampler.moves else beta)
    moves = Rejuvenation(Gibbs(AnyOrder(model, alpha)), at_end=sampler.moves) if sampler.moves else None
    begin = time.perf_counter()
    result = in_lots(fk, case.shape, grid_of(nets, case, model), seed, {"resample": sampler.resample, "moves": moves})
    x = result.draw_independent(seed)[:, None] if case.claim else draws_of_each(result, seed)
    texts = [nets.decode(rows) for rows in x]
    seconds = time.perf_counter() - begin
    return Drawn(texts, result, cost_of(meter, case.shape[0] * case.shape[1], seconds))


def _model(nets: Reviews, case: Case, form: str, prompt: str | None) -> Model:
    if case.method != "prompting":
        return nets.model(case.condition, form)
    if prompt is None:
        raise InvalidInput("prompting needs the words of the prompt")
    words = nets.encode(prompt)
    if len(words) >= nets.length:
        raise InvalidInput(f"the prompt has {len(words)} tokens and the nets read {nets.length}; shorten it")
    inside = filled(nets.base(case.condition), (*words, *[None] * (nets.length - len(words))))
    return Model(nets.process, inside.length, inside, None, None, nets.device)


def grid_of(nets: Reviews, case: Case, model: Model) -> tuple[float, ...]:
    """Equal steps of time; on the any-order clock equally many sites a step, at least one."""
    if not SAMPLERS[case.method].any_order:
        return tuple(uniform_grid(case.steps))
    sites = max(1, round(model.length / case.steps))
    return tuple(masked_fraction_grid(nets.process.schedule, math.ceil(model.length / sites)))


def in_lots(
    fk: FeynmanKac, shape: tuple[int, int], grid: tuple[float, ...], seed: int, options: dict[str, Any]
) -> Result:
    """All populations, a lot of them at a time: each is the same whatever lot it is in."""
    populations, particles = shape
    device = torch.device(getattr(fk, "model").device)  # noqa: B009
    room = AT_ONCE["cpu" if device.type == "cpu" else "cuda"]
    many, results = max(1, room // particles), []
    for first in range(0, populations, many):
        here = min(many, populations - first)
        chunk = min(particles, max(1, room // here))
        found = run(
            fk, grid, particles=particles, populations=here, seed=seed, first_population=first, chunk=chunk, **options
        )
        results.append(found)
    return Result.union(results) if len(results) > 1 else results[0]


def draws_of_each(result: Result, seed: int) -> Tokens:
    """As many unweighted draws from each living population as it has particles [living, N, D]."""
    log_w, device = result.log_weights, result.log_weights.device
    alive = (result.population_log_z > -torch.inf).nonzero().squeeze(-1)
    if not len(alive):
        raise InvalidInput("every population died: there is nothing to draw; lower alpha, or take more particles")
    n = log_w.shape[1]
    u = Stream(seed, device=device).uniforms(3, OUTPUT, len(log_w), (0, 1))[alive]
    cdf = log_w[alive].softmax(-1).cumsum(-1)
    height = (torch.arange(n, device=device) + u) / n * cdf[:, -1:]
    top = torch.nextafter(cdf[:, -1:], torch.zeros_like(cdf[:, -1:]))
    chosen = torch.searchsorted(cdf, torch.minimum(height, top), right=True)
    return result.particles[alive].gather(1, chosen[..., None].expand(-1, -1, result.particles.shape[-1]))
