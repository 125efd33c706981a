"""The samplers of the text experiments by name: guidance, prompts, the paper's SMC, populations, tilted, moves.

`alpha` is the exponent of the target and `beta` the guidance of the proposal. The paper's own forms (guidance-rate,
smc, smc-partial and those with DEFT) guide rates and take Euler steps. All others reveal sites by the schedule alone:
errors in the size of learned rates have no effect, and networks are evaluated only on particles that reveal a site. All
classes share a run, each with an equal share of the populations.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import torch

from ..api import run
from ..commands.costs import Cost, StateCounter, cost_of
from ..commands.samplers import PARTIAL, SAMPLERS, FeynmanKac, NamedSampler, equal_reveals
from ..core.errors import InvalidInput
from ..core.types import Model, Resampler
from ..diffusion.grids import uniform_grid
from ..models.conditions import PerConditionScore, per_condition
from ..models.hub import load
from ..models.infilling import filled
from ..models.lazy_score import LazyScore
from ..models.text_bundle import Reviews
from ..models.text_score import TextScore
from ..result import Result
from ..smc.rejuvenation import Rejuvenation
from ..targets.any_order import AnyOrder
from ..targets.moves import Gibbs
from .annealing import TEXT, TEXT_EDGES, TEXT_ORDERED, Annealing, annealed
from .populations import draws_by_mass, draws_of_each, part_of
from .text_cells import Cell, Joint, has_no_time, run_together

PARTICLES, FEW = 50, 4  # particles of a population: as in the paper, and with many populations
MOVES = 64  # Gibbs moves at the end, as many as sites
DRAWN = 250  # texts drawn by mass from all populations of a class: as many as five runs of 50 have
AT_ONCE = {"cpu": 64, "cuda": 2048}  # particles in memory at once if the rows of all their sites are read
ROOM = {"cpu": 512, "cuda": 16384}  # the same if few rows are read
TOGETHER = {"cpu": 2048, "cuda": 1 << 16}  # the same of cases that share a run, whose features are kept
BATCH = {"cpu": 16, "cuda": 512}


class Case(NamedTuple):
    """One run of the grid: a method, the classes, alpha and beta, time steps, populations and particles of a class."""

    method: str
    conditions: tuple[str, ...]
    alpha: float | None
    beta: float | None
    steps: int
    shape: tuple[int, int]
    claim: bool = False  # one draw per population, all independent; else as many as particles

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.row(self.conditions[0] if len(self.conditions) == 1 else None)

    def row(self, condition: str | None) -> str:
        """The name of the row of one class."""
        pairs = (("a", self.alpha), ("b", self.beta))
        strengths = [f"{letter}{value:g}" for letter, value in pairs if value is not None]
        words = [self.method, *([] if condition is None else [condition]), *strengths, str(self.steps)]
        return "-".join([*words, *["claim"] * self.claim])


@dataclass(frozen=True)
class TextSampler:
    """A sampler, the networks it needs (`form`), and how its particles are grouped."""

    sampler: NamedSampler
    form: str = "cfg"
    particles: int = PARTICLES
    moves: int = 0
    every_row: bool = False  # whether a step reads the rates at all sites of all particles
    each_step: int = 0  # Gibbs moves after each step
    by_mass: bool = False  # whether texts are drawn from the union by mass; else populations count equally
    joint: bool = False  # whether a proposal guided by beta, weighed if at all by edge ratios: cases may share a run
    annealing: Annealing | None = None  # replaces the sampler: clean states are drawn, then annealed class by class

    def built(self, model: Model, alpha: float, beta: float) -> tuple[FeynmanKac, dict[str, Any]]:
        """The Feynman-Kac model and the options of its run; moves start from guidance as strong as the target."""
        build, options = self.sampler.build, {"resample": self.sampler.resample}
        if not self.moves:
            return build(model, alpha, beta), options
        moves = Rejuvenation(Gibbs(AnyOrder(model, alpha)), each_step=self.each_step, at_end=self.moves)
        return build(model, alpha, alpha), options | {"moves": moves}


_GUIDED, _RATES, _ANY = (SAMPLERS[name] for name in ("guidance-tweedie", "guidance-rate", "any-order"))
_PAPER, _PARTIAL, _TILTED = (SAMPLERS[name] for name in ("tempered-euler", "tempered-euler-partial", "tilted"))
TEXT_SAMPLERS = {
    "guidance-rate": TextSampler(_RATES, every_row=True, joint=True),
    "guidance-posterior": TextSampler(_GUIDED, joint=True),
    "guidance-deft": TextSampler(_RATES, form="deft", every_row=True, joint=True),
    "prompting": TextSampler(SAMPLERS["base"]),
    "smc": TextSampler(_PAPER, every_row=True, joint=True),
    "smc-partial": TextSampler(_PARTIAL, every_row=True, joint=True),
    "smc-paper-16": TextSampler(_PARTIAL, particles=16, every_row=True, joint=True),
    "smc-deft": TextSampler(_PAPER, form="deft", every_row=True, joint=True),
    "smc-deft-partial": TextSampler(_PARTIAL, form="deft", every_row=True, joint=True),
    "smc-posterior": TextSampler(SAMPLERS["tempered-partial"], joint=True),
    "smc-populations": TextSampler(SAMPLERS["tempered"], particles=FEW, joint=True),
    "tilted": TextSampler(_TILTED, form="potential"),
    "tilted-populations": TextSampler(_TILTED, form="potential", particles=FEW),
    "any-order": TextSampler(_ANY),
    "any-order-populations": TextSampler(_ANY, particles=FEW),
    "guidance-gibbs": TextSampler(_GUIDED, moves=MOVES),
    "any-order-moves": TextSampler(_ANY, particles=128, moves=MOVES, each_step=4, by_mass=True),
    "annealed": TextSampler(_ANY, form="potential", particles=64, by_mass=True, annealing=TEXT),
    "annealed-ordered": TextSampler(_ANY, particles=64, by_mass=True, annealing=TEXT_ORDERED),
    "annealed-edges": TextSampler(_ANY, particles=64, by_mass=True, annealing=TEXT_EDGES),
}


class DrawnTexts(NamedTuple):
    """Texts of each living population, and the cost per particle."""

    texts: list[list[str]]
    result: Result
    cost: Cost


@lru_cache(maxsize=1)
def bundle(name: str, device: str) -> Reviews:
    """The networks, loaded once a process (cached); on a GPU in float16, which rounds log-ratios less than bfloat16."""
    kind = torch.device(device).type
    found = load(name, device, batch=BATCH.get(kind, 512), dtype=None if kind == "cpu" else torch.float16)
    if not isinstance(found, Reviews):
        raise InvalidInput(f"{name} holds {type(found).__name__}; the text tasks need a bundle of text nets")
    return found


@torch.no_grad()
def sample_texts(nets: Reviews, case: Case, seed: int, prompt: str | None = None) -> list[DrawnTexts]:
    """Run a case in parts that fit into memory, and draw its texts, class by class."""
    sampler, meter = TEXT_SAMPLERS[case.method], StateCounter()
    if sampler.annealing is not None:
        return [_annealed(nets, case, condition, seed) for condition in case.conditions]
    model = watched(_model(nets, case, sampler.form, prompt), meter, sampler.every_row, asked_at_once(nets, case))
    alpha, beta = 1.0 if case.alpha is None else case.alpha, 1.0 if case.beta is None else case.beta
    fk, options = sampler.built(model, alpha, beta)
    begin, many = time.perf_counter(), len(case.conditions)
    results = in_lots(
        fk, sampler.sampler.grid(model, case.steps), Lots(case.shape, seed, many, sampler.every_row), options
    )
    texts = [[nets.decode(own) for own in _drawn(result, case, seed)] for result in results]
    cost = cost_of(meter, many * case.shape[0] * case.shape[1], (time.perf_counter() - begin) / many)
    return [DrawnTexts(own, result, cost) for own, result in zip(texts, results, strict=True)]


@torch.no_grad()
def sample_together(nets: Reviews, cases: Sequence[Case], seed: int) -> list[list[DrawnTexts]]:
    """`sample_texts` of cases that share a run (`together`)."""
    first, sampler = cases[0], TEXT_SAMPLERS[cases[0].method]
    cells = [Cell(case.conditions, case.alpha, 1.0 if case.beta is None else case.beta) for case in cases]
    how = Joint(sampler.form, uniform_grid(first.steps), first.shape, _scheme(first), sampler.every_row, seed)
    results, evaluations, seconds = run_together(nets, cells, how)
    cost = Cost(evaluations, 0.0, seconds / sum(len(case.conditions) for case in cases))
    return [
        [DrawnTexts([nets.decode(x) for x in _drawn(result, case, seed)], result, cost) for result in own]
        for case, own in zip(cases, results, strict=True)
    ]


def together(nets: Reviews, cases: Sequence[Case]) -> list[list[Case]]:
    """The cases in groups that share a run: of one form, grid, shape and resampler, by nets not told the time."""
    groups: dict[Any, list[Case]] = {}
    room = TOGETHER["cpu" if torch.device(nets.device).type == "cpu" else "cuda"]
    for case in cases:
        sampler, key, size = TEXT_SAMPLERS[case.method], (case,), len(case.conditions) * case.shape[0] * case.shape[1]
        if sampler.joint and has_no_time(nets, sampler.form):
            key = (sampler.form, sampler.every_row, case.steps, case.shape, len(case.conditions), _scheme(case))
            while size * (1 + len(groups.get(key, ()))) > room and key in groups:
                key = (*key, "and more")
        groups.setdefault(key, []).append(case)
    return list(groups.values())


def _scheme(case: Case) -> Resampler:
    """How a case resamples; guidance, whose weights stay equal, may do so by any scheme."""
    return PARTIAL if case.alpha is None else TEXT_SAMPLERS[case.method].sampler.resample


def _drawn(result: Result, case: Case, seed: int) -> Any:
    """Unweighted draws, population by population."""
    if case.claim:
        return result.draw_independent(seed)[:, None]
    if TEXT_SAMPLERS[case.method].by_mass:
        return draws_by_mass(result, seed, min(DRAWN, result.log_weights.numel()))
    return draws_of_each(result, seed)


def _annealed(nets: Reviews, case: Case, condition: str, seed: int) -> DrawnTexts:
    """One class of an annealed case; the cost includes the pilot run of its ladder."""
    sampler, meter, begin = TEXT_SAMPLERS[case.method], StateCounter(), time.perf_counter()
    model, alpha = meter.watch(nets.model(condition, sampler.form)), 1.0 if case.alpha is None else case.alpha
    result = annealed(model, alpha, cast("Annealing", sampler.annealing), case.shape, seed)
    texts = [nets.decode(own) for own in _drawn(result, case, seed)]
    return DrawnTexts(texts, result, cost_of(meter, case.shape[0] * case.shape[1], time.perf_counter() - begin))


def asked_at_once(nets: Reviews, case: Case) -> float:
    """The expected number of states that a step evaluates: those that reveal a site."""
    sampler, most = TEXT_SAMPLERS[case.method], len(case.conditions) * case.shape[0] * case.shape[1]
    share = 1.0 if sampler.sampler.grid is equal_reveals else 1 - (1 - 1 / case.steps) ** nets.length
    return share * min(most, Lots(case.shape, 0, every_row=sampler.every_row).room(nets.device))


def watched(model: Model, meter: StateCounter, every_row: bool, states: float = math.inf) -> Model:
    """The model with its network evaluations counted and, unless every row is read anyway, lazy.

    `states` is the expected number of states in an evaluation: padded batches need be no larger.
    """
    if every_row:
        return meter.watch(model)
    spared = {name: _lazily(getattr(model, name), meter, name, states) for name in ("base", "conditional")}
    return replace(meter.watch(model), **spared)


def _lazily(score: Any, meter: StateCounter, name: str, states: float) -> Any:
    seen = partial(meter.add, name)
    if isinstance(score, PerConditionScore) and isinstance(score.score, TextScore):
        return LazyScore(_in_small_batches(score.score, states), score.labels, seen)
    if isinstance(score, TextScore):
        return LazyScore(_in_small_batches(score, states), (), seen)
    parts = {part: _lazily(getattr(score, part), meter, name, states) for part in ("score",) if hasattr(score, part)}
    return replace(score, **parts) if parts else score


def _in_small_batches(score: TextScore, states: float) -> TextScore:
    """The score with a smaller batch: the smallest power of two that holds `states` states."""
    fitting = 2 ** math.ceil(math.log2(max(1.0, min(states, score.batch))))
    return replace(score, batch=min(fitting, score.batch))


def _model(nets: Reviews, case: Case, form: str, prompt: str | None) -> Model:
    if case.method != "prompting":
        return per_condition([nets.model(condition, form) for condition in case.conditions])
    if prompt is None or len(case.conditions) > 1:
        raise InvalidInput("prompting needs the words of the prompt, and one class at a time")
    words = nets.encode(prompt)
    if len(words) >= nets.length:
        raise InvalidInput(f"the prompt has {len(words)} tokens and the nets read {nets.length}; shorten it")
    inside = filled(nets.base(case.conditions[0]), (*words, *[None] * (nets.length - len(words))))
    return Model(nets.process, inside.length, inside, None, None, nets.device)


class Lots(NamedTuple):
    """Populations and particles of each of `parts` conditions, to be run in batches that fit into memory."""

    shape: tuple[int, int]
    seed: int
    parts: int = 1
    every_row: bool = True

    def room(self, device: torch.device | str) -> int:
        """Number of particles that fit into memory at once."""
        return (AT_ONCE if self.every_row else ROOM)["cpu" if torch.device(device).type == "cpu" else "cuda"]


def in_lots(fk: FeynmanKac, grid: Sequence[float], asked: Lots, options: dict[str, Any]) -> list[Result]:
    """The results of all conditions, computed in batches of populations; for one condition no bit changes."""
    (populations, particles), seed, parts, _ = asked
    room, lots = asked.room(fk.model.device), []
    many = max(1, room // (particles * parts))
    for first in range(0, populations, many):
        here = min(many, populations - first)
        chunk = min(particles, max(1, room // (here * parts)))
        found = run(
            fk, grid, particles=particles, populations=here * parts, seed=seed, first_population=first * parts,
            chunk=chunk, **options,
        )  # fmt: skip
        lots.append([part_of(found, part * here, here) for part in range(parts)] if parts > 1 else [found])
    return [own[0] if len(own) == 1 else Result.union(own) for own in map(list, zip(*lots, strict=True))]
