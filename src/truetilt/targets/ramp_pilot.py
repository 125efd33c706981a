"""Ramps from a pilot run: the exponent grows as late as it can while no step loses more than a given fraction of the
ESS.

The pilot chooses shares by its particles, so its own weights are biased and are dropped. It returns a frozen ramp: a
run that uses it has its exponents fixed beforehand, and its estimate of Z stays unbiased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from ..core.arguments import ABOVE_ZERO, bounded
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog
from ..core.logits import take
from ..core.parameter_names import spelled
from ..core.twists import SiteValued
from ..core.types import NEG_INF, LogWeights, Particles, Step, Tokens
from ..diffusion.grids import check_full_grid
from ..runtime.memory import check_room
from ..smc.resampling import adaptive, never, systematic
from ..smc.sampler import CHOOSE, RESAMPLE, Source, Stream, advance, check_seed, check_shape
from .annealed import Annealed, Ladder
from .annealing_pilot import find_ladder
from .any_order import AnyOrder, RevealClock
from .composed import Composed
from .on_clock import FULL, SQUARE, Frozen, Ramp, Tilted, at_end
from .steered import Steered

Ramped = Tilted | Steered | AnyOrder | Composed
SHARES = tuple(k / 16 for k in range(17))  # shares of the exponent for which the pilot weighs each step
_HALVINGS = 24
_REHEARSALS, _SLACK = 3, 1.25  # ramps tried at most; factor by which a loss may exceed `fall`


@overload
def pilot(
    fk: Annealed, *, fall: float = ..., particles: int = ..., populations: int = ..., seed: int = ...
) -> Ladder: ...


@overload
def pilot(
    fk: Ramped,
    grid: Sequence[float],
    *,
    fall: float = ...,
    particles: int = ...,
    populations: int = ...,
    seed: int = ...,
) -> Frozen: ...


@spelled()
@torch.no_grad()
def pilot(
    fk: Ramped | Annealed,
    grid: Sequence[float] | None = None,
    *,
    fall: float = 0.1,
    particles: int = 256,
    populations: int = 1,
    seed: int = 0,
) -> Frozen | Ladder:
    """A frozen ramp along which each step costs about the fraction `fall` of the effective sample size, or less.

    Of a `tt.Annealed` it is a ladder: as many shares as the value has steps, along which all cost alike.

    Shares are chosen backwards from the last step, each as small as possible while no step loses more than `fall` of
    the effective sample size: early states say little of the condition, so the exponent should grow late. Each ramp is
    then tried in a run of its own, which leaves the measured loss of each step in `falls`; where one is more than
    allowed, another ramp is found from that run. Of the ramps tried, the one whose largest loss is smallest is
    returned. If losses are large even so, allow more a step or take more steps. Particles that a hard zero kills count
    for nothing, as no smaller exponent avoids them. It takes two to four runs, each of which evaluates the networks as
    often as a run does, with uniforms that no run draws.

    Args:
        fk: What will be run, with an exponent that a ramp makes grow: a `tt.Tilted`, `tt.Steered`, `tt.AnyOrder` or
            `tt.Composed`, or a `tt.Annealed` for a ladder.
        grid: Times that fall strictly from 1 (noise) to 0 (data), those of the run. None (the default) is for
            `tt.Annealed`, which has steps of its own.
        fall: Fraction of the effective sample size that a step may lose, above 0 and below 1; 0.1 by default.
        particles: Particles in each population of the pilot, 1 or more; 256 by default.
        populations: Populations of the pilot, 1 or more; 1 by default.
        seed: Seed of the pilot, 0 to $2^63 - 1$; 0 by default. Its uniforms differ from those of a run with this seed.
    """
    need = "give the fraction of the effective sample size a step may cost, in (0, 1)"
    fall = bounded("fall", fall, need, ABOVE_ZERO, 1 - 2.0**-53)
    if not isinstance(fk, Ramped | Annealed):
        raise InvalidInput(
            f"{type(fk).__module__}.{type(fk).__name__} has no exponent that a pilot can grow; pilot tt.Tilted, "
            "tt.Steered, tt.AnyOrder, tt.Composed or tt.Annealed (not yet those of tt.continuous)"
        )
    shape = check_shape((populations, particles))
    check_room(fk, shape, len(SHARES), fk.model.device)
    if isinstance(fk, Annealed):
        return find_ladder(fk, fall, shape, check_seed(seed))
    if grid is None:
        raise InvalidInput("a ramp is found for a time grid; give the one that the run will have")
    grid, log = check_full_grid(grid), RunLog()
    source = Source(Stream(seed, device=fk.model.device))
    elapsed, tried = tuple(1 - t for t in grid), []
    records = list(_records(remembering(fk, log), grid, shape, source, SQUARE))
    while len(tried) < _REHEARSALS and not any(max(ramp.falls) <= _SLACK * fall for ramp in tried):
        ramp = Frozen(elapsed, _shares(records, fall))
        records = list(_records(remembering(fk, log), grid, shape, source, ramp))
        costs = [record.cost(*ends) for record, ends in zip(records, pairwise(ramp.shares), strict=True)]
        tried.append(replace(ramp, falls=tuple(costs)))
    return replace(min(tried, key=lambda ramp: max(ramp.falls)), spent=log.spent)


def _shares(records: Sequence[_WeighedStep], fall: float) -> tuple[float, ...]:
    """The share of the exponent at each time, chosen backwards from the end; 0 at the start."""
    shares = [1.0]
    for record in reversed(records[1:]):
        shares.insert(0, record.least(shares[0], fall))
    return (0.0, *shares)


class _WeighedStep(NamedTuple):
    """The weights of a step of the pilot, which give its cost for any shares of the exponent at its two ends."""

    before: LogWeights  # [M], with the share `now` at the start
    log_full: Tensor  # [M], what the whole exponent would add at the start
    now: float
    after: LogWeights  # [17, M], with each of SHARES at the end

    def cost(self, start: float, end: float) -> float:
        """The fraction of the effective sample size that the step alone loses (conditional ESS)."""
        here = min(int(end * (len(SHARES) - 1)), len(SHARES) - 2)
        part = end * (len(SHARES) - 1) - here
        log_w = (
            torch.lerp(self.after[here], self.after[here + 1], part) if 0 < part < 1 else self.after[here + round(part)]
        )
        shift = torch.where(self.log_full == NEG_INF, NEG_INF, (start - self.now) * self.log_full)
        before = self.before if start == self.now else self.before + shift
        alive = (log_w > NEG_INF) & (before > NEG_INF)
        log_w, before = log_w[alive], before[alive]
        kept = 2 * log_w.logsumexp(0) - (2 * log_w - before).logsumexp(0) - before.logsumexp(0)
        return 1 - float(kept.exp()) if len(log_w) else 1.0

    def least(self, end: float, fall: float) -> float:
        """The smallest share at the start of the step for which it costs at most `fall`; if there is none, the cheapest
        share.
        """
        tried = [end * share for share in SHARES]
        costs = [self.cost(share, end) for share in tried]
        good = [k for k, cost in enumerate(costs) if cost <= fall]
        if not good or good[0] == 0:
            return tried[good[0] if good else costs.index(min(costs))]
        low, high = tried[good[0] - 1], tried[good[0]]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.cost(middle, end) <= fall else (middle, high)
        return high


def _records(
    fk: Ramped, grid: Sequence[float], shape: tuple[int, int], source: Source, ramp: Ramp
) -> Iterator[_WeighedStep]:
    """Run along a ramp, and weigh every step with every share at its end."""
    start = replace(fk, ramp=ramp).start(shape, grid[0])
    log_w = torch.zeros(shape, dtype=torch.float64, device=fk.model.device)
    state = advance(start, log_w, Step(-1, grid[0], grid[0]), never, source)[0]
    resample = adaptive(systematic, 0.5)
    for k, (t, s) in enumerate(pairwise(grid), start=2):
        here = Step(-k, t, s)  # runs number their steps from 0, so none draws these uniforms
        u = source.stream.uniforms(here.number, RESAMPLE, shape[0], shape[1])
        ancestors, log_w = resample(state.log_w, u)
        state = Particles(take(state.x, ancestors), log_w, {k: take(v, ancestors) for k, v in state.aux.items()})
        trial = _Trial(fk, state, here, ramp(1 - t), source)
        after = torch.stack([trial.to(share).log_w.flatten() for share in SHARES])
        yield _WeighedStep(log_w.flatten(), _log_full(fk, state, t).flatten(), trial.now, after)
        state = trial.to(ramp(1 - s))


class _Trial(NamedTuple):
    """A step to be carried out with a share of the exponent at its end; at the end of the run the share is 1."""

    fk: Ramped
    state: Particles
    step: Step
    now: float  # the share at its start
    source: Source

    def to(self, share: float) -> Particles:
        """The particles after the step, with this share at its end."""
        (number, t, s), state = self.step, self.state
        fk = replace(self.fk, ramp=_StepRamp(1 - s, self.now, share))
        u = self.source.uniforms(number, CHOOSE, state.x, fk.choices(t, s))
        return advance(fk.move(state, t, s, u), state.log_w, self.step, never, self.source)[0]


def _log_full(fk: Ramped, state: Particles, t: float) -> Tensor:
    """The log-weight of each state at time t under the whole exponent."""
    if isinstance(fk, RevealClock):
        return replace(fk, ramp=FULL).stage(t).grown(replace(fk, ramp=at_end).stage(t), state.aux)
    tilt = replace(fk, ramp=FULL).tilt
    return torch.zeros_like(state.log_w) if tilt is None else tilt(state.x, t)


@dataclass(frozen=True)
class _StepRamp:
    """A ramp with given shares at the two ends of one step, and 1 at the end of the run."""

    end: float  # elapsed time at the end of the step
    first: float  # the share at its start
    last: float  # the share at its end

    def __call__(self, u: float) -> float:
        return 1.0 if u == 1 else self.last if u == self.end else self.first


def uncounted(states: int) -> None:
    """Count nothing."""


def _called(log: RunLog, states: int) -> None:
    """Count calls of a reward, each of a distinct state."""
    log.called(states, states)


@dataclass
class _Remembering:
    """A function with a cache of its last answer: a step is weighed many times, and its networks are evaluated once."""

    net: Any
    count: Callable[[int], object] = uncounted  # called with the number of states evaluated
    asked: tuple[Tokens, float] | None = None
    answer: Any = field(default=None, repr=False)

    def __call__(self, x: Tokens, t: float) -> Any:
        if self.asked is None or self.asked[1] != t or not torch.equal(self.asked[0], x):
            self.count(len(x))
            self.asked, self.answer = (x, t), self.net(x, t)
        return self.answer


def _functions(fk: Ramped) -> dict[str, Any]:
    """The functions that a value evaluates besides its model's, by name; None for one that is not given."""
    if isinstance(fk, Steered):
        return {"reward": fk.reward, "proposal": fk.proposal, "twist": fk.twist}
    return {"reward": fk.reward, "twist": fk.twist} if isinstance(fk, Composed) else {}


def remembering(fk: Ramped, log: RunLog) -> Ramped:
    """The same value with the last answer of every function cached, and its evaluations counted."""
    nets = {"base": fk.model.base, "conditional": fk.model.conditional, "potential": fk.model.potential}
    model = replace(
        fk.model, **{name: _Remembering(net, log.evaluated) for name, net in nets.items() if net is not None}
    )
    own = _functions(fk)
    counts = {"reward": partial(_called, log), "proposal": log.evaluated, "twist": uncounted}
    once = {
        id(net): _Remembering(net, counts[name])
        for name, net in reversed(own.items())
        if net is not None and not isinstance(net, SiteValued)
    }
    remembered: dict[str, Any] = {name: once[id(net)] for name, net in own.items() if id(net) in once}
    if isinstance(fk, Composed):
        remembered["conditions"] = tuple((_Remembering(score, log.evaluated), alpha) for score, alpha in fk.conditions)
    return replace(fk, model=model, **remembered)
