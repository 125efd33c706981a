"""Exponent schedules from a pilot run: each step costs a given fraction of the effective sample, as late as can be.

The pilot looks at its particles to choose, so its own weights mean nothing and are thrown away. What it leaves is a
frozen ramp: a run that uses it has a schedule fixed beforehand, and its estimate of Z is unbiased as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from ..core.arguments import number
from ..core.errors import InvalidInput
from ..core.evaluation import Meter
from ..core.logits import take
from ..core.parameter_names import spelled
from ..core.twists import SiteValued
from ..core.types import NEG_INF, LogWeights, Particles, Step, Tokens
from ..diffusion.grids import check_whole
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
SHARES = tuple(k / 16 for k in range(17))  # of the exponent, at which the pilot weighs each step
_HALVINGS = 24
_REHEARSALS, _SLACK = 3, 1.25  # ramps tried at most, and how much over `fall` is near enough


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

    Early states say little of the condition, so the exponent stays as low as `fall` lets the later steps catch up:
    shares are found from the last step back. Each ramp is then rehearsed, which leaves what each step cost in `falls`;
    where that is more than allowed, another is found from the rehearsal, and the one whose dearest step is cheapest is
    kept. If some falls are large even so, allow more a step or take more steps. Deaths by hard zeros count for nothing,
    as no smaller exponent avoids them. Two to four passes, each asking the networks as often as a run does, with
    uniforms that no run draws.
    """
    fall = number("fall", fall, "give the fraction of the effective sample size a step may cost, in (0, 1)")
    if not 0 < fall < 1:
        raise InvalidInput(f"fall is {fall}; give the fraction of the effective sample size a step may cost, in (0, 1)")
    if not isinstance(fk, Ramped | Annealed):
        raise InvalidInput(
            f"{type(fk).__module__}.{type(fk).__name__} has no exponent that a pilot can grow; pilot tt.Tilted, "
            "tt.Steered, tt.AnyOrder, tt.Composed or tt.Annealed (not yet those of tt.continuous)"
        )
    shape = check_shape((populations, particles))
    if isinstance(fk, Annealed):
        return find_ladder(fk, fall, shape, check_seed(seed))
    if grid is None:
        raise InvalidInput("a ramp is found for a time grid; give the one that the run will have")
    grid, meter = check_whole(grid), Meter()
    check_room(fk, shape, len(SHARES), fk.model.device)
    source = Source(Stream(seed, device=fk.model.device))
    elapsed, tried = tuple(1 - t for t in grid), []
    records = list(_records(remembering(fk, meter), grid, shape, source, SQUARE))
    while len(tried) < _REHEARSALS and not any(max(ramp.falls) <= _SLACK * fall for ramp in tried):
        ramp = Frozen(elapsed, _shares(records, fall))
        records = list(_records(remembering(fk, meter), grid, shape, source, ramp))
        costs = [record.cost(*ends) for record, ends in zip(records, pairwise(ramp.shares), strict=True)]
        tried.append(replace(ramp, falls=tuple(costs)))
    return replace(min(tried, key=lambda ramp: max(ramp.falls)), spent=meter.spent)


def _shares(records: Sequence[_Record], fall: float) -> tuple[float, ...]:
    """The share of the exponent at each time, from the end back; 0 at the start."""
    shares = [1.0]
    for record in reversed(records[1:]):
        shares.insert(0, record.least(shares[0], fall))
    return (0.0, *shares)


