"""Scores of a text with gaps: of the gaps given the rest of the text, and of the gaps alone.

A network takes the noise level as input. Where most tokens are given, fewer sites are masked than at that time of the
process, so the network gets the noise level that fits the number of masks it sees. p(gaps) is its answer with the given
tokens masked, p(gaps | text) its answer with them visible: together a model whose condition is the given text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..core.batch import Needs, needs_of
from ..core.types import Batch, BatchScore, InvalidInput, Model, Potential, Score, SiteLogits, Tokens, ask
from ..diffusion.processes import Masking
from .distinct import WrappingScore
from .text import Infill, open_sites


@dataclass(frozen=True)
class Retimed(WrappingScore):
    """A Score of whole texts that is evaluated at the noise level that fits the number of masks in the text.

    `open_sites` of its sites are masked as the time of the process says, `hidden` ones always.
    """

    score: Any
    length: int
    open_sites: int
    hidden: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.process, Masking):
            raise InvalidInput(
                f"a text is filled in by unmasking it, and the process is {type(self.process).__name__}; use masking"
            )

    @property
    def process(self) -> Any:
        return getattr(self.score, "process", None) or getattr(getattr(self.score, "base", None), "process", None)

    @property
    def net(self) -> Any:
        return getattr(self.score, "net", None)

    def told(self, t: float) -> float:
        """The time at which a whole text is expected to have as many masked sites as this one has at t."""
        schedule = self.process.schedule
        share = float(torch.expm1(-schedule(t).value) / torch.expm1(-schedule(1.0).value))
        masked = self.hidden + self.open_sites * share
        return self.process.time_masked(self.length, masked)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        then, process, x = self.told(t), self.process, batch.x
        return process.score(process.posterior(ask(self.score, batch, then), x, then), x, t)


@dataclass(frozen=True)
class Unseen(BatchScore):
    """The Score of the gaps of a text whose given tokens are masked too: p(gaps), without the given text."""

    asks_others: ClassVar[bool] = True
    score: Score
    given: tuple[int | None, ...]
    process: Any

    @property
    def needs(self) -> Needs:
        return needs_of(self.score)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x, sites = batch.x, open_sites(self.given).to(batch.x.device)
        blank = torch.full((len(x), len(self.given)), self.process.mask, device=x.device)
        answer = ask(self.score, Batch(blank.index_copy(-1, sites, x), batch.meter), t)
        return SiteLogits(answer.store, answer.index[..., sites])


@dataclass(frozen=True)
class Around:
    """A Potential of the whole text, as a function of what fills its gaps."""

    potential: Potential
    infill: Infill

    def __call__(self, x: Tokens, t: float) -> torch.Tensor:
        return self.potential(self.infill.whole(x), t)


def filled(score: Score, given: tuple[int | None, ...]) -> Infill:
    """The Score of the gaps given the other tokens, at the noise level that fits the masks."""
    return Infill(Retimed(score, len(given), sum(token is None for token in given)), given)


def with_gaps(model: Model, given: tuple[int | None, ...]) -> Model:
    """A model of whole texts turned into a model of the gaps of this text, under the same condition."""
    inside = filled(model.base, given)
    conditional = None if model.conditional is None else filled(model.conditional, given)
    potential = None if model.potential is None else Around(model.potential, inside)
    return Model(model.process, inside.length, inside, conditional, potential, model.device)


def given_text(model: Model, given: tuple[int | None, ...]) -> Model:
    """The model of the gaps whose condition is the given text, which the base does not see."""
    inside = filled(model.base, given)
    unseen = Retimed(model.base, len(given), inside.length, len(given) - inside.length)
    return Model(
        model.process, inside.length, Unseen(unseen, given, inside.process), inside, None, model.device
    )  # fmt: skip
