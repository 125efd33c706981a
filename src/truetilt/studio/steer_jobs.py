"""Steering in the background: draws of the base, our answer with its report, then the baselines and their errors.

The job can be cancelled at every network pass. Finished parts stay on the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch

from ..baselines.budget_search import said_by_reward
from ..baselines.record import Baseline
from ..commands.comparison import exact_law
from ..core.errors import DegenerateWeights, InvalidInput, InvalidWeights
from ..core.logits import pick_at
from ..core.types import Tokens
from ..result import Result
from ..rewards.reward import Reward
from .background import Background
from .jobs import at_home
from .steer_baselines import (
    AIMING,
    BEST,
    FK,
    IMPORTANCE,
    NAMES,
    OURS,
    SHARES,
    Point,
    Row,
    as_baseline,
    error_at,
    naturalness,
    rival,
    row_of,
    steered,
)
from .steer_choices import RewardChoice
from .steer_form import SteerForm
from .steer_problems import SteerTask, steer_task

SHOWN = 32  # states of a pane


class Shown(NamedTuple):
    """The states of one pane: all with their weights, some drawn by weight, and the rewards of both."""

    x: np.ndarray  # [n, D]
    weights: np.ndarray  # [n], summing to one
    values: np.ndarray  # [n], rewards of x
    drawn: np.ndarray  # [k, D]
    rewards: np.ndarray  # [k], rewards of the drawn ones
    mean: float  # reward, by weight


class Exact(NamedTuple):
    """The exact answer of a table: every state, its probability, log Z, and the mean reward."""

    x: np.ndarray
    law: np.ndarray
    values: np.ndarray
    log_z: float
    mean: float


@dataclass(eq=False)
class SteerRun(Background):
    """A queued or running steering, and what the page shows of it."""

    form: SteerForm
    known: Mapping[str, RewardChoice] = field(default_factory=dict)
    task: SteerTask | None = None
    python: str = ""
    command: str = ""
    doing: str = "making the model ready …"
    share: float = 0.0  # share of the budget spent, while `tt.steer` runs
    passes: int = 0  # states evaluated by networks, in all
    asked: int = 0  # the same within the current stage
    panes: dict[str, Shown] = field(default_factory=dict)
    result: Result | None = None
    exact: Exact | None = None
    rows: list[Row] = field(default_factory=list)
    curve: dict[str, list[Point]] = field(default_factory=dict)

    def carry_out(self) -> None:
        self.check()
        task = self.task = steer_task(self.form, self.known, self._look)
        self.command, self.python = task.command, task.python
        if task.table is not None:
            self.exact = _exact(task, self.form)
        base = self._rival(IMPORTANCE, task)
        if base is not None:
            alike = torch.full((len(base.states),), 1 / len(base.states), dtype=torch.float64)
            self.panes["base"] = _shown(base.states, alike, task.reward)
        self._ours(task)
        for name in (BEST, FK) if self.form.compare else ():
            self._rival(name, task)
        if task.table is None:
            self._begin("how natural the draws of each are")
            self.rows = naturalness(self.rows, task)
        elif self.form.compare:
            self._errors(task)

    def _look(self, states: int) -> None:
        self.passes, self.asked = self.passes + states, self.asked + states
        self.check()

    def _begin(self, doing: str) -> None:
        self.doing, self.asked, self.share = doing, 0, 0.0
        self.check()

    def _ours(self, task: SteerTask) -> None:
        self._begin("looking")

        def progress(what: str, share: float) -> None:
            self.doing, self.share = what, share
            self.check()

        try:
            result = steered(task, self.form, progress=progress)
        except InvalidInput as error:
            raise said_by_reward(error) from None
        line = None if task.command.startswith("#") else task.command
        told = {"bundle": task.name, "condition": task.condition, "command": line}
        told = {key: value for key, value in told.items() if value is not None}
        self.result = replace(result, settings=result.settings | told)
        self.panes["ours"] = _shown(result.particles.flatten(0, 1), result.weights.reshape(-1), task.reward)
        self.rows.insert(0, row_of(OURS, as_baseline(result), task, self.form))
        self.write_report(self.result, task.view)

    def _rival(self, name: str, task: SteerTask) -> Baseline | None:
        self._begin(f"{NAMES[name]}, for comparison")
        try:
            found = rival(name, task, self.form)
        except (InvalidInput, DegenerateWeights, InvalidWeights) as error:
            why = said_by_reward(error) if isinstance(error, InvalidInput) else error
            self.rows.append(Row(name, {}, failed=str(why)))
            return None
        self.rows.append(row_of(name, found, task, self.form))
        return found

    def _errors(self, task: SteerTask) -> None:
        for share in SHARES:
            for name in AIMING:
                self._begin(f"the error of {NAMES[name]} with {100 * share:.3g} % of the budget")
                point = error_at(name, task, self.form, share)
                self.curve.setdefault(name, []).extend([] if point is None else [point])

    def free(self) -> None:
        """Release the networks; the answer and its pictures stay, in host memory."""
        if self.task is not None:
            self.task = self.task.freed()
        self.rows = [row._replace(drawn=None) for row in self.rows]
        if self.result is not None:
            self.result = at_home(self.result)


def _shown(states: Tokens, weights: torch.Tensor, reward: Reward) -> Shown:
    x, weights = states.cpu(), weights.cpu()
    heights = torch.arange(SHOWN, dtype=torch.float64).add(0.5).div(SHOWN)
    chosen = pick_at(weights.double().cumsum(0), heights)
    value = reward(states).cpu()
    allowed = (weights > 0) & value.isfinite()
    mean = float((weights * value)[allowed].sum() / weights[allowed].sum())
    return Shown(x.numpy(), weights.numpy(), value.numpy(), x[chosen].numpy(), value[chosen].numpy(), mean)


def _exact(task: SteerTask, form: SteerForm) -> Exact | None:
    if task.table is None:
        return None
    states, law, log_z = exact_law(task.table, task.reward, form.strength)
    value, some = task.reward(states), law > 0
    mean = float((law * value)[some].sum())
    return Exact(states.cpu().numpy(), law.cpu().numpy(), value.cpu().numpy(), log_z, mean)
