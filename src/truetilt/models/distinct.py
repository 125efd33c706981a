"""Deduplication: networks are evaluated once for states that are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..core.types import InvalidInput, Score, SiteLogits, Tokens, function, shown


@dataclass(frozen=True)
class Distinct:
    """A Score that is evaluated once for each distinct state: for runs with many copies, that is frequent resampling.

    Sorting the states costs less than evaluating a network on a tenth of them, and with padded batches it changes no
    bit. On a GPU it synchronises the device.
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

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        states, which = x.reshape(-1, x.shape[-1]).unique(dim=0, return_inverse=True)
        if len(states) == x[..., 0].numel():
            return self.score(x, t)
        answer = self.score(states, t)
        if not isinstance(answer, SiteLogits) or answer.index.shape != states.shape:
            raise InvalidInput(f"the score returned {shown(answer)}; it must return tt.SiteLogits of them")
        return shared(answer, which.reshape(x.shape[:-1]))


def shared(answer: SiteLogits, which: Tensor) -> SiteLogits:
    """Scatter an answer about distinct states [k, D] to all states [...] by their indices."""
    return SiteLogits(answer.store, answer.index[which])


def first_answer(score: Score, x: Tokens, t: float) -> SiteLogits:
    """The score of states that are all equal, evaluated on one of them."""
    answer = score(x.reshape(-1, x.shape[-1])[:1], t)
    return SiteLogits(answer.store, answer.index.reshape(-1).expand(x.shape))


def all_equal(x: Tokens, t: float) -> bool:
    """Whether all states are equal; checked at t = 1 only, where a masking process has nothing but masks."""
    return t >= 1 and x[..., 0].numel() > 1 and bool((x == x.reshape(-1, x.shape[-1])[0]).all())
