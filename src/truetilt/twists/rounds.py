"""A round of learning: draws of the model, led by the twist so far, mutants of them, and their rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ..core.spent import Spent
from ..core.types import NEG_INF, Model, Potential, Tokens
from ..rewards.calls import Rewarding, call_reward, scaled
from ..smc.sampler import OUTPUT, Stream
from .lessons import Lessons, Mutants, Steps, softened, together
from .pool import Sample, log_drawn, sample_of
from .recorded_draws import weighed_draws

_NONE = torch.zeros(0, dtype=torch.int64)
NO_MUTANTS = Mutants(_NONE, _NONE, _NONE, torch.zeros(0, dtype=torch.float64))
_PURPOSE = 1 << 20  # random stream of the mutants, apart from those of runs


class Plan(NamedTuple):
    """Checked arguments: draws and mutants per round, number of refits, reveal order, seed, and new states a round."""

    strength: float
    draws: int
    mutants: int  # in each round
    refits: int
    order: tuple[int, ...] | None
    seed: int
    new: int | None = None  # states that a round may meet for the first time; None: any number

    @property
    def calls(self) -> int:
        """Calls of the reward over all rounds."""
        return (1 + self.refits) * (self.draws + self.mutants)


def weighed(rounds: Sequence[Lessons], samples: Sequence[Sample], share: float = 0.5) -> Lessons:
    """All rounds as one sample of their mixture, each draw with its importance weight towards p0 exp(value).

    Forbidden values are softened: a floor lets them hold at most `share` of the target that is learned.
    """
    every = together(rounds)
    base = every.log_weight - log_drawn(samples, every.x)  # towards p0
    changed, draws = every.mutants, len(every.x)
    if bool((every.value == NEG_INF).any() | (changed.value == NEG_INF).any()):
        none = torch.full((len(changed.value),), NEG_INF, dtype=torch.float64)  # mutants are no draws of any law
        value = softened(torch.cat([every.value, changed.value]), torch.cat([base, none]), share)
        every = every._replace(value=value[:draws], mutants=changed._replace(value=value[draws:]))
    return every._replace(log_weight=base + every.value)


def one_round(
    model: Model, reward: Rewarding, plan: Plan, twist: Potential | None, turn: int, known: Tokens
) -> tuple[Lessons, Tokens, Sample, Spent]:
    """Draws and mutants with their values, the states evaluated, the draws as a sample of their law, and the cost.

    Of all draws the first count, up to that beyond which more of them are new to the `known` states than may be.
    """
    drawn = weighed_draws(model, plan.draws, twist, plan.order, plan.seed, turn)
    if plan.new is not None:
        most = within(drawn.x.cpu(), known, plan.new)
        steps = Steps(*(column[drawn.steps.draw < most] for column in drawn.steps))
        drawn = drawn._replace(x=drawn.x[:most], log_w=drawn.log_w[:most], steps=steps)
    x = drawn.x.cpu()
    mutants = _mutants(x, plan, turn, model.process.vocabulary)
    changed = x[mutants.draw].scatter(1, mutants.site[:, None], mutants.token[:, None])
    states = torch.cat([x, changed])
    value = scaled(call_reward(reward, states.to(drawn.x.device)).cpu(), plan.strength)
    sample = sample_of(drawn, value[: len(x)], twist)
    mutants = mutants._replace(value=value[len(x) :])
    return lessons_of(sample, mutants, drawn.steps, model), states, sample, drawn.spent


def within(x: Tokens, known: Tokens, most: int) -> int:
    """How many of the first states x [n, D], at least one, hold at most this many that are not among the known ones."""
    _, number = torch.unique(torch.cat([known, x]), dim=0, return_inverse=True)
    met, here = number[: len(known)], number[len(known) :]
    first = torch.full((int(number.max()) + 1,), len(x)).scatter_reduce(0, here, torch.arange(len(x)), "amin")
    new = (first[here] == torch.arange(len(x))) & ~torch.isin(here, met)
    return max(int((new.cumsum(0) <= most).sum()), 1)


def lessons_of(sample: Sample, mutants: Mutants, steps: Steps, model: Model) -> Lessons:
    """A round's draws, mutants and steps as training data."""
    latest = torch.ones(len(sample.x), dtype=torch.bool)
    return Lessons(sample.x, sample.value, mutants, steps, model.process.states - 1, sample.log_own, latest)


def _mutants(x: Tokens, plan: Plan, turn: int, vocabulary: int) -> Mutants:
    """Each draw with one token changed, sites in turn: to another draw's token at that site, or to a random one."""
    n, length = x.shape
    count = plan.mutants
    u = Stream(plan.seed).uniforms(_PURPOSE + turn, OUTPUT, 3, count)
    every = torch.arange(count)
    draw, site = every * n // max(count, 1), (every * _stride(length)) % length
    others = x[(u[0] * n).long().clamp(max=n - 1), site]
    here = x[draw, site]
    another = (here + 1 + (u[2] * (vocabulary - 1)).long().clamp(max=vocabulary - 2)) % vocabulary
    token = torch.where((u[1] < 0.5) & (others != here), others, another)
    return Mutants(draw, site, token, NO_MUTANTS.value)


def _stride(length: int) -> int:
    """A number coprime to `length`, so that its multiples visit every site."""
    return next(k for k in range(int(0.618 * length) + 1, 2 * length + 2) if math.gcd(k, length) == 1)
