"""What a baseline gives back: states, weights where it has any, and what was asked for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.meter import Meter
from ..core.spent import Spent
from ..core.types import LogWeights, Tokens
from ..smc.resampling import normalised
from ..twists.calls import Rewarding, call_reward


class Baseline(NamedTuple):
    """What a baseline returns.

    With `log_weights` the states are a weighted sample whose limit is the target p0(x) exp(strength r(x)), and `log_z`
    estimates log E_p0[exp(strength r)]. Without, the states count alike and follow a law of the method's own: no
    target, and no log Z.
    """

    states: Tokens  # int64 [n, D]
    log_weights: LogWeights | None  # float64 [n], unnormalised; None: there is no target
    log_z: float | None
    spent: Spent

    @property
    def weights(self) -> Tensor:
        """float64 [n], summing to 1."""
        if self.log_weights is None:
            return torch.full((len(self.states),), 1 / len(self.states), dtype=torch.float64, device=self.states.device)
        return normalised(self.log_weights)


@dataclass(frozen=True, eq=False)
class CountedReward:
    """A reward of clean states whose answers are checked and calls counted; without a cache each is a distinct one."""

    reward: Rewarding
    meter: Meter

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        before = getattr(self.reward, "distinct", None)  # of a tt.Reward
        value = call_reward(self.reward, x)
        self.meter.called(len(x), len(x) if before is None else getattr(self.reward, "distinct", 0) - before)
        return value
