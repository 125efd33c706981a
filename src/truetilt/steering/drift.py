"""A check of an answer by moves: a Markov kernel that leaves the target invariant must not shift right particles.

Draws of the answer are moved, and their rewards compared before and after. If rewards rise on average, there is mass
that the answer has missed, even if its weights look good; if they fall, the answer puts too much on high rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from ..core.evaluation import Meter
from ..core.metering import metered
from ..core.spent import Spent
from ..core.types import MoveKernel, Particles, Step
from ..result import Result
from ..smc.rejuvenation import Rejuvenation, rejuvenate
from ..smc.sampler import Source, Stream
from ..targets.stage import SiteTarget
from .problem import SteerProblem

LIMIT = 4.0  # standard errors; a right answer exceeds them by chance once in ten thousand checks


class Drift(NamedTuple):
    """The mean change of strength * reward under the moves, in nats, its standard error, and the share moved."""

    mean: float
    stderr: float
    moved: float

    @property
    def found(self) -> bool:
        """Whether the change is larger than chance explains."""
        return abs(self.mean) > LIMIT * self.stderr


@torch.no_grad()
def drift_of(
    problem: SteerProblem,
    result: Result,
    size: tuple[int, int],
    make: Callable[[SiteTarget], MoveKernel],
    seed: int,
    first: int,
) -> tuple[Drift, Spent]:
    """Draw size[0] states of a result, move each size[1] times; the change of their rewards, and its cost."""
    chains, moves = size
    meter = Meter()
    x = result.draw(chains, seed)
    goal = metered(problem.goal(), meter)
    kernel = make(goal)
    still = torch.zeros(1, chains, dtype=torch.float64, device=x.device)
    source = Source(Stream(seed, first, problem.model.device))
    counts = torch.full((1,), moves, device=x.device)
    after, moved = rejuvenate(
        Rejuvenation(kernel, at_end=moves), Particles(x[None], still, {}), counts, Step(1, 0.0, 0.0), source
    )
    both = [problem.nats(goal, state) for state in (x, after.x[0])]
    change = both[1] - both[0]
    spread = float(change.std()) / math.sqrt(chains)
    return Drift(float(change.mean()), spread, float(moved.share[0])), meter.spent
