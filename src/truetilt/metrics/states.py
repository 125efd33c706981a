"""Judging weighted states of any sampler: how natural they are to the model, and how different from each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.batch import Batch, ask
from ..core.logits import draw_from
from ..core.types import InvalidInput, Model, Tokens, check_model
from ..diffusion.processes import Masking


@torch.no_grad()
def log_p0(model: Model, x: Tokens, order: Sequence[int] | None = None) -> Tensor:
    """log p0 of clean states [n, D], float64 [n], by the chain rule in one order, left to right by default.

    One pass of the base a site. Of a network whose conditionals disagree it is the law drawn in this order.
    """
    check_model(model)
    process, (count, length) = model.process, x.shape
    if not isinstance(process, Masking):
        raise InvalidInput(f"the chain rule reveals masked sites, and {type(process).__name__} has no mask")
    total = torch.zeros(count, dtype=torch.float64, device=x.device)
    seen = torch.full_like(x, process.mask)
    for done, site in enumerate(range(length) if order is None else order):
        time = process.time_masked(length, length - done)
        here = torch.full((count, 1), site, dtype=torch.int64, device=x.device)
        law = process.posterior(ask(model.base, Batch(seen, None), time), seen, time).at(here)
        total = total + law.pick(x[:, site, None]).squeeze(-1)
        seen[:, site] = x[:, site]
    return total


def site_frequencies(x: Tokens, weights: Tensor, vocabulary: int) -> Tensor:
    """How often each token stands at each site, float64 [D, S], of states [n, D] with weights [n] that sum to 1."""
    length = x.shape[-1]
    found = torch.zeros(length, vocabulary, dtype=torch.float64, device=x.device)
    return found.scatter_add(1, x.T, weights.double().expand(length, -1))


def mean_difference(x: Tokens, weights: Tensor, vocabulary: int) -> float:
    """The share of sites at which two states differ that are drawn by weight: mean Hamming distance over D; 0 to 1."""
    return float(1 - (site_frequencies(x, weights, vocabulary) ** 2).sum(-1).mean())


def evenly_drawn(x: Tokens, weights: Tensor, count: int) -> Tokens:
    """So many states drawn by weight, as evenly as can be: each as often as its share, up to one."""
    places = (torch.arange(count, device=x.device, dtype=torch.float64) + 0.5) / count
    return x[draw_from(weights.double().cumsum(-1), places)]
