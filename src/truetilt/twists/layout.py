"""The layout of a table twist: an entry for each token at each site, and for each pair of tokens at nearby sites."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.types import Tokens


class TableLayout(NamedTuple):
    """Positions of the entries: per-site tables, then pairs at distance 1 to `reach`, then a constant, then a 0."""

    length: int
    states: int  # vocabulary plus the mask, which is the last state
    reach: int

    @property
    def pairs(self) -> int:
        return sum(self.length - distance for distance in range(1, self.reach + 1))

    @property
    def size(self) -> int:
        """Number of entries, with the constant and the 0."""
        return self.length * self.states + self.pairs * self.states**2 + 2

    @property
    def masked(self) -> Tensor:
        """Which entries involve a mask, bool [size]."""
        one = torch.arange(self.states) == self.states - 1
        pair = one[:, None] | one
        parts = [one.repeat(self.length), pair.flatten().repeat(self.pairs), torch.tensor([False, False])]
        return torch.cat(parts)

    def within(self, reach: int) -> Tensor:
        """Which entries belong to a single site, to a pair at most `reach` apart, or are the constant: bool [size]."""
        every = torch.arange(self.size)
        return (every < self._start(min(reach, self.reach) + 1)) | (every == self.size - 2)

    def everywhere(self, x: Tokens) -> Tensor:
        """The entries whose sum is the value of a state [B, D]: int64 [B, E]."""
        sites = torch.arange(self.length, device=x.device)
        found = [sites * self.states + x]
        for distance in range(1, self.reach + 1):
            start = self._start(distance) + sites[: self.length - distance] * self.states**2
            found.append(start + x[:, :-distance] * self.states + x[:, distance:])
        return torch.cat([*found, torch.full_like(x[:, :1], self.size - 2)], -1)

    def around(self, x: Tokens, site: Tensor, tokens: Tokens) -> Tensor:
        """The entries that involve a site [B], for each of these tokens [B, K] at it: int64 [B, 1 + 2 reach, K]."""
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
