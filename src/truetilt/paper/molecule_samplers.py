"""Samplers of molecules, each within a budget of network evaluations and reward calls: ours and every baseline.

All write from left to right, so that p0 is the same. Passes of the potential are counted apart; the methods called
"charged" pay for them out of the same budget.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..baselines.base_draws import base_draws, site_by_site
from ..baselines.budget_search import afresh
from ..baselines.methods import METHODS, TITLES, Contest, run_method
from ..baselines.record import Baseline
from ..commands.job_runner import PROCESSES, RANKS
from ..core.binding import bind
from ..core.budget import Budget, BudgetTooSmall
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog
from ..core.spent import Spent
from ..core.types import Model, Tokens
from ..diffusion.predictors import Taylor
from ..molecules.bundle import Molecules
from ..rewards.reward import Reward
from ..steering.steer import steer
from ..targets.composed import Composed
from .molecule_tasks import Task, networks
from .molecule_values import RelaxedPotential

TRUETILT, LAST, CHARGED, STEER = "truetilt", "truetilt-last", "truetilt-charged", "steer"
TAYLOR, BASE = "taylor", "base"
BY_POTENTIAL = {
    TRUETILT: "truetilt",  # as `truetilt sample molecules`: rows that have ended are worth their reward
    LAST: "truetilt, reward last",  # the reward is called at the end only, once per particle
    CHARGED: "truetilt, potential charged",  # as the first; passes of the potential are paid for too
}
OURS = BY_POTENTIAL | {STEER: "tt.steer"}
RIVALS = {**TITLES, TAYLOR: "Taylor guidance", BASE: "base draws"}
NAMES = OURS | RIVALS
WITH_TARGET = {*OURS, *(name for name, method in METHODS.items() if method.has_target)}
POPULATIONS, CANDIDATES = 16, 8
_CALLS = 3  # reward calls of a particle whose twist calls it for rows that have ended, for a first guess
_TRIES, _FULL, _AIM = 5, 0.9, 0.97  # runs tried, share of a budget that will do, and share that is aimed at


@dataclass(frozen=True)
class MoleculeDraws:
    """States with weights that sum to 1, and what they cost; log Z and a verdict if a method has them."""

    x: Tokens
    weights: Tensor
    spent: Spent
    potential: int = 0  # evaluations of the potential network
    log_z: float | None = None
    verdict: str | None = None


class MoleculeProblem(NamedTuple):
    """A task on a device, with its networks, reward and budget."""

    task: Task
    nets: Molecules
    reward: Reward
    budget: Budget
    seed: int

    def contest(self) -> Contest:
        return Contest(self.nets.model(), self.reward, self.task.strength, self.budget, self.seed)


def problem_of(task: Task, budget: Budget, seed: int, device: str) -> MoleculeProblem:
    """A task with its networks and its reward, loaded once in each process."""
    return MoleculeProblem(task, networks(device, task.fix), shared_reward(task, device), budget, seed)


@lru_cache(maxsize=4)
def shared_reward(task: Task, device: str) -> Reward:
    """The reward of a task; on a GPU, and unless several processes share it, RDKit runs in worker processes."""
    alone = RANKS == 1 and PROCESSES < 2 and not device.startswith("cpu")
    workers = min(max((os.cpu_count() or 1) - 2, 0), 14) if alone else 0
    return networks(device, task.fix).reward(task.score, workers=workers)


def drawn(name: str, on: MoleculeProblem) -> MoleculeDraws:
    """Molecules by the method of this name, until either budget is spent."""
    if name in BY_POTENTIAL:
        return _twisted(name, on)
    if name in (STEER, TAYLOR, BASE):
        return {STEER: _steered, TAYLOR: _guided, BASE: _base}[name](on)
    found: Baseline = run_method(name, on.contest())
    return MoleculeDraws(found.states, found.weights.cpu(), found.spent, 0, found.log_z)


class Counted:
    """A function of states whose rows are counted."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function, self.rows = function, 0

    def __call__(self, x: Tensor, t: float) -> Tensor:
        self.rows += len(x)
        return self.function(x, t)


