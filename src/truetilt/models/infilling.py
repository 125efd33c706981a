"""Scores of a text with gaps: what is told of the noise, and the same gaps without the text around them.

A net is told how much of a text is masked. Where most tokens are given that is less than the clock says, so the net is
told the noise that fits what it sees. p(gaps) is the net's own answer with the given tokens masked, p(gaps|text) with
them there: together they are a model whose condition is the text itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..core.batch import Needs, needs_of
from ..core.types import Batch, BatchScore, InvalidInput, Model, Potential, Score, SiteLogits, Tokens, ask
from ..diffusion.processes import Masking
from .text import Infill


@dataclass(frozen=True)
class Retimed(BatchScore):
    """A Score of whole texts told the noise of what it sees: `open_sites` as masked as the clock says, `hidden` all."""

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
        """The time at which a text has as many masked sites as these have at t."""
        schedule = self.process.schedule
        share = float(torch.expm1(-schedule(t).value) / torch.expm1(-schedule(1.0).value))
        masked = self.hidden + self.open_sites * share
        return self.process.time_masked(self.length, masked)

    @property
    def needs(self) -> Needs:
        return needs_of(self.score)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        then, process, x = self.told(t), self.process, batch.x
        return process.score(process.posterior(ask(self.score, batch, then), x, then), x, t)


@dataclass(frozen=True)
class Unseen(BatchScore):
    """The Score of the open sites of a text whose given tokens are masked too: p(gaps) without the text around."""

    score: Score
    given: tuple[int | None, ...]
    process: Any

    @property
    def needs(self) -> Needs:
        return needs_of(self.score)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x, sites = batch.x, open_sites(self.given).to(batch.x.device)
        blank = torch.full((len(x), len(self.given)), self.process.mask, device=x.device)
        answer = ask(self.score, Batch(blank.index_copy(-1, sites, x)), t)
        return SiteLogits(answer.store, answer.index[..., sites])


@dataclass(frozen=True)
class Around:
    """A Potential of the whole text, asked about what fills its gaps."""

    potential: Potential
    infill: Infill

    def __call__(self, x: Tokens, t: float) -> torch.Tensor:
        return self.potential(self.infill.whole(x), t)


def open_sites(given: tuple[int | None, ...]) -> torch.Tensor:
    """The sites that are left open, int64."""
    return torch.tensor([site for site, token in enumerate(given) if token is None], dtype=torch.int64)


def filled(score: Score, given: tuple[int | None, ...]) -> Infill:
    """The Score of the gaps given the rest, told the noise there is."""
    return Infill(Retimed(score, len(given), sum(token is None for token in given)), given)


def with_gaps(model: Model, given: tuple[int | None, ...]) -> Model:
    """A model of whole texts as one of the gaps of this text, its condition as before."""
    inside = filled(model.base, given)
    conditional = None if model.conditional is None else filled(model.conditional, given)
    potential = None if model.potential is None else Around(model.potential, inside)
    return Model(model.process, inside.length, inside, conditional, potential, model.device)


def given_text(model: Model, given: tuple[int | None, ...]) -> Model:
    """The model of the gaps whose condition is the text around them: the base does not see it."""
    inside = filled(model.base, given)
    unseen = Retimed(model.base, len(given), inside.length, len(given) - inside.length)
    return Model(
        model.process, inside.length, Unseen(unseen, given, inside.process), inside, None, model.device
    )  # fmt: skip
