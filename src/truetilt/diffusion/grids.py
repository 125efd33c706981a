"""Time grids: the times from 1 (noise) down to 0 (data) between which a sampler steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import torch

from ..core.arguments import LONGEST, listed, number, plain, shown, whole_number
from ..core.errors import InvalidInput
from .processes import NoiseSchedule

Grid = tuple[float, ...]  # 1 = t_0 > t_1 > ... > t_T = 0
MOST_STEPS = LONGEST - 1


def uniform_grid(steps: int) -> Grid:
    """The time grid of equal steps from $t = 1$ (noise) to $t = 0$ (data): a tuple of `steps` + 1 times.

    Args:
        steps: Number of steps, 1 to 999,999; no default. More steps, less time error, more network evaluations.
    """
    steps = whole_number("steps", steps, 1, MOST_STEPS)
    return (*(1 - i / steps for i in range(steps)), 0.0)


def masked_fraction_grid(schedule: NoiseSchedule, steps: int) -> Grid:
    """Times between which the noised fraction $1 - exp(-sigma)$ falls by equal amounts.

    Args:
        schedule: A noise schedule, such as `tt.LogLinear()`.
        steps: Number of steps, 1 to 999,999.
    """
    steps = whole_number("steps", steps, 1, MOST_STEPS)
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


def check_full_grid(grid: Iterable[float]) -> Grid:
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
