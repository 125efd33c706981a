"""The samplers of the toy experiments on a table, each with its exact limit and its count of network evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..exact.flow import flow
from ..exact.tables import Table, flat_index
from ..feynman_kac import Tempered, Tilted, Unweighted
from ..guidance import Guide, Guided, posterior_level, rate_level
from ..metrics.divergences import histogram, kl
from ..result import Result
from ..schedules import uniform_grid
from ..smc.resampling import adaptive, multinomial, never, systematic
from ..types import FeynmanKac, InvalidInput, Model, Resampler

STEPS = 100
FLOOR = 1e-10  # of empty cells in KL(pi || empirical)


@dataclass
class Meter:
    """Counts nets run, and the rounds they need: nets asked at the same time of the grid share a round."""

    times: set[float] = field(default_factory=set)
    passes: int = 0

    def watch(self, model: Model) -> Model:
        nets = {"base": model.base, "conditional": model.conditional, "potential": model.potential}
        return replace(model, **{name: self._count(net) for name, net in nets.items() if net is not None})

    def _count(self, net: Callable) -> Callable:
        def counted(x: Tensor, t: float) -> object:
            self.times.add(t)
            self.passes += 1
            return net(x, t)

        return counted


class Method(NamedTuple):
    """How a sampler is built from a model and alpha, and how it resamples."""

    build: Callable[[Model, float], FeynmanKac]
    resample: Resampler


def _guidance(guide: Guide) -> Callable[[Model, float], FeynmanKac]:
    def build(model: Model, alpha: float) -> FeynmanKac:
        if model.conditional is None:
            raise InvalidInput("guidance needs a conditional score and the model has none")
        return Unweighted(model, Guided(model.process, model.base, model.conditional, alpha, guide))

    return build


METHODS = {
    "guidance-rate": Method(_guidance(rate_level), never),
    "guidance-posterior": Method(_guidance(posterior_level), never),
    "smc-clock": Method(Tempered, adaptive(systematic, 0.5)),
    "smc-clock-multinomial": Method(Tempered, adaptive(multinomial, 0.5)),
    "smc-tilted": Method(Tilted, adaptive(systematic, 0.5)),
}


class Sampled(NamedTuple):
    """A run of a method, and what it cost."""

    result: Result
    meter: Meter
    seconds: float


def sample_toy(table: Table, alpha: float, method: str, particles: int, seed: int) -> Sampled:
    """Run a method on a table with 100 uniform steps."""
    meter, chosen = Meter(), METHODS[method]
    fk = chosen.build(meter.watch(table.model()), alpha)
    begin = time.perf_counter()
    result = run(fk, uniform_grid(STEPS), particles=particles, seed=seed, resample=chosen.resample)
    return Sampled(result, meter, time.perf_counter() - begin)


def exact_law(table: Table, alpha: float, method: str) -> Tensor:
    """The law of a method with infinitely many particles, as a table of clean states."""
    size, vocabulary = table.process.states, table.process.vocabulary
    limit = flow(METHODS[method].build(table.model(), alpha), uniform_grid(STEPS), size, table.length)
    return limit.law.reshape((size,) * table.length)[(slice(0, vocabulary),) * table.length]


def weighted_law(table: Table, result: Result) -> Tensor:
    """The weighted histogram of a result, as a table."""
    vocabulary = table.process.vocabulary
    counts = histogram(flat_index(result.particles, vocabulary), result.weights, vocabulary**table.length)
    return counts.reshape(table.p0.shape)


def drawn_law(table: Table, draws: Tensor) -> Tensor:
    """The plain histogram of unweighted draws [n, D], as a table."""
    vocabulary = table.process.vocabulary
    ones = torch.ones(len(draws), device=draws.device)
    return histogram(flat_index(draws, vocabulary), ones, vocabulary**table.length).reshape(table.p0.shape)


def miss(target: Tensor, law: Tensor, floor: float = FLOOR) -> float:
    """KL(target || law) with empty cells floored; an exact law has none."""
    return float(kl(target, law, floor))
