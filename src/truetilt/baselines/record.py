"""What a baseline may spend, and what it gives back: states, weights where it has any, and what was asked for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.meter import Meter
from ..core.spent import Spent
from ..core.types import InvalidInput, LogWeights, Tokens, plain, shown
from ..smc.resampling import normalised
from ..twists.calls import Rewarding, call_reward


class Budget(NamedTuple):
    """Network evaluations and reward calls that may be spent, None for any number; a method ends with the first."""

    evaluations: int | None = None
    calls: int | None = None

    def most(self, evaluations: int, calls: int, what: str, at_most: int | None = None) -> int:
        """How many of something can be had that costs so many evaluations and calls each; at least one."""
        limits = [(self.evaluations, evaluations, "network evaluations"), (self.calls, calls, "reward calls")]
        for limit, _, name in limits:
            if limit is not None and (type(plain(limit)) is not int or plain(limit) < 0):
                raise InvalidInput(f"a budget of {shown(limit)} {name}; give a whole number, or None for any number")
        counts = [(limit // each, limit, each, name) for limit, each, name in limits if limit is not None and each > 0]
        if not counts and at_most is not None:
            return at_most
        if not counts:
            raise InvalidInput(f"nothing limits the number of {what}; give a budget of evaluations or of calls")
        count, limit, each, name = min(counts)
        if count < 1:
            raise InvalidInput(
                f"a budget of {limit:,} {name}, and one of the {what} costs {each:,}; give at least that"
            )
        return count if at_most is None else min(count, at_most)


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
