"""Measures of image samples: accuracy, diversity, coverage of real images. Pure functions of tokens.

Tokens are grey levels 0..levels-1, one row an image [n, D]; distances are Euclidean on the grey scale 0..1. Weights
sum to one and default to equal ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.types import Tokens
from ..smc.genealogy import roots

LEVELS = 256
NEIGHBOURS = 5  # the value of Naeem et al. 2020
_ROWS = 512  # rows of a distance matrix computed at a time


def accuracy(log_probs: Tensor, label: int, weights: Tensor | None = None) -> float:
    """The weighted share of images whose most likely class, of log-probabilities [n, classes], is `label`."""
    if not 0 <= label < log_probs.shape[-1]:
        raise InvalidInput(f"class {label} of a judge that knows {log_probs.shape[-1]}; count from 0")
    right = (log_probs.argmax(-1) == label).double()
    return float((right * _weights(weights, len(right), right.device)).sum())


def mean_distance(x: Tokens, weights: Tensor | None = None, levels: int = LEVELS) -> float:
    """Mean distance of two weighted draws, times n / (n - 1): for equal weights that of two different images.

    Copies of an image count with distance 0, and so does a single image that has all the weight.
    """
    if len(x) < 2:
        raise InvalidInput(f"{len(x)} images have no pairs; give at least two")
    grey, w = grey_levels(x, levels), _weights(weights, len(x), x.device)
    total = sum(float(w[k : k + _ROWS] @ (distances(rows, grey).double() @ w)) for k, rows in _blocks(grey))
    return total * len(x) / (len(x) - 1)


def diversity_ratio(x: Tokens, real_distance: float, weights: Tensor | None = None, levels: int = LEVELS) -> float:
    """Mean distance over `real_distance`, that of real images of the class: 1 as varied as real ones, 0 collapsed."""
    if not real_distance > 0:
        raise InvalidInput(f"the mean distance of real images is {real_distance}; it must be positive")
    return mean_distance(x, weights, levels) / real_distance


def coverage(real: Tokens, samples: Tokens, neighbours: int = NEIGHBOURS, levels: int = LEVELS) -> float:
    """The share of real images with a sample within the distance of their k-th nearest real neighbour.

    Naeem et al. 2020, "Reliable fidelity and diversity metrics for generative models".
    """
    if not 1 <= neighbours < len(real):
        raise InvalidInput(f"{neighbours} neighbours among {len(real)} real images; need at least one more image")
    if len(samples) == 0:
        return 0.0
    truth, drawn = grey_levels(real, levels), grey_levels(samples, levels)
    covered = 0
    for _, rows in _blocks(truth):
        radius = distances(rows, truth).kthvalue(neighbours + 1, -1).values  # + 1: the nearest is the image itself
        covered += int((distances(rows, drawn).amin(-1) <= radius).sum())
    return covered / len(real)


def surviving_roots(ancestors: Tensor) -> int:
    """Number of first draws with a surviving descendant, in all populations; ancestors [steps + 1, populations, N]."""
    return int(roots(ancestors).sum())


def grey_levels(x: Tokens, levels: int = LEVELS) -> Tensor:
    """Tokens [n, D] as float32 on 0..1; raises for tokens that are no grey level, such as the mask."""
    if x.dim() != 2:
        raise InvalidInput(f"images have shape {tuple(x.shape)}; give tokens [n, D]")
    if x.is_floating_point():
        raise InvalidInput(f"images of {x.dtype}; give whole grey levels as tokens (NaN and fractions are none)")
    if x.numel() and not bool(((x >= 0) & (x < levels)).all()):
        raise InvalidInput(f"tokens run from {int(x.min())} to {int(x.max())}; grey levels are 0 to {levels - 1}")
    return x.float() / (levels - 1)


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances [len(a), len(b)], exact to rounding: equal images are at distance 0."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _blocks(grey: Tensor) -> list[tuple[int, Tensor]]:
    return [(k * _ROWS, rows) for k, rows in enumerate(grey.split(_ROWS))]


def _weights(weights: Tensor | None, n: int, device: torch.device) -> Tensor:
    if weights is None:
        return torch.full((n,), 1 / max(n, 1), dtype=torch.float64, device=device)
    if weights.shape != (n,):
        raise InvalidInput(f"{tuple(weights.shape)} weights for {n} images; give one each")
    if not bool((weights >= 0).all()):
        raise InvalidInput("weights hold NaN or negative values; give normalised weights")
    return weights.double().to(device)
