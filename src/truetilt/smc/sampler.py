"""The sampler: one order of events for every model, with no special cases, and the uniforms it draws by.

choose -> move -> weigh what is known before the draw -> resample -> draw -> weigh the rest. Nothing is resampled after
the last draw, so the result carries its weights.

Uniforms come from a counter: a pure function of (seed, population, step, purpose, particle, site). There is no
generator state, so chunks, populations and devices cannot disturb one another: any part of a run can be drawn alone and
comes out the same. The mixing function is SplitMix64's finaliser (Steele, Lea & Flood 2014).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..core.arguments import device_here, plain, set_fields, shown, whole_number
from ..core.bases import FeynmanKac
from ..core.binding import bind, check_parts
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog, is_on_host
from ..core.logits import take
from ..core.types import ByKernel, LogWeights, Move, Particles, Redraw, Resampler, State, Step, StepInfo
from .resampling import check_accepted, check_weights, effective_sample_size, log_mean_exp, never, resampled
from .shards import Drawing, Drawn, Origin, Shard, SharedSettings

DRAW, RESAMPLE, OUTPUT, CHOOSE, COUPLE = range(5)  # purposes: each has its own key, so that no uniform is used twice
PURPOSES = 16  # keys of one lap of a step: one for each purpose, and COUPLE added to each


class BetweenSteps(Protocol):
    """What a run does to its particles between two steps, such as the moves of a Markov kernel (`Rejuvenation`)."""

    def after_step(
        self, particles: Particles, info: StepInfo, here: Step, source: Source, last: bool
    ) -> tuple[Particles, StepInfo]:
        """The particles with what was done to them noted in the record of the step; `last` of the run."""
        ...


class Begun(NamedTuple):
    """Where a stopped run goes on from."""

    done: int  # steps
    particles: Particles


def first_draw(fk: FeynmanKac, t: float, shape: tuple[int, int], source: Source) -> tuple[Particles, StepInfo]:
    """The first draw: particles at the start of the grid."""
    here = (shape[0], source.shard.share(shape[1]))
    log_w = torch.zeros(here, dtype=torch.float64, device=source.stream.device)
    return advance(fk.start(here, t), log_w, Step(0, t, t), never, source)


def run_steps(
    fk: FeynmanKac,
    grid: Sequence[float],
    shape: tuple[int, int],
    resample: Resampler,
    source: Source,
    moves: BetweenSteps | None = None,
    begin: Begun | None = None,
) -> Iterator[tuple[Particles, StepInfo]]:
    """Yield the particles after the first draw and after every step; shape is (populations, particles).

    A run that goes on from `begin` yields them after the steps that are left.
    """
    log = fk.log or RunLog()
    if fk.log is None:
        fk, moves = bind((fk, moves), log, functions=False)
    if begin is None:
        check_parts((fk, moves), check_shape(shape)[0])
        particles, info = first_draw(fk, grid[0], shape, source)
        yield particles, info
        begin = Begun(0, particles)
    particles, source = begin.particles, replace(source, log=log)
    for here in steps_of(grid)[begin.done :]:
        log.begin_step()
        last = here.number == len(grid) - 1
        particles, info = step(fk, particles, here, resample, source)
        if moves:
            particles, info = moves.after_step(particles, info, here, source, last)
        log.end_step(last)
        yield particles, info


def last_of(path: Iterator[tuple[Particles, StepInfo]]) -> Particles:
    """The particles at the end of what `run_steps` yields; those on the way are forgotten."""
    return deque(path, maxlen=1)[0][0]


def check_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """Populations and particles as plain whole numbers, at least one of each."""
    found = [plain(size) for size in shape]
    if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in found):
        said = f"{shown(shape[0])} populations of {shown(shape[1])} particles"
        raise InvalidInput(f"{said}; need whole numbers, at least one of each")
    return found[0], found[1]


def steps_of(grid: Sequence[float]) -> list[Step]:
    """The steps over a time grid, after the first draw."""
    return [Step(number, t, s) for number, (t, s) in enumerate(pairwise(grid), start=1)]


def step(
    fk: FeynmanKac, particles: Particles, here: Step, resample: Resampler, source: Source
) -> tuple[Particles, StepInfo]:
    """One step t -> s of every particle: choose, move, weigh, resample, draw, weigh the rest."""
    width = fk.choices(here.t, here.s)
    if width == 0:
        u = particles.log_w.new_empty(*particles.log_w.shape, 0)
    else:
        u = source.uniforms(here.number, CHOOSE, particles.x, width)
    move, origin = fk.move(particles, here.t, here.s, u), Origin(fk, here, particles, u)
    after, info = advance(move, particles.log_w, here, resample, source, origin)
    if isinstance(move, ByKernel):
        check_accepted(move.redraw.log_accept, here, source.log)
        info = _noted(info, move.redraw, particles.x, after.x, source.shard)
    return after, info


def _noted(info: StepInfo, redraw: Redraw, x: State, y: State, shard: Shard) -> StepInfo:
    """The record of a step that moves by a Markov kernel, with the share of states changed and the acceptance rate."""
    changed = (shard.everyone(y) != take(shard.everyone(x), info.ancestors)).any(-1).double().mean(-1)
    accepted = take(shard.everyone(redraw.log_accept), info.ancestors).exp().mean(-1)
    return info._replace(moved=changed, accepted=accepted)


def advance(
    move: Move,
    log_w: LogWeights,
    here: Step,
    resample: Resampler,
    source: Source,
    origin: Origin | None = None,
) -> tuple[Particles, StepInfo]:
    """Carry out a move on weighted particles: resample, draw, weigh.

    Over ranks, log-weights and ancestors are gathered and the same on all; states and memory are this shard's.
    """
    shard = source.shard
    all_log_w = shard.everyone(log_w + move.log_before)
    populations, n = all_log_w.shape
    u = source.stream.uniforms(here.number, RESAMPLE, populations, n)
    check_weights(all_log_w, here, shard.complete, source.log)
    ess = effective_sample_size(all_log_w)
    ancestors, all_log_w = resampled(resample, all_log_w, u, source.log)
    x, log_after, aux = shard.draw(move, ancestors, origin, Draws(source, here.number))
    log_w = shard.mine(all_log_w) + log_after
    all_log_w = shard.everyone(log_w)
    log_z, none = log_mean_exp(all_log_w), torch.zeros_like(ess)
    check_weights(all_log_w, here, shard.complete, source.log)
    return Particles(x, log_w, aux), StepInfo(here.t, here.s, ess, log_z, ancestors, none, none)


@dataclass(frozen=True)
class Draws:
    """How the particles of a shard draw in a step: their uniforms, and the states that a move draws with them."""

    source: Source
    number: int  # of the step

    def unmoved(self, ancestors: Tensor) -> bool:
        """Whether every particle is known to be its own ancestor.

        On a GPU this is False without looking, because reading the answer would synchronise the device.
        """
        if not self.source.on_host:
            return False
        return torch.equal(ancestors, torch.arange(ancestors.shape[-1]).expand_as(ancestors))

    def uniforms(self, move: Move) -> Tensor:
        return self.source.uniforms(self.number, DRAW, move.labels, move.uniforms)

    def __call__(self, move: Move, u: Tensor | None = None) -> Drawn:
        """Draw and weigh, in chunks of particles: the uniforms are counted, so no chunk size changes a bit."""
        u, chunk = self.uniforms(move) if u is None else u, self.source.chunk
        populations, n = u.shape[:2]
        if chunk is None or chunk >= n:
            y = move.law.sample(u)
            return y, *move.after(y)
        everyone = torch.arange(n, device=u.device).expand(populations, n)
        parts = []
        for chosen in everyone.split(chunk, dim=1):
            part = move.take(chosen)
            y = part.law.sample(u[:, chosen[0]])
            parts.append((y, *part.after(y)))
        xs, log_ws, auxes = zip(*parts, strict=True)
        return torch.cat(xs, 1), torch.cat(log_ws, 1), {k: torch.cat([aux[k] for aux in auxes], 1) for k in auxes[0]}


def _alone(settings: SharedSettings) -> None:
    """A single process has no other settings to compare with."""


@dataclass(frozen=True)
class Whole:
    """The shard of a process that holds all particles of its populations.

    Where other ranks run other populations (`complete` is False), `meet` compares the settings with theirs.
    """

    first: int = 0
    complete: bool = True
    meet: Callable[[SharedSettings], None] = _alone

    def share(self, particles: int) -> int:
        return particles

    def everyone(self, here: Tensor) -> Tensor:
        return here

    def mine(self, everyone: Tensor) -> Tensor:
        return everyone

    def draw(self, move: Move, ancestors: Tensor, origin: Origin | None, draws: Drawing) -> Drawn:
        return draws(move if draws.unmoved(ancestors) else move.take(ancestors))

    def summed(self, here: Tensor) -> Tensor:
        return here

    def agreed(self, flag: bool) -> bool:
        return flag

    def compare(self, settings: SharedSettings) -> None:
        self.meet(settings)


WHOLE = Whole()


class Coupling(Protocol):
    """Uniforms [..., N, k] to uniforms, given particles' labels [..., N, m] and spare uniforms [..., N, k]."""

    def __call__(self, u: Tensor, labels: Tensor, spare: Tensor) -> Tensor: ...


