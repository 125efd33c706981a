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
from ..targets.scans import systematic_scan
from ..targets.steered import Steered
from ..targets.tilts import at_end
from .account import Account, Price
from .problem import SteerProblem

IMPORTANCE, TWISTED, ADAPTED, ANNEALED, FROM_BASE = (
    *("importance", "twisted", "adapted", "annealed", "annealed from base"),
)
SWEEPS = {ANNEALED: 4, FROM_BASE: 8}  # moves of each site
DEAR = 1.5  # times the share of the budget that a move with one call costs, from which a call for every token is dear
MOST_TOKENS = 32  # of a site that the reward is called for, each, even where calls are not limited
HALF = adaptive(systematic, 0.5)


class Route(NamedTuple):
    """A way to sample a problem's target: a value to run, how it is resampled, what a run and its particles cost."""

    name: str
    fk: FeynmanKac
    grid: Sequence[float] | None  # None: its own
    resample: Resampler
    each: Price  # of a particle
    once: Price = Price(0, 0)  # of a run
    moves: int = 0  # of a particle

    @property
    def independent(self) -> bool:
        """Whether its particles are independent draws, so that two runs can be joined."""
        return self.resample is never

    def size(self, account: Account, populations: int, share: float = 1.0) -> int:
        """Particles in each of so many populations that a share of what is left buys."""
        return account.buys(self.each.times(populations), share, self.once)


def importance(problem: SteerProblem) -> Route:
    """Draws of the base, weighed at the end."""
    if problem.masks:
        return Route(IMPORTANCE, problem.goal(), problem.grid, never, problem.draw)
    return Route(IMPORTANCE, _in_clock_time(problem, ramp=at_end), problem.grid, never, problem.draw)


def twisted(problem: SteerProblem, twist: Potential) -> Route:
    """Revealed as a twist says."""
    if problem.masks:
        return Route(TWISTED, problem.goal(twist), problem.grid, HALF, problem.draw)
    return Route(TWISTED, _in_clock_time(problem, twist=twist), problem.grid, HALF, problem.draw)


def _in_clock_time(problem: SteerProblem, **options: Any) -> Steered:
    """The target over a time grid: for processes that have no mask."""
    reward, kernel = cast("Potential", problem.reward), default_kernel(problem.model.process)
    return Steered(problem.model, reward, problem.strength, kernel=kernel, **options)


def adapted(problem: SteerProblem) -> Route:
    """Revealed as both models say."""
    return Route(ADAPTED, problem.goal(), problem.grid, HALF, problem.draw, _looks(problem))


def annealed(problem: SteerProblem, account: Account, twist: Potential | None) -> Route:
    """From the twisted law, or from the base, to the target: one site a move, each site so many times."""
    name = FROM_BASE if twist is None else ANNEALED
    moves = SWEEPS[name] * problem.length
    redraw, along = kernel(problem, account, twist), shares(moves, twist is not None)
    fk = Annealed(problem.goal(twist), along, kernel=redraw, reveal_steps=problem.steps)
    each = annealed_cost(problem, account, name)
    return Route(name, fk, None, HALF, each, _looks(problem), moves)


def annealed_cost(problem: SteerProblem, account: Account, name: str) -> Price:
    """What an annealed particle costs: a draw, and its moves."""
    return problem.draw.plus(move_cost(problem, account).times(SWEEPS[name] * problem.length))


def _looks(problem: SteerProblem) -> Price:
    """What a run asks at its end to judge itself: whether conditionals agree, and a ratio of networks once more."""
    again = 0 if problem.reward is not None else max(RETOLD, problem.populations) * problem.length
    return problem.cost(2 * 3 * max(STATES, problem.populations) + again, 0)


def shares(moves: int, led: bool) -> list[float]:
    """Shares of the way after each move: evenly from a twist, by the square from the base; the last moves stay."""
    until, power = (0.6, 1.0) if led else (0.9, 2.0)
    return [*(min(1.0, ((k + 1) / (until * moves)) ** power) for k in range(moves - 1)), 1.0]


def move_cost(problem: SteerProblem, account: Account) -> Price:
    """What a move costs: a call for each other token of a site, or one where that is dear."""
    return problem.cost(1, 1 if _dear(problem, account) else problem.vocabulary - 1)


def _dear(problem: SteerProblem, account: Account) -> bool:
    """Whether calling the reward for every token of a site costs much more than calling it once."""
    if problem.vocabulary > MOST_TOKENS and problem.reward is not None:
        return True
    gibbs, one = problem.cost(1, problem.vocabulary - 1), problem.cost(1, 1)
    return account.weight(gibbs) > DEAR * account.weight(one)


def kernel(problem: SteerProblem, account: Account, twist: Potential | None) -> Callable[[Any], MoveKernel]:
    """Gibbs where its calls are cheap; else the twist proposes, the base alone without one, and the reward accepts."""
    return partial(Metropolis, scan=systematic_scan, surrogate=twist) if _dear(problem, account) else scan_gibbs
