"""Noise schedules sigma(t) with their derivative, and time grids.

sigma(0) = 0 for every schedule: time 0 is clean data, so a last step into s = 0 leaves no noise, whatever the lower
end of the schedule. Generation runs t = 1 -> 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, wraps
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from ..core.arguments import LONGEST, listed, number, plain, reals, settle, shown, whole
from ..core.errors import InvalidInput

AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])
Grid = tuple[float, ...]  # 1 = t_0 > t_1 > ... > t_T = 0
MOST_STEPS = LONGEST - 1


class Sigma(NamedTuple):
    """Total noise at t and its time derivative."""

    value: Tensor
    rate: Tensor


@runtime_checkable
class NoiseSchedule(Protocol):
    """The total noise sigma(t) with its derivative, and the time at which there is so much of it."""

    def __call__(self, t: float | Tensor) -> Sigma: ...
    def time_of(self, value: float) -> float: ...


def _time(t: float | Tensor) -> Tensor:
    t = (
        torch.tensor(t, dtype=torch.float64)
        if isinstance(t, float)
        else reals("time", t, "it must lie in [0, 1] (data at 0, noise at 1)")
    )
    if not bool(((t >= 0) & (t <= 1)).all()):
        raise InvalidInput(f"time is {t.tolist()}; it must lie in [0, 1] (data at 0, noise at 1)")
    return t


def _remembered(schedule: AnyMethod) -> AnyMethod:
    """The same method with a cache of its values at plain numbers: a step asks for two times again and again."""
    known = lru_cache(maxsize=256)(schedule)

    @wraps(schedule)
    def sigma(self: Any, t: float | Tensor) -> Sigma:
        return known(self, t) if isinstance(t, float) else schedule(self, t)

    return cast("AnyMethod", sigma)


def _fraction(name: str, eps: float) -> float:
    eps = number(name, eps, "it must lie strictly between 0 and 1")
    if not 0 < eps < 1:
        raise InvalidInput(f"{name} is {eps}; it must lie strictly between 0 and 1")
    return eps


@dataclass(frozen=True)
class LogLinear:
    """$sigma(t) = -log(1 - (1 - eps) t)$: the noised fraction grows linearly in t."""

    eps: float = 1e-3

    def __post_init__(self) -> None:
        settle(self, eps=_fraction("eps", self.eps))

    @_remembered
    def __call__(self, t: float | Tensor) -> Sigma:
        t = _time(t)
        return Sigma(-torch.log1p(-(1 - self.eps) * t), (1 - self.eps) / (1 - (1 - self.eps) * t))

    def time_of(self, value: float) -> float:
        return min(1.0, -math.expm1(-value) / (1 - self.eps))


@dataclass(frozen=True)
class Geometric:
    """$sigma(t) = low^(1-t) high^t$ for $t > 0$, and 0 at $t = 0$."""

    low: float = 1e-4
    high: float = 20.0

    def __post_init__(self) -> None:
        settle(self, low=number("low", self.low), high=number("high", self.high))
        if not 0 < self.low < self.high < math.inf:
            raise InvalidInput(f"sigma runs from {self.low} to {self.high}; need 0 < low < high < inf")

    @_remembered
    def __call__(self, t: float | Tensor) -> Sigma:
        t = _time(t)
        sigma = self.low ** (1 - t) * self.high**t
        return Sigma(torch.where(t > 0, sigma, 0.0), sigma * math.log(self.high / self.low))

    def time_of(self, value: float) -> float:
        if value < self.low:
            return 0.0
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))


@dataclass(frozen=True)
class Cosine:
    """$exp(-sigma(t)) = eps + (1 - eps) cos(pi t / 2)$."""

    eps: float = 1e-3

    def __post_init__(self) -> None:
        settle(self, eps=_fraction("eps", self.eps))

    @_remembered
    def __call__(self, t: float | Tensor) -> Sigma:
        t = _time(t)
        keep = self.eps + (1 - self.eps) * torch.cos(t * (math.pi / 2))
        rate = (1 - self.eps) * (math.pi / 2) * torch.sin(t * (math.pi / 2)) / keep
        # 1 - keep as a sine: exact near t = 0, where cos(t) - 1 would lose every digit
        return Sigma(-torch.log1p(-2 * (1 - self.eps) * torch.sin(t * (math.pi / 4)) ** 2), rate)

    def time_of(self, value: float) -> float:
        return 4 / math.pi * math.asin(min(math.sqrt(0.5), math.sqrt(-math.expm1(-value) / (2 * (1 - self.eps)))))


def uniform_grid(steps: int) -> Grid:
    """The time grid of equal steps from $t = 1$ (noise) to $t = 0$ (data): a tuple of `steps` + 1 times.

    Args:
        steps: Number of steps, 1 to 999,999; no default. More steps, less time error, more network evaluations.
    """
    steps = whole("steps", steps, 1, MOST_STEPS)
    return (*(1 - i / steps for i in range(steps)), 0.0)


def masked_fraction_grid(schedule: NoiseSchedule, steps: int) -> Grid:
    """Times between which the noised fraction $1 - exp(-sigma)$ falls by equal amounts."""
    steps = whole("steps", steps, 1, MOST_STEPS)
    if not isinstance(schedule, NoiseSchedule):
        raise InvalidInput(f"schedule is {shown(schedule)}; give a noise schedule such as tt.LogLinear()")
    top = float(-torch.expm1(-schedule(1.0).value))
    inner = tuple(schedule.time_of(-math.log1p(-top * (1 - i / steps))) for i in range(1, steps))
    if 0.0 in inner:
        raise InvalidInput(
            f"{steps} steps need times with less noise than {schedule} has before t = 0; "
            "take fewer steps, or a schedule that starts lower"
        )
    return check_grid((1.0, *inner, 0.0))


def check_whole(grid: Iterable[float]) -> Grid:
    """A grid that samples data: it falls strictly from 1 to 0."""
    grid = check_grid(grid)
    if grid[0] != 1 or grid[-1] != 0:
        raise InvalidInput(
            f"the time grid goes from {grid[0]} to {grid[-1]}; a run starts from noise (1) and ends in data (0)"
        )
    return grid


def check_grid(grid: Iterable[float]) -> Grid:
    """A grid must fall strictly and stay inside [0, 1]."""
    if isinstance(plain(grid), int | float):
        raise InvalidInput(f"the time grid is {shown(grid)}; give times that fall from 1 to 0, tt.uniform_grid(50)")
    times = listed("the time grid", grid, "give times that fall from 1 to 0, such as tt.uniform_grid(50)")
    grid = tuple(float(number("a time of the grid", t, "times are numbers from 1 to 0")) for t in times)
    if len(grid) < 2:
        raise InvalidInput(f"the time grid has {len(grid)} points; it needs at least a start and an end")
    for step, (t, s) in enumerate(pairwise(grid)):
        if not 0 <= s < t <= 1:
            raise InvalidInput(f"the time grid goes from {t} to {s} at step {step}; times must fall from 1 to 0")
    return grid
