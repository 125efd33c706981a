"""Twists made of tables: a number for each token at each site, and for each pair of tokens at sites near each other.

The mask is one more token, so a masked site, and a token beside a masked site, have values of their own. The entries of
clean tokens are fitted to rewards. Those that name a mask are fitted to what the sampler itself would weigh: its
log-weight at a step is log sum_v p(v|x) exp(h(x, v) - h(x)), which vanishes where h is ideal (Gauss-Newton; the idea is
that of controlled SMC, Heng et al. 2020). No further network is asked: the draws have asked it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.types import InvalidInput, Tokens, number, settle, whole
from .least_squares import Equations, solve, times
from .lessons import Lessons, Steps

_ENTRIES = 1 << 20  # numbers of a block of equations; more steps than that are thinned out
_ROUNDS, _HALVINGS, _ENOUGH = 8, 5, 1e-3
_EXACT, _ROUGH = (300, 1e-10), (60, 1e-4)  # steps of a linear solve, and how near it comes
_PRIOR = 1e-12  # ridge of the constant


class TableLayout(NamedTuple):
    """Where each entry stands: tables of sites, then of pairs at distance 1 to `reach`, then a constant, then a 0."""

    length: int
    states: int  # tokens and the mask, which is the last
    reach: int

    @property
    def pairs(self) -> int:
        return sum(self.length - distance for distance in range(1, self.reach + 1))

    @property
    def size(self) -> int:
        """How many entries there are, with the constant and the 0."""
        return self.length * self.states + self.pairs * self.states**2 + 2

    @property
    def masked(self) -> Tensor:
        """Which entries name a mask, bool [size]."""
        one = torch.arange(self.states) == self.states - 1
        pair = one[:, None] | one
        parts = [one.repeat(self.length), pair.flatten().repeat(self.pairs), torch.tensor([False, False])]
        return torch.cat(parts)

    def within(self, reach: int) -> Tensor:
        """Which entries are of a site, of a pair so near, or the constant, bool [size]."""
        every = torch.arange(self.size)
        return (every < self._start(min(reach, self.reach) + 1)) | (every == self.size - 2)

    def everywhere(self, x: Tokens) -> Tensor:
        """The entries that a state [B, D] is the sum of, int64 [B, E]."""
        sites = torch.arange(self.length, device=x.device)
        found = [sites * self.states + x]
        for distance in range(1, self.reach + 1):
            start = self._start(distance) + sites[: self.length - distance] * self.states**2
            found.append(start + x[:, :-distance] * self.states + x[:, distance:])
        return torch.cat([*found, torch.full_like(x[:, :1], self.size - 2)], -1)

    def around(self, x: Tokens, site: Tensor, tokens: Tokens) -> Tensor:
        """The entries that name a site [B] when it holds each of these tokens [B, K]: int64 [B, 1 + 2 reach, K]."""
        states, none = self.states, self.size - 1
        found = [(site * states)[:, None] + tokens]
        for distance in range(1, self.reach + 1):
            start, before, after = self._start(distance), (site - distance)[:, None], (site + distance)[:, None]
            earlier, later = x.gather(1, before.clamp(min=0)), x.gather(1, after.clamp(max=self.length - 1))
            on_left = start + before * states**2 + earlier * states + tokens
            on_right = start + site[:, None] * states**2 + tokens * states + later
            found += [torch.where(before >= 0, on_left, none), torch.where(after < self.length, on_right, none)]
        return torch.stack(found, 1)

    def _start(self, distance: int) -> int:
        before = sum(self.length - nearer for nearer in range(1, distance))
        return self.length * self.states + before * self.states**2


@dataclass(frozen=True, eq=False)
class TableTwist:
    """A sum of table entries: the value of a state, clean or masked, in nats."""

    layout: TableLayout
    entries: Tensor  # float64 [size]; the last is 0

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Its numbers by name."""
        return {"entries": self.entries}

    @staticmethod
    def of(layout: TableLayout, tensors: Mapping[str, Tensor]) -> TableTwist:
        """A twist of these numbers, with their shape checked."""
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
    """The family of no knowledge: every state is worth the mean of the draws."""

    name: str = field(default="constant", init=False)

    def size(self, length: int, vocabulary: int) -> int:
        """How many numbers a twist has."""
        return length * (vocabulary + 1)

    def fit(self, lessons: Lessons) -> TableTwist:
        layout = TableLayout(lessons.x.shape[1], lessons.mask + 1, 0)
        entries = torch.zeros(layout.size, dtype=torch.float64)
        entries[-2] = lessons.value.mean()
        return TableTwist(layout, entries)


