"""A public network as a `TokenNet`: states are the open sites of a row, everything around them is context.

A label selects a context, so that base and condition, or several prompts, are rows of one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput
from ..core.logits import SiteLogits
from ..core.types import Process, Tokens
from .contexts import OPEN, Context
from .net_score import score_of_prediction
from .public_net import Public


class FramedConfig(NamedTuple):
    """The sizes that a sampler needs to know of such a network: drawable tokens, open sites, contexts."""

    vocabulary: int
    length: int
    masked: bool
    classes: int
    hidden: int


class PaddedRows(NamedTuple):
    """The rows of contexts, padded to the longest, on the network's device."""

    ids: Tensor  # int64 [contexts, L], arbitrary at open sites
    seen: Tensor  # bool [contexts, L], the attention mask: False at padding
    place: Tensor  # int64 [contexts, D], positions of the open sites
    answers: Tensor  # int64 [contexts, D], positions of the logits for them
    labels: Tensor  # int64 [contexts], the class label passed to the network


class Framed(nn.Module):
    """The open sites of one or more contexts as a `TokenNet`; label k is context k. Short rows are padded."""

    def __init__(self, public: Public, contexts: Sequence[Context]) -> None:
        super().__init__()
        _check_rows(public, contexts)
        self.public, self.net, self.contexts = public, public.net, tuple(contexts)
        self.train(public.net.training)
        device, size = next(public.net.parameters()).device, len(public.alphabet)
        self.rows = PaddedRows(*(table.to(device) for table in _padded(public, contexts)))
        self.padded, self.has_labels = not bool(self.rows.seen.all()), any(c.label is not None for c in contexts)
        self.own = torch.tensor([*public.alphabet.ids, public.mask or 0], device=device)  # the mask is the last
        self.first = public.alphabet.ids[0]
        self.a_range = public.alphabet.ids == tuple(range(self.first, self.first + size))
        wide = public.vocabulary if public.head is None else public.hidden
        self.config = FramedConfig(size, len(contexts[0].sites), public.family.masked, len(contexts), wide)

    def trunk(self, x: Tokens, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Features of the open sites [B, D, C]."""
        public, rows = self.public, self.rows
        which = torch.zeros(len(x), dtype=torch.int64, device=x.device) if label is None else label
        ids = rows.ids[which].scatter(1, rows.place[which], self.own[x])
        seen = rows.seen[which] if self.padded else None
        if seen is not None:
            seen = seen[:, None, None].expand(-1, 1, seen.shape[1], -1) if public.family.pairwise else seen.long()
        labels = rows.labels[which] if self.has_labels else None

        def ask() -> Tensor:
            return public.ask(ids, seen, public.told_noise(sigma), labels)

        hidden = ask() if public.head is None else public.head.features(ask)
        return hidden.gather(1, rows.answers[which][..., None].expand(-1, -1, hidden.shape[-1]))

    def head(self, hidden: Tensor, sigma: Tensor) -> Tensor:
        """Logits of the drawable tokens, float32."""
        head = self.public.head
        logits = hidden if head is None else head.module(hidden[None])[0] if hidden.dim() == 2 else head.module(hidden)
        if self.a_range:
            return logits[..., self.first : self.first + self.config.vocabulary].float()
        return logits.index_select(-1, self.own[:-1]).float()

    def log_score(self, process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        return score_of_prediction(process, logits, x, t)


def _check_rows(public: Public, contexts: Sequence[Context]) -> None:
    """Raise for rows that the network cannot read, alone or in one batch."""
    counts, sizes = {len(context.sites) for context in contexts}, [len(context.row) for context in contexts]
    if len(counts) != 1 or 0 in counts:
        raise InvalidInput(f"the texts have {sorted(counts)} open sites; give one number, 1 or more, for all")
    if max(sizes) > public.length:
        raise InvalidInput(
            f"the row has {max(sizes):,} tokens with its prompt and frame and the net reads {public.length:,}; shorten "
            "the prompt, or leave fewer sites open"
        )
    if len(set(sizes)) > 1 and not public.pads:
        raise InvalidInput(
            f"rows of {min(sizes)} and {max(sizes)} tokens and a net without an attention mask, which cannot read them "
            "in one batch; give prompts of equal length"
        )


def _padded(public: Public, contexts: Sequence[Context]) -> PaddedRows:
    """The rows of contexts, padded on the side that the family pads on."""
    sizes = [len(context.row) for context in contexts]
    wide, family = max(sizes), public.family
    starts = [wide - size if family.left else 0 for size in sizes]
    ids, seen = torch.full((len(sizes), wide), public.pad), torch.zeros(len(sizes), wide, dtype=torch.bool)
    for k, (context, size, start) in enumerate(zip(contexts, sizes, starts, strict=True)):
        ids[k, start : start + size] = torch.tensor([public.pad if own is OPEN else own for own in context.row])
        seen[k, start : start + size] = True
    begin = torch.tensor(starts)[:, None]
    place = torch.tensor([context.sites for context in contexts]) + begin
    answers = torch.maximum(place - 1, begin) if family.shift else place
    labels = torch.tensor([-1 if context.label is None else context.label for context in contexts])
    return PaddedRows(ids, seen, place, answers, labels)
