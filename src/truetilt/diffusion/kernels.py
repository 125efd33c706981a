"""One reverse step t -> s, as a law with exact log-probabilities.

All three freeze the network at t and integrate what the schedule says in closed form. None clamps: a site holds with
probability exp(-integrated rate), so the support of the base is kept under any guidance. A masking step into s = 0
has infinite clock and leaves no mask.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ..core.types import NEG_INF, Jumps, Process, SiteLogits, SiteOdds, SitewiseLaw, Tokens
from .laws import SiteLaw
from .processes import log1mexp


class Kernel(Protocol):
    """One reverse step t -> s of the states x [..., D] under a score: the law of what comes next, never a draw."""

    def __call__(self, process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SitewiseLaw: ...


def euler(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """Hold with exp(-integrated exit rate), else jump in proportion to the rates (the paper's Eq. 7, unclamped)."""
    j = process.jumps(log_score, x, t, s)
    rate = (j.log_clock + j.log_total).exp()
    return _site_law(x, j, -rate, log1mexp(rate))


def tau_leaping(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """Poisson jumps to every token at once; a site changes when exactly one arrives (Campbell et al. 2022)."""
    j = process.jumps(log_score, x, t, s)
    rate = (j.log_clock + j.log_total).exp()
    log_one = torch.where(rate.isinf(), 0.0, j.log_clock + j.log_total - rate)  # a site that must leave, leaves
    return _site_law(x, j, log1mexp(-log_one), log_one)


def tweedie(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """The exact law of each site at s given the whole state at t (SEDD's analytic step)."""
    return SiteLaw(x, process.bridge(log_score, x, t, s))


def _site_law(x: Tokens, j: Jumps, log_stay: Tensor, log_leave: Tensor) -> SiteLaw:
    """Stay or leave; a leaver picks its token in proportion to the rates."""
    log_hold = torch.where(j.movable, log_stay, 0.0)
    log_move = torch.where(j.movable, log_leave + j.log_reference - j.log_total, NEG_INF)
    return SiteLaw(x, SiteOdds(j.logits, log_hold, log_move))
