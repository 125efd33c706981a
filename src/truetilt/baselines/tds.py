"""The twisted diffusion sampler (Wu et al. 2023) for masked states: proposals follow the gradient of a value.

At a step the base's law of a site is tilted by the first-order change of the value, from one gradient in the one-hot
state. The weight corrects this approximation and the values telescope to the reward, so any finite value with a
gradient leads to the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.bases import FeynmanKac
from ..core.binding import bind, cost_of
from ..core.budget import Budget
from ..core.errors import InvalidInput, InvalidWeights
from ..core.evaluation import CountedFunction, RunLog
from ..core.logits import SiteLogits, batch_of, take
from ..core.types import NEG_INF, Aux, LogWeights, Model, Particles, Resampler, Tokens
from ..diffusion.predictors import value_and_slope
from ..rewards.calls import Rewarding, call_reward, check_reward_of, scaled
from ..smc.resampling import adaptive, log_mean_exp, systematic
from ..smc.sampler import Source, Stream, last_of, run_steps
from ..targets.any_order import RevealClock, RevealLaw, RevealMove
from .base_draws import Walk, WalkMaker, site_by_site
from .record import Baseline
from .relaxation import Differentiable, relaxed
from .svdd import Regressed, regressed_value

_NUMBERS = 1 << 24  # entries of the one-hot states that are differentiated at a time
_SHARE, _DRAWS = 4, 500  # a value is learned from one part in this many of a budget, and from at most this many draws


@torch.no_grad()
def tds(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    budget: Budget,
    value: Any = None,
    dtype: torch.dtype = torch.float64,
    particles: int | None = None,
    resample: Resampler | None = None,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """The twisted diffusion sampler with as many particles as the budget affords, in one population.

    It has a target: E[exp(log_z)] is Z at any number of particles, and the weighted states approach the target.

    Args:
        model: A `tt.Model` on `tt.Masking`; only its base score is evaluated.
        reward: Function of clean states [B, D] that returns one number a state; -inf forbids.
        strength: Factor of the reward in the target, not 0; 1 by default.
        budget: Evaluations and calls that may be spent, including those that learn the value.
        value: Differentiable value of a masked state, in units of the reward: a twist of `tt.learn_twist`, a
            `regressed_value`, or a function (onehot, t) of one-hot states [B, D, S + 1], the mask last, that returns
            [B] (see `tt.Taylor`). The cost of learning it (its `spent`) is counted; passes of a network of its own are
            not. None (the default): `regressed_value` on up to 500 base draws, for a quarter of the budget at most.
        dtype: Type of the one-hot states, float64 by default; give that of the weights if the value is a network.
        particles: Upper bound. None (the default): as many as the budget affords.
        resample: Resampling scheme; `tt.adaptive(tt.systematic, 0.5)` by default.
        walk: How sites are revealed: `site_by_site` (the default), or it with an order or fewer steps.
        seed: Seed of the run, 0 by default.
    """
    strength, log = check_reward_of(reward, strength), RunLog()
    way, counted = walk(bind(model, log)), CountedFunction(reward, log)
    if not isinstance(way.fk, RevealClock):
        raise InvalidInput("this sampler tilts the law of the sites that a step reveals; give walk=site_by_site")
    budget.most(way.steps, 1, "particles", particles)  # check before anything is spent
    if value is None:
        value = default_value(model, reward, way, budget, seed)
    before = cost_of(value)
    count = budget.less(before).most(way.steps, 1, "particles", particles)
    fk = TwistedReveal(way.fk, relaxed(value), counted, strength, dtype)
    source = Source(Stream(seed, device=model.device))
    state = last_of(run_steps(fk, way.grid, (1, count), resample or adaptive(systematic, 0.5), source))
    log_w = state.log_w[0]
    return Baseline(state.x[0], log_w, float(log_mean_exp(log_w)), log.spent.plus(before), count)


def default_value(model: Model, reward: Rewarding, way: Walk, budget: Budget, seed: int) -> Regressed:
    """The default value: rewards of base draws regressed on masked states, for a quarter of the budget at most."""
    part = Budget(*(None if limit is None else limit // _SHARE for limit in budget))
    order = way.fk.order if isinstance(way.fk, RevealClock) else None
    steps = model.length if order is None else way.steps
    draws = part.most(steps, 1, "draws that a value is learned from", _DRAWS)
    return regressed_value(model, reward, draws=draws, order=order, steps=steps, seed=seed)


@dataclass(frozen=True)
class TwistedReveal(FeynmanKac):
    """Reveals sites by the base's law tilted by a gradient; weighs by p/q and by values, at the end by the reward."""

    inner: RevealClock
    value: Differentiable
    closing: Rewarding
    strength: float
    dtype: torch.dtype = torch.float64
    how: ClassVar[str] = "reveals sites as the gradient of a value says, weighs by p/q"

    @property
    def device(self) -> torch.device | str:
        return self.inner.device

    def start(self, shape: tuple[int, ...], t: float) -> RevealMove:
        return self.inner.start(shape, t)

    def choices(self, t: float, s: float) -> int:
        return self.inner.choices(t, s)

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> TwistedRevealMove:
        return self.led(self.inner.move(particles, t, s, u), t, s)

    def branches(self, particles: Particles, t: float, s: float) -> Sequence[tuple[Tensor, TwistedRevealMove]]:
        return [(log_p, self.led(move, t, s)) for log_p, move in self.inner.branches(particles, t, s)]

    def led(self, move: RevealMove, t: float, s: float) -> TwistedRevealMove:
        """The base's move with its law tilted, and the values of the states before it."""
        x, sites, law = move.law.x, move.law.sites, move.law.logits
        held, change = self._values_and_change(batch_of(x), sites.reshape(-1, sites.shape[-1]), t)
        tilted = law.dense().double() + self.strength * change.reshape(*sites.shape, -1)
        leaning = RevealLaw(x, sites, SiteLogits.of(tilted.log_softmax(-1)))
        return TwistedRevealMove(self, move, leaning, self.strength * held.reshape(x.shape[:-1]), s)

    def _values_and_change(self, x: Tokens, sites: Tensor, t: float) -> tuple[Tensor, Tensor]:
        """Values [B] of states [B, D], and their first-order change for every token at the sites [B, k, S]."""
        states = self.inner.model.process.states
        values, changes = [], []
        step = max(_NUMBERS // (x.shape[-1] * states), 1)
        for part, where in zip(x.split(step), sites.split(step), strict=True):
            value, slope = value_and_slope(self.value, part, t, states, self.dtype, "tds")
            slope = slope.gather(1, where[..., None].expand(-1, -1, states)).double()
            values.append(value.double())
            changes.append(slope[..., :-1] - slope[..., -1:])
        held, change = torch.cat(values), torch.cat(changes)
        bad = ~held.isfinite() | ~change.isfinite().flatten(1).all(1)
        if bool(bad.any()):
            raise InvalidWeights(
                f"the value of tds or its gradient is NaN or infinite for {int(bad.sum())} of {len(bad)} states at "
                f"t = {t:.6g}; it must be finite on every masked state"
            )
        return held, change


@dataclass(frozen=True)
class TwistedRevealMove:
    """A draw of the tilted law.

    The value of a state enters its weight before resampling, and is divided out after the next move, when the next
    state's value (at the end the reward) takes its place.
    """

    lazy: ClassVar[bool] = False
    fk: TwistedReveal
    inner: RevealMove
    law: RevealLaw
    held: Tensor  # strength * value of the states before the move
    s: float

    @property
    def uniforms(self) -> int:
        return self.inner.uniforms

    @property
    def log_before(self) -> LogWeights:
        return self.inner.log_before + self.held

    @property
    def labels(self) -> Tensor:
        return self.inner.labels

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        log_w, aux = self.inner.after(y)
        log_p, log_q = self.inner.law.log_prob(y), self.law.log_prob(y)
        log_w = log_w + torch.where(log_q > NEG_INF, log_p - log_q, NEG_INF) - self.held
        if self.s == 0:
            final = call_reward(self.fk.closing, batch_of(y)).reshape(y.shape[:-1])
            log_w = log_w + scaled(final, self.fk.strength)
        return log_w, aux

    def take(self, ancestors: Tensor) -> TwistedRevealMove:
        parts = {"inner": self.inner.take(ancestors), "law": self.law.take(ancestors)}
        return replace(self, **parts, held=take(self.held, ancestors))
