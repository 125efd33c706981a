"""Distances between two weighted clouds of points in R^D: sliced Wasserstein and maximum mean discrepancy.

Points are rows [n, D]; weights sum to one and default to equal ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.logits import pick_at
from ..smc.sampler import OUTPUT, Stream

_ROWS = 1024  # rows of a kernel matrix computed at a time


def wasserstein(x: Tensor, y: Tensor, wx: Tensor | None = None, wy: Tensor | None = None, power: float = 2.0) -> Tensor:
    """Wasserstein distances on lines: x [..., n] with weights [n], y [..., m] with weights [m], to [...]."""
    a, b = _weights(wx, x.shape[-1], x), _weights(wy, y.shape[-1], y)
    if not 1 <= power < math.inf:
        raise InvalidInput(f"the power of a Wasserstein distance is {power}; it must be finite and at least 1")
    if power == 1:
        return _area_between(x.double(), y.double(), a, b)
    (x, heights_x), (y, heights_y) = _quantiles(x, a), _quantiles(y, b)
    heights = torch.cat([heights_x, heights_y], -1).sort(-1).values
    masses = torch.diff(heights, dim=-1, prepend=torch.zeros_like(heights[..., :1]))
    middles = heights - 0.5 * masses  # the middle of each piece, so that rounding cannot pick a neighbour
    gaps = (_at(x, heights_x, middles) - _at(y, heights_y, middles)).abs()
    return (masses * gaps**power).sum(-1) ** (1 / power)


def sliced_wasserstein(
    x: Tensor, y: Tensor, directions: Tensor, wx: Tensor | None = None, wy: Tensor | None = None, *, power: float = 2.0
) -> float:
    """The power mean over unit directions [L, D] of the distance between the clouds' projections."""
    _check_clouds(x, y)
    if directions.dim() != 2 or directions.shape[1] != x.shape[1]:
        raise InvalidInput(f"directions of shape {tuple(directions.shape)} for points in {x.shape[1]} dimensions")
    lines = directions.double() / directions.double().norm(dim=-1, keepdim=True)
    each = wasserstein(lines @ x.double().T, lines @ y.double().T, wx, wy, power)
    return float(each.pow(power).mean() ** (1 / power))


def sphere(count: int, dimension: int, seed: int = 0) -> Tensor:
    """Directions uniform on the sphere [count, dimension], the same for the same seed."""
    u = Stream(seed).uniforms(0, OUTPUT, 1, count * dimension).reshape(count, dimension)
    z = torch.special.ndtri(u.clamp(min=2.0**-54))
    return z / z.norm(dim=-1, keepdim=True)


def mmd(x: Tensor, y: Tensor, bandwidth: float, wx: Tensor | None = None, wy: Tensor | None = None) -> float:
    """Maximum mean discrepancy of the kernel exp(-|x - y|^2 / (2 bandwidth^2)); between weighted clouds, not laws."""
    _check_clouds(x, y)
    if not 0 < bandwidth < math.inf:
        raise InvalidInput(f"the kernel's bandwidth is {bandwidth}; it must be positive and finite")
    points = torch.cat([x, y]).double()
    signed = torch.cat([_weights(wx, len(x), x), -_weights(wy, len(y), y)])
    total = 0.0
    for rows, w in zip(points.split(_ROWS), signed.split(_ROWS), strict=True):
        kernel = torch.cdist(rows, points).square_().mul_(-0.5 / bandwidth**2).exp_()
        total += float(w @ (kernel @ signed))
    return math.sqrt(max(total, 0.0))  # negative only by rounding


def median_distance(x: Tensor) -> float:
    """The median distance between two of the points: a bandwidth."""
    if x.dim() != 2 or len(x) < 2:
        raise InvalidInput(f"points of shape {tuple(x.shape)} have no distances; give two or more rows")
    return float(torch.pdist(x.double()).median())


def _area_between(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The area between two distribution functions, which is the distance of power 1: one sort instead of three."""
    values, order = torch.cat([x, y], -1).sort(-1)
    height = torch.cat([a, -b])[order].cumsum(-1)
    return (height[..., :-1].abs() * values.diff(dim=-1)).sum(-1)


def _quantiles(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Points [..., n] in order, and the height of the distribution function just above each, ending at 1."""
    x, order = x.double().sort(-1)
    heights = weights[order].cumsum(-1)
    return x, heights / heights[..., -1:]


def _at(x: Tensor, heights: Tensor, u: Tensor) -> Tensor:
    """The quantile at u: the first point whose height reaches it."""
    return x.gather(-1, pick_at(heights, u))


def _check_clouds(x: Tensor, y: Tensor) -> None:
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1] or not len(x) or not len(y):
        raise InvalidInput(f"clouds of shape {tuple(x.shape)} and {tuple(y.shape)}; give rows of the same dimension")
    if not bool(x.isfinite().all() & y.isfinite().all()):
        raise InvalidInput("a cloud holds NaN or infinite points")


def _weights(weights: Tensor | None, n: int, like: Tensor) -> Tensor:
    if weights is None:
        return torch.full((n,), 1 / max(n, 1), dtype=torch.float64, device=like.device)
    if weights.shape != (n,):
        raise InvalidInput(f"{tuple(weights.shape)} weights for {n} points; give one each")
    if not bool((weights >= 0).all()) or abs(float(weights.sum()) - 1) > 1e-6:
        raise InvalidInput("weights must be non-negative and sum to one (Result.weights do)")
    return weights.double().to(like.device)
