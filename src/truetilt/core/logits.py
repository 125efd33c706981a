"""Log-values over the vocabulary at every site, stored once for each distinct row; and draws from rows.

Rows may be lazy, computed when they are read: then a vocabulary head runs only at the sites that are revealed, and code
that combines, normalises or draws from rows is the same for both kinds. A draw inverts a CDF, a row of cumulated masses
that need not end at 1; tokens and particles are drawn and picked by mass here alone. A uniform times the total is a
height in the row, kept below the total, so that rounding never reaches past the last entry and no token of mass 0 is
drawn.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import NamedTuple, cast

import torch
from torch import Tensor

from .arguments import shown, tensor_of
from .errors import InvalidInput

_ROWS = "give log-values of every token at every site, a tensor [..., D, S]"
MakeRows = Callable[[Tensor], Tensor]  # numbers of rows, int64 [k], to those rows [k, S]


def nothing() -> None:
    """Do nothing: the default of work that lazy rows may have to begin."""


@dataclass(frozen=True)
class LazyRows:
    """Rows [R, S] that `make` computes when they are read; the rows read last are cached, as they are often read again.

    `begin` starts the work that all rows share (a network's trunk) before it is known which of them will be read.
    """

    shape: tuple[int, int]
    make: MakeRows
    begin: Callable[[], object] = nothing
    kept: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False, repr=False, compare=False)
    _law: list[weakref.ref[LazyRows]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: Tensor) -> Tensor:
        """The rows of these numbers, int64 [k], as a tensor of rows would give them."""
        if not self.kept or not _alike(self.kept[0][0], numbers):
            self.kept[:] = [(numbers, self.make(numbers))]
        return self.kept[0][1]

    def normalised(self) -> LazyRows:
        """Each row normalised (log-softmax); one cached object serves all callers, as long as one of them holds it."""
        found = self._law[0]() if self._law else None
        if found is None:
            found = LazyRows(self.shape, self._normalised_rows, self.begin)
            self._law[:] = [weakref.ref(found)]
        return found

    def _normalised_rows(self, numbers: Tensor) -> Tensor:
        return self[numbers].log_softmax(-1)


Rows = Tensor | LazyRows


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether entries are equal; for one and the same tensor without reading it, which would synchronise a device."""
    return one is other or torch.equal(one, other)


class Sites:
    """Sites chosen in a step, and a cache of the rows they read in each index, for all logits that share that index.

    `where` is what `nonzero(as_tuple=True)` gives, sites in one line [k]; or one int64 tensor [..., k] that names k
    sites of each particle.
    """

    def __init__(self, where: Tensor | tuple[Tensor, ...]) -> None:
        self.where = where
        self._rows: list[tuple[Tensor, RowsRead]] = []  # (index, its rows); a step has one or two indices

    def rows(self, index: Tensor) -> RowsRead:
        """The rows that these sites read in an index [..., D]."""
        for known, rows in self._rows:
            if known is index:
                return rows
        chosen = index.gather(-1, self.where) if isinstance(self.where, Tensor) else index[self.where]
        own = torch.arange(chosen.numel(), device=chosen.device).reshape(chosen.shape)
        self._rows.append((index, RowsRead(chosen, chosen.reshape(-1), own)))
        return self._rows[-1][1]


class RowsRead(NamedTuple):
    """Which rows chosen sites read."""

    index: Tensor  # the number of each site's row
    numbers: Tensor  # the same in one line
    own: Tensor  # the index of these sites in a store that holds just their rows


def mapped(rows: Rows, change: Callable[[Tensor], Tensor]) -> Rows:
    """Each row changed by a function of rows; lazy rows are changed when they are computed."""
    return change(rows) if isinstance(rows, Tensor) else joined(change, (rows, None))


def joined(combine: Callable[..., Tensor], *parts: tuple[Rows, Tensor | None]) -> LazyRows:
    """Row n made of a row of each part: the one of number index[n], or n itself where there is no index."""

    def make(numbers: Tensor) -> Tensor:
        return combine(*(rows[numbers if index is None else index[numbers]] for rows, index in parts))

    rows, index = parts[0]
    size = (len(rows) if index is None else len(index), rows.shape[1])
    return LazyRows(size, make, partial(begin, *(rows for rows, _ in parts)))


def begin(*parts: Rows) -> None:
    """Start on what lazy rows need, whichever of them are read."""
    for rows in parts:
        if not isinstance(rows, Tensor):
            rows.begin()


def stacked(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, one after another; lazy if any is."""
    if all(isinstance(rows, Tensor) for rows in parts):
        return torch.cat([cast("Tensor", rows) for rows in parts])
    ends = list(accumulate(len(rows) for rows in parts))

    def make(numbers: Tensor) -> Tensor:
        part = torch.bucketize(numbers, torch.tensor(ends, device=numbers.device), right=True)
        where = [(part == k).nonzero().squeeze(-1) for k in range(len(parts))]
        made = [rows[numbers[w] - end + len(rows)] for rows, w, end in zip(parts, where, ends, strict=True)]
        return torch.cat(made)[torch.cat(where).argsort()]

    return LazyRows((ends[-1], parts[0].shape[1]), make, partial(begin, *parts))


@dataclass(frozen=True)
class SiteLogits:
    """Per-site log-values over the vocabulary, stored as distinct rows and an index: ``value[d] = rows[index[d]]``.

    A network makes one row per site (`SiteLogits.of`); a table makes one row per line and thousands of particles
    share it. Everything that acts on a row acts once. Rows may be lazy: then they are made where they are read, all of
    them by `rows`, `pick` and `dense`, chosen ones by `at` and `among`.

    Args:
        store: The distinct rows [R, S], a tensor or rows that are computed when read.
        index: The number of each site's row, int64 [..., D].
    """

    store: Rows  # [R, S]
    index: Tensor  # int64 [..., D]

    def __post_init__(self) -> None:
        whole = isinstance(self.index, Tensor) and self.index.dtype == torch.int64
        rows = isinstance(self.store, Tensor) and not self.store.is_sparse
        if (
            not whole
            or not self.index.dim()
            or not (rows or isinstance(self.store, LazyRows))
            or len(self.store.shape) != 2
        ):
            raise InvalidInput(
                f"rows are {shown(self.store)} and the index {shown(self.index)}; give rows [R, S] and an int64 index "
                "[..., D], or make them by tt.SiteLogits.of"
            )

    @staticmethod
    def of(values: Tensor) -> SiteLogits:
        """Dense values [..., D, S], one row a site; at least float32."""
        if not isinstance(values, Tensor) or values.is_complex() or values.dim() < 2 or values.is_sparse:
            values = tensor_of("values", values, _ROWS)
            if values.dim() < 2:
                raise InvalidInput(f"values have shape {tuple(values.shape)}; {_ROWS}")
        values = values if values.dtype == torch.float64 else values.float()
        index = torch.arange(values[..., 0].numel(), device=values.device).reshape(values.shape[:-1])
        return SiteLogits(values.reshape(-1, values.shape[-1]), index)

    @staticmethod
    def cat(parts: Sequence[SiteLogits]) -> SiteLogits:
        """Parts over the first axis of their sites."""
        starts = accumulate((len(part.store) for part in parts), initial=0)
        index = torch.cat([part.index + start for part, start in zip(parts, starts, strict=False)])
        return SiteLogits(stacked([part.store for part in parts]), index)

    @property
    def rows(self) -> Tensor:
        """Every row [R, S]."""
        store = self.store
        return store if isinstance(store, Tensor) else store[torch.arange(len(store), device=self.index.device)]

    @property
    def vocabulary(self) -> int:
        return self.store.shape[-1]

    def at(self, sites: Tensor | Sites) -> SiteLogits:
        """Only these sites, int64 [..., k]; rows that no site reads are dropped when that makes the store smaller."""
        return self.among(sites)

    def among(self, sites: Tensor | tuple[Tensor, ...] | Sites) -> SiteLogits:
        """Only these sites, in one line [k] if they are named as `nonzero(as_tuple=True)` names them."""
        read = (sites if isinstance(sites, Sites) else Sites(sites)).rows(self.index)
        if isinstance(self.store, Tensor) and read.index.numel() >= len(self.store):
            return SiteLogits(self.store, read.index)
        return SiteLogits(self.store[read.numbers], read.own)

    def with_rows(self, rows: Tensor) -> SiteLogits:
        return SiteLogits(rows, self.index)

    def map(self, change: Callable[[Tensor], Tensor]) -> SiteLogits:
        """Each row changed by a function of rows alone [R, S] -> [R, S]."""
        return SiteLogits(mapped(self.store, change), self.index)

    def normalised(self) -> SiteLogits:
        """Each row as a law: its exponentials sum to 1."""
        store = self.store
        return SiteLogits(store.log_softmax(-1) if isinstance(store, Tensor) else store.normalised(), self.index)

    def join(self, other: SiteLogits, combine: Callable[[Tensor, Tensor], Tensor]) -> SiteLogits:
        """Rows made of this one's and another's, site by site."""
        if isinstance(self.store, Tensor) and isinstance(other.store, Tensor):
            mine, theirs = self.aligned(other)
            return mine.with_rows(combine(mine.rows, theirs.rows))
        if self._shares(other):
            return SiteLogits(joined(combine, (self.store, None), (other.store, None)), self.index)
        own = torch.arange(self.index.numel(), device=self.index.device).reshape(self.index.shape)
        parts = ((part.store, part.index.reshape(-1)) for part in (self, other))
        return SiteLogits(joined(combine, *parts), own)

    def flaws(self) -> Tensor:
        """NaN at sites whose normalised row is NaN, else 0, float64 [..., D]; lazy rows are looked at when drawn."""
        if not isinstance(self.store, Tensor):
            return torch.zeros(self.index.shape, dtype=torch.float64, device=self.index.device)
        return self.per_site(torch.where(self.store[:, 0].isnan(), torch.nan, 0.0))

    def per_site(self, per_row: Tensor) -> Tensor:
        """Spread one value a row [R] to the sites [..., D], in float64."""
        return per_row.double()[self.index]

    def pick(self, v: Tensor) -> Tensor:
        """The value at token v of each site, float64 [..., D]; v must be in the vocabulary."""
        return self.rows[self.index, v].double()

    def dense(self) -> Tensor:
        """All values [..., D, S]."""
        return self.rows[self.index]

    def aligned(self, *others: SiteLogits) -> list[SiteLogits]:
        """These logits over one index, so that their rows combine: as they are where they share it, else dense."""
        every = [self, *others]
        return every if all(map(self._shares, others)) else [SiteLogits.of(o.dense()) for o in every]

    def _shares(self, other: SiteLogits) -> bool:
        return other.store.shape == self.store.shape and _alike(other.index, self.index)

    def take(self, ancestors: Tensor) -> SiteLogits:
        return SiteLogits(self.store, take(self.index, ancestors))


def over_sites(shape: tuple[int, ...], logits: Sequence[SiteLogits]) -> list[SiteLogits]:
    """The same logits for sites of another shape, such as [..., D] of a batch [B, D]; a shared index stays shared."""
    indices = {id(each.index): each.index.reshape(shape) for each in logits}
    return [SiteLogits(each.store, indices[id(each.index)]) for each in logits]


def normalised_at(sites: Tensor, logits: Sequence[SiteLogits]) -> list[SiteLogits]:
    """Each of these at chosen sites, int64 [..., k], as laws (rows sum to 1), over one index."""
    chosen = Sites(sites)
    first, *rest = [each.at(chosen).normalised() for each in logits]
    return first.aligned(*rest)


def batch_of(x: Tensor) -> Tensor:
    """States [..., D] as one batch [B, D], the shape that users' functions are called with."""
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def take(tensor: Tensor, ancestors: Tensor) -> Tensor:
    """Gather along the particle axis, the last axis of `ancestors` [..., M]; trailing axes follow."""
    axis = ancestors.dim() - 1
    extra = tensor.dim() - ancestors.dim()
    index = ancestors.reshape(ancestors.shape + (1,) * extra)
    return torch.gather(tensor, axis, index.expand(ancestors.shape + tensor.shape[axis + 1 :]))


def kept_below(height: Tensor, total: Tensor) -> Tensor:
    """The height, or the next number below the total where rounding took it there."""
    return torch.minimum(height, torch.nextafter(total, torch.zeros_like(total)))


def draw_from(cdf: Tensor, u: Tensor) -> Tensor:
    """Indices drawn by inverting CDFs: the first entry whose cumulated mass exceeds u times the total, int64 as u.

    Entries without mass are never drawn, and a CDF need not end at 1.

    Args:
        cdf: Cumulated masses: a row [n] for uniforms of any shape, or rows [..., n] for k uniforms each.
        u: Uniforms in [0, 1): of any shape for one row, [..., k] for rows [..., n].
    """
    total = cdf[-1] if cdf.dim() == 1 else cdf[..., -1:]
    height = kept_below(u * total, total).contiguous()
    return torch.searchsorted(cdf, height, right=True).clamp(max=cdf.shape[-1] - 1)


def pick_at(cdf: Tensor, height: Tensor) -> Tensor:
    """The first entry of a row [..., n] whose cumulated mass reaches a height [..., k], or the last entry.

    For heights that are given, not drawn. An entry of mass 0 is not picked at a height above 0 and within the total.
    """
    return torch.searchsorted(cdf, height).clamp(max=cdf.shape[-1] - 1)


def draw_by_row(cdf: Tensor, row: Tensor, u: Tensor) -> Tensor:
    """`draw_from` for many draws [...], each from its own row of [R, n]; draws that share a row share its CDF."""
    size = cdf.shape[-1]
    total = cdf[:, -1][row]
    return invert_cdf(cdf.reshape(-1), row * size, size, kept_below(u * total, total))


def invert_cdf(flat: Tensor, start: Tensor, size: int, height: Tensor) -> Tensor:
    """First v with CDF[v] > height, or the last, by halving steps in the row that begins at `start`."""
    below, end = start - 1, start + (size - 2)  # the last place known not to exceed the height; where none may follow
    for bit in reversed(range((size - 1).bit_length())):
        probe = torch.minimum(below + (1 << bit), end)
        below = torch.where(flat[probe] > height, below, probe)
    return below + 1 - start
