"""Log-weights as values: sums over the particle axis, always float64, never clamped."""

from __future__ import annotations

import math

import torch

from ..core.types import NEG_INF, DegenerateWeights, InvalidWeights, LogWeights, Questions, TruetiltError, check


def log_mean_exp(log_w: LogWeights) -> torch.Tensor:
    """log of the mean weight: the estimate of log Z that a mass-preserving sampler carries at any time."""
    return torch.logsumexp(log_w, -1) - math.log(log_w.shape[-1])


def normalised(log_w: LogWeights) -> torch.Tensor:
    """Weights that sum to one; a population without mass gets equal ones, which are never used."""
    log_sum = torch.logsumexp(log_w, -1, keepdim=True)
    return (log_w - log_sum).exp().masked_fill_(log_sum == NEG_INF, 1 / log_w.shape[-1])


def effective_sample_size(log_w: LogWeights) -> torch.Tensor:
    """(sum w)^2 / sum w^2, between 1 and N; 0 for a population without mass."""
    log_sum = torch.logsumexp(log_w, -1)
    log_ess = 2 * log_sum - torch.logsumexp(2 * log_w, -1)
    return log_ess.exp().masked_fill_(log_sum == NEG_INF, 0.0)


def check_weights(log_w: LogWeights, where: object, complete: bool = True, questions: Questions | None = None) -> None:
    """Raise on NaN, on +inf, and when nothing has any weight left, if this is all there is."""
    top = log_w.max()  # NaN if any is NaN
    bad = top - top != 0 if complete else ~(top < torch.inf)  # only a finite number less itself is 0
    check(bad, lambda: _problem(log_w, where), questions)


def _problem(log_w: LogWeights, where: object) -> TruetiltError:
    if log_w.max() == NEG_INF:
        return DegenerateWeights(
            f"{where}: every particle has weight zero. The condition may be impossible for the states reached: "
            "use more particles, a smaller alpha, a proposal that keeps the support (beta), or a softer likelihood."
        )
    bad = int((log_w.isnan() | (log_w == torch.inf)).sum())
    kind = "NaN" if log_w.isnan().any() else "+inf"
    return InvalidWeights(
        f"{where}: {bad} of {log_w.numel()} particles have weight {kind}. A score, potential or reward returned NaN "
        "or an infinite value there, or the proposal lacks the base's support; check the model's output at this time."
    )
