"""Scores of a text with gaps: of the gaps given the rest of the text (`Infill`, `prompted`), and of the gaps alone.

A network takes the noise level as input. Where most tokens are given, fewer sites are masked than the process masks at
that time, so the network gets the noise level that fits the number of masks. With the given tokens visible it returns
p(gaps | text), with them masked p(gaps): conditional and base of a model whose condition is the given text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..core.arguments import LONGEST, function, listed, plain, set_fields, shown, whole_number
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, BatchScore, Needs, ask, needs_of
from ..core.logits import SiteLogits
from ..core.twists import candidates_of, words_of
from ..core.types import Model, Potential, Score, Tokens
from ..diffusion.processes import Masking
from .deduplication import WrappingScore, process_of


@dataclass(frozen=True)
class Infill(WrappingScore):
    """The Score of the open sites of a text whose other tokens are given; a state fills the open sites, in order.

    The network reads the whole text. For masking this is exactly the model given those tokens, since clean tokens are
    part of what a state is conditioned on.

    Args:
        score: Score of the whole text, such as `tt.TextScore`.
        given: The tokens of the text, with None at open sites, of which there is at least one.
    """

    score: Score
    given: tuple[int | None, ...]  # None at open sites

    def __post_init__(self) -> None:
        function("score", self.score, "(x, t)")
        need = "give the tokens of the text, None at open sites"
        set_fields(self, given=tuple(plain(token) for token in listed("given", self.given, need)))
        if not self.length:
            raise InvalidInput(f"the text has {len(self.given)} tokens and none is open; leave None where to fill in")
        vocabulary = math.inf if self.process is None else self.process.vocabulary
        check_tokens([token for token in self.given if token is not None], vocabulary)
        longest = needs_of(self.score).longest
        if longest is not None and len(self.given) > longest:
            raise InvalidInput(
                f"the text has {len(self.given)} tokens with its prompt and the net reads {longest}; shorten the "
                "prompt, or leave fewer sites open"
            )

    @property
    def length(self) -> int:
        """Number of open sites."""
        return sum(token is None for token in self.given)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x = batch.x
        if x.shape[-1] != self.length:
            raise InvalidInput(f"states of {x.shape[-1]} sites for a text with {self.length} open; give as many")
        texts = batch.known.get(("texts", self.given))
        if texts is None:
            texts = batch.known["texts", self.given] = Batch(self.whole(x), batch.log)
        answer = ask(self.score, texts, t)
        if not isinstance(answer, SiteLogits) or answer.index.shape[-1:] != (len(self.given),):
            raise InvalidInput(
                f"the score returned {shown(answer)} for texts of {len(self.given)}; return tt.SiteLogits"
            )
        whole = answer.index  # cached with what is derived from it, so that no other tensor can reuse its id
        if ("open", id(whole)) not in texts.known:
            texts.known["open", id(whole)] = whole, whole[..., self._open(x.device)]
        return SiteLogits(answer.store, texts.known["open", id(whole)][1])

    def whole(self, x: Tokens) -> Tokens:
        """The text [..., L] with its open sites filled from x [..., length]."""
        text = torch.tensor([-1 if token is None else token for token in self.given]).to(x.device, non_blocking=True)
        return text.expand(*x.shape[:-1], -1).index_copy(-1, self._open(x.device), x)

    def _open(self, device: torch.device) -> Tensor:
        return open_sites(self.given).to(device, non_blocking=True)


@dataclass(frozen=True)
class Retimed(WrappingScore):
    """A Score of whole texts, evaluated at the noise level that fits the number of masks in the text.

    At time t the process masks a share of its `open_sites`. Its `hidden` sites are masked at every time.
    """

    score: Score
    length: int
    open_sites: int
    hidden: int = 0

    def __post_init__(self) -> None:
        process = process_of(self.score)
        if not isinstance(process, Masking):
            raise InvalidInput(
                f"a text is filled in by unmasking it, and the process is {type(process).__name__}; use masking"
            )

    @property
    def process(self) -> Masking:
        return cast("Masking", process_of(self.score))

    def time_for_net(self, t: float) -> float:
        """The time at which a whole text is expected to have as many masked sites as this one has at t."""
        schedule = self.process.schedule
        share = float(torch.expm1(-schedule(t).value) / torch.expm1(-schedule(1.0).value))
        masked = self.hidden + self.open_sites * share
        return self.process.time_masked(self.length, masked)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        then, process, x = self.time_for_net(t), self.process, batch.x
        return process.score(process.posterior(ask(self.score, batch, then), x, then), x, t)


@dataclass(frozen=True)
class Unseen(BatchScore):
    """The Score of the gaps of a text whose given tokens are masked too: p(gaps), without the given text."""

    asks_others: ClassVar[bool] = True
    score: Score
    given: tuple[int | None, ...]
    process: Masking

    @property
    def needs(self) -> Needs:
        return needs_of(self.score)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x, sites = batch.x, open_sites(self.given).to(batch.x.device)
        blank = torch.full((len(x), len(self.given)), self.process.mask, device=x.device)
        answer = ask(self.score, Batch(blank.index_copy(-1, sites, x), batch.log), t)
        return SiteLogits(answer.store, answer.index[..., sites])


@dataclass(frozen=True)
class Around:
    """A Potential of the whole text, as a function of the tokens in its gaps."""

    potential: Potential
    infill: Infill

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.potential(self.infill.whole(x), t)

    @property
    def candidates(self) -> int | None:
        """Tokens of a site that are evaluated when it serves as a twist; None: all."""
        return candidates_of(self.potential)

    @property
    def told(self) -> str | None:
        """The potential in words, for reports."""
        return words_of(self.potential)


def open_sites(given: Sequence[int | None]) -> Tensor:
    """Indices of the sites without a given token, int64."""
    return torch.tensor([site for site, token in enumerate(given) if token is None], dtype=torch.int64)


def prompted(score: Score, length: int, prefix: Sequence[int] = (), suffix: Sequence[int] = ()) -> Infill:
    """The Score of `length` open sites between the tokens of a prompt: a condition in words.

    Args:
        score: Score of the whole text, such as `tt.TextScore`.
        length: Number of open sites, 1 or more.
        prefix: Tokens before the open sites; none by default.
        suffix: Tokens after them; none by default. One of the two is given.
    """
    length = whole_number("length", length, 1, LONGEST)
    prefix, suffix = (listed("the prompt", part, "give a list of tokens") for part in (prefix, suffix))
    if not len(prefix) + len(suffix):
        raise InvalidInput("the prompt is empty; give at least one token before or after the open sites")
    return Infill(score, (*prefix, *[None] * length, *suffix))


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
        model.process, inside.length, Unseen(unseen, given, unseen.process), inside, None, model.device
    )  # fmt: skip


def check_tokens(tokens: Sequence[int], vocabulary: float) -> None:
    """Raise for given tokens that are not in the vocabulary, such as the mask."""
    bad = [v for v in tokens if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < vocabulary]
    if bad:
        raise InvalidInput(
            f"token {bad[0]!r} is not one of the net's 0 to {vocabulary - 1} ({len(bad)} such); was the text encoded "
            "by the tokenizer this net was trained with?"
        )
