"""How much `steer` spends on learning a twist: nothing where little is promised, most where the base is hopeless."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..core.types import Potential
from ..smc.weight_findings import FEW
from .account import Account
from .problem import SteerProblem
from .work import Work

LEARN, HARD = 0.35, 0.55  # shares of what is left that learning costs, and where it is hard
NEEDED = 2.0 * FEW  # draws of the base that the budget buys, below which they will hardly be trusted: better to learn
FREE, DEAR = 1.3, 3.0  # times the worth of the base's draws that must be promised for learning to pay, by its price
REPEATED = 0.75  # share of calls that were of new states, below which more calls cost little
UNTOLD = 0.4  # worth of the base's draws from which learning does not pay, where no promise can be told
ROUNDS, FEWEST = 4, 25  # of learning: rounds, and draws in each
DRAWS, DRAWS_WITH_MUTANTS = 250, 100  # of a round at most; fewer where calls are free, and mutants with them
LESSONS, MOST = 640, 50_000  # calls for each site, and in all, from which a twist gains little more


class LessonPlan(NamedTuple):
    """What a twist is learned from: draws in each round, and calls in all."""

    draws: int
    calls: int


def worth_learning(work: Work) -> float:
    """The worth of the base's draws from which learning a twist does not pay: less where it costs much."""
    look = work.first
    if look is None or look.in_all < NEEDED:
        return math.inf
    if look.promise is None:
        return UNTOLD * look.left
    return look.left * look.promise / (FREE + (DEAR - FREE) * _price(work, look.new))


def _price(work: Work, new: float) -> float:
    """What learning costs of what is left, over the most it may: calls count less where they are of known states."""
    problem, left = work.problem, work.account.left
    plan = lessons(problem, work.account, LEARN, ROUNDS)
    asked = problem.cost(ROUNDS * problem.length, 0).times(plan.draws).evaluations / left.evaluations
    called = max(new - REPEATED, 0.0) / (1 - REPEATED) * plan.calls / left.calls
    return min(max(asked, called) / LEARN, 1.0)


def learned(work: Work) -> Potential | None:
    """A twist, if the budget buys the lessons and it is more than a constant; None otherwise."""
    problem, account = work.problem, work.account
    look = work.first
    hard = look is None or look.in_all < NEEDED
    share = HARD if hard and math.isfinite(account.left.calls) else LEARN
    found = lessons(problem, account, share, ROUNDS)
    if found.draws < FEWEST:
        least = problem.cost(ROUNDS * problem.length, ROUNDS).times(FEWEST / share)
        need = f"{least.evaluations:,.0f} evaluations and {least.calls:,.0f} calls after the first look"
        work.lacking.append(f"a learned twist, which takes at least {need}")
        return None
    why = "" if look is None else f"{look.effective:.2g} of the base's draws were effective"
    twist = work.learn(found.calls, found.draws, why, refits=ROUNDS - 1)
    if twist.held_out.r_squared > 0:
        return twist
    work.note("it explains nothing of the reward, and is not used")
    return None


def lessons(problem: SteerProblem, account: Account, share: float, rounds: int) -> LessonPlan:
    """As many draws and calls as a share of what is left buys: all draws where calls are dear, else mutants as well."""
    draws = account.buys(problem.cost(rounds * problem.length, rounds), share)
    if problem.network or math.isfinite(account.left.calls):
        draws = min(draws, DRAWS)
        return LessonPlan(draws, max(rounds * draws, min(_most(problem), _calls(problem, account, share))))
    return LessonPlan(min(draws, DRAWS_WITH_MUTANTS), _most(problem))


def _most(problem: SteerProblem) -> int:
    return min(LESSONS * problem.length, MOST)


def _calls(problem: SteerProblem, account: Account, share: float) -> int:
    """Calls that a share of what is left buys; those of a network cost evaluations, which draws have been given."""
    return 0 if problem.network else account.buys(problem.cost(0, 1), share)
