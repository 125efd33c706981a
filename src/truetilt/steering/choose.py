"""The choice of a route: `steer` measures what a particle of each route is worth, and takes the best for its cost.

The simplest route is always tried first (the pilot). A further route is tried only if its best possible worth, for its
cost, exceeds what was measured so far. The winner is checked by moves and gets the rest of the budget.
"""

from __future__ import annotations

import math

from ..core.budget import BudgetTooSmall
from ..core.types import NEG_INF
from ..result import Result
from ..targets.consistency import ALLOWED, STATES
from .account import Price
from .evidence import challenge, led_by, same_base
from .join_runs import joined, with_draws_beside
from .pilot import HALF, halfway, looked_at, told_by
from .routes import IMPORTANCE, Route, move_cost
from .stages import Work, ess_told, rounded
from .trials import Candidate, Tried, worth_of

PROVE = 0.05  # share of the remaining budget for the check by moves
PROMISED = "for their cost no more was to be expected than of what was tried (route= takes one all the same)"
ORDERS = 0.02  # share of the remaining budget for the law of another order
PARTS = 5  # a trial takes one in this many of the particles that the budget buys
FEWEST = 4  # particles per population, at least, for a route that resamples
CHAINS, FEWEST_CHAINS = 64, 16  # most and fewest draws that the check moves
REPEATS = 64  # runs at most until the budget is spent; where states repeat, a run costs few calls


def chosen(work: Work, ways: list[Candidate], only: str | None) -> tuple[Tried, list[Tried]]:
    """The best route's answer with the whole budget spent, and all trials; `only` names the one route to use."""
    _check_affordable(work, ways, only)
    tried = [looked_at(work, ways[0])]
    work.movable = _movable(work, tried[0].result)
    work.first = told_by(work, tried[0])
    wanted = ways[1:] if only is None else [way for way in ways[1:] if way.name == only]
    tried = _with_others(work, tried, wanted, only)
    if only is None and len(tried) == 1:  # half of the rest shows whether the pilot was lucky
        more = halfway(work, tried[0])
        work.first = work.first if more is tried[0] else told_by(work, more, 1 - HALF)
        tried = _with_others(work, [more], wanted, only)
    rivals = tried if only is None else [one for one in tried if one.route.name == only]
    if not rivals:
        raise BudgetTooSmall(_unreachable(work, only))
    best, why = _best(work, rivals)
    _in_another_order(work, best.result)
    challenge(work, best.result, led_by(work, best.route))
    return finished(work, best, why), tried


def _in_another_order(work: Work, result: Result) -> None:
    """Where the conditionals differ, what that means for log Z, by the draws that a small share of the budget buys."""
    problem = work.problem
    if problem.reward is None or problem.order is None or work.differ == 0 or result.log_z == NEG_INF:
        return
    each = Price(2 * problem.length, 0)
    draws = min(work.account.buys(each, ORDERS), CHAINS)
    if draws >= FEWEST_CHAINS:
        work.reordered = work.reorder(result, draws)


def _with_others(work: Work, tried: list[Tried], ways: list[Candidate], only: str | None) -> list[Tried]:
    """The trials so far, and trials of those further routes that could still do better."""
    work.left_out, tried = {}, [*tried]
    for way in ways:
        if only is None and _enough(work, tried, way):
            work.left_out[way.name] = PROMISED
            continue
        found = way.build(work)
        if found is not None:
            tried += _tried(work, *found)
    return tried


def _unreachable(work: Work, only: str | None) -> str:
    """The error message when the route in `only` could not be run."""
    if work.lacking:
        return f"{work.budget_told} do not suffice for {only!r}: it needs {' or '.join(work.lacking)}"
    if not work.movable:
        return (
            f"{only!r} redraws sites, which the model's conditionals (or its process) do not allow; leave out the route"
        )
    return f"{only!r} came to nothing ({work.stages[-1].what}); give more calls, or leave out the route"


def _check_affordable(work: Work, ways: list[Candidate], only: str | None) -> None:
    """Raise if the route in `only` exceeds the budget, before anything is spent."""
    for way in ways:
        if way.name == only and work.account.buys(way.each.times(work.populations)) < FEWEST:
            need = way.each.times(FEWEST * work.populations)
            raise BudgetTooSmall(
                f"{work.budget_told} do not buy {FEWEST} particles for each of {work.populations} populations by "
                f"{only!r}, which takes {need.evaluations:,.0f} evaluations and {need.calls:,.0f} calls; give more"
            )