def independent(u: Tensor, labels: Tensor, spare: Tensor) -> Tensor:
    """Independent uniforms: every particle draws by itself.

    Args:
        u: Uniforms of the particles [..., N, k], which are returned as they are.
        labels: Equal for particles in equal states [..., N, m].
        spare: More uniforms [..., N, k], for couplings that need them.
    """
    return u


@dataclass(frozen=True)
class Source:
    """What a step draws with: the stream of uniforms, the coupling of particles, the chunk size, the shard; the log."""

    stream: Stream
    couple: Coupling = independent
    chunk: int | None = None
    lap: int = 0  # moves between two steps draw from uniforms of their own
    shard: Shard = WHOLE
    log: RunLog | None = None  # of the run, where checks of a step wait

    def __post_init__(self) -> None:
        if self.chunk is not None:
            set_fields(self, chunk=whole_number("chunk", self.chunk, 1))
        if self.couple is not independent and not isinstance(self.shard, Whole):
            raise InvalidInput(
                "coupled draws sort the particles of all ranks by state, which ranks do not know of each other; use "
                "couple=independent, or spread whole populations"
            )

    @cached_property
    def on_host(self) -> bool:
        """Whether values of the particles can be read without waiting for a device."""
        return is_on_host(torch.empty(0, device=self.stream.device))

    def uniforms(self, number: int, purpose: int, labels: Tensor, width: int) -> Tensor:
        """Uniforms [populations, N, width], coupled over particles of equal labels [populations, N, m]."""
        populations, n = labels.shape[:2]
        if width == 0:
            return torch.empty(populations, n, 0, dtype=torch.float64, device=self.stream.device)
        key = purpose + PURPOSES * self.lap
        first = self.shard.first * width
        u = self.stream.uniforms(number, key, populations, n * width, first).reshape(populations, n, width)
        if self.couple is independent:
            return u
        spare = self.stream.uniforms(number, COUPLE + key, populations, n * width).reshape(u.shape)
        coupled = self.couple(u, labels, spare)
        if not isinstance(coupled, Tensor) or coupled.shape != u.shape or coupled.dtype != u.dtype:
            raise InvalidInput(f"couple returned {shown(coupled)}; it must return uniforms, float64 {tuple(u.shape)}")
        return coupled


