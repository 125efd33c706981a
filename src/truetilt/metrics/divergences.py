"""Distances between laws on a finite space, and weighted histograms."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.errors import InvalidInput


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Half the summed absolute difference."""
    return 0.5 * (p.reshape(-1) - q.reshape(-1)).abs().sum()


def kl(p: Tensor, q: Tensor, floor: float = 0.0) -> Tensor:
    """KL(p

    q) with q floored; infinite where q is zero and p is not.
    """
    p, q = p.reshape(-1), q.reshape(-1).clamp(min=floor)
    if p.shape != q.shape:
        raise InvalidInput(f"laws of {p.numel()} and {q.numel()} states cannot be compared")
    return torch.where(p > 0, p * (p.log() - q.log()), 0.0).sum()


def histogram(index: Tensor, weights: Tensor, size: int) -> Tensor:
    """Normalised weighted counts of indices 0..size-1."""
    counts = torch.zeros(size, dtype=torch.float64, device=index.device)
    counts = counts.index_add(0, index.reshape(-1), weights.reshape(-1).double())
    return counts / counts.sum()
