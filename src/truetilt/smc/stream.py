"""Uniforms from a counter: a pure function of (seed, population, step, purpose, particle, site).

No generator state, so chunks, populations and devices cannot disturb one another: any part of a run can be drawn
alone and comes out the same. The mixing function is SplitMix64's finaliser (Steele, Lea & Flood 2014).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..types import InvalidInput

DRAW, RESAMPLE, OUTPUT, CHOOSE, COUPLE = range(5)  # purposes: a key each, so that no uniform is used twice
PURPOSES = 16  # room for each of them, and for COUPLE on top of each

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed word
_MIX = (-4658895280553007687, -7723592293110705685)  # 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN_WORD = np.uint64(_GOLDEN % 2**64)
_MIX_WORDS = (np.uint64(_MIX[0] % 2**64), np.uint64(_MIX[1] % 2**64))


@dataclass(frozen=True)
class Stream:
    """The randomness of a run. `first_population` lets population k be run alone."""

    seed: int
    first_population: int = 0
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63 or self.seed != int(self.seed):
            raise InvalidInput(f"seed is {self.seed}; give a whole number from 0 to 2^63 - 1")
        if self.first_population < 0:
            raise InvalidInput(f"first_population is {self.first_population}; populations are numbered from 0")

    def uniforms(self, step: int, purpose: int, populations: int, counters: tuple[int, int]) -> Tensor:
        """float64 uniforms in [0, 1), [populations, last - first], one for each counter from first to last."""
        key = self._keys(step, purpose, populations).to(self.device, non_blocking=True)
        count = torch.arange(counters[0] + 1, counters[1] + 1, device=self.device)
        bits = mix(key[:, None] + count * _GOLDEN)
        return _shift(bits, 11).double().mul_(2.0**-53)

    def _keys(self, step: int, purpose: int, populations: int) -> Tensor:
        """A key for each population. Few numbers and many operations: made by the host, whatever the device."""
        key = np.full(populations, self.seed, dtype=np.uint64)
        number = np.arange(populations, dtype=np.uint64) + np.uint64(self.first_population + 1)
        for term in (number * _GOLDEN_WORD, *((word + 1) * _GOLDEN % 2**64 for word in (step, purpose))):
            key = _mix(_mix(key) + (term if isinstance(term, np.ndarray) else np.uint64(term)))
        return torch.from_numpy(key.view(np.int64))


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical shift right of a signed 64-bit word."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: np.ndarray) -> np.ndarray:
    """`mix` on unsigned words."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_WORDS[0]
    z = (z ^ (z >> np.uint64(27))) * _MIX_WORDS[1]
    return z ^ (z >> np.uint64(31))


def mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser on signed words."""
    z = (z ^ _shift(z, 30)) * _MIX[0]
    z = (z ^ _shift(z, 27)) * _MIX[1]
    return z ^ _shift(z, 31)