def _movable(work: Work, look: Result) -> bool:
    """Whether MCMC moves keep the target: sites can be masked and redrawn, and the model's conditionals agree."""
    problem = work.problem
    if not problem.masks or work.account.buys(problem.cost(3 * STATES, 0)) < 1:
        return False
    if problem.length > 1:
        work.differ = work.agree(look)
    return work.differ <= ALLOWED


def _enough(work: Work, tried: list[Tried], way: Candidate) -> bool:
    """Whether the best trial that passes the check by moves beats all that this route could achieve."""
    sound = [number for number, one in enumerate(tried) if one.sound]
    best = max(sound, key=lambda number: tried[number].efficiency(work), default=None)
    if best is None or tried[best].efficiency(work) * work.account.weight(way.each) < way.hope(work):
        return False
    tried[best] = _proved(work, tried[best])
    return tried[best].sound


def _tried(work: Work, route: Route, why: str) -> list[Tried]:
    """A trial run of a route, with a part of the particles that the budget buys; if it wins, the others follow."""
    size = route.size(work.account, work.populations, 1 - PROVE)
    if size < FEWEST:
        need = route.each.times(FEWEST * work.populations).plus(route.once)
        pairs = zip(("evaluations", "calls"), need, work.account.left, strict=True)
        lack = " and ".join(f"{math.ceil(one - left):,} {name}" for name, one, left in pairs if one > left)
        work.left_out[route.name] = f"{FEWEST} particles a population take {lack or 'somewhat'} more than is left"
        return []
    result = work.run(route, max(size // PARTS, FEWEST), work.populations, why)
    return [Tried(route, result, worth_of(result))]


def _best(work: Work, tried: list[Tried]) -> tuple[Tried, str]:
    """The most efficient route that passes the check by moves; if none passes, the most efficient."""
    ranked = sorted(tried, key=lambda one: -one.efficiency(work))
    for number, one in enumerate(ranked):
        ranked[number] = _proved(work, one)
        if ranked[number].sound:
            break
    best = next((one for one in ranked if one.sound), ranked[0])
    if len(tried) == 1:
        return best, f"a particle of it is worth {best.worth:.2g} independent draws"
    beside = ", ".join(f"{one.route.name} {rounded(one.efficiency(work))}" for one in tried)
    return best, f"it is worth most for its cost (independent draws that the whole budget would buy: {beside})"


def _proved(work: Work, one: Tried) -> Tried:
    """The trial with its check by moves, paid by a small share of the budget; unchanged if that is too little."""
    problem = work.problem
    if one.drift is not None or not work.movable or problem.reward is None or one.result.log_z == NEG_INF:
        return one
    each = move_cost(problem, work.account)
    chains = min(max(work.account.buys(each.times(problem.length), PROVE), FEWEST_CHAINS), CHAINS)
    moves = min(work.account.buys(each.times(chains), PROVE), 2 * problem.length)
    if moves < 1:
        return one
    return one._replace(drift=work.check(one.result, (chains, moves), "moves must leave a right answer alone"))


def finished(work: Work, best: Tried, why: str) -> Tried:
    """The winner with the rest of the budget spent on it."""
    for _ in range(REPEATS):
        result = _more(work, best.route, best.result, why)
        if result is None:
            break
        best = best._replace(result=result)
    return _with_all_draws(work, best)


def _with_all_draws(work: Work, best: Tried) -> Tried:
    """An answer by draws of p0 with all other draws of known law that were paid for, of rounds that taught no twist."""
    others = [one for one in same_base(work)[1:] if one.independent] if best.route.name == IMPORTANCE else []
    if not others:
        return best
    result = with_draws_beside(best.result, others)
    more = result.log_weights.numel() - best.result.log_weights.numel()
    work.note(f"with {more:,} draws of other laws beside them, {ess_told(result)}")
    return best._replace(result=result)


def _more(work: Work, route: Route, result: Result, why: str) -> Result | None:
    """The result joined with one more run, sized as if every call were of a new state; None if nothing is affordable.

    Particles that may be resampled come in no smaller numbers than `FEWEST` a population.
    """
    more = route.size(work.account, work.populations)
    if more < (1 if route.independent else FEWEST):
        return None
    return joined(result, work.run(route, more, work.populations, why))
