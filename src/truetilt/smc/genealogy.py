"""Figures of the genealogy: each particle's ancestor at the first draw, and the number of surviving roots."""

from __future__ import annotations

import torch
from torch import Tensor


def lineage(ancestors: Tensor) -> Tensor:
    """For each final particle its ancestor at the first draw [..., N], from ancestors [T, ..., N] of every step."""
    line = torch.arange(ancestors.shape[-1], device=ancestors.device).expand(ancestors.shape[1:])
    for parents in ancestors.flip(0):
        line = parents.long().gather(-1, line)
    return line


def roots(ancestors: Tensor) -> Tensor:
    """How many particles of the first draw have a living descendant [...]."""
    line = lineage(ancestors)
    hit = torch.zeros(line.shape, dtype=torch.int64, device=line.device).scatter(-1, line, 1)
    return hit.sum(-1)
