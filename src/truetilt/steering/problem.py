"""What `steer` is asked: a target of a model, in the forms that can be run for it.

A reward's target is p0(x) exp(strength * reward(x)). A condition's is p0(x) p(zeta|x)^alpha: with a potential
log p(zeta|x) it is a reward's, with the conditional model as base and strength alpha - 1; else it is made of the ratios
of the two models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from ..core.spent import Spent
from ..core.types import Model, Potential, Score, Target, Tokens
from ..diffusion.processes import Masking
from ..diffusion.schedules import Grid, masked_fraction_grid, uniform_grid
from ..result import Result
from ..rewards.reward import Reward
from ..targets.composed import Composed
from ..twists.calls import call_reward, scaled
from .account import Price


@dataclass(frozen=True)
class SteerProblem:
    """A model and what it is steered by: a reward, or else its condition; a draw is revealed in so many `steps`.

    `network` says that the reward is a network of the model (a potential), whose calls count as evaluations.
    """

    model: Model
    reward: Potential | Reward | None
    strength: float  # of the reward, or alpha
    order: tuple[int, ...] | None
    steps: int
    network: bool = False
    target: Target | None = None  # what to call the target where it is not the reward's
    populations: int = 16

    @property
    def length(self) -> int:
        return self.model.length

    @property
    def vocabulary(self) -> int:
        return self.model.process.vocabulary

    @property
    def masks(self) -> bool:
        """Whether sites can be masked and redrawn."""
        return isinstance(self.model.process, Masking)

    @property
    def scores(self) -> int:
        """How many networks a step asks."""
        return 1 if self.reward is not None else 2

    @property
    def distinct(self) -> int:
        """How many states the reward has been called for."""
        return self.reward.distinct if isinstance(self.reward, Reward) else 0

    @property
    def states(self) -> float:
        """How many states its reward can be called for; infinitely many where an answer is not kept."""
        kept = isinstance(self.reward, Reward) and self.reward.keeps
        return self.vocabulary**self.length if kept else math.inf

    @property
    def grid(self) -> Grid:
        """The times of a draw: equally many sites a step where there is a mask."""
        if isinstance(self.model.process, Masking):
            return masked_fraction_grid(self.model.process.schedule, self.steps)
        return uniform_grid(self.steps)

    def cost(self, rounds: int, calls: int) -> Price:
        """What so many rounds of the networks and calls of the reward cost, if there is a reward."""
        called = 0 if self.reward is None else calls
        return Price(self.scores * rounds + called, 0) if self.network else Price(self.scores * rounds, called)

    @property
    def draw(self) -> Price:
        """What a draw costs, with the reward of it."""
        return self.cost(self.steps, 1)

    def goal(self, twist: Potential | None = None) -> Composed:
        """The target on the any-order clock, led by a twist where there is one."""
        if self.reward is None:
            return Composed(
                self.model, conditions=[(cast("Score", self.model.conditional), self.strength)], order=self.order
            )
        return Composed(self.model, reward=self.reward, strength=self.strength, twist=twist, order=self.order)

    def nats(self, goal: Composed, x: Tokens) -> Tensor:
        """strength * reward of clean states, by the (counted) reward of a goal."""
        return scaled(call_reward(cast("Potential", goal.reward), x), self.strength)

    def priced(self, spent: Spent) -> Spent:
        """What was spent, with calls of a reward that is a network counted as evaluations."""
        return Spent(spent.rounds, spent.evaluations + spent.calls) if self.network else spent

    def counted(self, result: Result) -> Result:
        """A run of it, its calls priced likewise, and with the target's own name."""
        if self.target is not None:
            constant = None if self.target.constant is None else self.target.constant._asdict()
            result = replace(result, settings=result.settings | {"log_z": constant, "target": self.target.formula})
        if not self.network:
            return result
        rounds, evaluations, calls, _ = result.counts.unbind(-1)
        none = torch.zeros_like(calls)
        return replace(result, counts=torch.stack([rounds, evaluations + calls, none, none], -1))
