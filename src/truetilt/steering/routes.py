"""The ways to a target that `steer` chooses from, each with what a particle of it costs.

Importance draws from the base and weighs at the end. A twisted run reveals by what a learned twist says of masked
states, an adapted one by what two models say of the condition. An annealed one goes on from there, or from the base, by
small changes of the target with a move after each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from ..core.types import FeynmanKac, MoveKernel, Potential, Resampler
from ..smc.resampling import adaptive, never, systematic
from ..targets.annealed import Annealed, scan_gibbs
from ..targets.consistency import STATES
from ..targets.defaults import default_kernel
from ..targets.measures import RETOLD
from ..targets.moves import Metropolis
from ..targets.on_clock import Steered
from ..targets.scans import systematic_scan
from ..targets.tilts import at_end
from .account import Account, Price
from .task import SteerProblem

IMPORTANCE, TWISTED, ADAPTED, ANNEALED, FROM_BASE = ROUTES = (
    *("importance", "twisted", "adapted", "annealed", "annealed from base"),
)
SWEEPS = {ANNEALED: 4, FROM_BASE: 8}  # moves of each site
DEAR = 1.5  # times the share of the budget that a move with one call costs, from which a call for every token is dear
MOST_TOKENS = 32  # of a site that the reward is called for, each, even where calls are not limited
HALF = adaptive(systematic, 0.5)


class Route(NamedTuple):
    """A way to sample a task's target: a value to run, how it is resampled, what a run and its particles cost."""

    name: str
    fk: FeynmanKac
    grid: Sequence[float] | None  # None: its own
    resample: Resampler
    each: Price  # of a particle
    once: Price = Price(0, 0)  # of a run
    moves: int = 0  # of a particle

    def size(self, account: Account, populations: int, share: float = 1.0) -> int:
        """Particles in each of so many populations that a share of what is left buys."""
        return account.buys(self.each.times(populations), share, self.once)


def importance(task: SteerProblem) -> Route:
    """Draws of the base, weighed at the end."""
    if task.masks:
        return Route(IMPORTANCE, task.goal(), task.grid, never, task.draw)
    return Route(IMPORTANCE, _in_clock_time(task, ramp=at_end), task.grid, never, task.draw)


def twisted(task: SteerProblem, twist: Potential) -> Route:
    """Revealed as a twist says."""
    if task.masks:
        return Route(TWISTED, task.goal(twist), task.grid, HALF, task.draw)
    return Route(TWISTED, _in_clock_time(task, twist=twist), task.grid, HALF, task.draw)


def _in_clock_time(task: SteerProblem, **options: Any) -> Steered:
    """The target over a time grid: for processes that have no mask."""
    reward, kernel = cast("Potential", task.reward), default_kernel(task.model.process)
    return Steered(task.model, reward, task.strength, kernel=kernel, **options)


def adapted(task: SteerProblem) -> Route:
    """Revealed as both models say."""
    return Route(ADAPTED, task.goal(), task.grid, HALF, task.draw, _looks(task))


def annealed(task: SteerProblem, account: Account, twist: Potential | None) -> Route:
    """From the twisted law, or from the base, to the target: one site a move, each site so many times."""
    name = FROM_BASE if twist is None else ANNEALED
    moves = SWEEPS[name] * task.length
    redraw, along = kernel(task, account, twist), shares(moves, twist is not None)
    fk = Annealed(task.goal(twist), along, kernel=redraw, reveal_steps=task.steps)
    each = annealed_cost(task, account, name)
    return Route(name, fk, None, HALF, each, _looks(task), moves)


def annealed_cost(task: SteerProblem, account: Account, name: str) -> Price:
    """What an annealed particle costs: a draw, and its moves."""
    return task.draw.plus(move_cost(task, account).times(SWEEPS[name] * task.length))


def _looks(task: SteerProblem) -> Price:
    """What a run asks at its end to judge itself: whether conditionals agree, and a ratio of networks once more."""
    again = 0 if task.reward is not None else max(RETOLD, task.populations) * task.length
    return task.cost(2 * 3 * max(STATES, task.populations) + again, 0)


def shares(moves: int, led: bool) -> list[float]:
    """Shares of the way after each move: evenly from a twist, by the square from the base; the last moves stay."""
    until, power = (0.6, 1.0) if led else (0.9, 2.0)
    return [*(min(1.0, ((k + 1) / (until * moves)) ** power) for k in range(moves - 1)), 1.0]


def move_cost(task: SteerProblem, account: Account) -> Price:
    """What a move costs: a call for each other token of a site, or one where that is dear."""
    return task.cost(1, 1 if _dear(task, account) else task.vocabulary - 1)


def _dear(task: SteerProblem, account: Account) -> bool:
    """Whether calling the reward for every token of a site costs much more than calling it once."""
    if task.vocabulary > MOST_TOKENS and task.reward is not None:
        return True
    gibbs, one = task.cost(1, task.vocabulary - 1), task.cost(1, 1)
    return account.weight(gibbs) > DEAR * account.weight(one)


def kernel(task: SteerProblem, account: Account, twist: Potential | None) -> Callable[[Any], MoveKernel]:
    """Gibbs where its calls are cheap; else the twist proposes, the base alone without one, and the reward accepts."""
    return partial(Metropolis, scan=systematic_scan, surrogate=twist) if _dear(task, account) else scan_gibbs
