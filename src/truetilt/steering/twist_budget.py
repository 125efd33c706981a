"""The budget for learning a twist: nothing if the pilot forecasts little gain, most if the base is hopeless."""

from __future__ import annotations

import math

from ..core.types import Potential
from ..smc.weight_findings import FEW
from ..twists.learned_twist import HeldOut
from ..twists.tables import Flat
from .account import Account
from .problem import SteerProblem
from .stages import LessonPlan, Work

LEARN, HARD = 0.35, 0.55  # shares of the remaining budget for learning: normally, and if the base alone is hopeless
NEEDED = 2.0 * FEW  # effective base draws that the whole budget buys, below which a twist is always learned
GOOD = 0.8  # effective share of particles above which more rounds would gain little
FREE, DEAR = 1.3, 3.0  # forecast over worth of the base from which learning pays: if it is free, and at its dearest
REPEATED = 0.75  # share of calls on new states, below which further calls count as free
REPEATING, REPEATING_CALLS, MOST_REPEATED = 0.4, 0.75, 10_000  # of evaluations and calls where states repeat, and draws
UNTOLD = 0.4  # worth of a base draw above which learning does not pay, if there is no forecast
ROUNDS, FEWEST = 3, 25  # rounds of learning after the first look, at most, and draws in a round, at least
DRAWS, DRAWS_WITH_MUTANTS = 250, 100  # draws in a round, at most: if calls are limited, and if not (then with mutants)
LESSONS, MOST = 640, 50_000  # calls per site, and in all, beyond which a twist gains little


def worth_learning(work: Work) -> float:
    """The worth of a base draw above which learning a twist does not pay; lower if learning is expensive."""
    look = work.first
    if look is None or look.in_all < NEEDED:
        return math.inf
    if look.promise is None:
        return UNTOLD * look.left
    return look.left * look.promise / (FREE + (DEAR - FREE) * _price(work, look.new))


def _price(work: Work, new: float) -> float:
    """The price of learning as a share of the most it may cost, 0 to 1; calls count less if states repeat."""
    problem, left = work.problem, work.account.left
    plan = lessons(problem, work.account, LEARN, ROUNDS)
    asked = problem.cost(ROUNDS * problem.length, 0).times(plan.draws).evaluations / left.evaluations
    called = max(new - REPEATED, 0.0) / (1 - REPEATED) * plan.calls / left.calls
    return min(max(asked, called) / LEARN, 1.0)


def learned(work: Work) -> Potential | None:
    """A learned twist; None if the budget does not buy its training data or it explains nothing of the reward."""
    problem, account = work.problem, work.account
    look = work.first
    hard = look is None or look.in_all < NEEDED
    share = HARD if hard and math.isfinite(account.left.calls) else LEARN
    found = lessons(problem, account, share, ROUNDS)
    if look is not None and look.new < REPEATED and found.draws >= FEWEST:
        found = repeated_lessons(problem, account)
    if found.draws < FEWEST:
        least = problem.cost((1 + ROUNDS) * problem.length, ROUNDS).times(FEWEST / share)
        need = f"{least.evaluations:,.0f} evaluations and {least.calls:,.0f} calls after the first look"
        work.lacking.append(f"a learned twist, which takes at least {need}")
        return None
    why = "" if look is None else f"{look.effective:.2g} of the base's draws were effective"
    worth = 0.0 if look is None else look.worth
    least = 0.0 if hard else FREE * worth

    def go_on(held_out: HeldOut, told_by: float) -> bool:
        """Whether more rounds may pay: not where enough draws tell that the twist is good, or no better than none.

        Where states repeat they cost few calls, and each teaches what its draws met for the first time.
        """
        return found.new is not None or told_by < FEW or least <= held_out.ess <= GOOD

    twist = work.learn(found, ROUNDS, why, go_on)
    if twist.held_out.family == Flat().name or twist.held_out.r_squared <= 0:
        work.note("it explains nothing of the reward, and is not used")
        return None
    if twist.held_out.ess < least:
        work.note(f"a draw led by it would be worth {twist.held_out.ess:.2g}, one of the base {worth:.2g}: not used")
        return None
    return twist


def lessons(problem: SteerProblem, account: Account, share: float, rounds: int) -> LessonPlan:
    """The draws and calls that a share of the remaining budget buys; mutants too if calls are not limited.

    The network is asked once more about as many draws of the first look, whose rewards are known.
    """
    draws = account.buys(problem.cost((1 + rounds) * problem.length, rounds), share)
    if problem.network or math.isfinite(account.left.calls):
        draws = min(draws, DRAWS)
        return LessonPlan(draws, max(rounds * draws, min(_most(problem), _calls(problem, account, share))))
    return LessonPlan(min(draws, DRAWS_WITH_MUTANTS), _most(problem))


def repeated_lessons(problem: SteerProblem, account: Account) -> LessonPlan:
    """Where states repeat, rounds are counted in new ones: as many draws as meet their part of the calls."""
    draws = account.buys(problem.cost((1 + ROUNDS) * problem.length, 0), REPEATING)
    draws = min(max(draws, FEWEST), MOST_REPEATED)
    return LessonPlan(draws, ROUNDS * draws, max(int(REPEATING_CALLS * account.left.calls) // ROUNDS, 1))


def _most(problem: SteerProblem) -> int:
    return min(LESSONS * problem.length, MOST)


def _calls(problem: SteerProblem, account: Account, share: float) -> int:
    """Calls that a share of the remaining budget buys; 0 for a network, whose evaluations go to the draws."""
    return 0 if problem.network else account.buys(problem.cost(0, 1), share)
