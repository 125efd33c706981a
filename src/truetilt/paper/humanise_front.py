"""The front of what is published, how human against how much was kept, and where designs lie beside it, chain by chain.

A point of the front between two methods is their mixture. So designs of the same mean identity can be compared with it
antibody by antibody, and the mean difference has an interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from ..commands.job_runner import Answer
from ..smc.uncertainty import half_width

LEVEL = 0.95
PublishedPoints = Mapping[str, Mapping[str, Answer]]  # by method, then by chain: identity and oasis


class FrontPoint(NamedTuple):
    """A published method by its means."""

    identity: float
    oasis: float
    method: str = ""


class Mixture(NamedTuple):
    """A point on the front: so much of one method, the rest of another."""

    low: FrontPoint
    high: FrontPoint
    share: float  # of the second

    @property
    def oasis(self) -> float:
        return self.low.oasis + self.share * (self.high.oasis - self.low.oasis)


def means(found: PublishedPoints) -> list[FrontPoint]:
    """Each method's means over its chains."""
    named = [(method, list(each.values())) for method, each in found.items() if each]
    fmean = statistics.fmean
    return [FrontPoint(fmean(o["identity"] for o in one), fmean(o["oasis"] for o in one), m) for m, one in named]


def front_of(points: list[FrontPoint]) -> list[FrontPoint]:
    """Those that none of the others beats at both, by identity."""
    better = [[q for q in points if q[:2] != p[:2] and q[0] >= p[0] and q[1] >= p[1]] for p in points]
    return sorted(p for p, over in zip(points, better, strict=True) if not over)


def at_identity(front: list[FrontPoint], kept: float) -> Mixture | None:
    """The front at an identity; below its first point that point, None above its last."""
    for low, high in pairwise(front):
        if low.identity <= kept <= high.identity:
            wide = high.identity - low.identity
            return Mixture(low, high, (kept - low.identity) / wide if wide > 0 else 0.0)
    return Mixture(front[0], front[0], 0.0) if kept < front[0].identity else None


def beside_front(published: PublishedPoints, mine: Mapping[str, Answer]) -> Answer:
    """How far above the front designs of these chains lie: at their mean identity, and paired over antibodies.

    The pairs are those chains that both methods at that point of the front have; the others are left out of them.
    """
    same = {method: {name: one for name, one in found.items() if name in mine} for method, found in published.items()}
    kept, oasis = (statistics.fmean(one[name] for one in mine.values()) for name in ("identity", "oasis"))
    point = at_identity(front_of(means(same)), kept)
    if point is None:
        return {"above": None, "paired": None, "paired_half_width": None, "paired_median": None, "pairs": 0}
    low, high = same[point.low.method], same[point.high.method]
    each = [
        mine[name]["oasis"] - (1 - point.share) * low[name]["oasis"] - point.share * high[name]["oasis"]
        for name in mine
        if name in low and name in high
    ]
    return {
        "above": oasis - point.oasis,
        "paired": statistics.fmean(each) if each else None,
        "paired_half_width": half_width(each, LEVEL),
        "paired_median": statistics.median(each) if each else None,
        "pairs": len(each),
        "beside": [point.low.method, point.high.method],
    }