_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed word
_MIX = (-4658895280553007687, -7723592293110705685)  # 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN_WORD = np.uint64(_GOLDEN % 2**64)
_MIX_WORDS = (np.uint64(_MIX[0] % 2**64), np.uint64(_MIX[1] % 2**64))
_SHIFTS, _LAST_SHIFT = (np.uint64(30), np.uint64(27)), np.uint64(31)
_FEW = 4096  # up to this many uniforms are faster to compute on the host and copy than to compute on the device
_STRETCH = 1 << 14


@dataclass(frozen=True)
class Stream:
    """A counter-based stream of uniforms: the only randomness of a run.

    Args:
        seed: Seed of the stream, 0 to $2^63 - 1$.
        first_population: Number of the first population, 0 to $2^62$; 0 by default. It lets population k be run alone.
        device: Device that the uniforms are made on; "cpu" by default.
    """

    seed: int
    first_population: int = 0
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        set_fields(
            self,
            seed=check_seed(self.seed),
            first_population=whole_number("first_population", self.first_population, 0, 2**62),
        )
        device_here(self.device)

    def uniforms(self, step: int, purpose: int, populations: int, count: int, first: int = 0) -> Tensor:
        """float64 uniforms in [0, 1), [populations, count]: those of the counters from `first` on."""
        keys, device = _keys(populations, self.first_population, self.seed, step, purpose), torch.device(self.device)
        if device.type == "cpu" or populations * count <= _FEW:
            return torch.from_numpy(_by_host(keys, first, first + count)).to(device, non_blocking=True)
        here = torch.from_numpy(keys.view(np.int64).copy()).to(device, non_blocking=True)
        return _by_device(here, first, first + count)


