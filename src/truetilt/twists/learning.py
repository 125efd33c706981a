"""Learning a twist from draws: draw, call the reward, fit each family, keep the best on held-out draws, draw again.

The first round draws from p0, each further one from p0 exp(twist), which is where a run will be. Every fit uses all
rounds. It is judged by the effective share of particles it promises, estimated on held-out draws of all rounds with
importance weights to the target. The draws use a random stream that no run uses, so a run with the same seed is
independent of the draws that its twist was fitted to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch

from ..core.arguments import function, has, listed, plain, shown, whole_number
from ..core.errors import InvalidInput
from ..core.parameter_names import spelled
from ..core.spent import Spent
from ..core.types import Model, Potential, Tokens, check_model
from ..diffusion.processes import Masking
from ..rewards.calls import Rewarding, check_reward_of
from ..smc.sampler import check_seed
from .kriging import Kriging
from .learned_twist import HeldOut, LearnedTwist, judge
from .lessons import Lessons, TwistFamily, effective
from .network import SmallNetwork
from .pool import Sample
from .recorded_draws import steps_of
from .rounds import NO_MUTANTS, Plan, lessons_of, one_round, weighed
from .tables import Flat, PairTables

_FEWEST = 25  # draws of a round, at least
_LARGEST, _LARGEST_LINEAR = 1 << 19, 1 << 23  # parameters of a default family, at most: any, and the linear one
_GOOD = 0.8  # effective share of particles above which costlier families are not tried
_DEPTHS = (0.0, 2.0)  # values of `PairTables.depth` to try, in nats
_SMALL = 4000  # entries of an all-pairs table, at most, for it to be tried with a depth
_PER_CALL = 4  # entries of an all-pairs table per call of the reward, at most, for it to be tried at all
_PARTS = 3  # cross-validation parts that choose the family in the end, at most
_STEPS = 1 << 13  # steps used to compare families, at most
_RARE, _COMMON = 0.05, 0.99  # share of states met before: below it they are not counted apart; and counted at most
_HOPELESS = 4.0  # a family this many times worse than the best on the first held-out part is not judged on the others


@spelled()
@torch.no_grad()
def learn_twist(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    calls: int = 10_000,
    draws: int = 200,
    refits: int = 1,
    order: Sequence[int] | None = None,
    family: TwistFamily | Sequence[TwistFamily] | None = None,
    seed: int = 0,
    progress: Callable[[str, float], object] | None = None,
) -> LearnedTwist:
    """A learned twist for $exp(strength * reward)$: the value of a partly masked state, fitted to draws of the model.

    Every twist gives the same target; a better one needs fewer particles. It costs `draws` network evaluations per site
    in each of 1 + `refits` rounds; the total is in `spent`. `held_out.ess` says how good it is.

    Args:
        model: A `tt.Model` on `tt.Masking`; only its base score is evaluated.
        reward: Function of clean states [B, D] (or of them and a time) that returns one number a state; -inf forbids.
        strength: Factor of the reward in the target, not 0; 1 by default.
        calls: Calls of the reward at most, 10,000 by default. Calls beyond one per draw are spent on mutants (a draw
            with one token changed), which cost no network evaluation.
        draws: States drawn in each round, 200 by default; fewer where `calls` does not suffice.
        refits: Further rounds, drawn with the twist learned so far; 1 by default.
        order: The order in which the run will reveal sites, such as `range(model.length)`; give the run the same order.
            None (the default): random. For sequences whose neighbours depend on each other a fixed order learns better.
        family: The form of the twist: one `TwistFamily`, or several from which the best on held-out draws is chosen.
            None (the default): a constant, a linear one and pairs of neighbours; if these leave much unexplained, all
            pairs and kriging (`tt.Kriging`) if there are not too many pairs or states, and a small network.
        seed: Seed of the draws, 0 by default.
        progress: Function (what is being done, share of the rounds done), called before each round and each fit. None
            by default.
    """
    plan = plan_of(model, reward, strength, calls, draws, refits, order, seed)
    return learned_from(model, reward, plan, family, progress).twist


class Learning(NamedTuple):
    """A learned twist, and every draw it was learned from as a sample of its law."""

    twist: LearnedTwist
    samples: list[Sample]


def learned_from(
    model: Model,
    reward: Rewarding,
    plan: Plan,
    family: object = None,
    progress: Callable[[str, float], object] | None = None,
    begun: Sample | None = None,
    go_on: Callable[[HeldOut, float], bool] | None = None,
) -> Learning:
    """Draw and fit in turn; `begun` are draws of p0 that stand for the first round.

    `go_on` sees the figures of each fit and how many draws of the target its data are worth; False ends the rounds.
    """
    tiers, told = _families(model, family, plan), _told(progress, 1 + plan.refits)
    rounds: list[Lessons] = []
    samples: list[Sample] = []
    states: list[Tokens] = []
    spent, twist = Spent(), cast("Potential | None", None)
    for turn in range(1 + plan.refits):
        told(turn, "draws")
        if turn == 0 and begun is not None:
            steps, cost = steps_of(model, begun.x[: plan.draws].to(model.device), plan.order, plan.seed)
            lessons, sample, called = lessons_of(begun, NO_MUTANTS, steps, model), begun, begun.x[:0]
        else:
            known = torch.cat([*states, *(one.x for one in samples)]) if turn else torch.zeros(0, model.length).long()
            lessons, called, sample, cost = one_round(model, reward, plan, twist, turn, known)
        rounds, samples, states, spent = [*rounds, lessons], [*samples, sample], [*states, called], spent.plus(cost)
        told(turn, "fits")
        every = weighed(rounds, samples, 0.5 ** (turn + 1))
        if turn < plan.refits:
            twist, tried = _best(every, tiers[:2], 1)
            if go_on is None or go_on(tried[0], effective(every.log_weight)):
                twist = _moved(twist, model.device)
                continue
        twist, tried = _best(every, tiers, _PARTS)
        break
    distinct = len(torch.unique(torch.cat(states), dim=0))
    spent = spent._replace(calls=sum(map(len, states)), distinct=distinct)
    twist, order = _moved(cast("Potential", twist), model.device), plan.order
    found = LearnedTwist(twist, model.process.vocabulary, plan.strength, tried[0], tuple(tried), order, spent)
    return Learning(found, samples)


def _told(progress: object, rounds: int) -> Callable[[int, str], None]:
    """A function (round, what is being done) that calls the user's `progress`, or does nothing if there is none."""
    if progress is None:
        return lambda turn, what: None
    function("progress", progress, "(what, share)")
    tell = cast("Callable[[str, float], object]", progress)

    def told(turn: int, what: str) -> None:
        tell(f"round {turn + 1} of {rounds}, {what}", turn / rounds)

    return told


