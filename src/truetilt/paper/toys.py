"""The samplers of the toy experiments on a table, each with its exact limit and its count of network evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..api import run
from ..commands.sample_table import weighted_law as weighted_law
from ..core.types import FeynmanKac, InvalidInput, Model, Resampler
from ..diffusion.guidance import Guide, Guided, posterior_level, rate_level
from ..diffusion.processes import Masking
from ..diffusion.schedules import Grid, masked_fraction_grid, uniform_grid
from ..exact.flow import flow
from ..exact.tables import Table, flat_index
from ..metrics.divergences import histogram, kl
from ..result import Result
from ..smc.coupling import Coupling, independent, systematic_draws
from ..smc.resampling import adaptive, multinomial, never, systematic
from ..targets.any_order import AnyOrder
from ..targets.on_clock import Tempered, Tilted, Unweighted
from ..targets.reveal_clock import adapted_sites

STEPS = 100
FLOOR = 1e-10  # of empty cells in KL(pi || empirical)


@dataclass
class RoundCounter:
    """Counts nets run, and the rounds they need: nets asked in turn about the same time share a round."""

    passes: int = 0
    rounds: int = 0
    asked: set[str] = field(default_factory=set)
    time: float | None = None

    def watch(self, model: Model) -> Model:
        nets = {"base": model.base, "conditional": model.conditional, "potential": model.potential}
        return replace(model, **{name: self._count(name, net) for name, net in nets.items() if net is not None})

    def _count(self, name: str, net: Callable) -> Callable:
        def counted(x: Tensor, t: float) -> object:
            self.passes += 1
            if t != self.time or name in self.asked:  # another time, or the same net again
                self.rounds, self.time, self.asked = self.rounds + 1, t, set()
            self.asked.add(name)
            return net(x, t)

        return counted


class ToyMethod(NamedTuple):
    """How a sampler is built from a model and alpha, how it resamples and draws, and over which times."""

    build: Callable[[Model, float], FeynmanKac]
    resample: Resampler
    couple: Coupling = independent
    grid: Callable[[Model], Grid] = lambda model: uniform_grid(STEPS)


def _guidance(guide: Guide) -> Callable[[Model, float], FeynmanKac]:
    def build(model: Model, alpha: float) -> FeynmanKac:
        if model.conditional is None:
            raise InvalidInput("guidance needs a conditional score and the model has none")
        return Unweighted(model, Guided(model.process, model.base, model.conditional, alpha, guide))

    return build


def one_site_a_step(model: Model) -> Grid:
    """The grid of the any-order clock: as many steps as sites."""
    return masked_fraction_grid(cast("Masking", model.process).schedule, model.length)


def _adapted(model: Model, alpha: float) -> FeynmanKac:
    return AnyOrder(model, alpha, choose=adapted_sites)


def _in_order(model: Model, alpha: float) -> FeynmanKac:
    return AnyOrder(model, alpha, order=tuple(range(model.length)))


_HALF = adaptive(systematic, 0.5)

METHODS = {
    "guidance-rate": ToyMethod(_guidance(rate_level), never),
    "guidance-posterior": ToyMethod(_guidance(posterior_level), never),
    "smc-clock": ToyMethod(Tempered, _HALF),
    "smc-clock-multinomial": ToyMethod(Tempered, adaptive(multinomial, 0.5)),
    "smc-tilted": ToyMethod(Tilted, _HALF),
    "any-order": ToyMethod(_adapted, _HALF, grid=one_site_a_step),
    "any-order-uniform": ToyMethod(AnyOrder, _HALF, grid=one_site_a_step),
    "any-order-systematic": ToyMethod(_adapted, systematic, systematic_draws, one_site_a_step),
    "any-order-systematic-in-order": ToyMethod(_in_order, systematic, systematic_draws, one_site_a_step),
}


class SampledToy(NamedTuple):
    """A run of a method, and what it cost."""

    result: Result
    meter: RoundCounter
    seconds: float


def sample_toy(table: Table, alpha: float, method: str, particles: int, seed: int) -> SampledToy:
    """Run a method on a table."""
    meter, chosen = RoundCounter(), METHODS[method]
    model = meter.watch(table.model())
    fk, grid = chosen.build(model, alpha), chosen.grid(model)
    begin = time.perf_counter()
    result = run(fk, grid, particles=particles, seed=seed, resample=chosen.resample, couple=chosen.couple)
    return SampledToy(result, meter, time.perf_counter() - begin)


def exact_law(table: Table, alpha: float, method: str) -> Tensor:
    """The law of a method with infinitely many particles, as a table of clean states."""
    size, vocabulary = table.process.states, table.process.vocabulary
    model, chosen = table.model(), METHODS[method]
    limit = flow(chosen.build(model, alpha), chosen.grid(model), size, table.length)
    return limit.law.reshape((size,) * table.length)[(slice(0, vocabulary),) * table.length]


def drawn_law(table: Table, draws: Tensor) -> Tensor:
    """The plain histogram of unweighted draws [n, D], as a table."""
    vocabulary = table.process.vocabulary
    ones = torch.ones(len(draws), device=draws.device)
    return histogram(flat_index(draws, vocabulary), ones, vocabulary**table.length).reshape(table.p0.shape)


def miss(target: Tensor, law: Tensor, floor: float = FLOOR) -> float:
    """KL(target || law) with empty cells floored; an exact law has none, and rounding may not make it negative."""
    return max(0.0, float(kl(target, law, floor)))
