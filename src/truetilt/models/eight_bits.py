"""8-bit storage of weights: each row of a matrix as integers from -127 to 127 and one float32 scale.

A quarter of the size of float32. A row's scale is its largest absolute value over 127, so the rounding error is at most
half a scale. Vectors and narrow matrices, which are few, stay in float32. Networks compute in float32: rows are
dequantised on loading.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_NARROW = 32  # columns, below which a scale per row would cost too much
_MOST = 127


def scale_of(name: str) -> str:
    """The tensor name of a matrix's scales."""
    return f"{name}.scale"


def in_eight_bits(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights with their wide matrices as int8 rows [n, ...] and float32 scales [n]."""
    stored = {}
    for name, tensor in weights.items():
        tensor = tensor.detach().to("cpu", torch.float32).contiguous().clone()
        if tensor.dim() < 2 or tensor[0].numel() < _NARROW:
            stored[name] = tensor
            continue
        scale = tensor.flatten(1).abs().amax(1) / _MOST
        steps = tensor.flatten(1) / torch.where(scale > 0, scale, 1.0)[:, None]
        stored |= {name: steps.round().to(torch.int8).view(tensor.shape), scale_of(name): scale}
    return stored


def from_eight_bits(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The dequantised weights: float32 where they were int8, others unchanged."""
    small = [name for name, tensor in stored.items() if tensor.dtype == torch.int8 and scale_of(name) in stored]
    weights = {name: tensor for name, tensor in stored.items() if name not in map(scale_of, small)}
    for name in small:
        steps, scale = stored[name].float(), stored[scale_of(name)]
        weights[name] = steps * scale.view(-1, *[1] * (steps.dim() - 1))
    return weights
