"""Learning a twist from draws: draw, call the reward, fit each family, keep the best by held-out error, draw again.

The first round draws from p0, each further one from p0 exp(twist): where a run will be. Every fit sees all rounds and
is judged on held-out draws of the last. States drawn here come from uniforms that no run uses, so a run with the same
seed is independent of what its twist was fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch

from ..core.parameter_names import spelled
from ..core.spent import Spent
from ..core.types import (
    InvalidInput,
    Model,
    Potential,
    Tokens,
    check_model,
    has,
    listed,
    plain,
    shown,
    whole,
)
from ..diffusion.processes import Masking
from ..smc.stream import OUTPUT, Stream, check_seed
from .calls import Rewarding, call_reward, check_reward_of, scaled
from .learned import HeldOut, LearnedTwist, judge
from .lessons import Lessons, Mutants, TwistFamily, softened, together
from .network import SmallNetwork
from .revealing import draws as drawn
from .tables import Flat, PairTables

_FEWEST = 25  # draws of a round
_LARGEST, _LARGEST_LINEAR = 1 << 19, 1 << 23  # numbers of a default family that is tried
_GOOD = 0.5  # nats of spread that costlier families are not tried to better
_PURPOSE = 1 << 20  # of the stream: apart from those of runs


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
) -> LearnedTwist:
    """A twist for exp(strength * reward): what a partly masked state is worth, learned from draws of the model.

    Any twist leads a sampler to the same target; a better one needs fewer particles. Network evaluations: `draws` times
    the number of sites, for each of 1 + `refits` rounds; all in `spent`. See `held_out.spread` for how good it is.

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
        family: What the twist may look like, one `TwistFamily` or several, of which held-out error chooses. None (the
            default): a constant, linear, pairs of neighbours, all pairs where they are not too many, and a small
            network where tables leave much to explain.
        seed: Seed of the draws, 0 by default.
    """
    plan = _plan(model, reward, strength, calls, draws, refits, order, seed)
    tiers = _families(model, family, plan.seed)
    rounds: list[Lessons] = []
    states: list[Tokens] = []
    spent, twist = Spent(), cast("Potential | None", None)
    tried: list[HeldOut] = []
    for turn in range(1 + plan.refits):
        lessons, called, cost = _round(model, reward, plan, twist, turn)
        rounds, states, spent = [*rounds, lessons], [*states, called], spent.plus(cost)
        twist, tried = _best(rounds, tiers if turn == plan.refits else tiers[:1])
        twist = _moved(twist, model.device)
    distinct = len(torch.unique(torch.cat(states), dim=0))
    spent = spent._replace(calls=sum(map(len, states)), distinct=distinct)
    return LearnedTwist(
        cast("Potential", twist), model.process.vocabulary, plan.strength, tried[0], tuple(tried), plan.order, spent
    )


class _Plan(NamedTuple):
    """Checked arguments: how many draws and mutants a round makes, how often, and in which order."""

    strength: float
    draws: int
    mutants: int  # of each draw
    refits: int
    order: tuple[int, ...] | None
    seed: int


def _plan(
    model: Model,
    reward: object,
    strength: object,
    calls: object,
    draws: object,
    refits: object,
    order: object,
    seed: int,
) -> _Plan:
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
    mutants = min(calls // (1 + refits) // draws - 1, most)
    return _Plan(power, draws, mutants, refits, _order(model, order), check_seed(seed))


def _order(model: Model, order: object) -> tuple[int, ...] | None:
    if order is None:
        return None
    need = f"name each of the {model.length} sites once, such as range({model.length})"
    found = tuple(plain(site) for site in listed("order", order, need))
    if any(type(site) is not int for site in found) or sorted(found) != list(range(model.length)):
        raise InvalidInput(f"order is {shown(order)}; {need}")
    return found


Tiers = Sequence[Sequence[TwistFamily]]  # later ones are tried where earlier ones leave much to explain at the end


def _families(model: Model, family: object, seed: int) -> Tiers:
    """The user's families, or the default ones that are not too large for this model."""
    if family is not None:
        several = family if isinstance(family, list | tuple) else [family]
        for one in several:
            has("family", one, ("fit", "name"), "give tt.PairTables(reach), or your own with `name` and `fit(lessons)`")
        if not several:
            raise InvalidInput("family is empty; give at least one")
        return [several]
    length, mask = model.length, model.process.vocabulary
    if PairTables(0).size(length, mask) > _LARGEST_LINEAR:
        raise InvalidInput(
            f"a table of {length} sites and {mask} tokens has more than {_LARGEST_LINEAR:,} entries; give a family of "
            "your own, with `name` and `fit(lessons)`"
        )
    pairs = [PairTables(1, clean_reach=0), PairTables(1), PairTables(1, 1.0)]
    costly = [PairTables(length - 1, 1.0), SmallNetwork(seed=seed)]
    fitting = [[one for one in tier if one.size(length, mask) <= _LARGEST] for tier in (pairs, costly)]
    return [[Flat(), PairTables(0), *fitting[0]], fitting[1]]


