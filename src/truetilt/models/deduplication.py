"""Scores that wrap another Score, and deduplication: networks are evaluated once for states that are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..core.arguments import function, shown
from ..core.binding import conditions_of
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, BatchScore, Needs, ask, needs_of
from ..core.logits import SiteLogits
from ..core.types import Process, Score, Tokens


def process_of(score: Score) -> Process | None:
    """The process that a score says it is for; None where it does not say."""
    return getattr(score, "process", None)


@dataclass(frozen=True)
class WrappingScore(BatchScore):
    """A Score that wraps another, `score`, and has its process and its needs."""

    asks_others: ClassVar[bool] = True
    score: Score

    @property
    def process(self) -> Process | None:
        return process_of(self.score)

    @property
    def needs(self) -> Needs:
        return needs_of(self.score)


@dataclass(frozen=True)
class Distinct(WrappingScore):
    """A Score with deduplication: the network is evaluated once per distinct state. For runs with frequent resampling.

    Sorting the states costs less than a network evaluation on a tenth of them, and with padded batches it changes no
    bit. On a GPU it synchronises the device.
    """

    score: Score

    def __post_init__(self) -> None:
        if callable(self.score):
            function("the score", self.score, "(x, t)")
        else:
            raise InvalidInput(f"the score is a {type(self.score).__name__}; give what maps (x, t) to tt.SiteLogits")
        if conditions_of(self.score) > 1:
            raise InvalidInput("the score is of several conditions, and equal states may have two: leave Distinct out")

    @property
    def batch(self) -> int:
        return needs_of(self.score).batch

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        if "distinct states" not in batch.known:
            batch.known["distinct states"] = _distinct(batch)
        states, which = batch.known["distinct states"]
        if len(states.x) == len(batch.x):
            return ask(self.score, batch, t)
        answer = ask(self.score, states, t)
        if not isinstance(answer, SiteLogits) or answer.index.shape != states.x.shape:
            raise InvalidInput(f"the score returned {shown(answer)}; it must return tt.SiteLogits of them")
        return shared(answer, which)


def shared(answer: SiteLogits, which: Tensor) -> SiteLogits:
    """Scatter an answer about distinct states [k, D] to all states [...] by their indices."""
    return SiteLogits(answer.store, answer.index[which])


def _distinct(batch: Batch) -> tuple[Batch, Tensor]:
    """The distinct states of a batch [k, D], and the index of each state among them [B]."""
    states, which = batch.x.unique(dim=0, return_inverse=True)
    return Batch(states, batch.log), which


def first_answer(score: Score, batch: Batch, t: float) -> SiteLogits:
    """The score of states that are all equal, evaluated on one of them."""
    if "first state" not in batch.known:
        batch.known["first state"] = Batch(batch.x[:1])
    answer = ask(score, batch.known["first state"], t)
    return SiteLogits(answer.store, answer.index.reshape(-1).expand(batch.x.shape))


def all_equal(x: Tokens) -> bool:
    """Whether all states [B, D] are equal; worth checking at t = 1, where a masking process has only masks."""
    return len(x) > 1 and bool((x == x[0]).all())
