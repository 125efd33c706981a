"""Which way `steer` takes: it measures what a particle of each way is worth, and goes on with the one worth most for
its cost.

The simplest way is looked at first. A further one is tried only if it could be worth more, going by its cost and what
such particles are worth at best. The way that wins is checked by moves, and gets what is left of the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..core.budget import BudgetTooSmall
from ..result import Result
from ..smc.resampling import effective_sample_size
from ..targets.consistency import ALLOWED, STATES
from ..twists.promise import promised_share
from .account import Price
from .drift import Drift
from .joined import joined
from .routes import Route, move_cost
from .work import FirstLook, Work

LOOK, MOST_LOOK, PROVE = 0.1, 0.25, 0.05  # shares of what is left, for each stage
HALF = 0.5  # of what is left goes to draws of the base before the other ways are given up
PARTS, SEVERAL = 5, 8  # of the populations one in so many makes a trial; so many tell by their scatter
FEWEST_LOOKS = 64  # draws that tell what a twist promises
DOUBTFUL, CLEAR = 4.0, 25.0  # effective draws of a look that tell how good the base is: fewer, or more
FEWEST = 4  # particles of a population that resamples
CHAINS, FEWEST_CHAINS = 64, 16  # draws that the check moves
REPEATS = 64  # runs at most that go on until the budget is spent; where states repeat a run costs few calls


class Candidate(NamedTuple):
    """A route that can be built: its name, what a particle costs, and what it is worth in independent draws at best.

    `hope` is less than 1 by what getting there costs, as far as can be told. `build` prepares it (learns a twist) and
    returns it, with why, or None where the budget does not suffice.
    """

    name: str
    each: Price
    hope: Callable[[Work], float]
    build: Callable[[Work], tuple[Route, str] | None]


class Tried(NamedTuple):
    """A route, a run of it, what a particle of it was worth in independent draws, and the check of it by moves."""

    route: Route
    result: Result
    worth: float
    drift: Drift | None = None

    def efficiency(self, work: Work) -> float:
        """Independent draws that the whole budget would buy."""
        return self.worth / work.account.weight(self.route.each)

    @property
    def sound(self) -> bool:
        """Whether the check, if there was one, found nothing."""
        return self.drift is None or not self.drift.found


def chosen(work: Work, ways: list[Candidate], only: str | None) -> tuple[Tried, list[Tried]]:
    """The answer that the budget buys, in the way it came, and all that was tried; `only` is the one way wanted."""
    _check_affordable(work, ways, only)
    tried = [_looked_again(work, _looked(work, ways[0]))]
    work.movable = _movable(work, tried[0].result)
    work.first = _told_by(work, tried[0])
    wanted = ways[1:] if only is None else [way for way in ways[1:] if way.name == only]
    tried = _with_others(work, tried, wanted, only)
    if only is None and len(tried) == 1:  # half of the rest shows whether the look was a lucky one
        tried = _with_others(work, [_halfway(work, tried[0])], wanted, only)
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
        return f"{told(work)} do not suffice for {only!r}: it needs {' or '.join(work.lacking)}"
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
                f"{told(work)} do not buy {FEWEST} particles for each of {work.populations} populations by {only!r}, "
                f"which takes {need.evaluations:,.0f} evaluations and {need.calls:,.0f} calls; give more"
            )


def _looked(work: Work, way: Candidate) -> Tried:
    route, why = way.build(work) or (None, "")
    size = 0 if route is None else _look_size(work, route)
    if route is None or route.size(work.account, work.populations) < size:
        need = way.each.times(work.populations)
        raise BudgetTooSmall(
            f"{told(work)} do not buy one draw for each of {work.populations} populations, which takes "
            f"{need.evaluations:,.0f} evaluations and {need.calls:,.0f} calls; give at least that, or fewer populations"
        )
    result = work.run(route, size, work.populations, why)
    return Tried(route, result, _worth(result))


def _looked_again(work: Work, look: Tried) -> Tried:
    """With more draws, where the first ones are neither good nor hopeless but too few to tell."""
    more = look.route.size(work.account, work.populations, MOST_LOOK - LOOK)
    if not look.route.independent or more < 1 or not DOUBTFUL <= _effective(look) < CLEAR:
        return look
    why = f"{_effective(look):.2g} effective draws of {look.result.log_weights.numel()} are too few to tell by"
    result = joined(look.result, work.run(look.route, more, work.populations, why))
    return look._replace(result=result, worth=_worth(result))


def _halfway(work: Work, look: Tried) -> Tried:
    """The look with half of what is left, and what it tells now; as it was where draws are not independent."""
    more = look.route.size(work.account, work.populations, HALF)
    if not look.route.independent or more < 1:
        return look
    why = f"its draws are worth {_rounded(look.efficiency(work))} independent ones, if the look was no lucky one"
    result = joined(look.result, work.run(look.route, more, work.populations, why))
    found = look._replace(result=result, worth=_worth(result))
    work.first = _told_by(work, found)._replace(left=1 - HALF)
    return found


def _told_by(work: Work, look: Tried) -> FirstLook:
    """What a look tells of the base, by its weights."""
    effective, count = _effective(look), look.result.log_weights.numel()
    in_all = effective / count / work.account.weight(look.route.each)
    return FirstLook(effective, in_all, _promise(work, look.result), _new(work))


def _effective(look: Tried) -> float:
    """Effective draws of a look, by its weights."""
    return float(effective_sample_size(look.result.log_weights.reshape(-1)))


def _look_size(work: Work, route: Route) -> int:
    """Particles of a population in the first look: a small share of the budget, and enough to tell by if it can be."""
    share = route.size(work.account, work.populations, LOOK)
    enough = -(-FEWEST_LOOKS // work.populations)
    return max(share, min(enough, route.size(work.account, work.populations, MOST_LOOK)), 1)


def _movable(work: Work, look: Result) -> bool:
    """Whether moves keep the target: sites can be redrawn, and the model's conditionals agree."""
    problem = work.problem
    if not problem.masks or work.account.buys(problem.cost(3 * STATES, 0)) < 1:
        return False
    return problem.length == 1 or work.agree(look) <= ALLOWED


