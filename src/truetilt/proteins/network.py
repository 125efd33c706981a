"""The ProteinMPNN network (Dauparas et al., Science 2022): a graph of residues, an encoder, a decoder in an order.

Nodes are residues, edges go to the nearest neighbours. Modules have the names of the published weights, so that their
files load unchanged. Decoding in an order and its caches: `law`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, one_hot

FARTHEST_OFFSET = 32  # residues along the chain; larger offsets are clipped
SCALE = 30.0  # divisor of a sum of messages
NEAR, FAR = 2.0, 22.0  # Å: the range of the radial basis
_VIRTUAL = (-0.58273431, 0.56802827, -0.54067466)  # CB of ideal geometry, by (N->CA) x (CA->C), N->CA and CA->C
_PAIRS = (  # distances between these atoms of two residues (0..4: N, CA, C, O, CB) in the order of the weights
    *((1, 1), (0, 0), (2, 2), (3, 3), (4, 4), (1, 0), (1, 2), (1, 3), (1, 4), (0, 2), (0, 3), (0, 4)),
    *((4, 2), (4, 3), (3, 2), (0, 1), (2, 1), (3, 1), (4, 1), (2, 0), (3, 0), (4, 0), (2, 4), (3, 4), (2, 3)),
)


@dataclass(frozen=True)
class Sizes:
    """Sizes found from the shapes of the weights, and the number of neighbours, which the file states."""

    hidden: int
    positions: int  # features of an offset along the chain
    radial: int  # radial basis functions of a distance
    encoders: int
    decoders: int
    letters: int
    neighbours: int


class Graph(NamedTuple):
    """An encoded backbone: features of residues [L, H] and of edges [L, K, H], and the neighbour of each edge [L,
    K]."""

    nodes: Tensor
    edges: Tensor
    neighbours: Tensor


class _Dense(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.W_in, self.W_out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, h: Tensor) -> Tensor:
        return self.W_out(gelu(self.W_in(h)))


class _EncoderLayer(nn.Module):
    """A layer that updates residues by messages along their edges, and then the edges."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(hidden) for _ in range(3))
        self.W1, self.W11 = nn.Linear(3 * hidden, hidden), nn.Linear(3 * hidden, hidden)
        self.W2, self.W3, self.W12, self.W13 = (nn.Linear(hidden, hidden) for _ in range(4))
        self.dense = _Dense(hidden)

    def forward(self, graph: Graph) -> Graph:
        h, e, near = graph
        message = self.W3(gelu(self.W2(gelu(self.W1(_ends(h, e, near))))))
        h = self.norm1(h + message.sum(-2) / SCALE)
        h = self.norm2(h + self.dense(h))
        message = self.W13(gelu(self.W12(gelu(self.W11(_ends(h, e, near))))))
        return Graph(h, self.norm3(e + message), near)


def _ends(h: Tensor, e: Tensor, near: Tensor) -> Tensor:
    """Every edge with the features of both its ends [L, K, 3 H]."""
    return torch.cat([h[:, None].expand_as(e), e, h[near]], -1)


class Decoder(nn.Module):
    """A layer that updates a residue by messages from earlier ones, with their letters, and from the others without.

    The first map of a message is linear in its four parts (the residue, the edge, the neighbour's letter, the
    neighbour), so each part can be applied as soon as it is known: `parts`. The last map is applied to the sum of
    messages.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.W1 = nn.Linear(4 * hidden, hidden)
        self.W2, self.W3 = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.dense = _Dense(hidden)

    def parts(self) -> tuple[Tensor, ...]:
        """The columns of the first map for the residue, the edge, the neighbour's letter and the neighbour."""
        return self.W1.weight.chunk(4, dim=1)

    def forward(self, h: Tensor, before: Tensor) -> Tensor:
        """The residues h [..., H] after messages whose first map gave `before` [..., K, H]."""
        message = linear(gelu(self.W2(gelu(before))).sum(-2), self.W3.weight) + before.shape[-2] * self.W3.bias
        h = self.norm1(h + message / SCALE)
        return self.norm2(h + self.dense(h))


class _Positions(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * FARTHEST_OFFSET + 2, features)


class _Features(nn.Module):
    """Edges between nearest neighbours: distances of all pairs of backbone atoms, and the offset along the chain."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.radial, self.count = sizes.radial, sizes.neighbours
        self.embeddings = _Positions(sizes.positions)
        self.edge_embedding = nn.Linear(sizes.positions + len(_PAIRS) * sizes.radial, sizes.hidden, bias=False)
        self.norm_edges = nn.LayerNorm(sizes.hidden)

    def forward(self, backbone: Tensor, indices: Tensor, chains: Tensor) -> tuple[Tensor, Tensor]:
        atoms = with_virtual(backbone)
        apart = _distance(atoms[:, None, 1], atoms[None, :, 1])
        near = apart.topk(min(self.count, len(atoms)), largest=False).indices
        here, there = atoms[:, None].expand(-1, near.shape[1], -1, -1), atoms[near]
        radial = [self._basis(_distance(here[..., a, :], there[..., b, :])) for a, b in _PAIRS]
        offset = (indices[:, None] - indices[near] + FARTHEST_OFFSET).clamp(0, 2 * FARTHEST_OFFSET)
        offset = torch.where(chains[:, None] == chains[near], offset, 2 * FARTHEST_OFFSET + 1)
        placed = self.embeddings.linear(one_hot(offset, 2 * FARTHEST_OFFSET + 2).to(atoms.dtype))
        return self.norm_edges(self.edge_embedding(torch.cat([placed, *radial], -1))), near

    def _basis(self, distance: Tensor) -> Tensor:
        centres = torch.linspace(NEAR, FAR, self.radial, device=distance.device).to(distance.dtype)
        return torch.exp(-(((distance[..., None] - centres) / ((FAR - NEAR) / self.radial)) ** 2))


def with_virtual(backbone: Tensor) -> Tensor:
    """N, CA, C, O and a CB at its ideal position [L, 5, 3]."""
    n, ca, c = backbone[:, 0], backbone[:, 1], backbone[:, 2]
    one, two = ca - n, c - ca
    across, first, second = _VIRTUAL
    cb = across * torch.linalg.cross(one, two) + first * one + second * two + ca
    return torch.cat([backbone, cb[:, None]], 1)


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return ((a - b) ** 2).sum(-1).add(1e-6).sqrt()


class ProteinMPNN(nn.Module):
    """The network; `encode` makes a graph of a backbone, `law.OrderedLaw` decodes it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, hidden = sizes, sizes.hidden
        self.features = _Features(sizes)
        self.W_e, self.W_s = nn.Linear(hidden, hidden), nn.Embedding(sizes.letters, hidden)
        self.encoder_layers = nn.ModuleList([_EncoderLayer(hidden) for _ in range(sizes.encoders)])
        self.decoder_layers = nn.ModuleList([Decoder(hidden) for _ in range(sizes.decoders)])
        self.W_out = nn.Linear(hidden, sizes.letters)

    @torch.no_grad()
    def encode(self, backbone: Tensor, indices: Tensor, chains: Tensor) -> Graph:
        """The graph of a backbone [L, 4, 3] whose residues have these positions along these chains, int64 [L]."""
        edges, near = self.features(backbone, indices, chains)
        edges = self.W_e(edges)
        graph = Graph(torch.zeros_like(edges[:, 0]), edges, near)
        for layer in self.encoder_layers:
            graph = layer(graph)
        return graph
