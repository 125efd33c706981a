"""Learning a twist from draws: draw, call the reward, fit each family, keep the best on held-out draws, draw again.

The first round draws from p0, each further one from p0 exp(twist): where a run will be. Every fit sees all rounds, and
is judged by the effective share that it promises on held-out draws of all, weighed by their part in the target. States
drawn here come from uniforms that no run uses, so a run with the same seed is independent of what its twist was fitted
to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch

from ..core.arguments import function, has, listed, plain, shown, whole
from ..core.errors import InvalidInput
from ..core.parameter_names import spelled
from ..core.spent import Spent
from ..core.types import Model, Potential, Tokens, check_model
from ..diffusion.processes import Masking
from ..smc.stream import check_seed
from .calls import Rewarding, check_reward_of
from .learned import HeldOut, LearnedTwist, judge
from .lessons import Lessons, TwistFamily
from .network import SmallNetwork
from .rounds import Plan, RoundLaw, one_round, weighed
from .tables import Flat, PairTables

_FEWEST = 25  # draws of a round
_LARGEST, _LARGEST_LINEAR = 1 << 19, 1 << 23  # numbers of a default family that is tried
_GOOD = 0.8  # effective share of particles that costlier families are not tried to better
_DEPTHS = (0.0, 2.0)  # nats below the target's own values to which families with a depth are fitted
_SMALL = 4000  # numbers of a table of all pairs that is tried with a depth
_PER_CALL = 4  # numbers of a table of all pairs for each call, at most, for it to be tried
_STEPS = 1 << 13  # steps of the draws that families are compared by
_HOPELESS = 4.0  # how many times less than the best family a later one may promise at first, to be tried in full


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
    """A twist for exp(strength * reward): what a partly masked state is worth, learned from draws of the model.

    Any twist leads a sampler to the same target; a better one needs fewer particles. Network evaluations: `draws` times
    the number of sites, for each of 1 + `refits` rounds; all in `spent`. See `held_out.ess` for how good it is.

    Args:
        model: A `tt.Model` on `tt.Masking`; only its base score is asked.
        reward: Function of clean states [B, D] (or of them and a time) that returns one number a state; -inf forbids.
        strength: Factor of the reward in the target, not 0; 1 by default.
        calls: Calls of the reward at most, 10,000 by default. Those beyond one a draw go to mutants of the draws, with
            one token changed: they cost no network evaluation.
        draws: States drawn in each round, 200 by default; fewer where `calls` does not suffice.
        refits: Further rounds, drawn with the twist so far; 1 by default.
        order: The order in which the run will reveal sites, such as `range(model.length)`; give the run the same. None
            (the default): at random. For sequences whose neighbours depend on each other a fixed order learns better.
        family: What the twist may look like, one `TwistFamily` or several, of which held-out draws choose. None (the
            default): a constant, linear, pairs of neighbours, all pairs where they are not too many, and a small
            network where tables leave much to explain.
        seed: Seed of the draws, 0 by default.
        progress: Function (what is being done, share of the rounds that are done), called before each round and each
            fit. None by default.
    """
    plan = _plan(model, reward, strength, calls, draws, refits, order, seed)
    tiers = _families(model, family, plan)
    told = _told(progress, 1 + plan.refits)
    rounds: list[Lessons] = []
    states: list[Tokens] = []
    spent, twist = Spent(), cast("Potential | None", None)
    tried: list[HeldOut] = []
    laws: list[RoundLaw] = []
    for turn in range(1 + plan.refits):
        told(turn, "draws")
        lessons, called, law, cost = one_round(model, reward, plan, twist, turn)
        rounds, states, spent = [*rounds, lessons], [*states, called], spent.plus(cost)
        laws = [*laws, law]
        last = turn == plan.refits
        told(turn, "fits")
        twist, tried = _best(weighed(rounds, laws), tiers if last else tiers[:2], None if last else 1)
        twist = _moved(twist, model.device)
    distinct = len(torch.unique(torch.cat(states), dim=0))
    spent = spent._replace(calls=sum(map(len, states)), distinct=distinct)
    return LearnedTwist(
        cast("Potential", twist), model.process.vocabulary, plan.strength, tried[0], tuple(tried), plan.order, spent
    )


def _told(progress: object, rounds: int) -> Callable[[int, str], None]:
    """What tells the round and what is done in it, if somebody listens."""
    if progress is None:
        return lambda turn, what: None
    function("progress", progress, "(what, share)")
    tell = cast("Callable[[str, float], object]", progress)

    def told(turn: int, what: str) -> None:
        tell(f"round {turn + 1} of {rounds}, {what}", turn / rounds)

    return told


def _plan(
    model: Model,
    reward: object,
    strength: object,
    calls: object,
    draws: object,
    refits: object,
    order: object,
    seed: int,
) -> Plan:
    check_model(model)
    if not isinstance(model.process, Masking):
        raise InvalidInput(
            f"a twist values masked states, and {type(model.process).__name__} has no mask; use tt.Masking"
        )
    power = check_reward_of(reward, strength)
    calls, draws, refits = whole("calls", calls, 1), whole("draws", draws, _FEWEST), whole("refits", refits, 0, 100)
    draws = min(draws, calls // (1 + refits))
    if draws < _FEWEST:
        raise InvalidInput(
            f"{calls} calls in {1 + refits} rounds leave {draws} draws a round, and a fit needs {_FEWEST}; give at "
            f"least {_FEWEST * (1 + refits)} calls" + (" or fewer refits" if refits else "")
        )
    most = model.length * (model.process.vocabulary - 1)
    mutants = min(calls // (1 + refits) - draws, draws * most)
    return Plan(power, draws, mutants, refits, _order(model, order), check_seed(seed))


def _order(model: Model, order: object) -> tuple[int, ...] | None:
    if order is None:
        return None
    need = f"name each of the {model.length} sites once, such as range({model.length})"
    found = tuple(plain(site) for site in listed("order", order, need))
    if any(type(site) is not int for site in found) or sorted(found) != list(range(model.length)):
        raise InvalidInput(f"order is {shown(order)}; {need}")
    return found


def learnable(length: int, vocabulary: int) -> bool:
    """Whether the smallest of the default families is small enough for such a model."""
    return PairTables(0).size(length, vocabulary) <= _LARGEST_LINEAR


Tiers = Sequence[Sequence[TwistFamily]]  # later ones are tried where earlier ones leave much to explain at the end


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
    tiers = (pairs, deep, [*every, SmallNetwork(seed=plan.seed)])
    fitting = [[one for one in tier if one.size(length, mask) <= _LARGEST] for tier in tiers]
    return [[Flat(), PairTables(0), *fitting[0]], *fitting[1:]]


def _best(lessons: Lessons, tiers: Tiers, most: int | None) -> tuple[Potential, list[HeldOut]]:
    """The family with the largest effective share on held-out draws, fitted to all, and the figures of every family.

    `most` is how many parts are held out in turn, at most; None for as many as are needed. Families are compared by
    fits to some of the steps: with all of them the choice takes long and comes out the same.
    """
    parts = [(fit._replace(steps=fit.steps.thinned(_STEPS)), held) for fit, held in lessons.parts()[:most]]
    found: list[_Tried] = []
    for families in tiers:
        for family in families:
            found.append(_tried(family, parts, found[0].first.ess / _HOPELESS if found else 0.0))
            found.sort(key=lambda one: (-one.all.ess, one.all.spread))
        if found[0].all.ess > _GOOD:
            break
    return found[0].family.fit(lessons), [one.all for one in found]


class _Tried(NamedTuple):
    """A family with its figures, on the first part that was held out and on all."""

    family: TwistFamily
    first: HeldOut
    all: HeldOut


def _tried(family: TwistFamily, parts: Sequence[tuple[Lessons, Lessons]], least: float) -> _Tried:
    """The figures of a family; where the first part shows less than the `least` effective share, those of that part."""
    (fit, held), *others = parts
    twists, judged = [family.fit(fit)], [held]
    first = judge(family.name, twists, judged)
    if not others or first.ess < least:
        return _Tried(family, first, first)
    twists += [family.fit(fit) for fit, _ in others]
    return _Tried(family, first, judge(family.name, twists, [held, *(one for _, one in others)]))


def _moved(twist: Potential, device: torch.device | str) -> Potential:
    """A twist on the model's device, where it can be moved."""
    to = getattr(twist, "to", None)
    return twist if to is None else cast("Potential", to(device))
