"""The law of a step: a Gaussian with one noise level for all coordinates, drawn by the inverse normal CDF."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.arguments import number, reals, set_fields
from ..core.errors import InvalidInput
from ..core.logits import take
from ..core.types import State

_HALF_CELL = 2.0**-54  # uniforms are multiples of 2^-53: each stands for the middle of its cell
_LOG_ROOT_TAU = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Gaussian:
    """Independent coordinates: $y = mean + std * noise$.

    Args:
        mean: Mean of each coordinate, float64 [..., D].
        std: Standard deviation of every coordinate, above 0 and finite.
    """

    mean: Tensor  # float64 [..., D]
    std: float

    def __post_init__(self) -> None:
        if not isinstance(self.mean, Tensor) or not self.mean.is_floating_point():
            set_fields(self, mean=reals("mean", self.mean, "give the mean of each coordinate, float64 [..., D]"))
        if not isinstance(self.std, float):
            set_fields(self, std=float(number("the noise of a step", self.std)))
        if not 0 < self.std < math.inf:
            raise InvalidInput(
                f"the noise of a step is {self.std}; it must be positive and finite (is the step empty?)"
            )

    def sample(self, u: Tensor) -> State:
        return self.mean + self.std * normal_quantile(u)

    def log_prob(self, y: State) -> Tensor:
        z = (y - self.mean) / self.std
        return -0.5 * z.square().sum(-1) - y.shape[-1] * (math.log(self.std) + _LOG_ROOT_TAU)

    def towards(self, other: Gaussian, beta: float) -> Gaussian:
        """The same noise around $mean + beta (other mean - mean)$: guidance. Both laws must have the same noise."""
        if other.std != self.std:
            raise InvalidInput(
                f"two steps over one interval have noises {self.std} and {other.std}; a kernel's noise must depend on "
                "the process and the times alone, or ratios of their densities have no limit"
            )
        return other if beta == 1 else Gaussian(self.mean + beta * (other.mean - self.mean), self.std)

    def take(self, ancestors: Tensor) -> Gaussian:
        return Gaussian(take(self.mean, ancestors), self.std)


def normal_quantile(u: Tensor) -> Tensor:
    """Standard normal quantiles of uniforms in [0, 1), finite at 0 and at the last one below 1, odd about 1/2."""
    lower = u < 0.5
    tail = torch.special.ndtri(torch.where(lower, u + _HALF_CELL, (1 - u) - _HALF_CELL))
    return torch.where(lower, tail, -tail)
