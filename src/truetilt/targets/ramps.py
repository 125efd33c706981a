"""How an exponent grows: ramps from elapsed time u = 1 - t to the share of the exponent in force, 1 at the end."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from ..core.types import InvalidInput, called, function, listed, number, settle

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

    def __post_init__(self) -> None:
        for name in ("elapsed", "shares", "falls"):
            given = listed(f"the {name} of a ramp", getattr(self, name), "give a list of numbers")
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
