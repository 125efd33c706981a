"""The pilot of `steer`: draws of the base, enough to tell how good importance sampling is and what a twist promises."""

from __future__ import annotations

from ..core.budget import BudgetTooSmall
from ..result import Result
from ..smc.resampling import effective_sample_size
from ..twists.forecast import promised_share
from .join_runs import joined
from .routes import Route
from .stages import FirstLook, Work, rounded
from .trials import Candidate, Tried, worth_of

LOOK, MOST_LOOK = 0.1, 0.25  # shares of the remaining budget: for the first pilot run, and for the whole pilot
HALF = 0.5  # share of the remaining budget that goes to base draws before other routes are ruled out
FEWEST_LOOKS = 64  # draws needed to forecast what a twist would achieve
DOUBTFUL, CLEAR = 4.0, 25.0  # effective draws between which the pilot is inconclusive and is enlarged


def looked_at(work: Work, way: Candidate) -> Tried:
    """The pilot; enlarged if its effective draws are too few to judge the base, and too many to call it hopeless."""
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
    """The pilot enlarged by half of the remaining budget; unchanged if its draws are not independent."""
    more = look.route.size(work.account, work.populations, HALF)
    if not look.route.independent or more < 1:
        return look
    why = f"its draws are worth {rounded(look.efficiency(work))} independent ones, if the look was no lucky one"
    result = joined(look.result, work.run(look.route, more, work.populations, why))
    return look._replace(result=result, worth=worth_of(result))


def told_by(work: Work, look: Tried, left: float = 1.0) -> FirstLook:
    """The pilot's findings about the base, from its weights; `left` of the budget after the pilot remains."""
    effective, count = _effective(look), look.result.log_weights.numel()
    in_all = effective / count / work.account.weight(look.route.each)
    return FirstLook(effective, in_all, effective / count, _promise(work, look.result), _new(work), left)


def _effective(look: Tried) -> float:
    """Effective sample size of a pilot run."""
    return float(effective_sample_size(look.result.log_weights.reshape(-1)))


def _look_size(work: Work, route: Route) -> int:
    """Particles per population in the pilot: a small share of the budget, and if affordable enough for a forecast."""
    share = route.size(work.account, work.populations, LOOK)
    enough = -(-FEWEST_LOOKS // work.populations)
    return max(share, min(enough, route.size(work.account, work.populations, MOST_LOOK)), 1)


def _promise(work: Work, look: Result) -> float | None:
    """The forecast of a twist's effective share; None if there is no reward or the pilot is too small."""
    x, log_w = look.particles.flatten(0, 1), look.log_weights.reshape(-1)
    if work.problem.reward is None or len(x) < FEWEST_LOOKS or work.nothing_allowed:
        return None
    return promised_share(x, log_w, work.problem.vocabulary)


def _new(work: Work) -> float:
    """The share of calls so far that were on new states; 1 if calls are not limited."""
    spent = work.account.spent
    return 1.0 if work.account.limits.calls is None or spent.calls == 0 else spent.distinct / spent.calls
