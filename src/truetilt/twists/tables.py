"""Twists made of tables: a number for each token at each site, and for each pair of tokens at sites near each other.

The mask is one more token, so a masked site, and a token beside a masked site, have entries of their own. Entries of
clean tokens are fitted to rewards. Entries with a mask are fitted to the sampler's own log-weights: at a step that is
log sum_v p(v|x) exp(h(x, v) - h(x)), which vanishes for the ideal h (Gauss-Newton, as in controlled SMC, Heng et al.
2020). No further network evaluation is needed: the draws have recorded p(v|x).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core.arguments import number, set_fields, whole_number
from ..core.errors import InvalidInput
from ..core.types import Tokens
from .fits import fit_clean, fit_masked
from .layout import TableLayout
from .lessons import Lessons

_SITES = 0.03  # ridge of the per-site tables when there are pairs, at most: pairs are shrunk first
_PRIOR = 1e-12  # ridge of the constant


@dataclass(frozen=True, eq=False)
class TableTwist:
    """A sum of table entries: the value of a state, clean or masked, in nats."""

    layout: TableLayout
    entries: Tensor  # float64 [size]; the last is 0

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Its parameters by name."""
        return {"entries": self.entries}

    @staticmethod
    def of(layout: TableLayout, tensors: Mapping[str, Tensor]) -> TableTwist:
        """A twist with these parameters, their shape checked."""
        if {*tensors} != {"entries"} or tensors["entries"].shape != (layout.size,):
            raise ValueError("its tensors have other names or shapes")
        return TableTwist(layout, tensors["entries"])

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.entries[self.layout.everywhere(x)].sum(-1)

    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor:
        """The value of x [B, D] with a site [B] set to every token, [B, S]."""
        tokens = torch.arange(self.layout.states - 1, device=x.device).expand(len(x), -1)
        with_each = self.entries[self.layout.around(x, site, tokens)].sum(1)
        without = self.entries[self.layout.around(x, site, x.gather(1, site[:, None]))].sum(1)
        return self(x, t)[:, None] - without + with_each

    def to(self, device: torch.device | str) -> TableTwist:
        return TableTwist(self.layout, self.entries.to(device))


@dataclass(frozen=True)
class Flat:
    """The family of constants: every state has the mean value of the draws."""

    name: str = field(default="constant", init=False)

    def size(self, length: int, vocabulary: int) -> int:
        """Number of parameters."""
        return length * (vocabulary + 1)

    def fit(self, lessons: Lessons) -> TableTwist:
        layout = TableLayout(lessons.x.shape[1], lessons.mask + 1, 0)
        entries = torch.zeros(layout.size, dtype=torch.float64)
        entries[-2] = lessons.value.mean()
        return TableTwist(layout, entries)


@dataclass(frozen=True)
class PairTables:
    """The family of tables: an entry for each token at each site, and for each pair of tokens at sites that are near.

    Pairs with a mask are learned from recorded network outputs, which cost no calls of the reward.

    Args:
        reach: How far apart the sites of a pair may be: 0 is linear, 1 adds pairs of neighbours, D - 1 all pairs.
        ridge: Ridge penalty, above 0, which shrinks the pair entries that few draws support, and the per-site entries a
            little; 1e-3 by default.
        clean_reach: The reach among clean tokens, which costs calls of the reward, 0 to `reach`. None (the default):
            `reach`.
        depth: For rewards with a long low tail, 0 or more: a value more than `depth` nats below the target's lowest
            twentieth has no error as long as the twist lies between it and that level. None (the default): every value
            is fitted.
    """

    reach: int
    ridge: float = 1e-3
    clean_reach: int | None = None
    depth: float | None = None

    def __post_init__(self) -> None:
        set_fields(self, reach=whole_number("reach", self.reach, 0))
        ridge = number("ridge", self.ridge)
        if not 0 < ridge < torch.inf:
            raise InvalidInput(f"ridge is {ridge}; it must be above 0 and finite")
        set_fields(self, ridge=ridge)
        if self.clean_reach is not None:
            set_fields(self, clean_reach=whole_number("clean_reach", self.clean_reach, 0, self.reach))
        if self.depth is not None:
            set_fields(self, depth=number("depth", self.depth))
            if not 0 <= self.depth < torch.inf:
                raise InvalidInput(f"depth is {self.depth}; it must be at least 0 and finite")

    @property
    def name(self) -> str:
        clean = self.reach if self.clean_reach is None else self.clean_reach
        words = _words(clean) if clean == self.reach else f"{_words(clean)}, masks by {_words(self.reach)}"
        words = words if self.ridge <= 1e-3 else f"{words}, ridge {self.ridge:g}"
        return words if self.depth is None else f"{words}, {self.depth:g} nats deep"

    def layout(self, length: int, mask: int) -> TableLayout:
        return TableLayout(length, mask + 1, min(self.reach, length - 1))

    def size(self, length: int, vocabulary: int) -> int:
        """Number of parameters."""
        return self.layout(length, vocabulary).size

    def fit(self, lessons: Lessons) -> TableTwist:
        """Fit clean entries to the rewards, then entries with a mask to the log-weights of the draws' own steps."""
        layout = self.layout(lessons.x.shape[1], lessons.mask)
        ridge = torch.full((layout.size,), self.ridge, dtype=torch.float64)
        if self.reach > 0:
            ridge[layout.within(0)] = min(self.ridge, _SITES)
        ridge[-2] = _PRIOR
        near = layout.within(self.reach if self.clean_reach is None else self.clean_reach)
        free = near & ~layout.masked
        low = -torch.inf if self.depth is None else lessons.low - self.depth
        clean = fit_clean(layout, lessons, ridge, free, low)
        return TableTwist(layout, fit_masked(layout, lessons, clean, ridge))


def _words(reach: int) -> str:
    return {0: "linear", 1: "neighbours"}.get(reach, f"pairs up to {reach} apart")