class _Record(NamedTuple):
    """What a step of the pilot tells of its cost, for any shares of the exponent at its two ends."""

    before: LogWeights  # [M], with the share `now` at the start
    log_full: Tensor  # [M], what the whole exponent would add at the start
    now: float
    after: LogWeights  # [17, M], with each of SHARES at the end

    def cost(self, start: float, end: float) -> float:
        """The fraction of the effective sample that the step loses if its start was weighed right (conditional ESS)."""
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
        """The smallest share to start from that costs no more than `fall`; where none does, the cheapest."""
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
) -> Iterator[_Record]:
    """Run along a ramp, and weigh every step with every share at its end."""
    start = replace(fk, ramp=ramp).start(shape, grid[0])
    log_w = torch.zeros(shape, dtype=torch.float64, device=fk.model.device)
    state = advance(start, log_w, Step(-1, grid[0], grid[0]), never, source)[0]
    resample = adaptive(systematic, 0.5)
    for k, (t, s) in enumerate(pairwise(grid), start=2):
        here = Step(-k, t, s)  # no run has steps of negative number, so none draws these uniforms
        u = source.stream.uniforms(here.number, RESAMPLE, shape[0], shape[1])
        ancestors, log_w = resample(state.log_w, u)
        state = Particles(take(state.x, ancestors), log_w, {k: take(v, ancestors) for k, v in state.aux.items()})
        trial = _Trial(fk, state, here, ramp(1 - t), source)
        after = torch.stack([trial.to(share).log_w.flatten() for share in SHARES])
        yield _Record(log_w.flatten(), _log_full(fk, state, t).flatten(), trial.now, after)
        state = trial.to(ramp(1 - s))


class _Trial(NamedTuple):
    """A step that can be taken with any share of the exponent at its end (at the last one, with all of it)."""

    fk: Ramped
    state: Particles
    step: Step
    now: float  # the share at its start
    source: Source

    def to(self, share: float) -> Particles:
        """The particles after the step, with this share at its end."""
        (number, t, s), state = self.step, self.state
        fk = replace(self.fk, ramp=_Ends(1 - s, self.now, share))
        u = self.source.uniforms(number, CHOOSE, state.x, fk.choices(t, s))
        return advance(fk.move(state, t, s, u), state.log_w, self.step, never, self.source)[0]


def _log_full(fk: Ramped, state: Particles, t: float) -> Tensor:
    """What the whole exponent weighs in each state at time t."""
    if isinstance(fk, RevealClock):
        return replace(fk, ramp=FULL).stage(t).grown(replace(fk, ramp=at_end).stage(t), state.aux)
    tilt = replace(fk, ramp=FULL).tilt
    return torch.zeros_like(state.log_w) if tilt is None else tilt(state.x, t)


@dataclass(frozen=True)
class _Ends:
    """A ramp as one step sees it: a share at each end of the interval, and all of it at the end of time."""

    end: float  # elapsed time at the end of the step
    first: float  # the share at its start
    last: float  # the share at its end

    def __call__(self, u: float) -> float:
        return 1.0 if u == 1 else self.last if u == self.end else self.first


def uncounted(states: int) -> None:
    """Count nothing."""


@dataclass
class _Once:
    """A network that remembers its last answer: a step is weighed many times, and asked about only once."""

    net: Any
    count: Callable[[int], object] = uncounted  # told how many states it is asked about
    asked: tuple[Tokens, float] | None = None
    answer: Any = field(default=None, repr=False)

    def __call__(self, x: Tokens, t: float) -> Any:
        if self.asked is None or self.asked[1] != t or not torch.equal(self.asked[0], x):
            self.count(len(x))
            self.asked, self.answer = (x, t), self.net(x, t)
        return self.answer


def _functions(fk: Ramped) -> dict[str, Any]:
    """The functions that a value asks besides its model's, by name; None for one that is not given."""
    if isinstance(fk, Steered):
        return {"reward": fk.reward, "proposal": fk.proposal, "twist": fk.twist}
    return {"reward": fk.reward, "twist": fk.twist} if isinstance(fk, Composed) else {}


def remembering(fk: Ramped, meter: Meter) -> Ramped:
    """The same model with networks that remember, and that are counted."""
    nets = {"base": fk.model.base, "conditional": fk.model.conditional, "potential": fk.model.potential}
    model = replace(fk.model, **{name: _Once(net, meter.asked) for name, net in nets.items() if net is not None})
    own = _functions(fk)
    counts = {"reward": lambda states: meter.called(states, states), "proposal": meter.asked, "twist": uncounted}
    once = {
        id(net): _Once(net, counts[name])
        for name, net in reversed(own.items())
        if net is not None and not isinstance(net, SiteValued)
    }
    remembered: dict[str, Any] = {name: once[id(net)] for name, net in own.items() if id(net) in once}
    if isinstance(fk, Composed):
        remembered["conditions"] = tuple((_Once(score, meter.asked), alpha) for score, alpha in fk.conditions)
    return replace(fk, model=model, **remembered)
