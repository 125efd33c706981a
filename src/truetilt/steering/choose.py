"""Which way `steer` takes: it measures what a particle of each way is worth, and goes on with the one worth most for
its cost.

The simplest way is looked at first. A further one is tried only if it could be worth more, going by its cost and what
such particles are worth at best. The way that wins is checked by moves, and gets what is left of the budget.
"""

from __future__ import annotations

from ..core.budget import BudgetTooSmall
from ..result import Result
from ..targets.consistency import ALLOWED, STATES
from .joined import joined
from .looks import halfway, looked_at, told_by
from .routes import Route, move_cost
from .tried import Candidate, Tried, rounded, worth_of
from .work import Work

PROVE = 0.05  # share of what is left, for the check
PARTS = 5  # of the populations one in so many makes a trial
FEWEST = 4  # particles of a population that resamples
CHAINS, FEWEST_CHAINS = 64, 16  # draws that the check moves
REPEATS = 64  # runs at most that go on until the budget is spent; where states repeat a run costs few calls


def chosen(work: Work, ways: list[Candidate], only: str | None) -> tuple[Tried, list[Tried]]:
    """The answer that the budget buys, in the way it came, and all that was tried; `only` is the one way wanted."""
    _check_affordable(work, ways, only)
    tried = [looked_at(work, ways[0])]
    work.movable = _movable(work, tried[0].result)
    work.first = told_by(work, tried[0])
    wanted = ways[1:] if only is None else [way for way in ways[1:] if way.name == only]
    tried = _with_others(work, tried, wanted, only)
    if only is None and len(tried) == 1:  # half of the rest shows whether the look was a lucky one
        tried = _with_others(work, [halfway(work, tried[0])], wanted, only)
    rivals = tried if only is None else [one for one in tried if one.route.name == only]
    if not rivals:
        raise BudgetTooSmall(_unreachable(work, only))
    best, why = _best(work, rivals)
    return finished(work, best, why), tried


def _with_others(work: Work, tried: list[Tried], ways: list[Candidate], only: str | None) -> list[Tried]:
    """What was tried, and trials of the ways that could do better than what was tried before them."""
    work.left_out, tried = [], [*tried]
    for way in ways:
        if only is None and _enough(work, tried, way):
            work.left_out.append(way.name)
            continue
        found = way.build(work)
        tried += [] if found is None else _tried(work, *found)
    return tried


def _unreachable(work: Work, only: str | None) -> str:
    """Why the one way that was wanted could not be taken."""
    if work.lacking:
        return f"{work.budget_told} do not suffice for {only!r}: it needs {' or '.join(work.lacking)}"
    if not work.movable:
        return (
            f"{only!r} redraws sites, which the model's conditionals (or its process) do not allow; leave out the route"
        )
    return f"{only!r} came to nothing ({work.stages[-1].what}); give more calls, or leave out the route"


def _check_affordable(work: Work, ways: list[Candidate], only: str | None) -> None:
    """Refuse a way that was asked for and cannot be paid, before anything is spent."""
    for way in ways:
        if way.name == only and work.account.buys(way.each.times(work.populations)) < FEWEST:
            need = way.each.times(FEWEST * work.populations)
            raise BudgetTooSmall(
                f"{work.budget_told} do not buy {FEWEST} particles for each of {work.populations} populations by "
                f"{only!r}, which takes {need.evaluations:,.0f} evaluations and {need.calls:,.0f} calls; give more"
            )


def _movable(work: Work, look: Result) -> bool:
    """Whether moves keep the target: sites can be redrawn, and the model's conditionals agree."""
    problem = work.problem
    if not problem.masks or work.account.buys(problem.cost(3 * STATES, 0)) < 1:
        return False
    return problem.length == 1 or work.agree(look) <= ALLOWED


def _enough(work: Work, tried: list[Tried], way: Candidate) -> bool:
    """Whether a way could not do better than what was tried; what moves contradict is not enough."""
    sound = [number for number, one in enumerate(tried) if one.sound]
    best = max(sound, key=lambda number: tried[number].efficiency(work), default=None)
    if best is None or tried[best].efficiency(work) * work.account.weight(way.each) < way.hope(work):
        return False
    tried[best] = _proved(work, tried[best])
    return tried[best].sound


def _tried(work: Work, route: Route, why: str) -> list[Tried]:
    """A few of the populations that what is left buys beside the check: if the way wins, the others follow."""
    size = route.size(work.account, work.populations, 1 - PROVE)
    if size < FEWEST:
        return []
    result = work.run(route, size, max(work.populations // PARTS, 2), why)
    return [Tried(route, result, worth_of(result))]


def _best(work: Work, tried: list[Tried]) -> tuple[Tried, str]:
    """The most efficient of those that moves leave alone; of none that do, the most efficient."""
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
    """With the check by moves, as many as a small share of the budget buys; without where it buys too few."""
    problem = work.problem
    if one.drift is not None or not work.movable or problem.reward is None:
        return one
    each = move_cost(problem, work.account)
    chains = min(max(work.account.buys(each.times(problem.length), PROVE), FEWEST_CHAINS), CHAINS)
    moves = min(work.account.buys(each.times(chains), PROVE), 2 * problem.length)
    if moves < 1:
        return one
    return one._replace(drift=work.check(one.result, (chains, moves), "moves must leave a right answer alone"))


def finished(work: Work, best: Tried, why: str) -> Tried:
    """Spend what is left on the way that won."""
    for _ in range(REPEATS):
        result = _more(work, best.route, best.result, why)
        if result is None:
            break
        best = best._replace(result=result)
    return best


def _more(work: Work, route: Route, result: Result, why: str) -> Result | None:
    """The answer with a further run, as large as is safe if every call is of a new state; None where that is nothing.

    Independent draws join the populations that there are, others make populations of the same size.
    """
    populations, size = result.log_weights.shape
    if route.independent:
        more = route.size(work.account, populations)
        return joined(result, work.run(route, more, populations, why)) if more else None
    count = route.size(work.account, 1) // size
    return Result.union([result, work.run(route, size, count, why)]) if count else None
