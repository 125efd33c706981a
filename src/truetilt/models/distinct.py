"""Asking once about states that are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..core.batch import Needs, needs_of
from ..core.types import Batch, BatchScore, InvalidInput, Score, SiteLogits, Tokens, ask, function, shown


@dataclass(frozen=True)
class Distinct(BatchScore):
    """A Score that is asked about each distinct state once: for runs with many copies, that is often resampled ones.

    Sorting the states costs less than a network that is asked about a tenth fewer, and changes no bit of its answers
    when they come in padded batches. On a GPU it waits for the states.
    """

    score: Score

    def __post_init__(self) -> None:
        if callable(self.score):
            function("the score", self.score, "(x, t)")
        else:
            raise InvalidInput(f"the score is a {type(self.score).__name__}; give what maps (x, t) to tt.SiteLogits")

    @property
    def process(self) -> Any:
        return getattr(self.score, "process", None)

    @property
    def batch(self) -> int:
        return getattr(self.score, "batch", 1)

    @property
    def needs(self) -> Needs:
        return needs_of(self.score)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        states, which = batch.once("distinct states", lambda: _distinct(batch.x))
        if len(states.x) == len(batch.x):
            return ask(self.score, batch, t)
        answer = ask(self.score, states, t)
        if not isinstance(answer, SiteLogits) or answer.index.shape != states.x.shape:
            raise InvalidInput(f"the score returned {shown(answer)}; it must return tt.SiteLogits of them")
        return shared(answer, which)


def shared(answer: SiteLogits, which: Tensor) -> SiteLogits:
    """An answer about distinct states [k, D], spread over states [...] by their numbers."""
    return SiteLogits(answer.store, answer.index[which])


def _distinct(x: Tokens) -> tuple[Batch, Tensor]:
    """The distinct states of a batch [k, D], and the number of each state's own [B]."""
    states, which = x.unique(dim=0, return_inverse=True)
    return Batch(states), which


def first_answer(score: Score, batch: Batch, t: float) -> SiteLogits:
    """What a score says of states that are all the same, asked about one."""
    answer = ask(score, batch.once("first state", lambda: Batch(batch.x[:1])), t)
    return SiteLogits(answer.store, answer.index.reshape(-1).expand(batch.x.shape))


def all_equal(x: Tokens, t: float) -> bool:
    """Whether all states are one: asked at the beginning of time only, where masks are all there is."""
    return t >= 1 and x[..., 0].numel() > 1 and bool((x == x.reshape(-1, x.shape[-1])[0]).all())
