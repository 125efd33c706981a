"""Tilts: the log-weight exponent(t) * potential(x, t) of a particle, and the ramps by which exponents grow.

A ramp maps elapsed time u = 1 - t to the share of the exponent in force, 1 at the end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from ..core.spent import Spent
from ..core.types import (
    LARGEST,
    InvalidInput,
    Potential,
    Questions,
    Schedule,
    State,
    called,
    check,
    function,
    listed,
    number,
    settle,
)
from .values import scaled, value_of

Ramp = Callable[[float], float]  # elapsed time u = 1 - t to the share of the exponent in force; 1 at u = 1


@dataclass(frozen=True)
class Power:
    """The exponent grows as u^p; p = 0 is the full exponent throughout."""

    p: float

    def __post_init__(self) -> None:
        settle(self, p=number("the power of a ramp", self.p))
        if not 0 <= self.p < math.inf:
            raise InvalidInput(f"the exponent grows as u^{self.p}; the power must be finite and at least 0")

    def __call__(self, u: float) -> float:
        return u**self.p


FULL = Power(0.0)  # the whole exponent from the start
LINEAR, SQUARE = Power(1.0), Power(2.0)


def at_end(u: float) -> float:
    """Nothing until the data are reached: a reward defined on clean states only."""
    return 1.0 if u == 1 else 0.0


@dataclass(frozen=True)
class Frozen:
    """A ramp through points: the share of the exponent at each elapsed time, straight lines between them."""

    elapsed: tuple[float, ...]  # rising to 1
    shares: tuple[float, ...]  # the last is 1
    falls: tuple[float, ...] = ()  # what each step cost in rehearsal: the fraction of the effective sample it lost
    spent: Spent = field(default=Spent(), compare=False, repr=False)  # what finding it cost

    def __post_init__(self) -> None:
        for name, points in {"elapsed": self.elapsed, "shares": self.shares, "falls": self.falls}.items():
            given = listed(f"the {name} of a ramp", points, "give a list of numbers")
            settle(self, **{name: tuple(number(f"one of the {name} of a ramp", value) for value in given)})
        rising = all(a < b for a, b in pairwise(self.elapsed))
        if len(self.elapsed) != len(self.shares) or len(self.elapsed) < 2 or not rising or self.elapsed[-1] != 1:
            raise InvalidInput("a frozen ramp needs a share for each of two or more elapsed times, rising to 1")
        if not all(math.isfinite(share) for share in self.shares):
            raise InvalidInput(f"the shares of a ramp are {self.shares}; they must be finite")
        if self.shares[-1] != 1:
            raise InvalidInput(f"the last share is {self.shares[-1]}; a ramp that does not end at 1 misses the target")

    def __call__(self, u: float) -> float:
        right = min(max(bisect_right(self.elapsed, u), 1), len(self.elapsed) - 1)
        (a, b), (low, high) = self.elapsed[right - 1 : right + 1], self.shares[right - 1 : right + 1]
        return high if u >= b else low + (high - low) * max(0.0, u - a) / (b - a)


def check_ramp(ramp: Ramp) -> None:
    """A ramp that does not end at 1 would miss the target."""
    function("ramp", ramp, "(u)", "the share of the exponent at elapsed time u")
    first, last = (
        number("the exponent's share", called("ramp", ramp, u), "a ramp must return numbers") for u in (0.0, 1.0)
    )
    if last != 1 or not math.isfinite(first):
        raise InvalidInput(f"the exponent's share runs from {first} to {last}; it must be finite and end at 1")


@dataclass(frozen=True)
class Tilt:
    """log-weight exponent(t) * potential(x, t) that a particle carries; differences of it telescope.

    A potential that is a log-probability is at most 0: `most` is what rounding allows, and a larger value is warned of.
    """

    potential: Potential
    exponent: Schedule
    most: float | None = None

    def __call__(self, x: State, t: float, questions: Questions | None = None) -> Tensor:
        share = float(self.exponent(t))
        if share == 0:  # not evaluated: 0 * anything is 0
            return torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
        value = value_of(self.potential, x, t, questions)
        if self.most is not None:
            check((value > self.most).any(), _above_zero, questions)
        return scaled(value, share)


def _above_zero() -> UserWarning:
    return UserWarning(
        "the model's potential is above 0 for some states, and log p(zeta|x, t) of a class never is: it may return "
        "probabilities, or raw logits, where their log_softmax is due, and then another law is sampled. For a density "
        "or a reward this is as it should be"
    )


def growing(potential: Potential, height: float, ramp: Ramp) -> Tilt:
    """A tilt whose exponent grows with elapsed time, up to `height`."""
    return Tilt(potential, Growing(height, ramp))


@dataclass(frozen=True)
class Growing:
    """An exponent in clock time: height * ramp(elapsed time)."""

    height: float
    ramp: Ramp

    def __call__(self, t: float) -> float:
        return self.height * self.ramp(1 - t)


def check_reward(reward: Potential, strength: float) -> float:
    """The reward is a function of (x, t); its strength as a plain number."""
    function("the reward", reward, "(x, t)", "of states [..., D] and a time, that returns one number a state")
    need = f"it must be finite, at most {LARGEST:.0e}"
    strength = number("the reward's strength", strength, need)
    if not abs(strength) <= LARGEST:
        raise InvalidInput(f"the reward's strength is {strength}; {need}")
    return strength
