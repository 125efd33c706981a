"""Scans: which revealed site a move redraws next, and every site that one may name, for exact answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..core.arguments import function, shown
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog, check

Scan = Callable[
    [Tensor, int, Tensor], Tensor
]  # (revealed [..., D], moves before this one, u [..., 1]) -> site [..., 1]


def random_scan(revealed: Tensor, number: int, u: Tensor) -> Tensor:
    """A revealed site chosen uniformly.

    Args:
        revealed: Whether each site is revealed, bool [..., D].
        number: How many moves were made before this one; not used.
        u: A uniform for each state, [..., 1].
    """
    count = revealed.sum(-1, keepdim=True)
    return _kth(revealed, (u * count).long().clamp(max=(count - 1).clamp(min=0)))


def systematic_scan(revealed: Tensor, number: int, u: Tensor) -> Tensor:
    """Revealed sites one after the other, from the first to the last and again.

    Args:
        revealed: Whether each site is revealed, bool [..., D].
        number: How many moves were made before this one, from 0.
        u: A uniform for each state, [..., 1]; not used.
    """
    return _kth(revealed, number % revealed.sum(-1, keepdim=True).clamp(min=1))


def backward_scan(revealed: Tensor, number: int, u: Tensor) -> Tensor:
    """Revealed sites from the last to the first and again: the newest first, where sites come from left to right.

    Args:
        revealed: Whether each site is revealed, bool [..., D].
        number: How many moves were made before this one, from 0.
        u: A uniform for each state, [..., 1]; not used.
    """
    count = revealed.sum(-1, keepdim=True).clamp(min=1)
    return _kth(revealed, count - 1 - number % count)


def _kth(revealed: Tensor, k: Tensor) -> Tensor:
    """The site of the k-th revealed one [..., 1]."""
    return (revealed.cumsum(-1) > k).long().argmax(-1, keepdim=True)


def check_scan(scan: object) -> None:
    """Raise unless the scan is a function (revealed, number, u)."""
    function("scan", scan, "(revealed, number, u)", "such as tt.random_scan or tt.systematic_scan")


def scanned(scan: Scan, seen: Tensor, number: int, u: Tensor, log: RunLog | None = None) -> Tensor:
    """The site that a scan returns, one for each state, checked."""
    site = scan(seen, number, u)
    if not isinstance(site, Tensor) or site.dtype != torch.int64 or site.shape != u.shape:
        raise InvalidInput(f"the scan returned {shown(site)}; it must return one site a state, int64 {tuple(u.shape)}")
    outside = f"the scan named a site outside 0 to {seen.shape[-1] - 1}"
    check(((site < 0) | (site >= seen.shape[-1])).any(), partial(InvalidInput, outside), log)
    return site.clamp(0, seen.shape[-1] - 1)  # a pending check has not raised yet


def sites_of(scan: Scan, seen: Tensor, number: int) -> list[tuple[Tensor, Tensor]]:
    """Every site that a scan may name with its log-probability, for exact answers on few sites.

    A scan reads its uniform as random_scan does, in equal parts for the revealed sites, or not at all.
    """
    ways = math.lcm(*range(1, seen.shape[-1] + 1))
    none = torch.zeros(seen.shape[:-1], dtype=torch.float64, device=seen.device)
    found = [scanned(scan, seen, number, (none + (k + 0.5) / ways)[..., None]) for k in range(ways)]
    if all(torch.equal(site, found[0]) for site in found):
        return [(none, found[0])]
    return [(none - math.log(ways), site) for site in found]
