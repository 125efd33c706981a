"""The ladder of an annealed value, from a pilot run: shares of the way at which each step costs about the same.

The pilot chooses each share by its particles, so its own weights are biased and are dropped. It returns a frozen
ladder: a run that uses it has its shares fixed beforehand, and its estimate of Z stays unbiased.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.binding import bind
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog
from ..core.target import Target
from ..core.types import NEG_INF, Aux, Model, Move, Particles, Score, Step
from ..smc.resampling import adaptive, systematic
from ..smc.sampler import CHOOSE, Source, Stream, advance, last_of, run_steps
from .accept_move import WeighedMove
from .annealed import Annealed, Ladder
from .stage import SiteTarget, Stage

_APART = 1 << 61  # number of the pilot's first population: no run draws its uniforms
_MOST = 20  # the pilot takes at most this many times the ladder's steps
_HALVINGS = 40


@dataclass(frozen=True)
class AtShare(SiteTarget):
    """The target of an annealed value at one share of the way, for the pilot's moves."""

    level: ClassVar[bool] = True
    fk: Annealed
    share: float

    @property
    def model(self) -> Model:
        return self.fk.model

    @property
    def target(self) -> Target:
        return self.fk.target

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return self.fk.scores

    def start(self, shape: tuple[int, ...], t: float) -> Move:
        return self.fk.start(shape, t)

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> Move:
        return self.fk.move(particles, t, s, u)

    def stage(self, t: float) -> Stage:
        return self.fk.between(self.share)

    def masked(self, t: float) -> int:
        return 0

    def recall(self, particles: Particles, t: float) -> Aux:
        return particles.aux

    def values(self, particles: Particles, t: float) -> Tensor:
        return particles.aux["values"]


def find_ladder(fk: Annealed, fall: float, shape: tuple[int, int], seed: int) -> Ladder:
    """As many shares as the value has steps, chosen so that each step loses about the same part of the effective sample
    size.
    """
    log, count = RunLog(), len(fk.ladder)
    fk = bind(fk, log)
    source = Source(Stream(seed, _APART, fk.device))
    particles, shares = _revealed(fk, shape, source), [0.0]
    resample = adaptive(systematic, 0.5)
    while shares[-1] < 1:
        if len(shares) > max(_MOST * count, 1000):
            raise InvalidInput(
                f"the pilot came {shares[-1]:.3g} of the way in {len(shares)} steps that may each cost {fall:g} of the "
                "effective sample; allow a larger fall, start from a better twist, or take a smaller strength"
            )
        share = _next_share(fk, particles, shares[-1], fall)
        kernel = fk.kernel(AtShare(fk, share))
        here = Step(fk.steps + len(shares), 0.0, 0.0)
        log_before = fk.between(share).grown(fk.between(shares[-1]), particles.aux)
        u = source.uniforms(here.number, CHOOSE, particles.x, kernel.choices)
        move = WeighedMove(kernel.move(particles, 0.0, len(shares) - 1, u), log_before)
        particles = advance(move, particles.log_w, here, resample, source)[0]
        shares.append(share)
    return Ladder(_spread(shares, count), len(shares) - 1, log.spent)


def _revealed(fk: Annealed, shape: tuple[int, int], source: Source) -> Particles:
    """Particles of the start's target, with the values of both ends in aux."""
    reveals = fk.steps - len(fk.ladder)
    particles = last_of(run_steps(fk, fk.grid[: reveals + 1], shape, adaptive(systematic, 0.5), source))
    return particles._replace(aux=fk.recall(particles, fk.grid[reveals]))


def _next_share(fk: Annealed, particles: Particles, share: float, fall: float) -> float:
    """The largest share that costs at most `fall` of the effective sample size; particles that die are left out."""
    if _fall(fk, particles, share, 1.0) <= fall:
        return 1.0
    low, high = share, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _fall(fk, particles, share, middle) <= fall else (low, middle)
    return high if high > share else 1.0


def _fall(fk: Annealed, particles: Particles, start: float, end: float) -> float:
    """The fraction of the effective sample size that a step from one share to another costs (conditional ESS)."""
    log_w = particles.log_w.flatten()
    log_v = fk.between(end).grown(fk.between(start), particles.aux).flatten()
    alive = (log_w > NEG_INF) & (log_v > NEG_INF)
    log_w, log_v = log_w[alive] - log_w[alive].logsumexp(0), log_v[alive]
    kept = 2 * (log_w + log_v).logsumexp(0) - (log_w + 2 * log_v).logsumexp(0)
    return 1 - float(kept.exp()) if len(log_v) else 1.0


def _spread(shares: Sequence[float], count: int) -> tuple[float, ...]:
    """This many shares on the way that was found: steps are split into equal parts, or joined."""
    found = torch.tensor(shares, dtype=torch.float64)
    at = torch.linspace(0, len(shares) - 1, count + 1, dtype=torch.float64)[1:]
    left = at.floor().long().clamp(max=len(shares) - 2)
    points = found[left] + (at - left) * (found[left + 1] - found[left])
    return (*points[:-1].tolist(), 1.0)