def potential_run(name: str, on: MoleculeProblem, particles: int) -> MoleculeDraws:
    """`tt.Composed` with the potential as twist in 16 populations, one of `BY_POTENTIAL`.

    Calls of the reward by the twist, for rows that have ended, are counted too.
    """
    reward: Any = afresh(on.reward)
    nets, task = on.nets, on.task
    value = nets.twist(task.score, task.strength, None if name == LAST else reward)
    if value is None:
        raise InvalidInput(f"the potential predicts no part of the reward of {task.name}; give networks with one")
    twist = Counted(value)
    fk = Composed(
        nets.model(), reward=reward, strength=task.strength, twist=twist, order=tuple(range(nets.length)),
        candidates=min(CANDIDATES, nets.vocabulary),
    )  # fmt: skip
    result = run(fk, particles=max(particles // POPULATIONS, 1), populations=POPULATIONS, seed=on.seed)
    spent = result.spent._replace(calls=reward.calls, distinct=reward.distinct)
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1).cpu()
    return MoleculeDraws(x, weights, spent, twist.rows, result.log_z, str(result.trust().verdict))


def cost_of(name: str, length: int) -> int:
    """Evaluations that a particle is charged: a pass of the network at each site, and, charged, those of the potential
    at its candidates and before them."""
    return length * (CANDIDATES + 2 if name == CHARGED else 1)


def _twisted(name: str, on: MoleculeProblem) -> MoleculeDraws:
    """The largest such run within the budget."""
    each = POPULATIONS * cost_of(name, on.nets.length)
    most = on.budget.most(each, POPULATIONS, f"particles of each of {POPULATIONS} populations")
    first = max(most // _CALLS, 1) if name == TRUETILT and on.task.fix is None else most
    return within_budget(lambda size: potential_run(name, on, size), first * POPULATIONS, on.budget, name == CHARGED)


def within_budget(
    draw: Callable[[int], MoleculeDraws], size: int, budget: Budget, charged: bool = False
) -> MoleculeDraws:
    """A run that spends most of a budget and no more, by trying sizes; the search is not charged, as in `largest`."""
    best = None
    for _ in range(_TRIES):
        found = draw(size)
        more = found.potential if charged else 0
        share = budget.share(found.spent._replace(evaluations=found.spent.evaluations + more))
        if share <= 1 and (best is None or len(found.x) > len(best.x)):
            best = found
        again = int(size * _AIM / share) // POPULATIONS * POPULATIONS if share else size
        if (share <= 1 and (share >= _FULL or again <= size)) or again < POPULATIONS:
            break
        size = again
    if best is None:
        raise BudgetTooSmall(f"a run of {POPULATIONS} particles costs more than {_told(budget)}; give more")
    return best


def _told(budget: Budget) -> str:
    return f"{budget.evaluations} network evaluations and {budget.calls} reward calls"


def _steered(on: MoleculeProblem) -> MoleculeDraws:
    evaluations, calls = on.budget
    how: dict[str, Any] = {"evaluations": evaluations, "calls": calls, "populations": POPULATIONS, "seed": on.seed}
    result = steer(on.nets.model(), afresh(on.reward), on.task.strength, progress=False, **how)
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1).cpu()
    return MoleculeDraws(x, weights, result.spent, 0, result.log_z, str(result.trust().verdict))


def guided_model(on: MoleculeProblem, value: Callable[[Tensor, float], Tensor], dtype: torch.dtype) -> Model:
    """The model whose base leans by the gradient of strength * value: classifier guidance by `tt.Taylor`."""
    model = on.nets.model()
    return replace(model, base=Taylor(model.process, model.base, value, dtype))


def _guided(on: MoleculeProblem) -> MoleculeDraws:
    """Draws of the guided model without weights; the reward only counts them, as many as both budgets afford."""
    task, nets, contest = on.task, on.nets, on.contest()
    value: Any = None
    before, dtype = Spent(), torch.float64
    twist = nets.twist(task.score, task.strength) if task.known else None
    if twist is not None:
        value, dtype = Counted(RelaxedPotential.of(twist, task.strength)), torch.float32
    else:
        learned = contest._replace(reward=afresh(on.reward)).value()
        value, before = Counted(lambda onehot, t: task.strength * learned.relaxed(onehot, t)), learned.spent
    count = on.budget.less(before).most(nets.length, 1, "draws")
    x, asked = _plain_draws(guided_model(on, value, dtype), count, on.seed)
    spent = asked._replace(calls=count, distinct=count).plus(before)
    return MoleculeDraws(
        x, torch.full((count,), 1 / count, dtype=torch.float64), spent, value.rows * (not before.calls)
    )


def _base(on: MoleculeProblem) -> MoleculeDraws:
    count = on.budget.most(on.nets.length, 1, "draws")
    x, asked = _plain_draws(on.nets.model(), count, on.seed)
    return MoleculeDraws(x, torch.full((count,), 1 / count, dtype=torch.float64), asked)


def _plain_draws(model: Model, count: int, seed: int) -> tuple[Tokens, Spent]:
    """Draws of a model from left to right, and the network evaluations that they cost, as measured."""
    log = RunLog()
    walk = site_by_site(bind(model, log), order=range(model.length))
    return base_draws(walk, count, seed), log.spent
