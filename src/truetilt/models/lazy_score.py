"""Lazy evaluation of a text network: only on states of which a row is read, one in sixteen at 1000 steps of 64 sites.

If a sampler chooses its sites before it reads their logits (any-order, tweedie steps of masking), a particle that
reveals nothing needs no evaluation: the schedule alone decides that it stays, and its weight does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..core.arguments import called, function, listed, set_fields, shown
from ..core.errors import InvalidInput
from ..core.evaluation import Batch
from ..core.logits import LazyRows, SiteLogits
from .conditions import label_of_each_state
from .deduplication import WrappingScore
from .text_score import TextScore, check_class


@dataclass(frozen=True)
class LazyScore(WrappingScore):
    """The Score of a text network that is evaluated lazily, only on states of which a row is read.

    Batches are padded, so outputs equal those of `score`, unless a network rounds differently by the position in its
    batch.

    Args:
        score: The score that is evaluated lazily, a `tt.TextScore`.
        labels: Classes to condition on, of which each has an equal share of the populations, as in `per_condition`.
            Empty (the default): the label of `score`.
        seen: Function called with the number of states of each evaluation. None by default.
    """

    score: TextScore
    labels: tuple[int, ...] = ()
    seen: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.score, TextScore):
            raise InvalidInput(f"the score is {shown(self.score)}; give a tt.TextScore of a text net")
        labels = listed("labels", self.labels, "give a tuple of classes")
        for label in labels:
            check_class(self.score.net, label)
        set_fields(self, labels=tuple(labels))
        if self.seen is not None:
            function("seen", self.seen, "(count)")

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x, labels = batch.x, label_of_each_state(self.labels, batch.x) if self.labels else None
        shape = (x.numel(), self.score.process.vocabulary)
        index = batch.known.get("site numbers")
        if index is None:
            index = batch.known["site numbers"] = torch.arange(x.numel(), device=x.device).reshape(x.shape)
        return SiteLogits(LazyRows(shape, partial(self._rows, batch, labels, t)), index)

    def _rows(self, batch: Batch, labels: Tensor | None, t: float, numbers: Tensor) -> Tensor:
        """Rows by number; rows are numbered state by state, then site by site."""
        flat = batch.x
        if not len(numbers):  # no site is revealed
            return torch.empty(0, self.score.process.vocabulary, device=flat.device)
        length = flat.shape[-1]
        states, which = (numbers // length).unique(return_inverse=True)
        if self.seen is not None:
            called("seen", self.seen, len(states))
        if batch.log is not None:
            batch.log.evaluated(len(states))
        here = flat[states]
        logits = self.score.logits(Batch(here), t, None if labels is None else labels[states])
        answer = self.score.score_of(logits, here, t)
        return answer.store[answer.index[which, numbers % length]]