def plan_of(
    model: Model,
    reward: object,
    strength: object,
    calls: object,
    draws: object,
    refits: object,
    order: object,
    seed: int,
    begun: bool = False,
    new: int | None = None,
) -> Plan:
    """The arguments of `learn_twist`, checked; with draws that are `begun`, calls are spent on the refits alone."""
    check_model(model)
    if not isinstance(model.process, Masking):
        raise InvalidInput(
            f"a twist values masked states, and {type(model.process).__name__} has no mask; use tt.Masking"
        )
    power = check_reward_of(reward, strength, model.process.vocabulary)
    calls, draws, refits = (
        whole_number("calls", calls, 1),
        whole_number("draws", draws, _FEWEST),
        whole_number("refits", refits, 0, 100),
    )
    rounds = refits if begun else 1 + refits
    draws = min(draws, calls // rounds)
    if draws < _FEWEST:
        raise InvalidInput(
            f"{calls} calls in {rounds} rounds leave {draws} draws a round, and a fit needs {_FEWEST}; give at least "
            f"{_FEWEST * rounds} calls" + (" or fewer refits" if refits else "")
        )
    most = model.length * (model.process.vocabulary - 1)
    mutants = min(calls // rounds - draws, draws * most)
    return Plan(power, draws, mutants, refits, _order(model, order), check_seed(seed), new)


def _order(model: Model, order: object) -> tuple[int, ...] | None:
    if order is None:
        return None
    need = f"name each of the {model.length} sites once, such as range({model.length})"
    found = tuple(plain(site) for site in listed("order", order, need))
    if any(type(site) is not int for site in found) or sorted(found) != list(range(model.length)):
        raise InvalidInput(f"order is {shown(order)}; {need}")
    return found


def learnable(length: int, vocabulary: int) -> bool:
    """Whether the smallest default family (linear) is small enough for this length and vocabulary."""
    return PairTables(0).size(length, vocabulary) <= _LARGEST_LINEAR


Tiers = Sequence[Sequence[TwistFamily]]  # a later tier is tried only if the earlier ones stay below `_GOOD`


def _families(model: Model, family: object, plan: Plan) -> Tiers:
    """The user's families, or the default ones that are not too large for this model."""
    if family is not None:
        several = family if isinstance(family, list | tuple) else [family]
        for one in several:
            has("family", one, ("fit", "name"), "give tt.PairTables(reach), or your own with `name` and `fit(lessons)`")
        if not several:
            raise InvalidInput("family is empty; give at least one")
        return [several]
    length, mask = model.length, model.process.vocabulary
    if not learnable(length, mask):
        raise InvalidInput(
            f"a table of {length} sites and {mask} tokens has more than {_LARGEST_LINEAR:,} entries; give a family of "
            "your own, with `name` and `fit(lessons)`"
        )
    pairs = [PairTables(1, clean_reach=0), PairTables(1), PairTables(1, 1.0)]
    deep = [PairTables(1, 1.0, depth=depth) for depth in _DEPTHS]
    entries = PairTables(length - 1).size(length, mask)
    if length > 2 and entries <= _SMALL:
        deep += [PairTables(length - 1, 1.0, depth=depth) for depth in _DEPTHS]
    every = [PairTables(length - 1, 1.0)] if length > 2 and entries <= _PER_CALL * plan.calls else []
    tiers = (pairs, [*deep, Kriging()], [*every, SmallNetwork(seed=plan.seed)])
    fitting = [[one for one in tier if one.size(length, mask) <= _LARGEST] for tier in tiers]
    return [[Flat(), PairTables(0), *fitting[0]], *fitting[1:]]


def _best(lessons: Lessons, tiers: Tiers, most: int) -> tuple[Potential, list[HeldOut]]:
    """The family with the largest effective share on held-out draws, fitted to all draws; and the figures of every
    family.

    `most` bounds the number of cross-validation parts. Families are compared by fits to a subset
    of the steps: fits to all steps take long and choose the same family.
    """
    known = min(lessons.known, _COMMON)
    parts = [
        _Fold(fit._replace(steps=fit.steps.thinned(_STEPS)), held, [fit.parts()[0][1]] if known > _RARE else [], known)
        for fit, held in lessons.parts()[:most]
    ]
    found: list[_FittedFamily] = []
    for families in tiers:
        for family in families:
            found.append(_tried(family, parts, found[0].first.ess / _HOPELESS if found else 0.0))
            found.sort(key=lambda one: (-one.all.ess, one.all.spread))
        if found[0].all.ess > _GOOD:
            break
    return found[0].family.fit(lessons), [one.all for one in found]


class _Fold(NamedTuple):
    """Lessons to fit a family to, lessons to judge it by, and some that it was fitted to, with their share of a run."""

    fit: Lessons
    held: Lessons
    fitted: list[Lessons]  # one, or none if a run seldom meets such states
    known: float


class _FittedFamily(NamedTuple):
    """A family with its figures on the first held-out part, and on all parts."""

    family: TwistFamily
    first: HeldOut
    all: HeldOut


def _tried(family: TwistFamily, parts: Sequence[_Fold], least: float) -> _FittedFamily:
    """The figures of a family; other parts are skipped if the effective share on the first is below `least`."""
    twists = [family.fit(parts[0].fit)]
    first = _judged(family, twists, parts[:1])
    if len(parts) == 1 or first.ess < least:
        return _FittedFamily(family, first, first)
    twists += [family.fit(part.fit) for part in parts[1:]]
    return _FittedFamily(family, first, _judged(family, twists, parts))


def _judged(family: TwistFamily, twists: Sequence[Potential], parts: Sequence[_Fold]) -> HeldOut:
    fitted = [one for part in parts for one in part.fitted]
    return judge(family.name, twists, [part.held for part in parts], fitted, parts[0].known)


@runtime_checkable
class MovesToDevice(Protocol):
    """A twist that can be moved, as a network can."""

    def to(self, device: torch.device | str) -> Potential: ...


def _moved(twist: Potential, device: torch.device | str) -> Potential:
    """The twist moved to the model's device, if it has a method `to`."""
    return twist.to(device) if isinstance(twist, MovesToDevice) else twist
