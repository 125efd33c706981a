"""A surrogate of a measured landscape from the states called so far: kriging, exact at the measured states.

Values of states that differ at k sites are assumed to correlate as RHO^k. For a state that was not called the surrogate
is the mean plus one standard deviation, at most the largest possible value, because a law to draw from must cover what
is unknown. Weights correct the surrogate exactly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.types import Tokens
from ..exact.tables import flat_index

RHO = 0.5  # correlation of neighbours
NUGGET = 0.1  # variance of a value not explained by its neighbours, in units of the prior's
SHARE = 0.98  # share of the surrogate's law for whose states the variance is computed; the others have the prior's
ROWS = 8_000  # states computed at a time


def correlations(a: Tokens, b: Tokens) -> Tensor:
    """RHO to the power of the number of differing sites, float32 [A, B]."""
    apart = torch.zeros(len(a), len(b))
    for site in range(a.shape[1]):
        apart += a[:, site, None] != b[None, :, site]
    return RHO**apart


def kriged(known: Tokens, values: Tensor, log_p0: Tensor, strength: float, highest: float = 0.0) -> Tensor:
    """The surrogate of every state [S^D], from called states [K, D] and their values; log p0 [S^D] tells which
    matter."""
    size = round(len(log_p0) ** (1 / known.shape[1]))
    every = torch.cartesian_prod(*[torch.arange(size)] * known.shape[1])
    centre, low = float(values.mean()), float(values.min())
    goal = (values - centre).float()[:, None]
    root = torch.linalg.cholesky(correlations(known, known) + NUGGET * torch.eye(len(known)))
    fitted = torch.cholesky_solve(goal, root)
    spread = math.sqrt(max(float(goal.T @ fitted) / len(known), 1e-6))
    mean = torch.cat([(correlations(part, known) @ fitted)[:, 0] for part in every.split(ROWS)]).double() + centre
    guess = (mean + spread).clamp(low, highest)
    matter = _heaviest(log_p0 + strength * guess)
    for part in matter.split(ROWS):
        told = torch.linalg.solve_triangular(root, correlations(every[part], known).T, upper=False)
        deviation = (1 - (told**2).sum(0)).clamp(min=0.0).sqrt().double()
        guess[part] = (mean[part] + spread * deviation).clamp(low, highest)
    return guess.index_copy(0, flat_index(known, size), values)


def _heaviest(log_mass: Tensor) -> Tensor:
    """The heaviest states that together hold SHARE of a law."""
    law, order = log_mass.softmax(0).sort(descending=True)
    return order[: int((law.cumsum(0) < SHARE).sum()) + 1]
