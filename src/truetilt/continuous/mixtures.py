"""Gaussian mixtures and observations of them: noised, conditioned and drawn in closed form.

A mixture with diagonal covariances stays one under noise and under an observation of single coordinates with Gaussian
error. The likelihood of an observation to any power is again one, with a smaller error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.arguments import listed, number, reals, set_fields, shown, whole_number
from ..core.errors import InvalidInput
from ..core.logits import draw_from
from ..core.types import State
from .laws import normal_quantile

_LOG_TAU = math.log(2 * math.pi)


@dataclass(frozen=True)
class Observation:
    """An observation zeta of the named coordinates, each with a Gaussian error.

    Args:
        value: The observed values [d], finite.
        coordinates: The coordinate of each value, counted from 0, none twice.
        std: Standard deviation of the error, above 0 and finite.
    """

    value: Tensor  # [d]
    coordinates: tuple[int, ...]
    std: float

    def __post_init__(self) -> None:
        set_fields(self, value=reals("the values seen", self.value, "give one number for each coordinate"))
        sites = listed("coordinates", self.coordinates, "give a tuple of coordinates, counted from 0")
        set_fields(self, coordinates=tuple(whole_number("a coordinate", site, 0) for site in sites))
        set_fields(self, std=float(number("std", self.std, "an observation needs a positive error")))
        if self.value.shape != (len(self.coordinates),) or len(set(self.coordinates)) < len(self.coordinates):
            raise InvalidInput(
                f"{tuple(self.value.shape)} values for coordinates {self.coordinates}; give one for each, none twice"
            )
        if not 0 < self.std < math.inf or not bool(self.value.isfinite().all()):
            raise InvalidInput(f"an observation needs finite values and a positive error, not std = {self.std}")

    def log_likelihood(self, x: State) -> Tensor:
        """$log p(zeta|x)$ of clean states [..., D]."""
        z = (x[..., list(self.coordinates)] - self.value) / self.std
        return -0.5 * z.square().sum(-1) - len(self.coordinates) * (math.log(self.std) + 0.5 * _LOG_TAU)

    def power(self, alpha: float) -> tuple[Observation, float]:
        """$p(zeta|x)^alpha$ as $e^constant$ times the density of an observation with error $std / sqrt(alpha)$."""
        sharp = Observation(self.value, self.coordinates, self.std / math.sqrt(alpha))
        log_square = 2 * math.log(self.std) + _LOG_TAU
        return sharp, 0.5 * len(self.coordinates) * ((1 - alpha) * log_square - math.log(alpha))


@dataclass(frozen=True)
class GaussianMixture:
    """$sum_k w_k N(mean_k, diag std_k^2)$, a law with exact scores.

    Args:
        weights: Weight of each of the K components [K], not negative; they are normalised.
        means: Mean of each component [K, D].
        std: Standard deviation: one number, one a coordinate [D], or all of them [K, D]; above 0.
    """

    weights: Tensor  # [K]
    means: Tensor  # [K, D]
    std: Tensor | float

    def __post_init__(self) -> None:
        named = ("weights", "means", "std")
        weights, means, std = (
            reals(name, getattr(self, name), "give numbers: [K], [K, D] and [K, D]") for name in named
        )
        if weights.dim() != 1 or means.dim() != 2 or len(weights) != len(means):
            raise InvalidInput(
                f"weights of shape {tuple(weights.shape)} and means of shape {tuple(means.shape)}; give [K] and [K, D]"
            )
        if not bool((weights >= 0).all() & weights.isfinite().all() & (weights.sum() > 0) & means.isfinite().all()):
            raise InvalidInput("a mixture needs finite means and weights, none negative and one at least positive")
        if not bool(((std > 0) & std.isfinite()).all()):
            raise InvalidInput("a mixture's standard deviations must be positive and finite")
        try:
            std = std.to(means.device).expand(means.shape)
        except RuntimeError as e:
            raise InvalidInput(
                f"standard deviations {tuple(std.shape)} for means {tuple(means.shape)}; give a number, [D] or [K, D]"
            ) from e
        for name, value in (("weights", weights / weights.sum()), ("means", means), ("std", std)):
            object.__setattr__(self, name, value)

    @property
    def dimension(self) -> int:
        return self.means.shape[1]

    @property
    def variances(self) -> Tensor:
        """[K, D]."""
        return torch.as_tensor(self.std).square()

    def log_prob(self, x: State) -> Tensor:
        """log-density of states [..., D]."""
        return self._log_parts(x).logsumexp(-1)

    def score(self, x: State) -> Tensor:
        """grad log-density: the components' scores, weighed by their posterior probabilities."""
        shares, inverse = self._log_parts(x).softmax(-1), 1 / self.variances
        return shares @ (inverse * self.means) - x * (shares @ inverse)

    def noised(self, m: float, s: float) -> GaussianMixture:
        """The law of $m x + s noise$."""
        return GaussianMixture(self.weights, m * self.means, (m * m * self.variances + s * s).sqrt())

    def draw(self, u: Tensor) -> State:
        """Uniforms [..., 1 + D] to states [..., D]."""
        k = draw_from(self.weights.cumsum(0), u[..., 0])
        return self.means[k] + torch.as_tensor(self.std)[k] * normal_quantile(u[..., 1:])

    def given(self, seen: Observation) -> tuple[GaussianMixture, float]:
        """The law of x given zeta, and $log p(zeta)$."""
        if not isinstance(seen, Observation):
            raise InvalidInput(f"what is seen is {shown(seen)}; give a continuous.Observation")
        if max(seen.coordinates, default=0) >= self.dimension or min(seen.coordinates, default=0) < 0:
            raise InvalidInput(f"coordinates {seen.coordinates} of states with {self.dimension}; count from 0")
        at, error = list(seen.coordinates), seen.std**2
        variances, value = self.variances, seen.value.to(self.means.device)
        total = variances[:, at] + error
        off = value - self.means[:, at]
        log_seen = -0.5 * (off.square() / total + total.log() + _LOG_TAU).sum(-1) + self.weights.log()
        means, std = self.means.clone(), variances.sqrt()
        means[:, at] += variances[:, at] / total * off
        std[:, at] = (variances[:, at] * error / total).sqrt()
        return GaussianMixture(log_seen.softmax(0), means, std), float(log_seen.logsumexp(0))

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean [D] and covariance [D, D]."""
        mean = self.weights @ self.means
        off = self.means - mean
        return mean, (self.weights[:, None] * off).T @ off + torch.diag(self.weights @ self.variances)

    def _log_parts(self, x: State) -> Tensor:
        """log w_k N(x; mean_k, std_k) [..., K], the squares multiplied out."""
        if x.shape[-1:] != (self.dimension,):
            raise InvalidInput(
                f"states are {shown(x)} and the mixture has {self.dimension} coordinates; they must agree"
            )
        inverse = 1 / self.variances
        linear = inverse * self.means
        square = x.square() @ inverse.T - 2 * (x @ linear.T) + (linear * self.means).sum(-1)
        return self.weights.log() - 0.5 * (square - inverse.log().sum(-1) + self.dimension * _LOG_TAU)
