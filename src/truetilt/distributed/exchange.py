"""Who travels where: a plan that every rank works out alone from the ancestors of all, and the rows that it moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Plan(NamedTuple):
    """What one rank sends, what it gets, and where it then finds each ancestor. A row is a particle's, flat."""

    leaving: list[Tensor]  # for each rank, the rows here that it needs, int64
    arriving: list[int]  # from each rank, how many rows come
    row: Tensor  # int64 [populations, n]: among the rows here, then those that came in the order of ranks

    @property
    def guests(self) -> int:
        return sum(self.arriving)


def plan(ancestors: Tensor, cuts: Sequence[int], rank: int) -> Plan | None:
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
    return Plan(leaving, torch.bincount(guests // every, minlength=len(cuts) - 1).tolist(), row)


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
