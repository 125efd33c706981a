"""Rows as they stand while a text is drawn from left to right: the first sites are seen, all later ones are masked.

How many are seen is drawn uniformly among the used sites of a row (up to its end token), and the row's loss is that of
the next site alone, times the number of used sites. So every beginning of a text without an end counts once, whatever
the text's length: on average the loss is

    E[used * -log p(x_k | x_1 ... x_k-1)] = sum_k -log p(x_k | x_1 ... x_k-1) = -log p(x),

the exact negative log-likelihood of the text as it is drawn from left to right, and at its minimum the network is the
true law of the next token. It has the scale of the bound for random masks, which the remaining rows keep.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..diffusion.processes import Masking
from .losses import Noise, Noised


def suffixes(process: Masking, x0: Tensor, used: Tensor, u: Tensor) -> Noised:
    """Rows [B, D] with a suffix masked, by one uniform each; used is the number of sites up to the end token [B].

    The noise is of the time at which so large a share is masked on average: a network that is told the time is told
    that one. The weight leaves the next site's cross-entropy times `used`.
    """
    length = x0.shape[1]
    every = Noise.at(process, torch.arange(length, 0, -1, dtype=torch.float64) / length).to(x0.device)  # by sites seen
    seen = (u * used).long().minimum(used - 1)
    noise = Noise(*(values[seen] for values in every))
    site = torch.arange(length, device=x0.device)
    x = torch.where(site < seen[:, None], x0, process.mask)
    each = used * noise.lost / (noise.rate * noise.keep)
    return Noised(x0, x, noise, torch.where(site == seen[:, None], each[:, None], 0.0))


def mixed_in(noised: Noised, other: Noised, chosen: Tensor) -> Noised:
    """Rows with random masks, but those that are chosen (bool [B]) from the other, which has weights."""
    noise = Noise(*(torch.where(chosen, new, old) for old, new in zip(noised.noise, other.noise, strict=True)))
    x = torch.where(chosen[:, None], other.x, noised.x)
    return Noised(noised.x0, x, noise, torch.where(chosen[:, None], _weight(other), 1.0))


def next_token_nats(noised: Noised, log_score: Tensor) -> Tensor:
    """`used` times minus the log-probability of the next token, of rows that `suffixes` made, [B]: -log p(x) on
    average."""
    log_p = log_score.double().log_softmax(-1).gather(-1, noised.x0[..., None])[..., 0]
    noise = noised.noise
    return -(log_p * _weight(noised)).sum(-1) * (noise.rate * noise.keep / noise.lost)


def _weight(noised: Noised) -> Tensor:
    return torch.ones_like(noised.x0) if noised.weight is None else noised.weight
