"""The samplers of the toy experiments on a table, each with its exact limit and its count of network evaluations."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..commands.costs import RoundCounter
from ..commands.sample_table import weighted_law as weighted_law
from ..commands.samplers import SAMPLERS
from ..exact.flow import flow
from ..exact.tables import Table, flat_index
from ..metrics.divergences import histogram, kl
from ..result import Result

STEPS = 100
FLOOR = 1e-10  # floor of empty cells in KL(pi || empirical)


METHODS = {
    row: SAMPLERS[name]
    for row, name in {
        "guidance-rate": "guidance-rate",
        "guidance-posterior": "guidance-posterior",
        "smc-clock": "tempered-euler",
        "smc-clock-multinomial": "tempered-euler-multinomial",
        "smc-tilted": "tilted-euler",
        "any-order": "any-order-adapted",
        "any-order-uniform": "any-order",
        "any-order-systematic": "any-order-systematic",
        "any-order-systematic-in-order": "in-order-systematic",
    }.items()
}  # the samplers of the published rows


class SampledToy(NamedTuple):
    """A run of a method, and its cost."""

    result: Result
    meter: RoundCounter
    seconds: float


def sample_toy(table: Table, alpha: float, method: str, particles: int, seed: int) -> SampledToy:
    """Run a method on a table."""
    meter, chosen = RoundCounter(), METHODS[method]
    model = meter.watch(table.model())
    fk, grid = chosen.build(model, alpha), chosen.grid(model, STEPS)
    begin = time.perf_counter()
    result = run(fk, grid, particles=particles, seed=seed, resample=chosen.resample, couple=chosen.couple)
    return SampledToy(result, meter, time.perf_counter() - begin)


def exact_law(table: Table, alpha: float, method: str) -> Tensor:
    """The law of a method with infinitely many particles, as a table of clean states."""
    size, vocabulary = table.process.states, table.process.vocabulary
    model, chosen = table.model(), METHODS[method]
    limit = flow(chosen.build(model, alpha), chosen.grid(model, STEPS), size, table.length)
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
