"""The small problems with exact answers that parts are checked on, and distances between laws."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar, cast

import torch
from torch import Tensor

from ..core.arguments import called, function, reals, shown
from ..core.bases import FeynmanKac
from ..core.errors import InvalidInput
from ..core.types import Model, Process, check_process
from ..diffusion.grids import uniform_grid
from ..diffusion.processes import Masking, Uniform
from ..exact.flow import Limit, flow
from ..exact.tables import Table
from ..smc.rejuvenation import Rejuvenation
from ..smc.sampler import DRAW, Stream
from .verdicts import require, used

TOP = 1 - 2.0**-53  # the largest uniform
MASKING, UNIFORM = Masking(3), Uniform(3)
MOST = 8  # tokens, at most: all pairs of states are enumerated
MOST_STATES = 1000  # noised states of a user's own table, at most
STEPS = (16, 32, 64)  # of the grids on which time error is measured
LEAST_FALL = 0.6  # time error relative to that with half as many steps; first order gives 1/2


def uniforms(seed: int, *shape: int) -> Tensor:
    """Uniforms [*shape] from a counter-based stream."""
    count = int(torch.tensor(shape).prod())
    return Stream(seed).uniforms(0, DRAW, 1, count).reshape(shape)


def small_table(process: Process, length: int = 2) -> Table:
    """p0 and p(zeta|x) with entries between 0.1 and 1: every state is visited, and no weight is extreme."""
    check_process(process)
    if process.vocabulary > MOST:
        raise InvalidInput(
            f"checks go over every state, and the process has {process.vocabulary} tokens; give one of at most {MOST}, "
            "such as tt.Masking(3)"
        )
    shape = (process.vocabulary,) * length
    p0, likelihood = 0.1 + 0.9 * uniforms(0, 2, *shape)
    return Table(cast("Masking | Uniform", process), p0, likelihood)


def hard_table(process: Process) -> Table:
    """The same of two sites, with zeros in p0 and in the likelihood, not in the same places."""
    soft, place = small_table(process), torch.arange(process.vocabulary**2).reshape((process.vocabulary,) * 2)
    p0, likelihood = soft.p0.masked_fill(place % 4 == 1, 0.0), soft.likelihood.masked_fill(place % 3 == 2, 0.0)
    return Table(soft.process, p0, likelihood)


def sparse_table(process: Process, length: int = 2) -> Table:
    """The small table with zeros in p0 alone: a step that reveals several sites reaches states that p0 forbids."""
    soft = small_table(process, length)
    place = torch.arange(soft.p0.numel()).reshape(soft.p0.shape)
    return Table(soft.process, soft.p0.masked_fill(place % 4 == 1, 0.0), soft.likelihood)


def problems(process: Process, length: int, table: Table | None) -> list[Table]:
    """The tables that a part is checked on: the user's own alone, else one without zeros and one with zeros in p0."""
    if table is None:
        return [small_table(process, length), sparse_table(process, length)]
    if not isinstance(table, Table):
        raise InvalidInput(f"table is {shown(table)}; give a tt.Table(process, p0, likelihood) of a few sites")
    count = table.process.states**table.length
    if count > MOST_STATES:
        raise InvalidInput(f"the table has {count} noised states, and checks go over all; give one of {MOST_STATES}")
    return [table]


def clean(law: Tensor, problem: Table) -> Tensor:
    """The mask-free part of a law over the noised space, as a table."""
    size = problem.process.states
    return law.reshape((size,) * problem.length)[(slice(0, problem.process.vocabulary),) * problem.length]


def tv(law: Tensor, target: Tensor) -> float:
    """Total variation between two laws."""
    return float(0.5 * (law - target).abs().sum())


def limits(fk: FeynmanKac, problem: Table, moves: Rejuvenation | None = None) -> list[Limit]:
    """The exact limits on grids of 16, 32 and 64 steps."""
    return [flow(fk, uniform_grid(count), problem.process.states, problem.length, moves) for count in STEPS]


def check_time_error(found: list[Limit], exact: Tensor, problem: Table, what: str = "the limit") -> None:
    """Reject limits that do not approach a law at first order or better as the grid gets finer."""
    errors = [tv(clean(limit.law, problem), exact) for limit in found]
    check_halving(
        errors, f"{what} on {problem.process} is {{}} (TV) from the exact law at {{}} steps", "the law itself"
    )


def check_halving(errors: list[float], said: str, itself: str) -> None:
    """Reject errors that do not fall by half as steps double, unless they are rounding."""
    falls = all(fine <= LEAST_FALL * rough for rough, fine in pairwise(errors))
    require(
        falls or max(errors) < 1e-10,
        f"{said.format(_listed(errors), _listed(STEPS, 'd'))}; it must come nearer by half as steps double, or be "
        f"{itself}",
    )


def _listed(numbers: tuple[int, ...] | list[float], form: str = ".1e") -> str:
    return ", ".join(f"{value:{form}}" for value in numbers)


Kind = TypeVar("Kind")
ExactLaw = Callable[[Table], Tensor]  # a table to a law on its clean states, up to a constant


def built(name: str, make: object, model: Model, kind: type[Kind], need: str) -> Kind:
    """The output of a user's function on a model, checked to be of this kind."""
    if not callable(make):
        raise InvalidInput(f"{name} is {shown(make)}; give a function of (model) that returns {need}")
    with used(name):
        value = called(name, make, model)
        if not isinstance(value, kind):
            own = f"; a class of your own derives from tt.feynman_kac.{kind.__name__}" if hasattr(value, "move") else ""
            raise InvalidInput(f"what {name} returned is {shown(value)}; return {need}{own}")
    return value


def law_of(exact: ExactLaw, problem: Table) -> Tensor:
    """The law that `exact` gives for a problem, normalised."""
    function("exact", exact, "(table)", "that returns a law of its clean states")
    with used("exact"):
        found = exact(problem)
    law = reals("what exact returned", found, "return a law of clean states, a tensor with an axis for each site")
    fits = law.shape == problem.p0.shape and (law >= 0).all() and law.sum() > 0
    require(
        fits, f"`exact` returned {tuple(law.shape)}; it must return a law of clean states {tuple(problem.p0.shape)}"
    )
    return law / law.sum()
