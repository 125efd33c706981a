"""A twist for rewards of QED or logP: the value of a partly masked molecule, by the network's potential.

The potential predicts the bin in which the property of the finished molecule will lie. So for every reward f of the
property

    h(x, t) = (1 / strength) log E[exp(strength f(property)) | x_t] = (1 / strength) log sum_b p_t(b | x) m_b

with m_b the mean of exp(strength f) over the bin. It is a twist: the target does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.arguments import number
from ..core.errors import InvalidInput
from ..core.types import Tokens
from ..models.net_score import Padded, class_log_probs
from .rewards import PropertyScore, Together

_POINTS = 33  # points of a bin at which a reward is evaluated
_LEAST = -60.0  # smallest log m_b, so that the twist is finite
CANDIDATES = 8  # likeliest pieces of a site that the potential is asked about: more cost a pass each


def bin_values(edges: Sequence[float], means: Sequence[float], score: PropertyScore, strength: float) -> Tensor:
    """log of the mean of exp(strength f) over each bin, float64 [bins]; for the outer bins, f at their mean."""
    found = []
    for number_of, mean in enumerate(means):
        inner = 0 < number_of < len(means) - 1
        low, high = (edges[number_of - 1], edges[number_of]) if inner else (mean, mean)
        at = [low + (high - low) * (k + 0.5) / _POINTS for k in range(_POINTS if inner else 1)]
        logs = torch.tensor([strength * score.of_value(value) for value in at], dtype=torch.float64)
        found.append(logs.logsumexp(0) - math.log(len(at)))
    return torch.stack(found)


@dataclass(frozen=True, eq=False)
class PropertyTwist:
    """(1 / strength) log E[exp(strength f(property)) | x_t] of partly masked rows [B, D], float64 [B]."""

    net: Any
    values: Tensor  # log m_b of each bin
    first: int  # index of the first bin among the potential's classes
    strength: float
    batch: int = 64
    dtype: torch.dtype | None = None

    candidates: ClassVar[int] = CANDIDATES
    told: ClassVar[str] = "the potential of QED and logP"

    def __call__(self, x: Tokens, t: float) -> Tensor:
        log_p = class_log_probs(Padded(self.net, self.batch, self.dtype), x, t)
        mine = log_p[..., self.first : self.first + len(self.values)]
        found = (mine + self.values.to(x.device)).logsumexp(-1)
        return found.clamp(min=_LEAST) / self.strength


@dataclass(frozen=True, eq=False)
class SumOfTwists:
    """The sum of several twists, each for its part of a reward."""

    parts: tuple[Any, ...]

    candidates: ClassVar[int] = CANDIDATES
    told: ClassVar[str] = PropertyTwist.told

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return sum((part(x, t) for part in self.parts[1:]), self.parts[0](x, t))


@dataclass(frozen=True, eq=False)
class EndedExactly:
    """A twist that is exact for rows that have ended: their value is the reward (nothing after an end is read)."""

    twist: Any
    reward: Any
    end: int
    mask: int

    candidates: ClassVar[int] = CANDIDATES
    told: ClassVar[str] = PropertyTwist.told

    def __call__(self, x: Tokens, t: float) -> Tensor:
        before = ((x == self.mask).cumsum(-1) == 0) & (x == self.end)  # an end token before the first mask
        ended = before.any(-1)
        if not bool(ended.any()):
            return self.twist(x, t)
        found = torch.empty(len(x), dtype=torch.float64, device=x.device)
        if not bool(ended.all()):
            found[~ended] = self.twist(x[~ended], t).to(found)
        behind = (x == self.end).cumsum(-1) > 0
        found[ended] = self.reward(torch.where(behind, self.end, x)[ended]).to(found)
        return found


@dataclass(frozen=True)
class PropertyBins:
    """The bins of each property (edges and means), from a potential's card, in the order of its classes."""

    bins: Mapping[str, Mapping[str, Sequence[float]]]

    def __post_init__(self) -> None:
        for name, found in self.bins.items():
            edges, means = (list(map(float, found.get(key, ()))) for key in ("edges", "means"))
            if not edges or len(means) != len(edges) + 1 or sorted(edges) != edges:
                raise InvalidInput(f"the bins of {name} have {len(edges)} edges and {len(means)} means; train it again")

    def first(self, name: str) -> int:
        """The index of a property's first bin among the classes."""
        if name not in self.bins:
            raise InvalidInput(f"the potential knows {', '.join(self.bins) or 'no property'}, not {name}")
        names = list(self.bins)
        return sum(len(self.bins[one]["means"]) for one in names[: names.index(name)])

    def twist(self, net: Any, score: Any, strength: float, batch: int, dtype: torch.dtype | None) -> Any:
        """The twist for this reward; None if no part of it is a property that the potential predicts."""
        strength = number("strength", strength, "give a number")
        parts = score.parts if isinstance(score, Together) else ((score, 1.0),)
        found = []
        for one, factor in parts:
            if isinstance(one, PropertyScore) and one.name in self.bins and factor * strength != 0:
                edges, means = self.bins[one.name]["edges"], self.bins[one.name]["means"]
                values = bin_values(edges, means, one, factor * strength)
                found.append(PropertyTwist(net, values, self.first(one.name), strength, batch, dtype))
        return None if not found else found[0] if len(found) == 1 else SumOfTwists(tuple(found))
