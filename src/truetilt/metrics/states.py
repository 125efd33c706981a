"""Metrics of weighted states of any sampler: naturalness under the model, and diversity."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.evaluation import Batch, ask
from ..core.logits import draw_from
from ..core.types import NEG_INF, Model, Tokens, check_model
from ..diffusion.grids import masked_fraction_grid
from ..diffusion.processes import Masking


@torch.no_grad()
def log_p0(model: Model, x: Tokens, order: Sequence[int] | None = None, steps: int | None = None) -> Tensor:
    """log p0 of clean states [n, D], float64 [n], by the chain rule in one order, left to right by default.

    Costs one pass of the base per site; with fewer `steps`, one per step, as a draw in so many steps is made. For a
    network whose conditionals disagree it is the law drawn in this order.
    """
    check_model(model)
    process, (count, length) = model.process, x.shape
    if not isinstance(process, Masking):
        raise InvalidInput(f"the chain rule reveals masked sites, and {type(process).__name__} has no mask")
    every = torch.tensor(range(length) if order is None else list(order), device=x.device)
    total = torch.zeros(count, dtype=torch.float64, device=x.device)
    seen = torch.full_like(x, process.mask)
    for t, s in pairwise(masked_fraction_grid(process.schedule, length if steps is None else steps)):
        masked, left = process.count_masked(length, t), process.count_masked(length, s)
        sites = every[length - masked : length - left].expand(count, -1)
        if sites.shape[-1]:
            law = process.posterior(ask(model.base, Batch(seen, None), t), seen, t).at(sites)
            here = law.pick(x.gather(1, sites)).sum(-1)
            total = torch.where(total > NEG_INF, total + here, NEG_INF)  # an impossible state stays at -inf
            seen = seen.scatter(1, sites, x.gather(1, sites))
    return total


def site_frequencies(x: Tokens, weights: Tensor, vocabulary: int) -> Tensor:
    """Frequency of each token at each site, float64 [D, S], from states [n, D] with weights [n] that sum to 1."""
    length = x.shape[-1]
    found = torch.zeros(length, vocabulary, dtype=torch.float64, device=x.device)
    return found.scatter_add(1, x.T, weights.double().expand(length, -1))


def mean_difference(x: Tokens, weights: Tensor, vocabulary: int) -> float:
    """Mean Hamming distance over D of two states drawn by weight, 0 to 1."""
    return float(1 - (site_frequencies(x, weights, vocabulary) ** 2).sum(-1).mean())


def evenly_drawn(x: Tokens, weights: Tensor, count: int) -> Tokens:
    """`count` states drawn by weight, systematically: each as often as its expected number, up to one."""
    places = (torch.arange(count, device=x.device, dtype=torch.float64) + 0.5) / count
    return x[draw_from(weights.double().cumsum(-1), places)]
