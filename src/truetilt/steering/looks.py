"""Looks at the simplest way: draws of the base, as many as tell how far they go and what a twist promises."""

from __future__ import annotations

from ..core.budget import BudgetTooSmall
from ..result import Result
from ..smc.resampling import effective_sample_size
from ..twists.promise import promised_share
from .joined import joined
from .routes import Route
from .tried import Candidate, Tried, rounded, worth_of
from .work import FirstLook, Work

LOOK, MOST_LOOK = 0.1, 0.25  # shares of what is left, for the first look and for all of it
HALF = 0.5  # of what is left goes to draws of the base before the other ways are given up
FEWEST_LOOKS = 64  # draws that tell what a twist promises
DOUBTFUL, CLEAR = 4.0, 25.0  # effective draws of a look that tell how good the base is: fewer, or more


def looked_at(work: Work, way: Candidate) -> Tried:
    """A first look; with more draws where the first ones are neither good nor hopeless but too few to tell."""
    return _looked_again(work, _looked(work, way))


def _looked(work: Work, way: Candidate) -> Tried:
    route, why = way.build(work) or (None, "")
    size = 0 if route is None else _look_size(work, route)
    if route is None or route.size(work.account, work.populations) < size:
        need = way.each.times(work.populations)
        raise BudgetTooSmall(
            f"{work.budget_told} do not buy one draw for each of {work.populations} populations, which takes "
            f"{need.evaluations:,.0f} evaluations and {need.calls:,.0f} calls; give at least that, or fewer populations"
        )
    result = work.run(route, size, work.populations, why)
    return Tried(route, result, worth_of(result))


def _looked_again(work: Work, look: Tried) -> Tried:
    more = look.route.size(work.account, work.populations, MOST_LOOK - LOOK)
    if not look.route.independent or more < 1 or not DOUBTFUL <= _effective(look) < CLEAR:
        return look
    why = f"{_effective(look):.2g} effective draws of {look.result.log_weights.numel()} are too few to tell by"
    result = joined(look.result, work.run(look.route, more, work.populations, why))
    return look._replace(result=result, worth=worth_of(result))


def halfway(work: Work, look: Tried) -> Tried:
    """The look with half of what is left, and what it tells now; as it was where draws are not independent."""
    more = look.route.size(work.account, work.populations, HALF)
    if not look.route.independent or more < 1:
        return look
    why = f"its draws are worth {rounded(look.efficiency(work))} independent ones, if the look was no lucky one"
    result = joined(look.result, work.run(look.route, more, work.populations, why))
    found = look._replace(result=result, worth=worth_of(result))
    work.first = told_by(work, found)._replace(left=1 - HALF)
    return found


def told_by(work: Work, look: Tried) -> FirstLook:
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
