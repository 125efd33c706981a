"""Exponent schedules from a pilot run: as much exponent each step as costs a given fraction of the effective sample.

The pilot looks at its particles to choose, so its own weights mean nothing and are thrown away. What it leaves is a
frozen ramp: a run that uses it has a schedule fixed beforehand, and its estimate of Z is unbiased as ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .any_order import AnyOrder
from .feynman_kac import Steered, Tilted
from .schedules import check_grid
from .smc.resampling import adaptive, never, systematic
from .smc.sampler import Source, advance
from .smc.stream import CHOOSE, RESAMPLE, Stream
from .smc.weights import effective_sample_size
from .types import NEG_INF, InvalidInput, Particles, Resampler, Tokens, take

Ramped = Tilted | Steered | AnyOrder
_HALVINGS = 30


@dataclass(frozen=True)
class Frozen:
    """A ramp through points: the share of the exponent at each elapsed time, straight lines between them."""

    elapsed: tuple[float, ...]  # rising, from 0 to 1
    shares: tuple[float, ...]  # the last is 1
    falls: tuple[float, ...] = ()  # what each step of the pilot cost: the fraction of the effective sample it lost

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in pairwise(self.elapsed))
        if len(self.elapsed) != len(self.shares) or len(self.elapsed) < 2 or not rising or self.elapsed[-1] != 1:
            raise InvalidInput("a frozen ramp needs a share for each of two or more elapsed times, rising to 1")
        if self.shares[-1] != 1:
            raise InvalidInput(f"the last share is {self.shares[-1]}; a ramp that does not end at 1 misses the target")

    def __call__(self, u: float) -> float:
        right = min(max(bisect_right(self.elapsed, u), 1), len(self.elapsed) - 1)
        (a, b), (low, high) = self.elapsed[right - 1 : right + 1], self.shares[right - 1 : right + 1]
        return high if u >= b else low + (high - low) * max(0.0, u - a) / (b - a)


@torch.no_grad()
def pilot(
    fk: Ramped,
    grid: Sequence[float],
    *,
    fall: float = 0.1,
    particles: int = 256,
    populations: int = 1,
    seed: int = 0,
    resample: Resampler | None = None,
) -> Frozen:
    """A frozen ramp along which each step costs about the fraction `fall` of the effective sample size.

    The last step takes what is left, so look at `falls[-1]`: where it is much larger, allow more a step or take more
    steps. Deaths by hard zeros count for nothing here, as no smaller exponent avoids them. Networks are evaluated as
    often as in a run of this size, and the uniforms are none that a run draws.
    """
    if not 0 < fall < 1:
        raise InvalidInput(f"fall is {fall}; give the fraction of the effective sample size a step may cost, in (0, 1)")
    if not isinstance(fk, Ramped):
        raise InvalidInput(f"{type(fk).__name__} has no exponent that grows; pilot Tilted, Steered or AnyOrder")
    grid, fk = check_grid(tuple(grid)), remembering(fk)
    source = Source(Stream(seed, device=fk.model.device))
    resample = resample or adaptive(systematic, 0.5)
    log_w = torch.zeros(populations, particles, dtype=torch.float64, device=fk.model.device)
    first = _with_share(fk, (grid[0], grid[0]), (0.0, 0.0)).start((populations, particles), grid[0])
    state = advance(first, log_w, (grid[0], grid[0]), resample, (source, -1))[0]
    shares, falls = [0.0], []
    for number, interval in enumerate(pairwise(grid), start=2):
        state = _resampled(state, resample, source.stream.uniforms(-number, RESAMPLE, populations, (0, particles)))
        trial = _Trial(fk, state, interval, shares[-1], (source, -number))
        share = 1.0 if interval[1] == grid[-1] else trial.most(fall)
        state, lost = trial(share)
        shares, falls = [*shares, share], [*falls, lost]
    return Frozen(tuple(1 - t for t in grid), tuple(shares), tuple(falls))


@dataclass(frozen=True)
class _Trial:
    """One step of the pilot, to be tried with different shares of the exponent at its end."""

    fk: Ramped
    state: Particles
    interval: tuple[float, float]
    now: float
    at: tuple[Source, int]

    def __call__(self, share: float) -> tuple[Particles, float]:
        """Where the step leads, and the fraction of the effective sample of the survivors that it costs."""
        fk, (source, number) = _with_share(self.fk, self.interval, (self.now, share)), self.at
        u = source.uniforms(number, CHOOSE, self.state.x, fk.choices(*self.interval))
        move = fk.move(self.state, *self.interval, u)
        after = advance(move, self.state.log_w, self.interval, never, self.at)[0]
        survivors = torch.where(after.log_w > NEG_INF, self.state.log_w, NEG_INF)
        before = effective_sample_size(survivors).mean()
        return after, 1 - float(effective_sample_size(after.log_w).mean() / before)

    def most(self, fall: float) -> float:
        """The largest share that costs no more than `fall`, and no less than now."""
        low, high = self.now, 1.0
        if self(high)[1] <= fall:
            return high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self(middle)[1] <= fall else (low, middle)
        return low


@dataclass(frozen=True)
class _Ends:
    """A ramp as one step sees it: a share at each end of the interval."""

    interval: tuple[float, float]
    shares: tuple[float, float]

    def __call__(self, u: float) -> float:
        return dict(zip((1 - t for t in self.interval), self.shares, strict=True)).get(u, 1.0)


def _with_share(fk: Ramped, interval: tuple[float, float], shares: tuple[float, float]) -> Ramped:
    return replace(fk, ramp=_Ends(interval, shares))


def _resampled(state: Particles, resample: Resampler, u: Tensor) -> Particles:
    ancestors, log_w = resample(state.log_w, u)
    return Particles(take(state.x, ancestors), log_w, {k: take(v, ancestors) for k, v in state.aux.items()})


@dataclass
class _Once:
    """A network that remembers its last answer: a step is tried many times, and asked about only once."""

    net: Any
    asked: tuple[Tokens, float] | None = None
    answer: Any = field(default=None, repr=False)

    def __call__(self, x: Tokens, t: float) -> Any:
        if self.asked is None or self.asked[1] != t or not torch.equal(self.asked[0], x):
            self.asked, self.answer = (x, t), self.net(x, t)
        return self.answer


def remembering(fk: Ramped) -> Ramped:
    """The same model with networks that remember."""
    nets = {name: getattr(fk.model, name) for name in ("base", "conditional", "potential")}
    model = replace(fk.model, **{name: _Once(net) for name, net in nets.items() if net is not None})
    own = {name: getattr(fk, name, None) for name in ("reward", "proposal")}
    return replace(fk, model=model, **{name: _Once(net) for name, net in own.items() if net is not None})
