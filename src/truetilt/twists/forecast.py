"""A forecast of what a learned twist would achieve, from draws of the base with their rewards: no network evaluation,
no call."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.types import Tokens
from .fits import fit_clean
from .layout import TableLayout
from .learned_twist import effective_share, tempered
from .lessons import Lessons, Mutants, Steps, softened

_LINEAR, _PAIRS = 0.1, 1.0  # ridge penalties of the linear fit and of the pair fits
_LINEAR_ENTRIES, _NEIGHBOURS, _ALL_PAIRS = 1 << 23, 1 << 19, 4000  # most entries for each kind of table
_DEPTH = 2.0  # `PairTables.depth` of the fits, in nats


def promised_share(x: Tokens, value: Tensor, vocabulary: int) -> float | None:
    """Forecast of a twist's effective share of particles, by cross-validation; None if every table would be too large.

    x [n, D] are draws of the base and value [n] their rewards in nats. The fitted value is a sum over sites, over sites
    and neighbouring pairs, or over all pairs, as far as their tables are small enough; the largest share counts.
    """
    x, value = x.cpu(), softened(value.cpu().double())
    none = torch.zeros(0, dtype=torch.int64)
    mutants, steps = Mutants(none, none, none, none.double()), Steps(x[:0], none, x[:0], value[:0, None], none)
    draws = torch.ones(len(x), dtype=torch.bool)
    lessons = Lessons(x, value, mutants, steps, vocabulary, value, draws)
    reaches = sorted({0, min(1, x.shape[1] - 1), x.shape[1] - 1})
    layouts = [TableLayout(x.shape[1], vocabulary + 1, reach) for reach in reaches]
    tables = [layout for layout in layouts if layout.size <= _most(layout.reach)]
    return max((_share(lessons, layout, _PAIRS if layout.reach else _LINEAR) for layout in tables), default=None)


def _most(reach: int) -> int:
    return (_LINEAR_ENTRIES, _NEIGHBOURS)[reach] if reach < 2 else _ALL_PAIRS


def _share(lessons: Lessons, layout: TableLayout, ridge: float) -> float:
    """The cross-validated effective share of tables of this layout."""
    every = torch.full((layout.size,), ridge, dtype=torch.float64)
    left, weight = [], []
    for fit, held in lessons.parts():
        entries = fit_clean(layout, fit, every, ~layout.masked, fit.low - _DEPTH)
        left.append(held.value - entries[layout.everywhere(held.x)].sum(-1))
        weight.append(held.log_weight)
    return effective_share(torch.cat(left), tempered(torch.cat(weight)))
