"""Autoregressive decoding with a cache: features of a prefix are reused by the states that continue it.

A residue's features depend only on the letters before it. So a run that reveals site by site computes one site per step
and reuses the earlier ones: the cost of a draw is that of one pass over the sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..core.types import Tokens
from .network import Decoder, ProteinMPNN

MOST_KEPT = 1 << 28  # cached numbers between two calls, at most: 1 GiB


class LayerCache(NamedTuple):
    """Precomputed parts of a decoder layer that do not depend on the state, for the open residues in decoding order."""

    given: Tensor  # [P, K, H]: first map of every message, without its residue and without open neighbours
    letters: Tensor  # [21, H]: contribution of a neighbour's letter
    own: Tensor  # [H, H]: map of the residue
    neighbour: Tensor  # [H, H]: map of the neighbour


class Beginnings(NamedTuple):
    """Distinct prefixes [n, turn], the messages of their residues to later ones, and the features of the next site."""

    letters: Tokens
    told: Tensor  # [n, layers, P before this turn, H]
    features: Tensor  # [n, layers, residues of this turn, H]
    votes: Tensor  # [n, residues of this turn, 21]


def distinct_rows(x: Tokens) -> tuple[Tokens, Tensor]:
    """The distinct rows of [B, k], which may have no columns, and the index of each row among them [B]."""
    if x.shape[1] == 0:
        return x[:1], torch.zeros(len(x), dtype=torch.int64, device=x.device)
    rows, which = x.unique(dim=0, return_inverse=True)
    return rows, which


@dataclass(frozen=True, eq=False)
class Decoding:
    """The decoder over the open residues; `seen` [P, K]: the open ones each sees (P: none); `turns`: their turns."""

    net: ProteinMPNN
    nodes: Tensor  # [P, H], in the order of decoding
    layers: list[LayerCache]
    seen: Tensor
    turns: Tensor
    batch: int
    _kept: list[Beginnings] = field(default_factory=list, init=False, repr=False)  # cache of the last call, if small

    def votes(self, begun: Tokens) -> Tensor:
        """Logits of the residues of the next site after prefixes [B, turn]: [B, residues, 21]."""
        rows, which = distinct_rows(begun)
        found = self._reached(rows)
        self._kept[:] = [found] if found.told.numel() + found.features.numel() <= MOST_KEPT else []
        return found.votes[which]

    def _reached(self, rows: Tokens) -> Beginnings:
        """These distinct prefixes, from cached shorter ones, or else computed from the first site on."""
        turn = rows.shape[1]
        kept = self._kept[0] if self._kept else None
        if kept is not None and kept.letters.shape == rows.shape and torch.equal(kept.letters, rows):
            return kept
        if turn == 0:
            hidden = self.nodes.shape[-1]
            return self._step(rows, self.nodes.new_zeros(1, len(self.layers), 0, hidden), 0)
        parents, which = distinct_rows(rows[:, :-1])
        before = self._found(kept, parents) if kept is not None else None
        before = self._reached(parents) if before is None else before
        return self._step(rows, self._told(before, which, rows[:, -1]), turn)

    def _found(self, kept: Beginnings, parents: Tokens) -> Beginnings | None:
        """The cached entries of these prefixes; None if any is missing."""
        if kept.letters.shape[1] != parents.shape[1]:
            return None
        if parents.shape[1] == 0:
            return kept
        every, number = torch.cat([kept.letters, parents]).unique(dim=0, return_inverse=True)
        place = torch.full((len(every),), -1, device=parents.device)
        place[number[: len(kept.letters)]] = torch.arange(len(kept.letters), device=parents.device)
        own = place[number[len(kept.letters) :]]
        return Beginnings(*(part[own] for part in kept)) if bool((own >= 0).all()) else None

    def _told(self, before: Beginnings, which: Tensor, letter: Tensor) -> Tensor:
        """The messages of the residues so far to later ones, once the last of them have their letter."""
        new = []
        for number, cache in enumerate(self.layers):
            features = before.features[:, number][which]
            parts = [linear(part, cache.neighbour)[:real] for part, real in self._padded(features)]
            new.append(cache.letters[letter][:, None] + torch.cat(parts))
        return torch.cat([before.told[which], torch.stack(new, 1)], 2)

    def _step(self, rows: Tokens, told: Tensor, turn: int) -> Beginnings:
        """Decode the residues of one turn."""
        here = (self.turns == turn).nonzero().squeeze(-1)
        count = told.shape[2]
        seen = torch.where(self.seen[here] < count, self.seen[here], count)
        features, votes = [], []
        for part, real in self._padded(torch.cat([told, torch.zeros_like(told[:, :, :1])], 2) if count else told):
            h = self.nodes[here].expand(len(part), -1, -1)
            each = []
            for number, (layer, cache) in enumerate(zip(self.net.decoder_layers, self.layers, strict=True)):
                each.append(h)
                message = cache.given[here] + linear(h, cache.own)[:, :, None]
                message = message + part[:, number][:, seen] if count else message
                h = cast("Decoder", layer)(h, message)
            features.append(torch.stack(each, 1)[:real])
            votes.append(self.net.W_out(h)[:real])
        return Beginnings(rows, told, torch.cat(features), torch.cat(votes))

    def _padded(self, values: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Parts of exactly `batch` rows, the last one padded, and the number of real rows: batching changes no bit."""
        for start in range(0, len(values), self.batch):
            part = values[start : start + self.batch]
            yield torch.cat([part, part[-1:].expand(self.batch - len(part), *part.shape[1:])]), len(part)
