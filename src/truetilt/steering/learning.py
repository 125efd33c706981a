"""How much `steer` spends on learning a twist: nothing where a first lesson promises little, most where draws of the
base are hopeless."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..core.types import Potential
from ..twists.learned import LearnedTwist
from .account import Account
from .problem import Problem
from .work import Work

LESSON, LEARN, HARD = 0.1, 0.35, 0.55  # shares of what is left: of a first lesson, of learning, and where it is hard
POOR = 0.02  # effective share of the base's draws below which nothing but a twist can help
GAIN = 2.0  # times that share which a first lesson must promise
ROUNDS, FEWEST = 4, 25  # of learning: rounds, and draws in each
DRAWS, DRAWS_WITH_MUTANTS = (
    250,
    100,
)  # of a round at most; fewer where calls, and so mutants, are free
LESSONS, MOST = 640, 50_000  # calls for each site, and in all, from which a twist gains little more


class Lessons(NamedTuple):
    """What a twist is learned from: draws in each round, and calls in all."""

    draws: int
    calls: int


def learned(work: Work) -> Potential | None:
    """A twist, if the budget buys the lessons and a first one promises enough; None otherwise."""
    problem, account = work.problem, work.account
    hard = work.worth < POOR
    if not hard and math.isfinite(account.left.calls):
        first = lessons(problem, account, LESSON, 1)
        if first.draws >= FEWEST:
            why = f"{work.worth:.2g} of the base's draws are effective: would a twist gain much?"
            tried = work.learn(first.calls, first.draws, why, refits=0)
            if tried.held_out.ess < GAIN * work.worth:
                return None
    share = HARD if hard and math.isfinite(account.left.calls) else LEARN
    found = lessons(problem, account, share, ROUNDS)
    if found.draws < FEWEST:
        least = problem.cost(ROUNDS * problem.length, ROUNDS).times(FEWEST / share)
        need = f"{least.evaluations:,.0f} evaluations and {least.calls:,.0f} calls after the first look"
        work.lacking.append(f"a twist could not be learned, which takes at least {need}.")
        return None
    why = f"{work.worth:.2g} of the base's draws are effective"
    return _useful(work.learn(found.calls, found.draws, why, refits=ROUNDS - 1))


def lessons(problem: Problem, account: Account, share: float, rounds: int) -> Lessons:
    """As many draws and calls as a share of what is left buys: all draws where calls are dear, else mutants as well."""
    draws = account.buys(problem.cost(rounds * problem.length, rounds), share)
    if problem.network or math.isfinite(account.left.calls):
        draws = min(draws, DRAWS)
        return Lessons(draws, max(rounds * draws, min(_most(problem), _calls(problem, account, share))))
    return Lessons(min(draws, DRAWS_WITH_MUTANTS), _most(problem))


def _most(problem: Problem) -> int:
    return min(LESSONS * problem.length, MOST)


def _calls(problem: Problem, account: Account, share: float) -> int:
    """Calls that a share of what is left buys; those of a network cost evaluations, which draws have been given."""
    return 0 if problem.network else account.buys(problem.cost(0, 1), share)


def _useful(twist: LearnedTwist) -> Potential | None:
    """The twist, if it is more than a constant."""
    return twist if twist.held_out.r_squared > 0 else None
