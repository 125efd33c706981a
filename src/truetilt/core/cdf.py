"""Inverting a CDF: the one place where a uniform becomes the number of what it draws.

A CDF is a row of cumulated masses that need not end at 1. A uniform times the total is a height in the row, kept below
the total, so that rounding never reaches past the last entry and what has no mass is never drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kept_below(height: Tensor, total: Tensor) -> Tensor:
    """The height, or the next number below the total where rounding took it there."""
    return torch.minimum(height, torch.nextafter(total, torch.zeros_like(total)))


def draw_from(cdf: Tensor, u: Tensor) -> Tensor:
    """The first entry of a row [..., n] whose cumulated mass exceeds u [..., k] times the total; of one row, any u."""
    total = cdf[-1] if cdf.dim() == 1 else cdf[..., -1:]
    height = kept_below(u * total, total).contiguous()
    return torch.searchsorted(cdf, height, right=True).clamp(max=cdf.shape[-1] - 1)


def draw_by_row(cdf: Tensor, row: Tensor, u: Tensor) -> Tensor:
    """The same for many draws [...] that name their row of [R, n]: those that share a row share its CDF."""
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
