"""One reverse step t -> s, as a law with exact log-probabilities.

All three freeze the network at t and integrate what the schedule says in closed form. None clamps: a site holds with
probability exp(-integrated rate), so the support of the base is kept under any guidance. A masking step into s = 0
has infinite clock and leaves no mask.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .laws import SiteLaw
from .processes import log1mexp
from .types import NEG_INF, Jumps, Law, Process, SiteLogits, SiteOdds, Tokens


class Kernel(Protocol):
    def __call__(self, process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> Law: ...


def euler(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """Hold with exp(-integrated exit rate), else jump in proportion to the rates (the paper's Eq. 7, unclamped)."""
    j = process.jumps(log_score, x, t, s)
    exit_rate = _exit(j)
    small = j.log_reference + j.log_clock + _log_phi(exit_rate)
    large = j.log_reference - j.log_total + log1mexp(exit_rate)
    log_move = torch.where(exit_rate < 1, small, large)
    return SiteLaw(x, SiteOdds(j.logits, -exit_rate, _if_leaves(j, log_move)))


def tau_leaping(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """Poisson jumps to every token at once; a site changes when exactly one arrives (Campbell et al. 2022)."""
    j = process.jumps(log_score, x, t, s)
    exit_rate = _exit(j)
    must_leave = torch.isinf(exit_rate)
    log_one = torch.where(must_leave, 0.0, exit_rate.log() - exit_rate)
    log_move = torch.where(must_leave, j.log_reference - j.log_total, j.log_reference + j.log_clock - exit_rate)
    return SiteLaw(x, SiteOdds(j.logits, log1mexp(-log_one), _if_leaves(j, log_move)))


def tweedie(process: Process, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteLaw:
    """The exact law of each site at s given the whole state at t (SEDD's analytic step)."""
    return SiteLaw(x, process.bridge(log_score, x, t, s))


def _exit(j: Jumps) -> Tensor:
    """Integrated exit rate of each site; zero where it cannot leave, even if the clock is infinite."""
    return torch.where(j.log_total == NEG_INF, 0.0, (j.log_clock + j.log_total).exp())


def _if_leaves(j: Jumps, log_move: Tensor) -> Tensor:
    return torch.where(j.log_total == NEG_INF, NEG_INF, log_move)


def _log_phi(a: Tensor) -> Tensor:
    """log of (1 - exp(-a)) / a, which tends to 0 with a."""
    safe = torch.where(a > 0, a, 1.0)
    return torch.where(a > 0, (-torch.expm1(-safe) / safe).log(), 0.0)
