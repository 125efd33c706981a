"""Baselines beside our method: run with the same budget, with the same metrics.

On tables every method is run as `truetilt compare` does, as large as its measured cost allows. Networks are slow, so
there a method is run once, as large as planned, and all draw in the same few steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ..baselines.base_draws import site_by_site
from ..baselines.budget_search import afresh
from ..baselines.fk_steering import fk_steering
from ..baselines.independent_draws import best_of_n, importance
from ..baselines.methods import COMPLETIONS, LOOKS, TITLES, Contest, run_method
from ..baselines.record import Baseline
from ..commands.comparison import Comparison, judged
from ..commands.steerable import Steerable
from ..core.budget import Budget
from ..core.errors import DegenerateWeights, InvalidInput, InvalidWeights
from ..core.types import Tokens
from ..metrics.states import evenly_drawn, log_p0, mean_difference
from ..result import Result
from ..steering.steer import steer
from .steer_form import SteerForm
from .steer_problems import SteerTask

OURS = "truetilt"
IMPORTANCE, BEST, FK = "importance", "best-of-n", "fk-difference"
RIVALS = (IMPORTANCE, BEST, FK)  # importance comes first: its draws show the base
AIMING = (OURS, IMPORTANCE, FK)  # methods whose limit is the target
NAMES = {OURS: "truetilt", **TITLES, FK: "FK steering"}
SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)  # shares of the budget at which errors are measured
SEEDS = 3  # runs whose errors are averaged
KEPT = 8  # states that best of N returns, for networks
JUDGED_TABLE, JUDGED = 64, 8  # draws whose naturalness is computed: for tables, and for networks


class Row(NamedTuple):
    """A row of the table: a method, its figures and its cost, or why there are none."""

    name: str
    figures: dict[str, Any]  # reward, naturalness, diversity, error
    evaluations: int = 0
    calls: int = 0
    failed: str = ""
    drawn: Tokens | None = None  # draws whose naturalness is still to be computed


class Point(NamedTuple):
    """The errors of a method at a share of the budget, one per seed that gave an answer."""

    share: float
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.errors) / len(self.errors)


def steered(
    task: SteerTask, form: SteerForm, share: float = 1.0, seed: int = 0, progress: Any = False, **options: Any
) -> Result:
    """Our answer within a share of the budget; `seed` is added to the form's."""
    budget = budget_of(form, share)
    return steer(
        task.model, afresh(task.reward), form.strength, evaluations=budget.evaluations, calls=budget.calls,
        seed=form.seed + seed, progress=progress, **task.options, **options,
    )  # fmt: skip


def budget_of(form: SteerForm, share: float = 1.0) -> Budget:
    return Budget(int(share * form.evaluations), None if form.calls is None else int(share * form.calls))


def rival(name: str, task: SteerTask, form: SteerForm, share: float = 1.0, seed: int = 0) -> Baseline:
    """A baseline's answer within a share of the budget."""
    contest = Contest(task.model, task.reward, form.strength, budget_of(form, share), form.seed + seed)
    return run_method(name, contest) if task.steps is None else _PLANNED[name](contest, task.steps)


def _importance(on: Contest, steps: int) -> Baseline:
    return importance(on.model, afresh(on.reward), on.strength, budget=on.budget, seed=on.seed, walk=_in(steps))


def _best(on: Contest, steps: int) -> Baseline:
    how: dict[str, Any] = {"particles": KEPT, "seed": on.seed, "walk": _in(steps)}
    return best_of_n(on.model, afresh(on.reward), budget=on.budget, **how)


def _fk(on: Contest, steps: int) -> Baseline:
    how: dict[str, Any] = {"completions": COMPLETIONS, "every": -(-steps // LOOKS), "seed": on.seed, "walk": _in(steps)}
    return fk_steering(on.model, afresh(on.reward), on.strength, budget=on.budget, **how)


_PLANNED: dict[str, Callable[[Contest, int], Baseline]] = {IMPORTANCE: _importance, BEST: _best, FK: _fk}


def _in(steps: int) -> Any:
    return partial(site_by_site, steps=steps)


def as_baseline(result: Result) -> Baseline:
    """Our answer as a `Baseline` record."""
    states, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    return Baseline(states, weights.log(), result.log_z, result.spent)


def row_of(name: str, found: Baseline, task: SteerTask, form: SteerForm) -> Row:
    """The metrics of an answer, the same for all methods; computing them is not charged.

    For networks naturalness is slow; `naturalness` computes it later, for several rows at once.
    """
    if task.table is not None:
        asked = Comparison("", "", form.strength, judged=JUDGED_TABLE)
        figures = judged(Steerable(task.model, task.table), task.reward, asked, found)
        return Row(name, figures, found.spent.evaluations, found.spent.distinct)
    weights, value = found.weights, task.reward(found.states)
    allowed = value.isfinite() & (weights > 0)
    share = float(weights[allowed].sum())
    reward = float((weights * value)[allowed].sum()) / share if share > 0 else None
    diversity = mean_difference(found.states, weights, task.model.process.vocabulary)
    drawn = evenly_drawn(found.states, weights, JUDGED)
    return Row(
        name, {"reward": reward, "diversity": diversity}, found.spent.evaluations, found.spent.distinct, drawn=drawn
    )


def naturalness(rows: Sequence[Row], task: SteerTask) -> list[Row]:
    """Rows of networks with their mean log p0 per site, in the steps that draws use, in one order for all."""
    drawn, length = [row.drawn for row in rows if row.drawn is not None], task.model.length
    if not drawn:
        return list(rows)
    stride = _coprime(length)
    order = [site * stride % length for site in range(length)]  # spread out, as random orders are
    found = log_p0(task.model, torch.cat(drawn), order, task.steps).reshape(len(drawn), -1).mean(-1) / length
    values = iter(found.tolist())
    return [
        row if row.drawn is None else row._replace(figures=row.figures | {"naturalness": next(values)}, drawn=None)
        for row in rows
    ]


def _coprime(length: int) -> int:
    """A stride coprime to the length that leaves neighbours far apart: about the golden section of the length."""
    stride = max(round(0.618 * length), 1)
    while math.gcd(stride, length) != 1:
        stride += 1
    return stride


def error_at(name: str, task: SteerTask, form: SteerForm, share: float) -> Point | None:
    """The error at a share of the budget, over seeds; None if that budget is too small."""
    errors = []
    for seed in range(SEEDS):
        try:
            found = (
                as_baseline(steered(task, form, share, seed)) if name == OURS else rival(name, task, form, share, seed)
            )
        except (InvalidInput, DegenerateWeights, InvalidWeights):
            continue
        errors.append(row_of(name, found, task, form).figures["error"])
    return Point(share, tuple(errors)) if errors else None
