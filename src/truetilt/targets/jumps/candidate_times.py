"""Times at which particles of the uniform process may jump: a Poisson process, drawn from a seed before the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from ...core.arguments import LONGEST, called, function, listed, number, set_fields
from ...core.errors import InvalidInput
from ...core.logits import pick_at
from ...core.types import Schedule
from ...diffusion.grids import Grid, check_grid
from ...diffusion.processes import Uniform
from ...smc.sampler import Stream, check_seed

_TIMES = 15  # the stream's purpose number for candidate times; the sampler uses others
_PIECES = 64  # into which the clock is cut for a bound that changes with time


@dataclass(frozen=True)
class Candidates:
    """Times at which particles may jump, and the bound on rates in force at each; see `poisson_times`.

    Args:
        grid: A start, the candidate times and an end: times that fall strictly from 1 to 0.
        bounds: For each candidate time the bound on rates in force there, above 0.
    """

    grid: Grid  # a start, the candidates, an end
    bounds: tuple[float, ...]  # one a candidate

    def __post_init__(self) -> None:
        set_fields(self, grid=check_grid(self.grid))
        set_fields(self, bounds=tuple(listed("bounds", self.bounds, "give one number for each candidate time")))
        if len(self.bounds) != len(self.grid) - 2:
            raise InvalidInput(
                f"{len(self.bounds)} bounds for a grid of {len(self.grid)} times; give one for each time but the first "
                "and the last"
            )
        for t, bound in zip(self.grid[1:-1], self.bounds, strict=True):
            _bound_at(bound, t)

    def bound(self, t: float, s: float) -> float | None:
        """The bound at candidate time t; None for the interval before the first candidate."""
        if (t, s) not in self._bounds:
            raise InvalidInput(
                f"the run goes from t = {t:.6g} to {s:.6g}, which are not successive candidate times; "
                "run it on the grid of its candidates"
            )
        return self._bounds[t, s]

    @cached_property
    def _bounds(self) -> dict[tuple[float, float], float | None]:
        return dict(zip(pairwise(self.grid), (None, *self.bounds), strict=True))


def poisson_times(process: Uniform, bound: float | Schedule, seed: int) -> Candidates:
    """A Poisson process of candidate times, at rate `bound` a unit of the clock $sigma(t) / S$, exact for any seed.

    A bound that changes with time is held over each of 64 pieces of the clock at the larger of its values at the ends.

    Args:
        process: The noising process, a `tt.Uniform`.
        bound: Rate of candidates, above every rate of the model (see `tt.least_bound`): a number, or a function of
            time.
        seed: Seed of the times, 0 to $2^63 - 1$.
    """
    if not isinstance(process, Uniform):
        raise InvalidInput(
            f"{type(process).__name__} has an infinite clock, with no end of candidates; use FirstHitting"
        )
    if callable(bound):
        function("bound", bound, "(t)")
    seed, end = check_seed(seed), float(process.schedule(1.0).value)
    noise = [end * (1 - k / _PIECES) for k in range(_PIECES + 1)]
    at = [_bound_at(bound, process.schedule.time_of(n)) for n in noise]
    height = torch.tensor([max(pair) for pair in pairwise(at)], dtype=torch.float64)
    mass = height * (end / process.vocabulary / _PIECES)
    if float(mass.sum()) > LONGEST / 2:
        raise InvalidInput(
            f"the bound asks for about {float(mass.sum()):.3g} candidate times; at most {LONGEST // 2:,}: give a "
            "lower bound (see least_bound)"
        )
    point = _arrivals(float(mass.sum()), seed)
    piece = pick_at(mass.cumsum(0), point)
    inside = (point - (mass.cumsum(0) - mass)[piece]) / mass[piece]
    sigma = (end * (1 - (piece + inside) / _PIECES)).tolist()
    found = [(process.schedule.time_of(value), b) for value, b in zip(sigma, height[piece].tolist(), strict=True)]
    found = [(t, b) for t, b in found if t > 0]  # times at 0 are dropped: a schedule with sigma(0+) > 0 gives them
    return Candidates((1.0, *(t for t, _ in found), 0.0), tuple(b for _, b in found))


def _bound_at(bound: float | Schedule, t: float) -> float:
    value = float(
        number("the bound on rates", called("bound", cast("Schedule", bound), t) if callable(bound) else bound)
    )
    if not 0 < value < math.inf:
        raise InvalidInput(f"the bound on rates is {value} at t = {t:.6g}; it must be finite and above 0")
    return value


def _arrivals(end: float, seed: int) -> Tensor:
    """The points of a Poisson process of rate 1 on [0, end), by exponential gaps."""
    stream, count = Stream(seed), math.ceil(end + 6 * math.sqrt(end)) + 16
    point = torch.zeros(1, dtype=torch.float64)
    while float(point[-1]) <= end:
        gaps = -torch.log1p(-stream.uniforms(0, _TIMES, 1, count, len(point) - 1)[0])
        point = torch.cat([point, point[-1] + gaps.cumsum(0)])
    return point[1:][point[1:] < end]
