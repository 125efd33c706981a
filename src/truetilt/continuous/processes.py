"""Forward noising of real vectors: x_t = m(t) x_0 + s(t) noise, with all that a reverse step needs in closed form.

dx = a(t) x dt + g(t) dW, data at t = 0 (s(0) = 0 exactly), noise at t = 1. In elapsed time the reverse is
dy = [-a y + g^2 score(y, t)] du + g dB.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from ..core.arguments import LARGEST, has, number, set_fields
from ..core.errors import InvalidInput
from .laws import Gaussian

_MOST_NOISE = 700.0  # its exp is still a float64


class AffineStep(NamedTuple):
    """A reverse step that is affine in the score: y = scale * x + gain * score + std * noise."""

    scale: float
    gain: float
    std: float


class Process(Protocol):
    """A forward process with one mean scale and one noise for all coordinates."""

    def mean(self, t: float) -> float: ...  # m(t), 1 at t = 0
    def std(self, t: float) -> float: ...  # s(t), 0 at t = 0
    def drift(self, t: float) -> float: ...  # a(t)
    def diffusion(self, t: float) -> float: ...  # g(t)^2
    def frozen(self, t: float, s: float) -> AffineStep: ...  # exact except that the score is held constant
    def prior(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Gaussian: ...


def check_noise(process: object) -> None:
    """Raise unless this is a noising process of real vectors."""
    parts = ("mean", "std", "drift", "diffusion", "frozen", "prior")
    has("process", process, parts, "give tt.continuous.VP(), SubVP() or VE()")


def _check_time(t: float) -> float:
    t = t if isinstance(t, float) else number("time", t, "it must lie in [0, 1] (data at 0, noise at 1)")
    if not 0 <= t <= 1:
        raise InvalidInput(f"time is {t}; it must lie in [0, 1] (data at 0, noise at 1)")
    return t


def _centred(shape: tuple[int, ...], device: torch.device | str, std: float) -> Gaussian:
    return Gaussian(torch.zeros(shape, dtype=torch.float64, device=device), std)


@dataclass(frozen=True)
class _Shrinking(ABC):
    """beta(t) = beta_min + t (beta_max - beta_min), with integral B(t): a = -beta/2, m = exp(-B/2), prior N(0, I)."""

    beta_min: float = 0.1
    beta_max: float = 20.0

    def __post_init__(self) -> None:
        set_fields(self, **{name: number(name, getattr(self, name)) for name in ("beta_min", "beta_max")})
        if not 0 < self.beta_min <= self.beta_max < math.inf:
            raise InvalidInput(
                f"beta runs from {self.beta_min} to {self.beta_max}; need 0 < beta_min <= beta_max < inf"
            )
        if self.total(1.0) > _MOST_NOISE:
            raise InvalidInput(
                f"beta runs from {self.beta_min} to {self.beta_max}; its mean must not exceed {_MOST_NOISE}: beyond, "
                "nothing of the data is left in float64"
            )

    def rate(self, t: float) -> float:
        """beta(t)."""
        return self.beta_min + _check_time(t) * (self.beta_max - self.beta_min)

    def total(self, t: float) -> float:
        """B(t)."""
        return _check_time(t) * (self.beta_min + 0.5 * t * (self.beta_max - self.beta_min))

    def mean(self, t: float) -> float:
        return math.exp(-0.5 * self.total(t))

    def drift(self, t: float) -> float:
        return -0.5 * self.rate(t)

    @abstractmethod
    def std(self, t: float) -> float: ...

    def prior(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Gaussian:
        return _centred(shape, device, 1.0)


@dataclass(frozen=True)
class VP(_Shrinking):
    """Variance preserving: $g^2 = beta$ and $s^2 = 1 - exp(-B)$.

    Args:
        beta_min: Rate of noise $beta(t)$ at $t = 0$, above 0; 0.1 by default.
        beta_max: Rate of noise at $t = 1$, at least `beta_min`; 20 by default. In between the rate grows linearly.
    """

    def std(self, t: float) -> float:
        return math.sqrt(-math.expm1(-self.total(t)))

    def diffusion(self, t: float) -> float:
        return self.rate(t)

    def frozen(self, t: float, s: float) -> AffineStep:
        """With $b = B(t) - B(s)$: scale $e^(b/2)$, gain $2 (e^(b/2) - 1)$, variance $e^b - 1$."""
        b = self.total(t) - self.total(s)
        return AffineStep(math.exp(b / 2), 2 * math.expm1(b / 2), math.sqrt(math.expm1(b)))


@dataclass(frozen=True)
class SubVP(_Shrinking):
    """Less noise than variance preserving has: $g^2 = beta (1 - exp(-2B))$ and $s = 1 - exp(-B)$.

    Args:
        beta_min: Rate of noise $beta(t)$ at $t = 0$, above 0; 0.1 by default.
        beta_max: Rate of noise at $t = 1$, at least `beta_min`; 20 by default. In between the rate grows linearly.
    """

    def std(self, t: float) -> float:
        return -math.expm1(-self.total(t))

    def diffusion(self, t: float) -> float:
        return self.rate(t) * -math.expm1(-2 * self.total(t))

    def frozen(self, t: float, s: float) -> AffineStep:
        """Those of `VP`, less $e^(-2 B(s))$ times $(2/3)(1 - e^(-3b/2))$ of the gain and $1 - e^-b$ of the variance."""
        faded, b = math.exp(-2 * self.total(s)), self.total(t) - self.total(s)
        gain = 2 * math.expm1(b / 2) + faded * (2 / 3) * math.expm1(-1.5 * b)
        return AffineStep(math.exp(b / 2), gain, math.sqrt(math.expm1(b) + faded * math.expm1(-b)))


@dataclass(frozen=True)
class VE:
    """Variance exploding: $a = 0, m = 1, s^2 = sigma(t)^2 - sigma_min^2$ with $sigma = sigma_min^(1-t) sigma_max^t$.

    Args:
        sigma_min: Noise at $t = 0$, above 0; 0.01 by default.
        sigma_max: Noise at $t = 1$, above `sigma_min`; 50 by default.
    """

    sigma_min: float = 0.01
    sigma_max: float = 50.0

    def __post_init__(self) -> None:
        set_fields(self, **{name: number(name, getattr(self, name)) for name in ("sigma_min", "sigma_max")})
        if not 1 / LARGEST <= self.sigma_min < self.sigma_max <= LARGEST:
            raise InvalidInput(
                f"sigma runs from {self.sigma_min} to {self.sigma_max}; need {1 / LARGEST:.0e} <= low < high <= "
                f"{LARGEST:.0e}"
            )

    @property
    def log_ratio(self) -> float:
        return math.log(self.sigma_max / self.sigma_min)

    def mean(self, t: float) -> float:
        _check_time(t)
        return 1.0

    def std(self, t: float) -> float:
        return self.sigma_min * math.sqrt(math.expm1(2 * _check_time(t) * self.log_ratio))

    def drift(self, t: float) -> float:
        return 0.0

    def diffusion(self, t: float) -> float:
        return 2 * self.log_ratio * (self.sigma_min * math.exp(_check_time(t) * self.log_ratio)) ** 2

    def frozen(self, t: float, s: float) -> AffineStep:
        variance = self.sigma_min**2 * math.exp(2 * s * self.log_ratio) * math.expm1(2 * (t - s) * self.log_ratio)
        return AffineStep(1.0, variance, math.sqrt(variance))

    def prior(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Gaussian:
        return _centred(shape, device, self.std(1.0))
