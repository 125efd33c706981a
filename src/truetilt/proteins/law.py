"""p(x | order) of the open residues: a product of conditionals, each given the fixed residues and those decoded before.

A residue sees earlier ones (in the order) with their letters and decoder features, and later ones with encoder features
only. The order is therefore part of the law. Fixed residues come first: their features do not depend on the state and
are computed once, so that a pass computes open residues only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..core.arguments import set_fields, whole_number
from ..core.errors import InvalidInput
from ..core.fasta import AMINO_ACIDS
from ..core.types import NEG_INF, Tokens
from .decoding import Decoding, LayerCache
from .network import Decoder, Graph, ProteinMPNN
from .open_sites import OpenSites
from .structure import UNKNOWN, Structure

LETTERS = AMINO_ACIDS + UNKNOWN
MOST_STATES = 1_000_000  # states of a table, at most


@dataclass(frozen=True, eq=False)
class OrderedLaw:
    """The law of the letters of the open sites of a structure, decoded in a chosen order.

    Args:
        net: The network.
        structure: Its backbone, and the letters of residues that are fixed.
        choice: Which residues are open, tied, and when each is decoded.
        batch: States per pass; smaller batches are padded to it, so that batching changes no bit.
        reverse: Whether the open sites are decoded from the last to the first: another law, for comparison.
    """

    net: ProteinMPNN
    structure: Structure
    choice: OpenSites
    batch: int = 16
    reverse: bool = False
    _graph: Graph | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        set_fields(self, batch=whole_number("batch", self.batch, 1))

    def __len__(self) -> int:
        return len(self.choice)

    @property
    def device(self) -> torch.device:
        return self.net.W_out.weight.device

    @property
    def order(self) -> tuple[int, ...]:
        """The sites in the order of decoding."""
        return self.choice.order[::-1] if self.reverse else self.choice.order

    @cached_property
    def turns(self) -> Tensor:
        """The turn at which each site is decoded, int64 [D]."""
        return torch.tensor(self.order, device=self.device).argsort()

    @cached_property
    def allowed(self) -> Tensor:
        """Which letters each site may have, bool [D, 20]."""
        return torch.tensor(self.choice.allowed, device=self.device)

    @cached_property
    def graph(self) -> Graph:
        if self._graph is not None:
            return self._graph
        backbone = self.structure.backbone.to(self.device, self.net.W_out.weight.dtype)
        return self.net.encode(
            backbone, *(p.to(self.device) for p in (self.structure.indices, self.structure.chain_numbers))
        )

    @cached_property
    def reversed(self) -> OrderedLaw:
        """The law with the open sites decoded from the last to the first."""
        return OrderedLaw(self.net, self.structure, self.choice, self.batch, not self.reverse, self.graph)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        """All open residues in decoding order, and the turn at which each is decoded, int64 [P]."""
        pairs = [(p, turn) for turn, site in enumerate(self.order) for p in self.choice.sites[site]]
        places, turns = torch.tensor(pairs, device=self.device).unbind(-1)
        return places, turns

    @cached_property
    def _layers(self) -> list[LayerCache]:
        """Decode the fixed residues once, and cache what open ones need of them."""
        return _cached(self.net, self.graph, self._ranks, self._fixed_letters, self._places[0])

    @cached_property
    def _ranks(self) -> Tensor:
        choice = OpenSites(self.choice.sites, self.order, self.choice.allowed)
        return choice.ranks(len(self.structure.residues)).to(self.device)

    @cached_property
    def _fixed_letters(self) -> Tensor:
        return torch.tensor([LETTERS.index(letter) for letter in self.structure.letters], device=self.device)

    @cached_property
    def _seen(self) -> Tensor:
        """The decoding position of the neighbour at each edge of an open residue; P if it is fixed [P, K]."""
        places, turns = self._places
        number = torch.full((len(self.structure.residues),), len(places), device=self.device)
        number[places] = torch.arange(len(places), device=self.device)
        who = number[self.graph.neighbours[places]]
        turn_of = torch.cat([turns, turns.new_tensor([len(self.order)])])
        return torch.where(turn_of[who] < turns[:, None], who, len(places))

    @torch.no_grad()
    def logits(self, x: Tokens, first: int, last: int) -> Tensor:
        """Logits of the sites decoded at turns first to last - 1, for states in decoding order [B, D].

        Letters from turn last - 1 on are not read. Letters that a site may not have are -inf; tied residues average
        their logits. Float64 [B, last - first, 20].
        """
        return torch.cat([self._logits(part.x, first, last)[: part.real] for part in self._padded(x, last)])

    def _padded(self, x: Tokens, last: int) -> Iterator[_PaddedBatch]:
        for start in range(0, len(x), self.batch):
            part = x[start : start + self.batch, :last]
            yield _PaddedBatch(torch.cat([part, part[-1:].expand(self.batch - len(part), -1)]), len(part))

    def _logits(self, x: Tokens, first: int, last: int) -> Tensor:
        places, turns = self._places
        count = int((turns < last).sum())
        tokens = torch.zeros(len(x), count, dtype=torch.int64, device=self.device)
        before = turns[:count] < last - 1
        tokens[:, before] = x[:, turns[:count][before]]
        seen, h = self._seen[:count], self.graph.nodes[places[:count]].expand(len(tokens), -1, -1)
        seen = torch.where(seen < count, seen, count)
        for layer, cache in zip(self.net.decoder_layers, self._layers, strict=True):
            open_part = cache.letters[tokens] + linear(h, cache.neighbour)
            open_part = torch.cat([open_part, torch.zeros_like(open_part[:, :1])], 1)[:, seen]
            message = cache.given[:count] + open_part + linear(h, cache.own)[:, :, None]
            h = cast("Decoder", layer)(h, message)
        chosen = turns[:count] >= first
        votes = self.net.W_out(h[:, chosen])[..., : len(AMINO_ACIDS)].double()
        sites = turns[:count][chosen] - first
        total = votes.new_zeros(len(tokens), last - first, votes.shape[-1]).index_add(1, sites, votes)
        total /= torch.bincount(sites, minlength=last - first)[:, None]
        return total.masked_fill(~self.allowed[list(self.order[first:last])], NEG_INF)

    def log_prob(self, x: Tokens) -> Tensor:
        """log p(x | order) of finished states [B, D] in one pass, float64 [B]."""
        self._check(x)
        ordered = x.to(self.device)[:, list(self.order)]
        log_p = self.logits(ordered, 0, len(self)).log_softmax(-1)
        return log_p.gather(-1, ordered[..., None]).squeeze(-1).sum(-1).to(x.device)

    def conditional(self, x: Tokens, turn: int) -> Tensor:
        """log p(letter | sites decoded before) of the site decoded at this turn, float64 [B, 20]; x is [B, D]."""
        return self.after(x.to(self.device)[:, list(self.order[:turn])])

    @torch.no_grad()
    def after(self, begun: Tokens) -> Tensor:
        """log p(letter | the sites decoded so far) of the next site, for prefixes [B, turn]; float64 [B, 20].

        Only the next site is computed; earlier ones come from the cache of the last call.
        """
        votes = self._decoding.votes(begun).double()[..., : len(AMINO_ACIDS)].mean(1)
        return votes.masked_fill(~self.allowed[self.order[begun.shape[1]]], NEG_INF).log_softmax(-1)

    @cached_property
    def _decoding(self) -> Decoding:
        return Decoding(
            self.net, self.graph.nodes[self._places[0]], self._layers, self._seen, self._places[1], self.batch
        )

    def table(self) -> Tensor:
        """p(x | order) of every state, float64 [20] * D: one conditional for each prefix."""
        size, length = len(AMINO_ACIDS), len(self)
        if size**length > MOST_STATES:
            raise InvalidInput(f"{length} sites have {size}^{length} states, too many for a table; open 4 or fewer")
        log_p, states = torch.zeros(1, dtype=torch.float64), torch.zeros(1, length, dtype=torch.int64)
        letters = torch.arange(size)
        for turn in range(length):
            log_p = (log_p[:, None] + self.conditional(states, turn).cpu()).reshape(-1)
            states = states.repeat_interleave(size, 0)
            states[:, self.order[turn]] = letters.repeat(len(states) // size)
        inverse = [int(turn) for turn in self.turns]
        return log_p.exp().reshape([size] * length).permute(inverse).contiguous()

    def _check(self, x: object) -> None:
        if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != len(self) or x.is_floating_point():
            raise InvalidInput(
                f"states are {tuple(getattr(x, 'shape', ()))}; give finished tokens, int64 [B, {len(self)}]"
            )
        if x.numel() and not 0 <= int(x.min()) <= int(x.max()) < len(AMINO_ACIDS):
            raise InvalidInput("states hold masks or tokens that are no amino acid; give finished sequences, 0 to 19")


class _PaddedBatch(NamedTuple):
    """The states of one pass, of which the first `real` are not padding."""

    x: Tensor
    real: int


@torch.no_grad()
def _cached(net: ProteinMPNN, graph: Graph, ranks: Tensor, letters: Tensor, places: Tensor) -> list[LayerCache]:
    """Run the decoder at the fixed residues, and return for each layer what open residues [P] will need."""
    nodes, edges, near = graph
    is_open = torch.zeros(len(nodes), dtype=torch.bool, device=nodes.device)
    is_open[places] = True
    fixed, h = (~is_open).nonzero().squeeze(-1), nodes.clone()
    visible, from_open = (ranks[near] < ranks[:, None])[..., None], is_open[near][..., None]
    out = []
    for layer in net.decoder_layers:
        own, edge, letter, neighbour = cast("Decoder", layer).parts()
        spelled = linear(net.W_s.weight, letter)
        told = (spelled[letters] + linear(h, neighbour))[near]
        given = torch.where(from_open, 0.0, told)
        given = torch.where(visible, given, linear(nodes, neighbour)[near])
        given = given + linear(edges, edge, cast("Decoder", layer).W1.bias)
        out.append(LayerCache(given[places], spelled, own, neighbour))
        if len(fixed):
            h = h.index_copy(0, fixed, layer(h[fixed], given[fixed] + linear(h[fixed], own)[:, None]))
    return out
