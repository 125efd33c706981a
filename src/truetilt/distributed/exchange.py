"""The exchange of particles between ranks: which rows are sent where, and how they are packed.

Every rank computes the plan by itself from all ancestors, so nothing is negotiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Exchange(NamedTuple):
    """What one rank sends and receives, and where it then finds the ancestor of each of its particles.

    A row is one particle, numbered over all populations.
    """

    leaving: list[Tensor]  # for each rank, the rows of this rank to send to it, int64
    arriving: list[int]  # how many rows are received from each rank
    row: Tensor  # int64 [populations, n]: index of the ancestor among own rows, then received rows in rank order

    @property
    def guests(self) -> int:
        return sum(self.arriving)


def plan(ancestors: Tensor, cuts: Sequence[int], rank: int) -> Exchange | None:
    """The exchange plan of a rank, from ancestors [populations, N] on the CPU; None where no particle changes rank.

    Rank r holds particles [cuts[r], cuts[r + 1]). A particle with several descendants on a rank is sent there once.
    """
    ancestors = ancestors.contiguous()
    populations, count = ancestors.shape
    inner = torch.tensor(cuts[1:-1], dtype=torch.int64)
    home = torch.bucketize(torch.arange(count), inner, right=True)
    origin = torch.bucketize(ancestors, inner, right=True)
    if torch.equal(origin, home.expand_as(origin)):
        return None
    first, here = cuts[rank], slice(cuts[rank], cuts[rank + 1])
    n, every = here.stop - here.start, populations * count
    of_population = torch.arange(populations)[:, None]
    number = ancestors + count * of_population  # number of each particle over all populations
    leaving = []
    for other in range(len(cuts) - 1):
        theirs = slice(cuts[other], cuts[other + 1])
        needed = number[:, theirs][(origin[:, theirs] == rank) & (other != rank)].unique()
        leaving.append(needed // count * n + needed % count - first)
    away = origin[:, here] != rank
    guests, place = (origin * every + number)[:, here][away].unique(return_inverse=True)  # by rank, then by number
    row = of_population * n + ancestors[:, here] - first
    row[away] = populations * n + place
    return Exchange(leaving, torch.bincount(guests // every, minlength=len(cuts) - 1).tolist(), row)


class Visits(NamedTuple):
    """Which rank draws each particle, for moves that are drawn on the ancestor's rank.

    A rank draws for its own particles, and for particles of other ranks whose ancestor it holds.
    """

    own: Tensor  # int64 [populations, n]: local ancestor of each own particle; 0 if it is on another rank
    others: Tensor  # int64 [populations, m]: local ancestors of particles on other ranks, padded with 0
    here: tuple[Tensor, ...]  # indices into `others` of the particles drawn for other ranks, in rank order
    away: tuple[Tensor, ...]  # own particles whose ancestor is on another rank, in the order of that rank
    asked: list[int]  # how many of `here` are for each rank
    needed: list[int]  # how many of `away` come from each rank

    def to(self, device: torch.device) -> Visits:
        tensors = (self.own.to(device), self.others.to(device))
        pairs = (tuple(part.to(device) for part in where) for where in (self.here, self.away))
        return Visits(*tensors, *pairs, self.asked, self.needed)


def visits(ancestors: Tensor, cuts: Sequence[int], rank: int) -> Visits:
    """The visits of a rank, from ancestors [populations, N] on the CPU.

    Sender and receiver list a visit in the same order.
    """
    ranks, first, mine = len(cuts) - 1, cuts[rank], slice(cuts[rank], cuts[rank + 1])
    inner = torch.tensor(cuts[1:-1], dtype=torch.int64)
    home = torch.bucketize(torch.arange(ancestors.shape[1]), inner, right=True).expand_as(ancestors)
    origin = torch.bucketize(ancestors.contiguous(), inner, right=True)
    ours = (origin == rank) & (home != rank)
    here, asked = _by_rank(ours, home, ranks)
    away, needed = _by_rank(origin[:, mine] != rank, origin[:, mine], ranks)
    place = (ours.cumsum(1) - 1)[here]
    others = torch.zeros(len(ancestors), max(1, int(ours.sum(1).max())), dtype=torch.int64)
    others[here[0], place] = ancestors[here] - first
    own = torch.where(origin[:, mine] == rank, ancestors[:, mine] - first, 0)
    return Visits(own, others, (here[0], place), away, asked, needed)


def _by_rank(chosen: Tensor, rank: Tensor, ranks: int) -> tuple[tuple[Tensor, ...], list[int]]:
    """Indices where `chosen` is true, sorted by rank (stable), and how many belong to each rank."""
    where = chosen.nonzero(as_tuple=True)
    of = rank[where]
    order = of.argsort(stable=True)
    return tuple(part[order] for part in where), torch.bincount(of, minlength=ranks).tolist()


Unpacker = Callable[[Tensor], list[Tensor]]


def packed(tensors: Sequence[Tensor]) -> tuple[Tensor, Unpacker]:
    """Tensors [populations, n, ...] as one row of bytes a particle [populations * n, bytes], and the inverse."""
    flat = [tensor.flatten(0, 1) for tensor in tensors]
    rows = [tensor.reshape(len(tensor), -1).contiguous().view(torch.uint8) for tensor in flat]

    def unpack(bytes_of: Tensor) -> list[Tensor]:
        parts = bytes_of.split([part.shape[1] for part in rows], 1)
        return [
            part.flatten().clone().view(tensor.dtype).reshape(len(bytes_of), *tensor.shape[1:])
            for part, tensor in zip(parts, flat, strict=True)
        ]

    return torch.cat(rows, 1), unpack
