"""One batch of states in a step, and what has been worked out about it: shared by every score that is asked about it.

The base and the conditional of a model are asked about the same states. What both need (which sites are masked, which
row of a table a site reads, what a common network answered) is computed once and cached in the batch, which lives as
long as the step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from .logits import SiteLogits, batch_of

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Batch:
    """States [B, D] and a cache of what was computed from them."""

    x: Tensor
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returns, computed when first asked for under this key."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


class BatchScore(ABC):
    """A Score that shares what it computes about a batch with the other scores of its step.

    A subclass writes `ask`. Called as a plain Score (x, t), with states of any leading shape, it makes a batch of its
    own.
    """

    @abstractmethod
    def ask(self, batch: Batch, t: float) -> SiteLogits:
        """The answer about a batch, over sites [B, D]."""

    def __call__(self, x: Tensor, t: float) -> SiteLogits:
        answer = self.ask(Batch(batch_of(x)), t)
        return answer if x.dim() == 2 else SiteLogits(answer.store, answer.index.reshape(x.shape))


def ask(score: Callable[[Tensor, float], SiteLogits], batch: Batch, t: float) -> SiteLogits:
    """The answer of any Score about a batch; ours share its cache."""
    return score.ask(batch, t) if isinstance(score, BatchScore) else score(batch.x, t)
