"""How the species head reads a finished chain: once as it is, or several times with parts of it masked.

The head can be fooled: a few residues, or the loops, make it say human of a framework that is a mouse's. A chain that
is human throughout is also human to a reader who does not see the loops and a part of the framework, whichever part it
is. So log p(species | x) is the mean over fixed readings, each with all CDRs and its own share of the open residues
masked: a definite function of the chain, one pass a reading. The head was trained on masked sequences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.types import Potential, Tokens
from .hidden_loops import masked_at

HIDDEN_SHARE = 0.5  # of the open residues, masked in each reading; docs/antibodies.md says why half
READINGS, MOST_READINGS = 4, 64  # readings of the experiment with masked ones; at most
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class MaskedReadings:
    """The mean of a Potential of whole sequences over readings, each with these sites masked."""

    potential: Potential
    hidden: tuple[tuple[int, ...], ...]
    mask: int

    def __call__(self, x: Tokens, t: float) -> Tensor:
        read = torch.cat([masked_at(x, sites, self.mask) for sites in self.hidden])
        return self.potential(read, t).reshape(len(self.hidden), len(x)).mean(0)


def hidden_sites(
    open_sites: tuple[int, ...], loops: tuple[int, ...], readings: int, share: float = HIDDEN_SHARE
) -> tuple[tuple[int, ...], ...]:
    """The sites that each of so many readings does not see: the loops, and a scattered share of the open sites.

    Site k has the phase (golden ratio k^2) mod 1, and reading m of M hides the phases from m/M on, around the circle:
    each site is hidden in about the same share of the readings, neighbours in different ones, and nothing is random.
    """
    phases = [number * number * _GOLDEN % 1 for number in range(len(open_sites))]
    starts = [reading / readings for reading in range(readings)]
    chosen = [
        {site for site, at in zip(open_sites, phases, strict=True) if (at - start) % 1 < share} for start in starts
    ]
    return tuple(tuple(sorted({*loops, *sites})) for sites in chosen)
