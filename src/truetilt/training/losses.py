"""Losses with known minima: pure functions of a network's output and a noised batch, one value per sample, in nats.

A network returns posterior logits log p(x0 = v | x) up to a constant per site. For masking and a normalised posterior
the denoising score entropy *is* the weighted cross-entropy, term by term; they differ if rates are not normalised
(edge-form DEFT) and for the uniform process. Averaged over data and over t in (0, 1), either is the continuous-time
bound on -log p(x_0): at the truth it equals H(p0) - I(X_0; X_1), and no rates do better.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..core.errors import InvalidInput
from ..core.types import Tokens
from ..diffusion.processes import Masking, Uniform


class Noise(NamedTuple):
    """A time for each sample with its total noise and rate; computed once, so that no loss synchronises the device."""

    t: Tensor  # [B]
    sigma: Tensor  # [B]
    rate: Tensor  # [B]

    @staticmethod
    def at(process: Masking | Uniform, t: Tensor) -> Noise:
        sigma = process.schedule(t)
        return Noise(t, sigma.value.to(t), sigma.rate.to(t))

    def to(self, device: torch.device | str) -> Noise:
        return Noise(*(part.to(device, non_blocking=True) for part in self))

    @property
    def keep(self) -> Tensor:
        return torch.exp(-self.sigma)

    @property
    def lost(self) -> Tensor:
        return -torch.expm1(-self.sigma)

    @property
    def log_odds(self) -> Tensor:
        """log of the chance of a site being kept over that of being lost."""
        return self.keep.log() - self.lost.log()


class Noised(NamedTuple):
    """Clean tokens, their noised version, and the noise."""

    x0: Tokens  # [B, D]
    x: Tokens  # [B, D]
    noise: Noise
    weight: Tensor | None = None  # [B, D]; a factor of each masked site's term in the score entropy; None: 1


def corrupt(process: Masking | Uniform, x0: Tokens, noise: Noise, u: Tensor) -> Noised:
    """Noise x0 by uniforms of its shape: the forward process at a time for each sample."""
    keep = noise.keep[:, None]
    if isinstance(process, Masking):
        return Noised(x0, torch.where(u < keep, x0, process.mask), noise)
    redraw = ((u - keep) / noise.lost[:, None] * process.vocabulary).clamp(0, process.vocabulary - 1).long()
    return Noised(x0, torch.where(u < keep, x0, redraw), noise)


def corrupt_from_all(process: Masking | Uniform, x0: Tokens, noise: Noise, u: Tensor) -> Noised:
    """As `corrupt`, but masking starts from all sites masked at t = 1, as generation does; for `bound`."""
    if not isinstance(process, Masking):
        return corrupt(process, x0, noise, u)
    top = -torch.expm1(-process.schedule(1.0).value).to(noise.lost)
    return Noised(x0, torch.where(u < (noise.lost / top)[:, None], process.mask, x0), noise)


def log_scores(process: Masking | Uniform, logits: Tensor, noised: Noised) -> Tensor:
    """log p_t(y)/p_t(x) [B, D, V] of a network's posterior logits; 0 at v = x for uniform."""
    log_posterior = torch.log_softmax(_real(logits), -1)
    keep, lost = noised.noise.keep[:, None, None], noised.noise.lost[:, None, None]
    if isinstance(process, Masking):
        return log_posterior + (keep.log() - lost.log()).to(log_posterior)
    switch = lost / process.vocabulary
    here = noised.x[..., None]
    log_forward = switch.log().to(log_posterior).expand_as(log_posterior)
    log_stay = (keep + switch).log().to(log_posterior)
    log_forward = log_forward.scatter(-1, here, log_stay.expand(*here.shape))
    weight = log_posterior - log_forward
    every = weight.logsumexp(-1, keepdim=True)
    return torch.logaddexp(keep.log().to(weight) + weight, switch.log().to(weight) + every)


def posterior_cross_entropy(process: Masking, logits: Tensor, noised: Noised) -> Tensor:
    """sigma' e^-sigma / (1 - e^-sigma) times the cross-entropy at masked sites, summed over them, [B]."""
    if not isinstance(process, Masking):
        raise InvalidInput("the posterior form is for masking; train the uniform process with the score entropy")
    logits = _real(logits)
    entropy = cross_entropy(logits.flatten(0, 1), noised.x0.flatten(), reduction="none").view(noised.x.shape)
    masked = torch.where(noised.x == process.mask, entropy, 0.0).sum(-1)
    noise = noised.noise
    return masked * (noise.rate * noise.keep / noise.lost).to(masked)


