"""Forward messages along a chain, as logs normalised at every site.

A message whose range exceeds float64 is propagated term by term, so nothing underflows; rows are padded so that a
state's answer does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core.types import NEG_INF

_SPAN = -690.0  # exp of less may not be a normal float64
_BLOCK, _LANE = 64, 8  # rows and columns of a product are padded to multiples of these


def sweep(start: Tensor, steps: Sequence[Tensor], log_site: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Messages that arrive at each site from those before it [B, D, V], and the log of the total [B]."""
    arriving, log_total = [start.expand(len(log_site), -1)], torch.zeros_like(log_site[:, 0, 0])
    for d, site in enumerate(log_site.unbind(1)):
        here, scale = normalised(arriving[-1] + site)
        log_total = log_total + scale.squeeze(-1)
        if d < len(steps):
            arriving.append(_through(here, steps[d], least))
    return torch.stack(arriving, 1), log_total


def _through(message: Tensor, step: Tensor, least: float) -> Tensor:
    """log of exp(message) @ step for normalised messages [B, V]; `least` is the log of the least positive entry."""
    out = _product(message.exp(), step).log()
    wide = ((message > NEG_INF) & (message + least < _SPAN)).any(-1)
    if wide.any():
        out[wide] = (message[wide][:, :, None] + step.log()).logsumexp(-2)
    return out


def _product(rows: Tensor, step: Tensor) -> Tensor:
    """rows @ step, padded so that a row's last bits do not depend on the batch."""
    count, size = rows.shape
    short = -size % _LANE
    rows, step = pad(rows, (0, short, 0, -count % _BLOCK)), pad(step, (0, short, 0, short))
    return (rows @ step)[:count, :size]


def normalised(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Rows minus their log-sum-exp, and that log-sum-exp; a row of -inf is returned unchanged."""
    scale = logits.logsumexp(-1, keepdim=True)
    return logits - torch.where(scale > NEG_INF, scale, 0.0), scale
