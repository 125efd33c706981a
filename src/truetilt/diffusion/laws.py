"""What a step may draw: a product over sites of "hold, or jump to a token of this row".

Draws invert a float64 CDF, so a token of probability zero is never drawn and one uniform serves a site. Particles that
share a row share its CDF: the cost of a draw is a binary search, not a pass over the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.cdf import invert_cdf, kept_below
from ..core.logits import Last, begin
from ..core.types import NEG_INF, InvalidWeights, SiteLogits, SiteOdds, Tokens, check, sites_where, take

_DRAWN = Last()  # which sites the last draw changed: the weights of that draw ask again


@dataclass(frozen=True)
class SiteLaw:
    """Independent sites: stay at x with probability exp(log_hold), else jump to v with exp(log_move + logits[v])."""

    x: Tokens
    odds: SiteOdds

    def sample(self, u: Tensor) -> Tokens:
        """One uniform a site [..., D] to the next state. Only the sites that leave pay for a jump."""
        hold = self.odds.log_hold.exp()
        leaving = sites_where(u >= hold, lambda: begin(self.odds.logits.store))
        held = hold[leaving]
        rest = (u[leaving] - held) / (1 - held)
        y = self.x.index_put(leaving, _jump(rest, self.x[leaving], self.odds.logits.among(leaving)))
        _DRAWN.keep((self.x, y), leaving)
        return y

    def log_prob(self, y: Tokens) -> Tensor:
        return self.site_log_prob(y).sum(-1)

    def site_log_prob(self, y: Tokens) -> Tensor:
        """[..., D]; a jump to a state outside the vocabulary (back to the mask) has probability zero."""
        x, y, log_move, index = torch.broadcast_tensors(self.x, y, self.odds.log_move, self.odds.logits.index)
        jumping = _DRAWN.found((self.x, y))  # all that a draw changed, if y is one
        if jumping is None:
            jumping = sites_where((y != x) & (y < self.odds.logits.vocabulary))
        read = SiteLogits(self.odds.logits.store, index).among(jumping)  # only what jumps is looked up
        log_jump = torch.full(y.shape, NEG_INF, dtype=torch.float64, device=y.device)
        log_jump = log_jump.index_put(jumping, log_move[jumping] + read.pick(y[jumping]))
        return torch.where(y == x, self.odds.log_hold, log_jump)

    def frozen(self) -> Tensor:
        """True where no site can change [...]."""
        return (self.odds.log_move == NEG_INF).all(-1)

    def take(self, ancestors: Tensor) -> SiteLaw:
        return SiteLaw(take(self.x, ancestors), self.odds.take(ancestors))


def _jump(u: Tensor, x: Tokens, logits: SiteLogits) -> Tokens:
    """Invert the CDF of each site [k] of these, with its current token's own mass cut out."""
    rows, size = logits.rows, logits.vocabulary
    flat = (rows - rows.amax(-1, keepdim=True).double()).exp_().cumsum(-1).reshape(-1)  # unnormalised
    start = logits.index * size
    here = x.clamp(max=size - 1)
    outside = x >= size  # a mask has no mass of its own in the row
    below = torch.where(outside | (here == 0), 0.0, flat[start + (here - 1).clamp(min=0)])
    above = torch.where(outside, 0.0, flat[start + here])
    total = flat[start + size - 1]
    check(
        total.isnan().any(),
        lambda: InvalidWeights(
            f"{int(total.isnan().sum())} of {len(total)} sites must jump by a row that is NaN or only -inf; check the "
            "networks' output there (overflow in half precision?)"
        ),
    )
    return invert_cdf(flat, start, size, skip_mass(u, below, above, total))


def skip_mass(u: Tensor, below: Tensor, above: Tensor, total: Tensor) -> Tensor:
    """Map u in [0, 1) to CDF heights in [0, below) or [above, total): everything but one token's mass."""
    free = below + (total - above)
    height = kept_below(u * free, free)
    lifted = above + (height - below)
    return torch.where(height < below, height, kept_below(torch.maximum(lifted, above), total))
