"""Coupled uniforms: spread evenly over particles in equal states, where `independent` ones are not.

Array-RQMC: particles that draw from the same law share one systematic grid of uniforms. Each particle's own uniform is
still uniform (its place in the grid is random), so its draw keeps its law and estimates stay unbiased; but the
histogram of the group is as even as it can be, better than independent draws from the target itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .sampler import mix


def systematic_draws(u: Tensor, labels: Tensor, spare: Tensor) -> Tensor:
    """Systematic uniforms: particles with equal labels share equally spaced points, assigned to them at random.

    Args:
        u: Uniforms float64 [..., N, k], k for each particle.
        labels: Integers [..., N, m]: particles with equal rows draw from the same law and are coupled.
        spare: Further uniforms of the shape of u, which shuffle the particles of a group.
    """
    place, size, leader = _groups(labels, spare)
    shift = u.gather(-2, leader)
    return ((place + shift) / size).clamp(max=1 - 2.0**-53)


def stratified_draws(u: Tensor, labels: Tensor, spare: Tensor) -> Tensor:
    """Stratified uniforms: particles with equal labels get one slice of [0, 1) each, at random, and a point in it.

    Args:
        u: Uniforms float64 [..., N, k], k for each particle.
        labels: Integers [..., N, m]: particles with equal rows draw from the same law and are coupled.
        spare: Further uniforms of the shape of u, which shuffle the particles of a group.
    """
    place, size, _ = _groups(labels, spare)
    return ((place + u) / size).clamp(max=1 - 2.0**-53)


def _groups(labels: Tensor, spare: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each particle and uniform [..., N, k]: a random place in its group, the group's size and its first member."""
    key = row_hash(labels).unsqueeze(-1).expand(spare.shape)
    shuffled = spare.argsort(dim=-2)
    order = shuffled.gather(-2, key.gather(-2, shuffled).argsort(dim=-2, stable=True))  # by group, random within
    ranked = key.gather(-2, order)
    n = key.shape[-2]
    slot = torch.arange(n, device=key.device).unsqueeze(-1).expand(key.shape)
    first = torch.ones_like(ranked, dtype=torch.bool)
    first[..., 1:, :] = ranked[..., 1:, :] != ranked[..., :-1, :]
    begin = torch.where(first, slot, 0).cummax(-2).values
    end = torch.where(first, slot, n).flip(-2).cummin(-2).values.flip(-2)
    after = torch.cat([end[..., 1:, :], torch.full_like(end[..., :1, :], n)], -2)

    def home(value: Tensor) -> Tensor:
        return torch.zeros_like(value).scatter(-2, order, value)

    return home(slot - begin), home(after - begin), home(order.gather(-2, begin))


def row_hash(labels: Tensor) -> Tensor:
    """A 64-bit hash of each row of integers [..., m]. A collision merges two groups, which biases nothing."""
    word = torch.zeros(labels.shape[:-1], dtype=torch.int64, device=labels.device)
    for column in labels.long().unbind(-1):
        word = mix(word * 31 + column + 1)
    return word
