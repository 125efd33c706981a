"""The problem of a `steer` call: the target of a model, in the forms that routes run.

With a reward the target is p0(x) exp(strength * reward(x)). With a condition it is p0(x) p(zeta|x)^alpha. If the model
has a potential log p(zeta|x), that is the first form with the conditional model as base, the potential as reward and
strength alpha - 1; otherwise it is built from the ratios of the two models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from ..core.spent import Spent
from ..core.target import Constant, Target
from ..core.twists import candidates_of
from ..core.types import Model, Potential, Score, Tokens
from ..diffusion.grids import Grid, masked_fraction_grid, uniform_grid
from ..diffusion.processes import Masking
from ..result import Result
from ..rewards.calls import call_reward, scaled
from ..rewards.reward import Reward
from ..targets.composed import Composed
from .account import Price


@dataclass(frozen=True)
class SteerProblem:
    """A model and what steers it: a reward, or without one the model's condition. A draw is revealed in `steps` steps.

    `network` says that the reward is a network of the model (its potential), whose calls count as evaluations.
    """

    model: Model
    reward: Potential | Reward | None
    strength: float  # of the reward; without one, alpha
    order: tuple[int, ...] | None
    steps: int
    network: bool = False
    target: Target | None = None  # name of the target if it is not the reward's
    populations: int = 16

    @property
    def length(self) -> int:
        return self.model.length

    @property
    def vocabulary(self) -> int:
        return self.model.process.vocabulary

    @property
    def masks(self) -> bool:
        """Whether the process has a mask, so that sites can be redrawn."""
        return isinstance(self.model.process, Masking)

    @property
    def one_site_a_step(self) -> bool:
        """Whether a draw reveals one site a step, so that its law is that of the model's conditionals."""
        return self.masks and self.steps == self.length

    @property
    def scores(self) -> int:
        """Number of networks evaluated in a step."""
        return 1 if self.reward is not None else 2

    @property
    def distinct(self) -> int:
        """Number of distinct calls of the reward so far."""
        return self.reward.distinct if isinstance(self.reward, Reward) else 0

    @property
    def states(self) -> float:
        """Number of states on which the reward can be called; infinity if it has no cache."""
        kept = isinstance(self.reward, Reward) and self.reward.keeps
        return self.vocabulary**self.length if kept else math.inf

    @property
    def grid(self) -> Grid:
        """The time grid of a draw; with a mask, equally many sites are revealed in each step."""
        if isinstance(self.model.process, Masking):
            return masked_fraction_grid(self.model.process.schedule, self.steps)
        return uniform_grid(self.steps)

    def cost(self, rounds: int, calls: int) -> Price:
        """The price of network rounds and of calls of the reward (free if there is no reward)."""
        called = 0 if self.reward is None else calls
        return Price(self.scores * rounds + called, 0) if self.network else Price(self.scores * rounds, called)

    @property
    def draw(self) -> Price:
        """The price of one draw with its reward."""
        return self.cost(self.steps, 1)

    def goal(self, twist: Potential | None = None) -> Composed:
        """The target on the any-order clock, led by a twist if there is one."""
        if self.reward is None:
            return Composed(
                self.model, conditions=[(cast("Score", self.model.conditional), self.strength)], order=self.order
            )
        few = candidates_of(twist)
        return Composed(
            self.model, reward=self.reward, strength=self.strength, twist=twist, order=self.order,
            candidates=None if few is None else min(few, self.vocabulary),
        )  # fmt: skip

    def nats(self, goal: Composed, x: Tokens) -> Tensor:
        """strength * reward of clean states, by the counted reward of a goal."""
        return scaled(call_reward(cast("Potential", goal.reward), x), self.strength)

    def priced(self, spent: Spent) -> Spent:
        """The cost with calls of a network reward counted as evaluations."""
        return Spent(spent.rounds, spent.evaluations + spent.calls) if self.network else spent

    def counted(self, result: Result) -> Result:
        """A result with calls of a network reward counted as evaluations, and with the target's own name."""
        if self.target is not None:
            constant = self.target.constant._asdict() if isinstance(self.target.constant, Constant) else None
            result = replace(result, settings=result.settings | {"log_z": constant, "target": self.target.formula})
        if not self.network:
            return result
        rounds, evaluations, calls, _ = result.counts.unbind(-1)
        none = torch.zeros_like(calls)
        return replace(result, counts=torch.stack([rounds, evaluations + calls, none, none], -1))
