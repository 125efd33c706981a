"""One reverse step t -> s, as a law with exact log-probabilities: a product over sites of "hold, or jump to a token".

The three kernels freeze the network at t and integrate what the schedule says in closed form. None clamps: a site holds
with probability exp(-integrated rate), so the support of the base is kept under any guidance. A masking step into s = 0
has infinite clock and leaves no mask. Draws invert a float64 CDF, so a token of probability zero is never drawn and one
uniform serves a site. Particles that share a row share its CDF: a draw costs a binary search, not a pass over the
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor

from ..core.errors import InvalidWeights
from ..core.evaluation import PendingCheck, RunLog, check, sites_where
from ..core.logits import SiteLogits, Sites, begin, invert_cdf, kept_below, take
from ..core.types import NEG_INF, Jumps, Process, SiteOdds, SitewiseLaw, Tokens


@dataclass(frozen=True)
class SiteLaw:
    """Independent sites: stay at x with probability $exp(log_hold)$, else jump to v with $exp(log_move+logits[v])$."""

    x: Tokens
    odds: SiteOdds
    pending: PendingCheck | None = field(default=None, repr=False, compare=False)  # the move that draws from it checks
    log: RunLog | None = field(default=None, repr=False, compare=False)  # of the step that draws from it

    def sample(self, u: Tensor) -> Tokens:
        """One uniform a site [..., D] to the next state. Only the sites that leave pay for a jump."""
        hold = self.odds.log_hold.exp()
        leaving = sites_where(u >= hold, self.log, partial(begin, self.odds.logits.store))
        held = hold[leaving]
        rest = (u[leaving] - held) / (1 - held)
        sites = Sites(leaving)
        jumped = _jump(rest, self.x[leaving], self.odds.logits.among(sites), self.log)
        y = self.x.index_put(leaving, jumped)
        if self.log is not None:
            self.log.drew(y, sites)
        return y

    def changed(self, y: Tokens) -> Sites:
        """The sites where y differs from x by a token; no device is asked if this step's law has just drawn y."""
        drawn = None if self.log is None else self.log.sites_drawn(y)
        if drawn is not None:
            return drawn
        return Sites(sites_where((y != self.x) & (y < self.odds.logits.vocabulary), self.log))

    def log_prob(self, y: Tokens, changed: Sites | None = None) -> Tensor:
        """log-probability of y [...]; `changed` is what a law from the same x says has changed."""
        return self.site_log_prob(y, changed).sum(-1)

    def site_log_prob(self, y: Tokens, changed: Sites | None = None) -> Tensor:
        """[..., D]; a jump to a state outside the vocabulary (back to the mask) has probability zero."""
        x, z, log_move, index = torch.broadcast_tensors(self.x, y, self.odds.log_move, self.odds.logits.index)
        sites = self.changed(y) if changed is None else changed
        jumping = cast("tuple[Tensor, ...]", sites.where)
        read = SiteLogits(self.odds.logits.store, index).among(sites)  # only what jumps is looked up
        log_jump = torch.full(z.shape, NEG_INF, dtype=torch.float64, device=z.device)
        log_jump = log_jump.index_put(jumping, log_move[jumping] + read.pick(z[jumping]))
        return torch.where(z == x, self.odds.log_hold, log_jump)

    def frozen(self) -> Tensor:
        """True where no site can change [...]."""
        return (self.odds.log_move == NEG_INF).all(-1)

    def take(self, ancestors: Tensor) -> SiteLaw:
        return SiteLaw(take(self.x, ancestors), self.odds.take(ancestors), self.pending, self.log)


def _jump(u: Tensor, x: Tokens, logits: SiteLogits, log: RunLog | None) -> Tokens:
    """Invert the CDF of each site [k] of these, with its current token's own mass cut out."""
    rows = cast("Tensor", logits.store)
    size = rows.shape[-1]
    flat = (rows - rows.amax(-1, keepdim=True).double()).exp_().cumsum(-1).reshape(-1)  # unnormalised
    start = logits.index * size
    here = x.clamp(max=size - 1)
    outside = x >= size  # a mask has no mass of its own in the row
    below = torch.where(outside | (here == 0), 0.0, flat[start + (here - 1).clamp(min=0)])
    above = torch.where(outside, 0.0, flat[start + here])
    total = flat[start + size - 1]
    token = invert_cdf(flat, start, size, skip_mass(u, below, above, total))
    check(total.isnan().any(), partial(_nan_rows, total), log)
    return token


def _nan_rows(total: Tensor) -> InvalidWeights:
    return InvalidWeights(
        f"{int(total.isnan().sum())} of {len(total)} sites must jump by a row that is NaN or only -inf; check the "
        "networks' output there (overflow in half precision?)"
    )


def skip_mass(u: Tensor, below: Tensor, above: Tensor, total: Tensor) -> Tensor:
    """Map u in [0, 1) to CDF heights in [0, below) or [above, total): everything but one token's mass."""
    free = below + (total - above)
    height = kept_below(u * free, free)
    lifted = above + (height - below)
    return torch.where(height < below, height, kept_below(torch.maximum(lifted, above), total))


class Kernel(Protocol):
    """One reverse step $t -> s$ of the states x [..., D] under a score: the law of what comes next, never a draw."""

    def __call__(self, process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SitewiseLaw: ...


def euler(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """Hold with $exp(-integrated exit rate)$, else jump in proportion to the rates (the paper's Eq. 7, unclamped).

    Args:
        process: The noising process, `tt.Masking(S)` or `tt.Uniform(S)`.
        log_score: What a score answered about x at time t.
        x: States, int64 [..., D].
        t: Time at the start of the step, up to 1 (noise).
        s: Time at its end, below t; 0 is data.
    """
    j = process.jumps(log_score, x, t, s)
    rate = (j.log_clock + j.log_total).exp()
    return _site_law(x, j, -rate, log1mexp(rate))


def tau_leaping(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """Poisson jumps to every token at once; a site changes when exactly one arrives (Campbell et al. 2022).

    Args:
        process: The noising process, `tt.Masking(S)` or `tt.Uniform(S)`.
        log_score: What a score answered about x at time t.
        x: States, int64 [..., D].
        t: Time at the start of the step, up to 1 (noise).
        s: Time at its end, below t; 0 is data.
    """
    j = process.jumps(log_score, x, t, s)
    rate = (j.log_clock + j.log_total).exp()
    log_one = torch.where(rate.isinf(), 0.0, j.log_clock + j.log_total - rate)  # a site that must leave, leaves
    return _site_law(x, j, log1mexp(-log_one), log_one)


def tweedie(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """The exact law of each site at s given the whole state at t (SEDD's analytic step).

    Args:
        process: The noising process, `tt.Masking(S)` or `tt.Uniform(S)`.
        log_score: What a score answered about x at time t.
        x: States, int64 [..., D].
        t: Time at the start of the step, up to 1 (noise).
        s: Time at its end, below t; 0 is data.
    """
    return SiteLaw(x, process.bridge(log_score, x, t, s))


def _site_law(x: Tokens, j: Jumps, log_stay: Tensor, log_leave: Tensor) -> SiteLaw:
    """Stay or leave; a leaver picks its token in proportion to the rates."""
    log_hold = torch.where(j.movable, log_stay, 0.0)
    log_move = torch.where(j.movable, log_leave + j.log_reference - j.log_total, NEG_INF)
    return SiteLaw(x, SiteOdds(j.logits, log_hold, log_move))


def log1mexp(a: Tensor) -> Tensor:
    """log(1 - exp(-a)) for a >= 0."""
    return (-torch.expm1(-a)).log()
