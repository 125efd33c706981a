"""The candidate routes to a problem's target, from the cheapest to the dearest, and how each is prepared."""

from __future__ import annotations

from ..core.twists import Learned, words_of
from ..core.types import NEG_INF, Potential
from ..twists.learning import learnable
from ..twists.lessons import softened
from .account import Account
from .problem import SteerProblem
from .routes import (
    ADAPTED,
    ANNEALED,
    FROM_BASE,
    IMPORTANCE,
    TWISTED,
    Route,
    adapted,
    annealed,
    annealed_cost,
    importance,
    twisted,
)
from .stages import Work
from .trials import Candidate
from .twist_budget import learned, worth_learning

_FIRST = "how far the simplest way goes is the first thing to know"
NOTHING = "no draw of the base is allowed, so that there is nothing to learn or to move from"
UNLEARNED = "there is no twist that helps"
Built = tuple[Route, str] | None


def ways_of(problem: SteerProblem, account: Account, twist: Potential | None = None) -> list[Candidate]:
    """The candidate routes to a problem's target.

    Routes with a twist are among them if a twist is given or can be learned: that takes a mask, and a vocabulary for
    which some table is small enough.
    """
    if problem.reward is None:
        return [
            Candidate(ADAPTED, problem.draw, _certain, lambda work: (adapted(problem), _FIRST)),
            Candidate(ANNEALED, annealed_cost(problem, account, FROM_BASE), _moved, _annealed_from_base),
        ]
    first = Candidate(IMPORTANCE, problem.draw, _certain, lambda work: (importance(problem), _FIRST))
    led = Candidate(TWISTED, problem.draw, worth_learning, _twisted)
    leads = twist is not None or (problem.masks and learnable(problem.length, problem.vocabulary))
    if not problem.masks:
        return [first, led] if leads else [first]
    dear = [*([(ANNEALED, _annealed)] if leads else ()), (FROM_BASE, _annealed_from_base)]
    costs = [annealed_cost(problem, account, name) for name, _ in dear]
    ways = [Candidate(name, cost, _moved, build) for (name, build), cost in zip(dear, costs, strict=True)]
    return [first, *([led] if leads else ()), *ways]


def _certain(work: Work) -> float:
    return 1.0


def _moved(work: Work) -> float:
    """The worth of an annealed particle in independent draws if all goes well."""
    return 0.7


def _twisted(work: Work) -> Built:
    twist = _twist(work)
    if twist is None:
        work.left_out[TWISTED] = NOTHING if work.nothing_allowed else UNLEARNED
        return None
    return twisted(work.problem, twist), _of_twist(twist)


def _annealed(work: Work) -> Built:
    twist = _twist(work)
    if twist is None:
        work.left_out[ANNEALED] = NOTHING if work.nothing_allowed else UNLEARNED
    if twist is None or not _moving(work, ANNEALED):
        return None
    return annealed(work.problem, work.account, twist, _floor(work)), "moves finish what the twist begins"


def _annealed_from_base(work: Work) -> Built:
    """The annealed route from the base; None if there is a twist to start from, or moves do not keep the target."""
    if work.twist is not None or not _moving(work, FROM_BASE):
        return None
    return annealed(work.problem, work.account, None, _floor(work)), "moves find what draws of the base do not"


def _moving(work: Work, name: str) -> bool:
    """Whether there is something to move from, and moves keep the target; if not, why is noted."""
    if not work.movable:
        work.left_out[name] = "moves do not keep the target: the conditionals differ, or sites cannot be redrawn"
    elif work.nothing_allowed:
        work.left_out[name] = NOTHING
    return work.movable and not work.nothing_allowed


def _floor(work: Work) -> float | None:
    """What a forbidden state counts as on the way of annealing, in units of the reward, so that moves may mend it.

    None where no draw of the base is forbidden, or where the strength is negative: there less is more.
    """
    if not work.samples or work.problem.strength < 0 or bool((work.samples[0].value > NEG_INF).all()):
        return None
    return float(softened(work.samples[0].value).min()) / work.problem.strength


def _twist(work: Work) -> Potential | None:
    """The twist: the user's, the one learned before, or one learned now if the budget buys the training data."""
    if work.twist is None and not work.learned and work.problem.masks and not work.nothing_allowed:
        work.learned = True
        work.twist = learned(work)
    return work.twist


def _of_twist(twist: Potential) -> str:
    if isinstance(twist, Learned):
        return f"the twist ({twist.held_out.family}) leaves {twist.held_out.spread:.2g} nats of spread"
    told = words_of(twist)
    return "the twist is given" + ("" if told is None else f": {told}")