@dataclass(frozen=True)
class PairTables:
    """The family of tables: `reach` 0 is linear, 1 adds pairs of neighbours, D - 1 all pairs.

    `ridge` keeps entries that few draws show near 0. `clean_reach` is the reach among clean tokens, where rewards teach
    and calls are needed; None: the same. Pairs with a mask are learned from the network's answers, which cost no calls.
    """

    reach: int
    ridge: float = 1e-3
    clean_reach: int | None = None

    def __post_init__(self) -> None:
        settle(self, reach=whole("reach", self.reach, 0))
        ridge = number("ridge", self.ridge)
        if not 0 < ridge < torch.inf:
            raise InvalidInput(f"ridge is {ridge}; it must be above 0 and finite")
        settle(self, ridge=ridge)
        if self.clean_reach is not None:
            settle(self, clean_reach=whole("clean_reach", self.clean_reach, 0, self.reach))

    @property
    def name(self) -> str:
        clean = self.reach if self.clean_reach is None else self.clean_reach
        words = _words(clean) if clean == self.reach else f"{_words(clean)}, masks by {_words(self.reach)}"
        return words if self.ridge <= 1e-3 else f"{words}, ridge {self.ridge:g}"

    def layout(self, length: int, mask: int) -> TableLayout:
        return TableLayout(length, mask + 1, min(self.reach, length - 1))

    def size(self, length: int, vocabulary: int) -> int:
        """How many numbers a twist has."""
        return self.layout(length, vocabulary).size

    def fit(self, lessons: Lessons) -> TableTwist:
        """Clean entries to the rewards, then entries with a mask to the weights of the draws' own steps."""
        layout = self.layout(lessons.x.shape[1], lessons.mask)
        ridge = torch.full((layout.size,), self.ridge, dtype=torch.float64)
        ridge[-2] = _PRIOR
        near = layout.within(self.reach if self.clean_reach is None else self.clean_reach)
        clean = _fit_clean(layout, lessons, ridge, near & ~layout.masked)
        return TableTwist(layout, _fit_masked(layout, lessons, clean, ridge))


def _words(reach: int) -> str:
    return {0: "linear", 1: "neighbours"}.get(reach, f"pairs up to {reach} apart")


def _fit_clean(layout: TableLayout, lessons: Lessons, ridge: Tensor, free: Tensor) -> Tensor:
    """Entries of clean tokens: the values of draws, and what changing one token of a draw changed."""
    every = layout.everywhere(lessons.x)
    blocks = [Equations(every, torch.ones(every.shape, dtype=torch.float64), lessons.value)]
    mutants = lessons.mutants
    if len(mutants.draw):
        x = lessons.x[mutants.draw]
        old = x.gather(1, mutants.site[:, None])
        index = torch.cat([layout.around(x, mutants.site, v).squeeze(-1) for v in (mutants.token[:, None], old)], -1)
        factor = torch.ones(index.shape, dtype=torch.float64)
        factor[:, index.shape[1] // 2 :] = -1
        blocks.append(Equations(index, factor, mutants.value - lessons.value[mutants.draw]))
    return solve(blocks, ridge, free.double(), *_EXACT)


def _fit_masked(layout: TableLayout, lessons: Lessons, entries: Tensor, ridge: Tensor) -> Tensor:
    """Entries that name a mask, by Gauss-Newton on the log-weights of steps; they begin at the mean over tokens."""
    steps = _thinned(lessons.steps, layout)
    index, log_p = _step_index(layout, steps), steps.log_p
    free = layout.masked.double()
    sites = torch.arange(layout.length) * layout.states
    entries = entries.clone()
    entries[sites + layout.states - 1] = entries[sites + lessons.x].mean(0)
    weight, share = _log_weights(entries, index, log_p)
    for _ in range(_ROUNDS):
        factor = torch.cat([share, -torch.ones_like(share[:, :1])], -1)
        factor = factor[:, None].expand(index.shape).flatten(1)
        rows = Equations(index.flatten(1), factor, times(index.flatten(1), factor, entries * free) - weight)
        change = torch.where(layout.masked, solve([rows], ridge, free, *_ROUGH) - entries, 0.0)
        before, stride = float((weight**2).mean()), 1.0
        for _ in range(_HALVINGS):
            trial = entries + stride * change
            weight, share = _log_weights(trial, index, log_p)
            if float((weight**2).mean()) < before:
                break
            stride /= 2
        else:
            return entries
        entries = trial
        if float((weight**2).mean()) > (1 - _ENOUGH) * before:
            break
    return entries


def _thinned(steps: Steps, layout: TableLayout) -> Steps:
    """Every k-th step, so that the equations stay small."""
    width = (1 + 2 * layout.reach) * (steps.tokens.shape[1] + 1)
    every = -(-len(steps.x) * width // _ENTRIES) or 1
    return Steps(*(column[::every] for column in steps))


def _step_index(layout: TableLayout, steps: Steps) -> Tensor:
    """Entries around the site of each step with each of its tokens, and last with the mask: [R, 1 + 2 reach, K + 1]."""
    mask = torch.full_like(steps.site, layout.states - 1)[:, None]
    return layout.around(steps.x, steps.site, torch.cat([steps.tokens, mask], -1))


def _log_weights(entries: Tensor, index: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """The sampler's log-weight at each step [R], and the share of each token in it [R, K]."""
    value = entries[index].sum(1)
    logits = log_p + value[:, :-1] - value[:, -1:]
    return logits.logsumexp(-1), logits.softmax(-1)