def check_seed(seed: int) -> int:
    """The seed as a plain whole number."""
    return whole_number("seed", seed, 0, 2**63 - 1)


@lru_cache(maxsize=256)
def _keys(populations: int, first: int, seed: int, *words: int) -> np.ndarray:
    """A 64-bit key for each population, mixed from seed, population and words.

    Memoised: the array is shared and must not be written to.
    """
    if words:
        return _mix(
            _mix(_keys(populations, first, seed, *words[:-1]).copy()) + np.uint64((words[-1] + 1) * _GOLDEN % 2**64)
        )
    number = np.arange(populations, dtype=np.uint64) + np.uint64(first + 1)
    return _mix(_mix(np.full(populations, seed, dtype=np.uint64)) + number * _GOLDEN_WORD)


def _by_host(keys: np.ndarray, first: int, last: int) -> np.ndarray:
    """The uniforms of these keys by numpy, in blocks small enough for the processor's cache."""
    u = np.empty((len(keys), last - first))
    for begin in range(first, last, _STRETCH):
        end = min(begin + _STRETCH, last)
        bits = _mix(keys[:, None] + _stretch(begin, end))
        np.multiply(bits >> np.uint64(11), 2.0**-53, out=u[:, begin - first : end - first])
    return u


@lru_cache(maxsize=8)
def _stretch(begin: int, end: int) -> np.ndarray:
    """The mixing terms of the counters from begin to end. Memoised: the array is shared and must not be written to."""
    return np.arange(begin + 1, end + 1, dtype=np.uint64) * _GOLDEN_WORD


def _by_device(keys: Tensor, first: int, last: int) -> Tensor:
    """The same uniforms, bit for bit, computed on the device that holds the keys."""
    count = torch.arange(first + 1, last + 1, device=keys.device)
    return uniforms_of(mix(keys[:, None] + count * _GOLDEN))


def uniforms_of(words: Tensor) -> Tensor:
    """float64 uniforms in [0, 1) of random 64-bit words: their first 53 bits."""
    return _shift(words, 11).double().mul_(2.0**-53)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical shift right of a signed 64-bit word."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: np.ndarray) -> np.ndarray:
    """`mix` on unsigned words, in place."""
    for shift, factor in zip(_SHIFTS, _MIX_WORDS, strict=True):
        z ^= z >> shift
        z *= factor
    z ^= z >> _LAST_SHIFT
    return z


def mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser on signed words."""
    z = (z ^ _shift(z, 30)) * _MIX[0]
    z = (z ^ _shift(z, 27)) * _MIX[1]
    return z ^ _shift(z, 31)