def score_entropy(process: Masking | Uniform, log_score: Tensor, noised: Noised) -> Tensor:
    """The denoising score entropy of SEDD with its constant, weighted by the forward rate, summed over sites, [B].

    Each jump to v adds s - r log s + r log r - r >= 0, with r = q(v|x0)/q(x|x0) and s the score; 0 where s = r.
    """
    log_score, noise = _real(log_score), noised.noise
    if isinstance(process, Masking):
        log_true = log_score.gather(-1, noised.x0[..., None])[..., 0]
        terms = _masked_terms(log_score.exp().sum(-1), log_true, noise.log_odds[:, None].to(log_score))
        terms = terms if noised.weight is None else terms * noised.weight.to(terms)
        return torch.where(noised.x == process.mask, terms, 0.0).sum(-1) * noise.rate.to(log_score)
    size = process.vocabulary
    log_ratio = _uniform_log_ratio(noised, size).to(log_score)
    here = noised.x[..., None]
    log_score = log_score - log_score.gather(-1, here)
    terms = log_score.exp() + log_ratio.exp() * (log_ratio - 1 - log_score)
    return terms.scatter(-1, here, 0.0).sum((-2, -1)) * (noise.rate / size).to(log_score)


def masked_score_entropy(sites: tuple[Tensor, ...], total: Tensor, log_true: Tensor, noised: Noised) -> Tensor:
    """`score_entropy` for masking, [B], from what a network says at the masked sites [n] alone, given as row and place:
    the sum of its scores, and the log-score of the clean token."""
    row, noise = sites[0], noised.noise
    terms = _masked_terms(total, log_true, noise.log_odds[row].to(total))
    terms = terms if noised.weight is None else terms * noised.weight[sites].to(terms)
    return torch.zeros_like(noise.rate, dtype=terms.dtype).index_add(0, row, terms) * noise.rate.to(terms)


def _masked_terms(total: Tensor, log_true: Tensor, log_odds: Tensor) -> Tensor:
    return total + log_odds.exp() * (log_odds - 1 - log_true)


def deft_edges(process: Masking | Uniform, base_logits: Tensor, guide: Tensor, noised: Noised) -> Tensor:
    """Edge-form DEFT: the score entropy of the frozen base plus the guide's log-ratios [B, D, V], [B]."""
    return score_entropy(process, log_scores(process, base_logits.detach(), noised) + _real(guide), noised)


def potential_cross_entropy(log_odds: Tensor, label: Tensor) -> Tensor:
    """-log softmax at the label [B]: at its minimum the network is log p_t(label | x)."""
    return cross_entropy(_real(log_odds), label, reduction="none")


def bound(process: Masking | Uniform, log_score: Tensor, noised: Noised) -> Tensor:
    """The continuous-time bound on -log p(x_0) in nats a dimension, at one time a sample, [B].

    Its mean over t uniform in (0, 1) is the bound. For masking, `noised` must come from `corrupt_from_all`; the
    prior then costs nothing. For uniform the prior costs KL(q(x_1|x_0) || uniform), which is known.
    """
    return (score_entropy(process, log_score, noised) + _prior_cost(process, noised)) / noised.x.shape[-1]


def _prior_cost(process: Masking | Uniform, noised: Noised) -> float:
    if isinstance(process, Masking):
        return 0.0
    size = process.vocabulary
    keep = torch.exp(-process.schedule(1.0).value)
    stay, switch = keep + (1 - keep) / size, (1 - keep) / size
    each = stay * (stay * size).log() + (size - 1) * switch * (switch * size).log()
    return float(each) * noised.x.shape[-1]


def _uniform_log_ratio(noised: Noised, size: int) -> Tensor:
    """log q(v|x0)/q(x|x0) for every v [B, D, V]."""
    keep, switch = noised.noise.keep[:, None, None], noised.noise.lost[:, None, None] / size
    log_gain = torch.log1p(keep / switch)  # log of staying over switching to one other token
    origin = noised.x0[..., None]
    there = origin == torch.arange(size, device=origin.device)
    came = origin == noised.x[..., None]
    return log_gain * there - log_gain * came


def _real(values: Tensor) -> Tensor:
    """At least float32: a log-probability is never kept in half precision."""
    return values if values.dtype == torch.float64 else values.float()
