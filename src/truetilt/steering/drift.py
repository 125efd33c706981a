"""A check of an answer by moves: a Markov kernel that leaves the target invariant must not shift right particles.

Draws of the answer are moved, and their rewards compared before and after. If rewards rise on average, there is mass
that the answer has missed, even if its weights look good; if they fall, the answer puts too much on high rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.bases import MoveKernel
from ..core.binding import bind
from ..core.evaluation import RunLog
from ..core.spent import Spent
from ..core.types import Particles, Step, Tokens
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
    walk = walked(problem, result.draw(chains, seed), moves, 1, make, seed, first)
    change = walk.value[1] - walk.value[0]
    spread = float(change.std()) / math.sqrt(chains)
    return Drift(float(change.mean()), spread, walk.moved), walk.spent


class Chains(NamedTuple):
    """Chains of moves: their states before and after each part [parts + 1, K, D], what these are worth in nats, the
    share of moves that changed them, and the cost."""

    x: Tokens
    value: Tensor
    moved: float
    spent: Spent


@torch.no_grad()
def walked(
    problem: SteerProblem, x: Tokens, moves: int, parts: int, make: Callable[[SiteTarget], MoveKernel], seed: int,
    first: int,
) -> Chains:  # fmt: skip
    """Clean states [K, D], each moved `moves` times in each of several parts, by moves that keep the target."""
    log = RunLog()
    goal = bind(problem.goal(), log)
    kernel, x = make(goal), x.to(problem.model.device)
    still = torch.zeros(1, len(x), dtype=torch.float64, device=x.device)
    source, counts = Source(Stream(seed, first, problem.model.device)), torch.full((1,), moves, device=x.device)
    states, share = [Particles(x[None], still, {})], 0.0
    for part in range(parts):
        here = Step(1 + part, 0.0, 0.0)
        after, moved = rejuvenate(Rejuvenation(kernel, at_end=moves), states[-1]._replace(aux={}), counts, here, source)
        states, share = [*states, after], share + float(moved.share[0]) / parts
    values = torch.stack([problem.nats(goal, state.x[0]) for state in states])
    return Chains(torch.stack([state.x[0] for state in states]).cpu(), values.cpu(), share, log.spent)
