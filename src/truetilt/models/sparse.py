"""Asking a text net only about the states somebody reads: at 1000 steps of 64 sites, one particle in sixteen.

Where a sampler chooses its sites before it looks at their logits (any-order, tweedie steps of masking), a particle that
reveals nothing needs no answer: it holds by the schedule alone, and its weight stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.batch import Needs
from ..core.logits import LazyRows
from ..core.types import Batch, BatchScore, InvalidInput, SiteLogits, Tokens, function, listed, settle, shown
from .conditions import check_equal_parts
from .score import check_class
from .text import TextScore


@dataclass(frozen=True)
class Sparing(BatchScore):
    """The Score of a text net, asked when rows are read and about the states they are of; `seen` is told how many.

    Batches are padded, so no answer differs from that of `score`, unless a net rounds by the place in its batch. With
    `labels` the populations are dealt to them in equal parts, as `per_condition` does.
    """

    asks_others: ClassVar[bool] = True
    score: TextScore
    labels: tuple[int, ...] = ()
    seen: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.score, TextScore):
            raise InvalidInput(f"the score is {shown(self.score)}; give a tt.TextScore of a text net")
        labels = listed("labels", self.labels, "give a tuple of classes")
        for label in labels:
            check_class(self.score.net, label)
        settle(self, labels=tuple(labels))
        if self.seen is not None:
            function("seen", self.seen, "(count)")

    @property
    def process(self) -> Any:
        return self.score.process

    @property
    def net(self) -> Any:
        return self.score.net

    @property
    def needs(self) -> Needs:
        return self.score.needs

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x, labels = batch.x, self._labels(batch.x)
        shape = (x.numel(), self.process.vocabulary)
        index = batch.known.get("site numbers")
        if index is None:
            index = batch.known["site numbers"] = torch.arange(x.numel(), device=x.device).reshape(x.shape)
        return SiteLogits(LazyRows(shape, lambda numbers: self._rows(batch, labels, numbers, t)), index)

    def _labels(self, x: Tokens) -> Tensor | None:
        """The label of each state [n]."""
        if not self.labels:
            return None
        check_equal_parts(x, len(self.labels))
        return torch.tensor(self.labels, device=x.device).repeat_interleave(len(x) // len(self.labels))

    def _rows(self, batch: Batch, labels: Tensor | None, numbers: Tensor, t: float) -> Tensor:
        """Rows by number, state after state and site after site."""
        flat = batch.x
        if not len(numbers):  # nobody reveals anything
            return torch.empty(0, self.process.vocabulary, device=flat.device)
        length = flat.shape[-1]
        states, which = (numbers // length).unique(return_inverse=True)
        if self.seen is not None:
            self.seen(len(states))
        if batch.meter is not None:
            batch.meter.asked(len(states))
        here = flat[states]
        logits = self.score.logits(Batch(here), t, None if labels is None else labels[states])
        answer = self.score.score_of(logits, here, t)
        return answer.store[answer.index[which, numbers % length]]
