"""A public network as a `TokenNet`: states are the open sites of a row, everything around them is context.

A label of the network picks its context, so that base and condition, or several prompts, are rows of one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core.types import InvalidInput, Process, SiteLogits, Tokens
from .contexts import OPEN, Context
from .public import Public
from .score import score_of_posterior


class FramedConfig(NamedTuple):
    """What a sampler needs to know of such a network: drawable tokens, open sites, contexts."""

    vocabulary: int
    length: int
    masked: bool
    classes: int
    hidden: int


class Framed(nn.Module):
    """The open sites of one or more contexts as a `TokenNet`; label k is context k. Short rows are padded."""

    def __init__(self, public: Public, contexts: Sequence[Context]) -> None:
        super().__init__()
        self.public, self.net, self.contexts = public, public.net, tuple(contexts)
        self.train(public.net.training)
        counts = {len(context.sites) for context in contexts}
        if len(counts) != 1 or 0 in counts:
            raise InvalidInput(f"the texts have {sorted(counts)} open sites; give one number, 1 or more, for all")
        sizes = [len(context.row) for context in contexts]
        if max(sizes) > public.length:
            raise InvalidInput(
                f"the row has {max(sizes):,} tokens with its prompt and frame and the net reads {public.length:,}; "
                "shorten the prompt, or leave fewer sites open"
            )
        if len(set(sizes)) > 1 and not public.pads:
            raise InvalidInput(
                f"rows of {min(sizes)} and {max(sizes)} tokens and a net without an attention mask, which cannot read "
                "them in one batch; give prompts of equal length"
            )
        family, wide = public.family, max(sizes)
        shifts = [wide - size if family.left else 0 for size in sizes]
        place = torch.tensor([c.sites for c in contexts]) + torch.tensor(shifts)[:, None]
        rows, seen = torch.full((len(sizes), wide), public.pad), torch.zeros(len(sizes), wide, dtype=torch.bool)
        for k, (context, size, start) in enumerate(zip(contexts, sizes, shifts, strict=True)):
            rows[k, start : start + size] = torch.tensor([0 if own is OPEN else own for own in context.row])
            seen[k, start : start + size] = True
        answers = torch.maximum(place - 1, torch.tensor(shifts)[:, None]) if family.shift else place
        own = torch.tensor([*public.alphabet.ids, public.mask or 0])
        labels = torch.tensor([-1 if c.label is None else c.label for c in contexts])
        device = next(public.net.parameters()).device
        self.tables = {
            name: tensor.to(device)
            for name, tensor in {
                "rows": rows, "seen": seen, "place": place, "answers": answers, "own": own, "labels": labels
            }.items()
        }  # fmt: skip
        self.padded, self.told = len(set(sizes)) > 1, any(c.label is not None for c in contexts)
        size = len(public.alphabet)
        self.config = FramedConfig(size, counts.pop(), family.masked, len(sizes), public.hidden)
        first = own[0]
        self.plain = bool(torch.equal(own[:size], torch.arange(size) + first))  # whether ids are a range
        self.first = int(first)

    def trunk(self, x: Tokens, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Features of the open sites [B, D, C]."""
        public, known = self.public, self.tables
        which = torch.zeros(len(x), dtype=torch.int64, device=x.device) if label is None else label
        ids = known["rows"][which].scatter(1, known["place"][which], known["own"][x])
        seen = known["seen"][which] if self.padded else None
        if seen is not None:
            seen = seen[:, None, None].expand(-1, 1, seen.shape[1], -1) if public.family.pairwise else seen.long()
        told = known["labels"][which] if self.told else None

        def ask() -> Tensor:
            return public.ask(ids, seen, public.told_noise(sigma), told)

        hidden = ask() if public.head is None else public.head.features(ask)
        sites = known["answers"][which]
        return hidden.gather(1, sites[..., None].expand(-1, -1, hidden.shape[-1]))

    def head(self, hidden: Tensor, sigma: Tensor) -> Tensor:
        """Logits of the drawable tokens, float32."""
        head = self.public.head
        logits = hidden if head is None else head.module(hidden[None])[0] if hidden.dim() == 2 else head.module(hidden)
        if self.plain:
            return logits[..., self.first : self.first + self.config.vocabulary].float()
        return logits.index_select(-1, self.tables["own"][:-1]).float()

    def log_score(self, process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        return score_of_posterior(process, logits, x, t)
