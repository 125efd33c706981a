"""What a step may draw: a product over sites of "hold, or jump to a token of this row".

Draws invert a float64 CDF, so a token of probability zero is never drawn and one uniform serves a site. Particles that
share a row share its CDF: the cost of a draw is a binary search, not a pass over the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .types import NEG_INF, SiteOdds, Tokens, take


@dataclass(frozen=True)
class SiteLaw:
    """Independent sites: stay at x with probability exp(log_hold), else jump to v with exp(log_move + logits[v])."""

    x: Tokens
    odds: SiteOdds

    def sample(self, u: Tensor) -> Tokens:
        """One uniform a site [..., D] to the next state. Only the sites that leave pay for a jump."""
        hold = self.odds.log_hold.exp()
        leaving = (u >= hold).nonzero(as_tuple=True)
        rest = (u[leaving] - hold[leaving]) / (1 - hold[leaving])
        return self.x.index_put(leaving, self._jump(rest, self.x[leaving], self.odds.logits.index[leaving]))

    def log_prob(self, y: Tokens) -> Tensor:
        return self.site_log_prob(y).sum(-1)

    def site_log_prob(self, y: Tokens) -> Tensor:
        """[..., D]; a jump to a state outside the vocabulary (back to the mask) has probability zero."""
        inside = y < self.odds.logits.vocabulary
        jump = self.odds.log_move + self.odds.logits.pick(torch.where(inside, y, 0))
        return torch.where(y == self.x, self.odds.log_hold, torch.where(inside, jump, NEG_INF))

    def frozen(self) -> Tensor:
        """True where no site can change [...]."""
        return (self.odds.log_move == NEG_INF).all(-1)

    def take(self, ancestors: Tensor) -> SiteLaw:
        return SiteLaw(take(self.x, ancestors), self.odds.take(ancestors))

    def _jump(self, u: Tensor, x: Tokens, row: Tensor) -> Tokens:
        """Invert the rows' CDFs with each current token's own mass cut out; rows that no leaver reads are left out."""
        rows, size = self.odds.logits.rows, self.odds.logits.vocabulary
        if len(row) < len(rows):
            rows, row = rows[row], torch.arange(len(row), device=row.device)
        rows = rows.double()
        flat = (rows - rows.amax(-1, keepdim=True)).exp().cumsum(-1).reshape(-1)  # unnormalised
        start = row * size
        here = x.clamp(max=size - 1)
        outside = x >= size  # a mask has no mass of its own in the row
        below = torch.where(outside | (here == 0), 0.0, flat[start + (here - 1).clamp(min=0)])
        above = torch.where(outside, 0.0, flat[start + here])
        total = flat[start + size - 1]
        return invert_cdf(flat, start, size, skip_mass(u, below, above, total))


def skip_mass(u: Tensor, below: Tensor, above: Tensor, total: Tensor) -> Tensor:
    """Map u in [0, 1) to CDF heights in [0, below) or [above, total): everything but one token's mass."""
    free = below + (total - above)
    height = torch.minimum(u * free, torch.nextafter(free, torch.zeros_like(free)))
    lifted = above + (height - below)
    top = torch.nextafter(total, torch.zeros_like(total))
    return torch.where(height < below, height, torch.minimum(torch.maximum(lifted, above), top))


def invert_cdf(flat: Tensor, start: Tensor, size: int, height: Tensor) -> Tensor:
    """First v with CDF[v] > height, by bisection in the row that begins at `start`."""
    low, high = torch.zeros_like(start), torch.full_like(start, size - 1)
    for _ in range((size - 1).bit_length()):
        middle = (low + high) // 2
        beyond = flat[start + middle] > height
        high = torch.where(beyond, middle, high)
        low = torch.where(beyond, low, middle + 1)
    return high