def _round(
    model: Model, reward: Rewarding, plan: _Plan, twist: Potential | None, turn: int
) -> tuple[Lessons, Tokens, Spent]:
    """Draws and mutants with their values, the states that were called, and what the draws cost."""
    x, steps, spent = drawn(model, plan.draws, twist, plan.order, plan.seed, turn)
    mutants = _mutants(x.cpu(), plan, turn, model.process.vocabulary)
    changed = x.cpu()[mutants.draw].scatter(1, mutants.site[:, None], mutants.token[:, None])
    states = torch.cat([x, changed.to(x.device)])
    value = softened(scaled(call_reward(reward, states).cpu(), plan.strength))
    mutants = mutants._replace(value=value[len(x) :])
    return Lessons(x.cpu(), value[: len(x)], mutants, steps, model.process.states - 1), states.cpu(), spent


def _mutants(x: Tokens, plan: _Plan, turn: int, vocabulary: int) -> Mutants:
    """Each draw with one token changed, sites in turn; to another draw's token there, or to any."""
    n, length = x.shape
    count = n * plan.mutants
    u = Stream(plan.seed).uniforms(_PURPOSE + turn, OUTPUT, 3, (0, count))
    every = torch.arange(count)
    draw, site = every // max(plan.mutants, 1), (every * _stride(length)) % length
    others = x[(u[0] * n).long().clamp(max=n - 1), site]
    here = x[draw, site]
    another = (here + 1 + (u[2] * (vocabulary - 1)).long().clamp(max=vocabulary - 2)) % vocabulary
    token = torch.where((u[1] < 0.5) & (others != here), others, another)
    return Mutants(draw, site, token, torch.empty(0, dtype=torch.float64))


def _stride(length: int) -> int:
    """A number without a common divisor, so that multiples of it visit every site."""
    return next(k for k in range(int(0.618 * length) + 1, 2 * length + 2) if math.gcd(k, length) == 1)


def _best(rounds: Sequence[Lessons], tiers: Tiers) -> tuple[Potential, list[HeldOut]]:
    """The family with the least held-out spread, fitted to all draws, and the figures of every family."""
    parts = [lessons.split() for lessons in rounds]
    fit, held = together([part[0] for part in parts]), parts[-1][1]
    found: list[tuple[HeldOut, TwistFamily]] = []
    for families in tiers:
        found += [(judge(family.name, family.fit(fit), held), family) for family in families]
        found.sort(key=lambda pair: pair[0].spread)
        if found[0][0].spread < _GOOD:
            break
    return found[0][1].fit(together(rounds)), [judged for judged, _ in found]


def _moved(twist: Potential, device: torch.device | str) -> Potential:
    """A twist on the model's device, where it can be moved."""
    to = getattr(twist, "to", None)
    return twist if to is None else cast("Potential", to(device))
