"""Uniforms from a counter: a pure function of (seed, population, step, purpose, particle, site).

No generator state, so chunks, populations and devices cannot disturb one another: any part of a run can be drawn
alone and comes out the same. The mixing function is SplitMix64's finaliser (Steele, Lea & Flood 2014).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..core.arguments import device_here, settle, whole

DRAW, RESAMPLE, OUTPUT, CHOOSE, COUPLE = range(5)  # purposes: each has its own key, so that no uniform is used twice
PURPOSES = 16  # keys of one lap of a step: one for each purpose, and COUPLE added to each

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

    `first_population` lets population k be run alone.
    """

    seed: int
    first_population: int = 0
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        settle(
            self,
            seed=check_seed(self.seed),
            first_population=whole("first_population", self.first_population, 0, 2**62),
        )
        device_here(self.device)

    def uniforms(
        self, step: int, purpose: int, populations: int, count: int | tuple[int, int], first: int = 0
    ) -> Tensor:
        """float64 uniforms in [0, 1), [populations, count]: those of the counters from `first` on."""
        if isinstance(count, tuple):
            warnings.warn(
                "give uniforms(..., count, first), not a pair (first, last)", DeprecationWarning, stacklevel=2
            )
            first, count = count[0], count[1] - count[0]
        keys, device = _keys(populations, self.first_population, self.seed, step, purpose), torch.device(self.device)
        if device.type == "cpu" or populations * count <= _FEW:
            return torch.from_numpy(_by_host(keys, first, first + count)).to(device, non_blocking=True)
        here = torch.from_numpy(keys.view(np.int64).copy()).to(device, non_blocking=True)
        return _by_device(here, first, first + count)


def check_seed(seed: int) -> int:
    """The seed as a plain whole number."""
    return whole("seed", seed, 0, 2**63 - 1)


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
    bits = mix(keys[:, None] + count * _GOLDEN)
    return _shift(bits, 11).double().mul_(2.0**-53)


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
