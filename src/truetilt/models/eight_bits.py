"""Weights in eight bits for the file: each row of a matrix as whole numbers from -127 to 127 and one scale.

A quarter of the size of float32. A row's scale is its largest absolute value over 127, so that no number is off by more
than half a step of its row. Vectors and narrow matrices, which are few, stay in float32. Nets compute in float32: the
rows are multiplied out when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_NARROW = 32  # columns: below, a scale for each row would cost too much
_MOST = 127


def scale_of(name: str) -> str:
    """The name of the scales of a matrix."""
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
    """The weights again, float32 where they were rows of int8, all others as they are."""
    small = [name for name, tensor in stored.items() if tensor.dtype == torch.int8 and scale_of(name) in stored]
    weights = {name: tensor for name, tensor in stored.items() if name not in map(scale_of, small)}
    for name in small:
        steps, scale = stored[name].float(), stored[scale_of(name)]
        weights[name] = steps * scale.view(-1, *[1] * (steps.dim() - 1))
    return weights
