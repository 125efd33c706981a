"""One batch of states in a step, and what has been worked out about it: shared by every score that is asked about it.

The base and the conditional of a model are asked about the same states. What both need (which sites are masked, which
row of a table a site reads, what a common network answered) is computed once and cached in the batch, which lives as
long as the step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from .logits import SiteLogits, batch_of


@dataclass(frozen=True, eq=False)
class Batch:
    """States [B, D] and a cache of what was computed from them."""

    x: Tensor
    known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)  # by what names it


class Needs(NamedTuple):
    """What a score needs of the machine."""

    batch: int = 1  # states its network is asked about at a time
    particle_bytes: int | None = None  # memory that a particle takes; None: a row of float64 at every site


class BatchScore(ABC):
    """A Score that shares what it computes about a batch with the other scores of its step.

    A subclass writes `ask`. Called as a plain Score (x, t), with states of any leading shape, it makes a batch of its
    own.
    """

    @property
    def needs(self) -> Needs:
        """What it needs of the machine."""
        return Needs()

    @abstractmethod
    def ask(self, batch: Batch, t: float) -> SiteLogits:
        """The answer about a batch, over sites [B, D]."""

    def __call__(self, x: Tensor, t: float) -> SiteLogits:
        answer = self.ask(Batch(batch_of(x)), t)
        return answer if x.dim() == 2 else SiteLogits(answer.store, answer.index.reshape(x.shape))


def needs_of(score: Any) -> Needs:
    """What any Score needs of the machine; one that does not say needs a row at every site."""
    return score.needs if isinstance(score, BatchScore) else Needs()


def ask(score: Callable[[Tensor, float], SiteLogits], batch: Batch, t: float) -> SiteLogits:
    """The answer of any Score about a batch; ours share its cache."""
    return score.ask(batch, t) if isinstance(score, BatchScore) else score(batch.x, t)
