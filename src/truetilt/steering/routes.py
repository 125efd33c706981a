"""The routes to a target that `steer` chooses from, each with the price of a particle.

Importance: draws of the base, weighed at the end. Twisted: sites are revealed by the base times a learned twist.
Adapted: sites are revealed by the ratio of two models. Annealed: from twisted draws, or from the base, the target is
approached in small changes with an MCMC move after each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from ..core.bases import FeynmanKac, MoveKernel
from ..core.twists import candidates_of
from ..core.types import Potential, Resampler
from ..smc.resampling import adaptive, never, systematic
from ..targets.annealed import Annealed
from ..targets.consistency import STATES
from ..targets.defaults import default_kernel
from ..targets.diagnose_model import RETOLD
from ..targets.moves import Metropolis, scan_gibbs
from ..targets.on_clock import at_end
from ..targets.scans import systematic_scan
from ..targets.stage import SiteTarget
from ..targets.steered import Steered
from .account import Account, Price
from .problem import SteerProblem

IMPORTANCE, TWISTED, ADAPTED, ANNEALED, FROM_BASE = (
    *("importance", "twisted", "adapted", "annealed", "annealed from base"),
)
SWEEPS = {ANNEALED: 4, FROM_BASE: 8}  # moves per site
DEAR = 1.5  # a Gibbs move (a call per token) is too expensive if it costs this many times a move with one call
MOST_TOKENS = 32  # vocabulary beyond which Gibbs moves call a reward too often, even if calls are not limited
HALF = adaptive(systematic, 0.5)


class Route(NamedTuple):
    """A route to a problem's target: a Feynman-Kac model to run, its resampling, and the price of a run and of a
    particle."""

    name: str
    fk: FeynmanKac
    grid: Sequence[float] | None  # None: the model's own
    resample: Resampler
    each: Price  # price of a particle
    once: Price = Price(0, 0)  # price of a run, whatever its size
    moves: int = 0  # moves per particle

    @property
    def independent(self) -> bool:
        """Whether its particles are independent draws, so that two runs can be joined."""
        return self.resample is never

    def size(self, account: Account, populations: int, share: float = 1.0) -> int:
        """Particles per population, for this many populations, that a share of the remaining budget buys."""
        return account.buys(self.each.times(populations), share, self.once)


def importance(problem: SteerProblem) -> Route:
    """The route of importance sampling: draws of the base, weighed at the end."""
    if problem.masks:
        return Route(IMPORTANCE, problem.goal(), problem.grid, never, problem.draw)
    return Route(IMPORTANCE, _in_clock_time(problem, ramp=at_end), problem.grid, never, problem.draw)


def twisted(problem: SteerProblem, twist: Potential) -> Route:
    """The route whose sites are revealed by the base times a twist."""
    if problem.masks:
        return Route(TWISTED, problem.goal(twist), problem.grid, HALF, problem.draw)
    return Route(TWISTED, _in_clock_time(problem, twist=twist), problem.grid, HALF, problem.draw)


def _in_clock_time(problem: SteerProblem, **options: Any) -> Steered:
    """The target over a time grid, for processes without a mask."""
    reward, kernel = cast("Potential", problem.reward), default_kernel(problem.model.process)
    return Steered(problem.model, reward, problem.strength, kernel=kernel, **options)


def adapted(problem: SteerProblem) -> Route:
    """The route whose sites are revealed by the ratio of the conditional to the base model."""
    return Route(ADAPTED, problem.goal(), problem.grid, HALF, problem.draw, _looks(problem))


def annealed(problem: SteerProblem, account: Account, twist: Potential | None, floor: float | None = None) -> Route:
    """The annealed route, from the twisted law or the base to the target: `SWEEPS` moves of each site."""
    name = FROM_BASE if twist is None else ANNEALED
    moves = SWEEPS[name] * problem.length
    redraw, along = kernel(problem, account, twist), shares(moves, twist is not None)
    fk = Annealed(problem.goal(twist), along, kernel=redraw, reveal_steps=problem.steps, floor=floor)
    each = annealed_cost(problem, account, name)
    return Route(name, fk, None, HALF, each, _looks(problem), moves)


def annealed_cost(problem: SteerProblem, account: Account, name: str) -> Price:
    """The price of an annealed particle: a draw and its moves."""
    return problem.draw.plus(move_cost(problem, account).times(SWEEPS[name] * problem.length))


def _looks(problem: SteerProblem) -> Price:
    """The price of a run's own diagnostics at its end: consistency of the conditionals, and the network ratio once
    more."""
    again = 0 if problem.reward is not None else max(RETOLD, problem.populations) * problem.length
    return problem.cost(2 * 3 * max(STATES, problem.populations) + again, 0)


def shares(moves: int, led: bool) -> list[float]:
    """Annealing share after each move: linear from a twist, quadratic from the base; 1 for the last moves."""
    until, power = (0.6, 1.0) if led else (0.9, 2.0)
    return [*(min(1.0, ((k + 1) / (until * moves)) ** power) for k in range(moves - 1)), 1.0]


def move_cost(problem: SteerProblem, account: Account) -> Price:
    """The price of a move: a call for each other token of a site (Gibbs), or one call if that is too expensive."""
    return problem.cost(1, 1 if _dear(problem, account) else problem.vocabulary - 1)


def _dear(problem: SteerProblem, account: Account) -> bool:
    """Whether a Gibbs move, which calls the reward for every token of a site, costs much more than one call."""
    if problem.vocabulary > MOST_TOKENS and problem.reward is not None:
        return True
    gibbs, one = problem.cost(1, problem.vocabulary - 1), problem.cost(1, 1)
    return account.weight(gibbs) > DEAR * account.weight(one)


def kernel(problem: SteerProblem, account: Account, twist: Potential | None) -> Callable[[SiteTarget], MoveKernel]:
    """The move kernel: Gibbs if its calls are cheap; else Metropolis, proposed by the twist (or base) and accepted by
    the reward."""
    surrogate = twist if candidates_of(twist) is None else None  # a network is too dear for every token
    return partial(Metropolis, scan=systematic_scan, surrogate=surrogate) if _dear(problem, account) else scan_gibbs
