"""Who travels where: a plan that every rank works out alone from the ancestors of all, and the rows that it moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Exchange(NamedTuple):
    """What one rank sends, what it gets, and where it then finds each ancestor. A row is a particle's, flat."""

    leaving: list[Tensor]  # for each rank, the rows here that it needs, int64
    arriving: list[int]  # from each rank, how many rows come
    row: Tensor  # int64 [populations, n]: among the rows here, then those that came in the order of ranks

    @property
    def guests(self) -> int:
        return sum(self.arriving)


def plan(ancestors: Tensor, cuts: Sequence[int], rank: int) -> Exchange | None:
    """The plan of a rank, from ancestors [populations, N] on the CPU; None where nobody travels between any two.

    Particles [cuts[r], cuts[r + 1]) live on rank r. One needed by several descendants travels once to each rank.
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
    number = ancestors + count * of_population  # of a particle among those of all populations
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
    """Who is drawn where: particles here by ancestors here, and others, who live elsewhere, for their ranks."""

    own: Tensor  # int64 [populations, n]: ancestors of the particles here, numbered here; 0 for those away
    others: Tensor  # int64 [populations, m]: ancestors here of particles elsewhere, filled up with 0
    here: tuple[Tensor, ...]  # where in `others` they stand, in the order of their ranks
    away: tuple[Tensor, ...]  # which particles here have their ancestor elsewhere, in the order of its rank
    asked: list[int]  # by each rank, how many of `here`
    needed: list[int]  # of each rank, how many of `away`

    def to(self, device: torch.device) -> Visits:
        tensors = (self.own.to(device), self.others.to(device))
        pairs = (tuple(part.to(device) for part in where) for where in (self.here, self.away))
        return Visits(*tensors, *pairs, self.asked, self.needed)


def visits(ancestors: Tensor, cuts: Sequence[int], rank: int) -> Visits:
    """The visits of a rank, from ancestors [populations, N] on the CPU; both sides of a visit list it alike."""
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
    """Where it is true, sorted by rank and then as they stand, and how many of each rank."""
    where = chosen.nonzero(as_tuple=True)
    of = rank[where]
    order = of.argsort(stable=True)
    return tuple(part[order] for part in where), torch.bincount(of, minlength=ranks).tolist()


Unpack = Callable[[Tensor], list[Tensor]]


def packed(tensors: Sequence[Tensor]) -> tuple[Tensor, Unpack]:
    """Tensors [populations, n, ...] as one row of bytes a particle [populations * n, bytes], and the way back."""
    flat = [tensor.flatten(0, 1) for tensor in tensors]
    rows = [tensor.reshape(len(tensor), -1).contiguous().view(torch.uint8) for tensor in flat]

    def unpack(bytes_of: Tensor) -> list[Tensor]:
        parts = bytes_of.split([part.shape[1] for part in rows], 1)
        return [
            part.flatten().clone().view(tensor.dtype).reshape(len(bytes_of), *tensor.shape[1:])
            for part, tensor in zip(parts, flat, strict=True)
        ]

    return torch.cat(rows, 1), unpack
