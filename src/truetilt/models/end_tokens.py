"""Rows that end: behind a seen end token every masked site is an end token, and no network is asked for it.

This is part of the definition of p0 for every sampler: a text that has ended goes on with nothing but ends. A row
whose masked sites all lie behind an end is answered without the network, and is not counted as an evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ..core.arguments import shown
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, ask
from ..core.logits import SiteLogits, stacked
from ..core.types import NEG_INF, Score, Tokens
from ..diffusion.processes import Masking
from .deduplication import WrappingScore, process_of


@dataclass(frozen=True)
class Ended(WrappingScore):
    """A Score of masked rows in which p(end) = 1 at every masked site behind a seen end token."""

    score: Score
    end: int

    def __post_init__(self) -> None:
        process = process_of(self.score)
        if not isinstance(process, Masking):
            raise InvalidInput(f"rows end where tokens are revealed, and the process is {shown(process)}; use masking")
        if not 0 <= self.end < self.process.vocabulary:
            raise InvalidInput(f"the end token is {self.end} of {self.process.vocabulary} tokens; give one of them")

    @property
    def process(self) -> Masking:
        return cast("Masking", process_of(self.score))

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        masked = batch.x == self.process.mask
        behind = masked & behind_end(batch.x, self.end)
        if not bool(behind.any()):
            return ask(self.score, batch, t)
        law = torch.full((1, self.process.vocabulary), NEG_INF, device=batch.x.device)
        law[0, self.end] = self.process.log_odds_kept(t)
        wanted = (masked & ~behind).any(-1)
        index = torch.zeros_like(batch.x)
        if not bool(wanted.any()):
            return SiteLogits(law, index)
        answer = ask(self.score, Batch(batch.x[wanted], batch.log), t)
        index[wanted] = answer.index + 1
        return SiteLogits(stacked([law.to(_dtype(answer)), answer.store]), index.masked_fill(behind, 0))


def behind_end(x: Tokens, end: int) -> Tensor:
    """The sites that have an end token before them, bool [..., D]."""
    ends = (x == end).long()
    return ends.cumsum(-1) > ends


def _dtype(answer: SiteLogits) -> torch.dtype:
    return answer.store.dtype if isinstance(answer.store, Tensor) else torch.float32
