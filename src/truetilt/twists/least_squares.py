"""Sparse least squares: conjugate gradients that never form a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Equations(NamedTuple):
    """Equations sum_k factor[r, k] * theta[index[r, k]] = target[r]; index and factor are [R, K], target [R]."""

    index: Tensor
    factor: Tensor
    target: Tensor


class Accuracy(NamedTuple):
    """When a solve stops: after so many iterations, or at a residual of `within` times the first one."""

    iterations: int
    within: float


def times(index: Tensor, factor: Tensor, theta: Tensor) -> Tensor:
    """sum_k factor[r, k] * theta[index[r, k]], [R]."""
    return (theta.index_select(0, index.reshape(-1)).reshape(index.shape) * factor).sum(-1)


def solve(blocks: Sequence[Equations], ridge: Tensor, free: Tensor, accuracy: Accuracy) -> Tensor:
    """The theta that minimises the squared errors of all equations plus ridge * theta^2; 0 where it is not free."""
    blocks = [rows._replace(factor=rows.factor * free[rows.index]) for rows in blocks]
    right = torch.zeros_like(ridge)
    size = ridge.clone()
    for rows in blocks:
        right.scatter_add_(0, rows.index.flatten(), (rows.factor * rows.target[:, None]).flatten())
        size.scatter_add_(0, rows.index.flatten(), (rows.factor**2).flatten())

    def normal(theta: Tensor) -> Tensor:
        out = ridge * theta
        for rows in blocks:
            seen = times(rows.index, rows.factor, theta)
            out.scatter_add_(0, rows.index.flatten(), (rows.factor * seen[:, None]).flatten())
        return out

    theta, left = torch.zeros_like(right), right
    scaled = left / size
    way, goal = scaled, float((left * scaled).sum())
    first = goal
    for _ in range(accuracy.iterations):
        if goal <= accuracy.within**2 * first:
            break
        turned = normal(way)
        stride = goal / float((way * turned).sum())
        theta, left = theta + stride * way, left - stride * turned
        scaled = left / size
        last, goal = goal, float((left * scaled).sum())
        way = scaled + goal / last * way
    return theta