def _promise(work: Work, look: Result) -> float | None:
    """What a twist promises, by the first look; None where the look is of no reward, or too small to tell."""
    x, log_w = look.particles.flatten(0, 1), look.log_weights.reshape(-1)
    if work.problem.reward is None or len(x) < FEWEST_LOOKS:
        return None
    return promised_share(x, log_w, work.problem.vocabulary)


def _new(work: Work) -> float:
    """The share of the calls so far that were of new states; 1 where calls are not limited."""
    spent = work.account.spent
    return 1.0 if work.account.limits.calls is None or spent.calls == 0 else spent.distinct / spent.calls


def told(work: Work) -> str:
    """The budget, in words."""
    evaluations, calls = work.account.budget
    return f"{evaluations:,} evaluations" + ("" if calls is None else f" and {calls:,} calls")


def _worth(result: Result) -> float:
    """Independent draws that a particle is worth: by weights, and by how populations scatter or by ancestry.

    Of independent draws the weights tell all.
    """
    figures = result.trust().figures
    if figures.resampling == "never":
        return figures.union_ess / result.log_weights.numel()
    scatter = figures.union_ess if figures.draws is None else figures.draws
    if figures.populations < SEVERAL:  # too few to scatter
        scatter = figures.union_ess if figures.moved else figures.lines
    return min(scatter, figures.union_ess) / result.log_weights.numel()


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
    return [Tried(route, result, _worth(result))]


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
    beside = ", ".join(f"{one.route.name} {_rounded(one.efficiency(work))}" for one in tried)
    return best, f"it is worth most for its cost (independent draws that the whole budget would buy: {beside})"


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):,.10g}"


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
