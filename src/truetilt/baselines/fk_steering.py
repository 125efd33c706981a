"""Feynman-Kac steering (Singhal et al. 2025): draws from the base, resampled on the way by the value of completions.

The reward of a masked state is estimated by K completions. A potential G turns these estimates into weights; the last
weight corrects their product to exp(strength r(x)), so the weighted states have the target as limit for every G.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.arguments import function, whole_number
from ..core.bases import FeynmanKac
from ..core.budget import Budget
from ..core.evaluation import CountedFunction, RunLog
from ..core.logits import batch_of, take
from ..core.types import Aux, Law, LogWeights, Model, Move, Particles, Potential, Resampler, Tokens
from ..rewards.calls import Rewarding, call_reward, check_reward_of, scaled
from ..smc.resampling import adaptive, log_mean_exp, systematic
from ..smc.sampler import Source, Stream, last_of, run_steps
from ..twists.lookahead import Lookahead
from .base_draws import Walk, WalkMaker, remembering, site_by_site
from .record import Baseline

LogPotential = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # of the current, previous, largest and summed values


def difference(now: Tensor, last: Tensor, largest: Tensor, total: Tensor) -> Tensor:
    """Increase of the value since the last look: the weights telescope (DIFFERENCE)."""
    return now - last


def largest_so_far(now: Tensor, last: Tensor, largest: Tensor, total: Tensor) -> Tensor:
    """The largest value of the path at any look (MAX)."""
    return largest


def sum_so_far(now: Tensor, last: Tensor, largest: Tensor, total: Tensor) -> Tensor:
    """The sum of the path's values over its looks (SUM)."""
    return total


@torch.no_grad()
def fk_steering(
    model: Model,
    reward: Rewarding,
    strength: float = 1.0,
    *,
    budget: Budget,
    completions: int = 4,
    potential: LogPotential = difference,
    every: int = 1,
    particles: int | None = None,
    resample: Resampler | None = None,
    walk: WalkMaker = site_by_site,
    seed: int = 0,
) -> Baseline:
    """FK steering with as many particles as the budget affords, in one population.

    Consistent: with more particles the weighted states approach the target, for each potential. The network pass that
    completes a state also draws its next step, and is counted once.

    Args:
        model: A `tt.Model` on `tt.Masking`; only its base score is evaluated.
        reward: Function of clean states [B, D] that returns one number a state; -inf forbids.
        strength: Factor of the reward in the target, not 0; 1 by default.
        budget: Evaluations and calls that may be spent.
        completions: One-shot completions of a state at a look (an intermediate weighing), 4 by default; their
            log-mean-exp is its value.
        potential: `difference` (the default), `largest_so_far` or `sum_so_far`, the paper's three.
        every: Steps between two looks, 1 by default; the paper uses 5 to 20 looks in all.
        particles: Upper bound. None (the default): as many as the budget affords if no call is repeated.
        resample: Resampling scheme; `tt.adaptive(tt.systematic, 0.5)` by default.
        walk: How states are drawn: `site_by_site` (the default), `in_clock_time`.
        seed: Seed of the run, 0 by default.
    """
    strength, every = check_reward_of(reward, strength), whole_number("every", every, 1)
    function("potential", potential, "(now, last, largest, total)")
    log = RunLog()
    own = remembering(model, log)
    way, counted = walk(own), CountedFunction(reward, log)
    count = budget.most(way.steps, looks_of(way, every) * completions + 1, "particles", particles)
    value = Lookahead(own, counted, strength, completions, seed=seed)
    fk = Steering(way.fk, value, counted, strength, potential, way.grid[::every])
    source = Source(Stream(seed, device=model.device))
    state = last_of(run_steps(fk, way.grid, (1, count), resample or adaptive(systematic, 0.5), source))
    return Baseline(state.x[0], state.log_w[0], float(log_mean_exp(state.log_w[0])), log.spent, count)


def looks_of(way: Walk, every: int) -> int:
    """Number of looks (intermediate weighings) at a particle; the first is at the fully masked state."""
    return sum(number % every == 0 for number in range(way.steps))


@dataclass(frozen=True)
class Steering(FeynmanKac):
    """Draws of the base, weighed by a potential of their values at chosen times, with a correcting last weight."""

    inner: FeynmanKac
    value: Potential
    closing: Rewarding
    strength: float
    potential: LogPotential
    looks: Sequence[float]  # their times
    how: ClassVar[str] = "draws from the base, weighs by what completions are worth"

    @property
    def device(self) -> torch.device | str:
        return self.inner.device

    def start(self, shape: tuple[int, ...], t: float) -> SteeringMove:
        none = torch.zeros(shape, dtype=torch.float64, device=self.device)
        path = {"last": none, "largest": none - torch.inf, "total": none, "weighed": none}
        return SteeringMove(self, self.inner.start(shape, t), path, t)

    def choices(self, t: float, s: float) -> int:
        return self.inner.choices(t, s)

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> SteeringMove:
        return self._led(self.inner.move(particles, t, s, u), particles, s)

    def branches(self, particles: Particles, t: float, s: float) -> Sequence[tuple[Tensor, SteeringMove]]:
        every = self.inner.branches(particles, t, s)
        return [(log_p, self._led(move, particles, s)) for log_p, move in every]

    def _led(self, move: Move, particles: Particles, s: float) -> SteeringMove:
        path = {name: particles.aux[f"path {name}"] for name in ("last", "largest", "total", "weighed")}
        return SteeringMove(self, move, path, s)


@dataclass(frozen=True)
class SteeringMove:
    """A step of the base, and the weight of the look after it."""

    lazy: ClassVar[bool] = False
    fk: Steering
    inner: Move
    path: Aux  # values at the last look, the largest, their sum, and the log of all potentials so far
    s: float

    @property
    def uniforms(self) -> int:
        return self.inner.uniforms

    @property
    def log_before(self) -> LogWeights:
        return self.inner.log_before

    @property
    def labels(self) -> Tensor:
        return self.inner.labels

    @property
    def law(self) -> Law:
        return self.inner.law

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        log_w, aux = self.inner.after(y)
        log_g, path = self._weighed(y)
        return log_w + log_g, aux | {f"path {name}": part for name, part in path.items()}

    def _weighed(self, y: Tokens) -> tuple[Tensor, Aux]:
        fk, path = self.fk, self.path
        if self.s == 0:
            final = scaled(call_reward(fk.closing, batch_of(y)), fk.strength).reshape(y.shape[:-1])
            return final - path["weighed"], path
        if self.s not in fk.looks:
            return torch.zeros_like(path["last"]), path
        if self.s == fk.looks[0]:  # all states are fully masked, so one look serves all
            value = fk.value(batch_of(y)[:1], self.s).expand(y.shape[:-1])
        else:
            value = fk.value(batch_of(y), self.s).reshape(y.shape[:-1])
        now, largest = fk.strength * value, torch.maximum(path["largest"], fk.strength * value)
        total = path["total"] + now
        log_g = fk.potential(now, path["last"], largest, total)
        return log_g, {"last": now, "largest": largest, "total": total, "weighed": path["weighed"] + log_g}

    def take(self, ancestors: Tensor) -> SteeringMove:
        path = {name: take(part, ancestors) for name, part in self.path.items()}
        return SteeringMove(self.fk, self.inner.take(ancestors), path, self.s)
