"""Logistic regression (a convex fit with a unique solution), and correlations."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.errors import InvalidInput, TruetiltError


@torch.enable_grad()
def least_cross_entropy(x: Tensor, target: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Weight [K, C] and bias [K] of the logistic regression of shares [n, K] on x [n, C], to a gradient of 1e-7."""
    weight = torch.zeros(target.shape[1], x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(target.shape[1], dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias], max_iter=2000, tolerance_grad=1e-8, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        solver.zero_grad()
        value = -(target * (x @ weight.T + bias).log_softmax(-1)).sum(-1).mean() + penalty / 2 * weight.square().sum()
        value.backward()
        return value

    solver.step(loss)
    left = float(loss().detach())
    steepest = max(float(p.grad.abs().max()) for p in (weight, bias) if p.grad is not None)
    if not steepest < 1e-7 or (penalty == 0 and left < 1e-6):
        raise TruetiltError(
            f"the fit stopped at a gradient of {steepest:.1e}, a loss of {left:.1e}; a line separates the classes, and "
            "the best one is endlessly steep: raise the penalty, or give shares between 0 and 1"
        )
    return weight.detach(), bias.detach() - bias.detach().mean()


def pearson(x: Tensor, y: Tensor) -> float:
    """Pearson correlation of two vectors."""
    if x.dim() != 1 or x.shape != y.shape or len(x) < 2:
        raise InvalidInput(f"rows of shape {tuple(x.shape)} and {tuple(y.shape)}; give two of the same length")
    return float(torch.corrcoef(torch.stack([x.double(), y.double()]))[0, 1])


def spearman(x: Tensor, y: Tensor) -> float:
    """Spearman rank correlation; ties share their mean rank."""
    return pearson(_ranks(x), _ranks(y))


def _ranks(x: Tensor) -> Tensor:
    _, places, counts = x.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[places]
