"""The samplers of the toy experiments on a table, each with its exact limit and its count of network evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..commands.costs import RoundCounter
from ..commands.sample_table import weighted_law as weighted_law
from ..commands.samplers import HALF, MULTINOMIAL, Build, any_order, guidance, in_order, reveal_grid, tempered, tilted
from ..core.types import Model, Resampler
from ..diffusion.grids import Grid, uniform_grid
from ..diffusion.guidance import posterior_level
from ..exact.flow import flow
from ..exact.tables import Table, flat_index
from ..metrics.divergences import histogram, kl
from ..result import Result
from ..smc.coupling import systematic_draws
from ..smc.resampling import never, systematic
from ..smc.sampler import Coupling, independent
from ..targets.any_order import adapted_sites

STEPS = 100
FLOOR = 1e-10  # floor of empty cells in KL(pi || empirical)


class ToyMethod(NamedTuple):
    """How a sampler is built from a model and alpha, its resampling and coupling, and its time grid."""

    build: Build
    resample: Resampler
    couple: Coupling = independent
    grid: Callable[[Model], Grid] = lambda model: uniform_grid(STEPS)


METHODS = {
    "guidance-rate": ToyMethod(guidance(), never),
    "guidance-posterior": ToyMethod(guidance(posterior_level), never),
    "smc-clock": ToyMethod(tempered(), HALF),
    "smc-clock-multinomial": ToyMethod(tempered(), MULTINOMIAL),
    "smc-tilted": ToyMethod(tilted(), HALF),
    "any-order": ToyMethod(any_order(choose=adapted_sites), HALF, grid=reveal_grid),
    "any-order-uniform": ToyMethod(any_order(), HALF, grid=reveal_grid),
    "any-order-systematic": ToyMethod(any_order(choose=adapted_sites), systematic, systematic_draws, reveal_grid),
    "any-order-systematic-in-order": ToyMethod(in_order, systematic, systematic_draws, reveal_grid),
}


class SampledToy(NamedTuple):
    """A run of a method, and its cost."""

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
    """KL(target

    law) with empty cells floored; clipped at 0 against rounding.
    """
    return max(0.0, float(kl(target, law, floor)))
