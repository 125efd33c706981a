"""One reverse step t -> s of a score, as a Gaussian law with exact log-probabilities.

The noise of a step depends on the process and the times alone, so the base, the conditional and the guided step over
one interval share it, and the ratio of any two of their densities is finite everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from ..core.types import State
from .laws import Gaussian
from .processes import AffineStep, Process

Score = Callable[[State, float], Tensor]  # grad log p_t(x), of the shape of x


class Kernel(Protocol):
    def __call__(self, process: Process, score: Score, x: State, t: float, s: float) -> Gaussian: ...


def euler_maruyama(process: Process, score: Score, x: State, t: float, s: float) -> Gaussian:
    """$y = x + (t - s) [-a x + g^2 score] + g sqrt(t - s) noise$, all taken at t.

    Args:
        process: The noising process of the score.
        score: Function (x, t) that returns $grad log p_t(x)$, of the shape of x.
        x: States, float64 [..., D].
        t: The time that the step starts from.
        s: The time that it ends at, below t.
    """
    h, g2 = t - s, process.diffusion(t)
    return _affine(AffineStep(1 - process.drift(t) * h, g2 * h, math.sqrt(g2 * h)), score, x, t)


def exponential(process: Process, score: Score, x: State, t: float, s: float) -> Gaussian:
    """Exponential integrator: the score is held at its value at t, the rest of the reverse equation solved exactly.

    Args:
        process: The noising process of the score.
        score: Function (x, t) that returns $grad log p_t(x)$, of the shape of x.
        x: States, float64 [..., D].
        t: The time that the step starts from.
        s: The time that it ends at, below t.
    """
    return _affine(process.frozen(t, s), score, x, t)


def heun(process: Process, score: Score, x: State, t: float, s: float) -> Gaussian:
    """Heun's method: the mean by the trapezium rule, with a second evaluation after a noiseless Euler step; noise added
    once.

    A step into $s = 0$ is Euler's: a noise predictor has no score there.

    Args:
        process: The noising process of the score.
        score: Function (x, t) that returns $grad log p_t(x)$, of the shape of x; evaluated twice a step.
        x: States, float64 [..., D].
        t: The time that the step starts from.
        s: The time that it ends at, below t.
    """
    h, g2 = t - s, process.diffusion(t)
    first = reverse_drift(process, score, x, t)
    if s == 0:
        return Gaussian(x + h * first, math.sqrt(g2 * h))
    second = reverse_drift(process, score, x + h * first, s)
    return Gaussian(x + 0.5 * h * (first + second), math.sqrt(0.5 * h * (g2 + process.diffusion(s))))


def reverse_drift(process: Process, score: Score, x: State, t: float) -> Tensor:
    """-a x + g^2 score, the drift in elapsed time."""
    return process.diffusion(t) * score(x, t) - process.drift(t) * x


def _affine(step: AffineStep, score: Score, x: State, t: float) -> Gaussian:
    return Gaussian(step.scale * x + step.gain * score(x, t), step.std)
