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
from .account import Account, Cost
from .problem import Problem

IMPORTANCE, TWISTED, ADAPTED, ANNEALED, FROM_BASE = ROUTES = (
    *("importance", "twisted", "adapted", "annealed", "annealed from base"),
)
SWEEPS = {ANNEALED: 4, FROM_BASE: 8}  # moves of each site
DEAR = 1.5  # times the share of the budget that a move with one call costs, from which a call for every token is dear
HALF = adaptive(systematic, 0.5)


class Route(NamedTuple):
    """A way to sample a problem's target: a value to run, how it is resampled, what a run and its particles cost."""

    name: str
    fk: FeynmanKac
    grid: Sequence[float] | None  # None: its own
    resample: Resampler
    each: Cost  # of a particle
    once: Cost = Cost(0, 0)  # of a run
    moves: int = 0  # of a particle

    def size(self, account: Account, populations: int, share: float = 1.0) -> int:
        """Particles in each of so many populations that a share of what is left buys."""
        return account.buys(self.each.times(populations), share, self.once)


def importance(problem: Problem) -> Route:
    """Draws of the base, weighed at the end."""
    if problem.masks:
        return Route(IMPORTANCE, problem.goal(), problem.grid, never, problem.draw)
    return Route(IMPORTANCE, _in_clock_time(problem, ramp=at_end), problem.grid, never, problem.draw)


def twisted(problem: Problem, twist: Potential) -> Route:
    """Revealed as a twist says."""
    if problem.masks:
        return Route(TWISTED, problem.goal(twist), problem.grid, HALF, problem.draw)
    return Route(TWISTED, _in_clock_time(problem, twist=twist), problem.grid, HALF, problem.draw)


def _in_clock_time(problem: Problem, **options: Any) -> Steered:
    """The target over a time grid: for processes that have no mask."""
    reward, kernel = cast("Potential", problem.reward), default_kernel(problem.model.process)
    return Steered(problem.model, reward, problem.strength, kernel=kernel, **options)


def adapted(problem: Problem) -> Route:
    """Revealed as both models say."""
    return Route(ADAPTED, problem.goal(), problem.grid, HALF, problem.draw, _looks(problem))


def annealed(problem: Problem, account: Account, twist: Potential | None) -> Route:
    """From the twisted law, or from the base, to the target: one site a move, each site so many times."""
    name = FROM_BASE if twist is None else ANNEALED
    moves = SWEEPS[name] * problem.length
    redraw, along = kernel(problem, account, twist), shares(moves, twist is not None)
    fk = Annealed(problem.goal(twist), along, kernel=redraw, reveal_steps=problem.steps)
    each = annealed_cost(problem, account, name)
    return Route(name, fk, None, HALF, each, _looks(problem), moves)


def annealed_cost(problem: Problem, account: Account, name: str) -> Cost:
    """What an annealed particle costs: a draw, and its moves."""
    return problem.draw.plus(move_cost(problem, account).times(SWEEPS[name] * problem.length))


def _looks(problem: Problem) -> Cost:
    """What a run asks at its end to judge itself: whether conditionals agree, and a ratio of networks once more."""
    again = 0 if problem.reward is not None else RETOLD * problem.length
    return problem.cost(2 * 3 * STATES + again, 0)


def shares(moves: int, led: bool) -> list[float]:
    """Shares of the way after each move: evenly from a twist, by the square from the base; the last moves stay."""
    until, power = (0.6, 1.0) if led else (0.9, 2.0)
    return [*(min(1.0, ((k + 1) / (until * moves)) ** power) for k in range(moves - 1)), 1.0]


def move_cost(problem: Problem, account: Account) -> Cost:
    """What a move costs: a call for each other token of a site, or one where that is dear."""
    return problem.cost(1, 1 if _dear(problem, account) else problem.vocabulary - 1)


def _dear(problem: Problem, account: Account) -> bool:
    """Whether calling the reward for every token of a site costs much more than calling it once."""
    gibbs, one = problem.cost(1, problem.vocabulary - 1), problem.cost(1, 1)
    return account.weight(gibbs) > DEAR * account.weight(one)


def kernel(problem: Problem, account: Account, twist: Potential | None) -> Callable[[Any], MoveKernel]:
    """Gibbs where its calls are cheap; else the twist proposes, the base alone without one, and the reward accepts."""
    return partial(Metropolis, scan=systematic_scan, surrogate=twist) if _dear(problem, account) else scan_gibbs
