"""A base with some of the given residues hidden: p0(framework | the rest), with these loops masked.

The loops of a mouse antibody reveal the species to the network, which then draws a mouse's framework around them. With
the loops masked, p0 is the law of frameworks that such a chain may have, as CDR grafting assumes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.evaluation import Batch, ask
from ..core.logits import SiteLogits
from ..core.types import Potential, Score, Tokens
from ..models.deduplication import WrappingScore


def masked_at(x: Tokens, sites: tuple[int, ...], mask: int) -> Tokens:
    """x [B, L] with these sites masked."""
    if not sites:
        return x
    return x.index_fill(-1, torch.tensor(sites, device=x.device), mask)


@dataclass(frozen=True)
class UnseeingScore(WrappingScore):
    """A Score of whole sequences, evaluated with these sites masked."""

    score: Score
    sites: tuple[int, ...]
    mask: int

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        return ask(self.score, Batch(masked_at(batch.x, self.sites, self.mask), batch.log), t)


@dataclass(frozen=True)
class UnseeingPotential:
    """A Potential of whole sequences, evaluated with these sites masked."""

    potential: Potential
    sites: tuple[int, ...]
    mask: int

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.potential(masked_at(x, self.sites, self.mask), t)
