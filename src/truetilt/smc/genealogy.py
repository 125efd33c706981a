"""Figures of the genealogy: each particle's ancestor at the first draw, surviving roots, lines to show."""

from __future__ import annotations

import torch
from torch import Tensor

LINES = 48  # final particles that a report shows at most


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


def shown_lines(ancestors: Tensor, count: int) -> Tensor:
    """Final particles to show, numbered through all populations, evenly over populations and families.

    At most `LINES`; a smaller number is a subset of these, so that what was computed for `LINES` particles serves it
    too.
    """
    populations, particles = ancestors.shape[1:]
    family = lineage(ancestors.cpu()) + particles * torch.arange(populations)[:, None]
    order = family.reshape(-1).argsort(stable=True)
    return _thinned(_thinned(order, LINES), count)


def _thinned(x: Tensor, count: int) -> Tensor:
    """This many of the entries, evenly spaced, with the first and the last."""
    if count >= len(x):
        return x
    return x[torch.linspace(0, len(x) - 1, count, dtype=torch.float64).round().long()] if count > 1 else x[-1:]
