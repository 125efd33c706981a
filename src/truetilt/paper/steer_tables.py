"""Twenty random tables, easy and rare-event: `tt.steer` beside every fixed route, and how reliable its verdicts are.

A state's log p0 and its reward are sums over sites and pairs of sites, plus independent noise per state. For a rare
event the reward also reverses what p0 prefers, so that the target lies where the base hardly draws.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..commands.job_runner import Answer
from ..core.budget import Budget
from ..result import Result
from ..steering.account import Account
from ..steering.candidates import ways_of
from ..steering.choose import finished
from ..steering.problem import SteerProblem
from ..steering.routes import ANNEALED, FROM_BASE, IMPORTANCE, TWISTED
from ..steering.stage_folder import StageFolder
from ..steering.stages import Work
from ..steering.steer import steer
from ..steering.trials import Tried
from .reward_tables import RewardTable

TABLES, RARE = 20, 10  # the last ones are rare events
SIZES = ((4, 5), (3, 7), (6, 4), (8, 4), (2, 12))  # tokens and sites, in turn
DRAWS, CALLS = 2000, 2000  # even tables: draws' worth of evaluations, unlimited calls; odd ones: distinct calls
SPARE = 80_000  # draws' worth of evaluations for odd tables
FIXED = (IMPORTANCE, TWISTED, ANNEALED, FROM_BASE)
OURS = "truetilt"
POPULATIONS = 16


def random_table(number: int) -> RewardTable:
    """Table `number`."""
    size, length = SIZES[number % len(SIZES)]
    generator = torch.Generator().manual_seed(1000 + number)
    log_p = _field(size, length, (1.0, 0.7, 0.3), generator)
    values = _field(size, length, (1 / math.sqrt(length), 0.4 / math.sqrt(length), 0.3), generator)
    values = (values - values.mean()) / values.std()
    values = 4.0 * values - (log_p - log_p.mean()) if number >= RARE else 0.8 * values
    return RewardTable(log_p.reshape(-1).softmax(0).reshape(log_p.shape), values.reshape(-1))


def _field(size: int, length: int, scales: tuple[float, float, float], generator: torch.Generator) -> Tensor:
    """Terms of sites, of pairs of sites, and of each state, with these standard deviations."""
    sites, pairs, states = scales

    def normal(*axes: int) -> Tensor:
        drawn = torch.randn([size] * len(axes), generator=generator, dtype=torch.float64)
        return drawn.reshape([size if axis in axes else 1 for axis in range(length)])

    out = torch.zeros([size] * length, dtype=torch.float64)
    for one in range(length):
        out = out + sites * normal(one)
    for one in range(length):
        for other in range(one + 1, length):
            out = out + pairs / math.sqrt(length) * normal(one, other)
    return out + states * normal(*range(length))


def budget_of(number: int, length: int) -> Budget:
    """Even tables are limited by evaluations, odd ones by distinct calls."""
    return Budget(DRAWS * length) if number % 2 == 0 else Budget(SPARE * length, CALLS)


def one_table(number: int, method: str, seed: int) -> Answer:
    """A method on one table: its error, its verdict, and the errors of its stated intervals."""
    table = random_table(number)
    budget = budget_of(number, table.p0.dim())
    model, reward = table.model(), table.reward()
    if method == OURS:
        result = steer(model, reward, evaluations=budget.evaluations, calls=budget.calls, seed=seed, progress=False)
    else:
        problem = SteerProblem(model, reward, 1.0, tuple(range(model.length)), model.length)
        result = _fixed(problem, budget, method, seed)
    if result is None:
        return {}
    law, log_z = table.target(1.0)
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    return {
        "tv": table.miss(law, x, weights),
        "log_z_error": result.log_z - log_z,
        "verdict": str(result.trust().verdict),
        "off": statements_off(table, law, log_z, result),
        "route": result.settings.get("steer", {}).get("route", method),
        "evaluations": result.spent.evaluations,
        "distinct": result.spent.distinct,
    }


def _fixed(problem: SteerProblem, budget: Budget, name: str, seed: int) -> Result | None:
    """A whole budget on one route, without a pilot; None if the budget does not suffice."""
    account = Account(budget, problem.states)
    work = Work(problem, account, StageFolder(None, {}, problem.reward), seed, movable=True)
    found = next(way for way in ways_of(problem, account) if way.name == name).build(work)
    if found is None:
        return None
    route, why = found
    size = route.size(account, POPULATIONS)
    return finished(work, Tried(route, work.run(route, size, POPULATIONS, why), 1.0), why).result if size else None


def statements_off(table: RewardTable, law: Tensor, log_z: float, result: Result) -> float:
    """The largest error of log Z, of the mean reward and of the likeliest token of each site, in half-widths of the 95
    % interval that the result states for each.
    """
    shape, every = table.p0.shape, torch.cartesian_prod(*[torch.arange(table.size)] * table.p0.dim())
    rewards, sites = table.reward(), range(len(shape))
    marginals = [law.reshape(shape).sum([d for d in sites if d != site]) for site in sites]
    tokens = torch.stack([each.argmax() for each in marginals])

    def told(x: Tensor) -> Tensor:
        return torch.cat([rewards(x)[:, None], (x == tokens).double()], 1)

    truth = law @ told(every)
    stated: Any = result.expectation_interval(told)
    own: Any = result.log_z_interval()
    halves = (torch.as_tensor(stated.high) - torch.as_tensor(stated.low)) / 2
    off = [float(one) for one in (torch.as_tensor(stated.estimate) - truth).abs() / halves.clamp(min=1e-12)]
    return max(*off, abs(float(own.estimate) - log_z) / max((float(own.high) - float(own.low)) / 2, 1e-12))
