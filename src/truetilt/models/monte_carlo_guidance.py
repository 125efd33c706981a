"""Guidance by a reward defined on clean states only: tokens are weighed by the rewards of completions that have them.

It is here rather than in `diffusion.predictors` because it draws, and random streams belong to `smc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from ..core.arguments import LARGEST, function, number, set_fields, tensor_of, whole_number
from ..core.errors import InvalidInput, InvalidWeights
from ..core.evaluation import Batch, BatchScore, check
from ..core.logits import SiteLogits, draw_from
from ..core.types import NEG_INF, Potential, Process, Score, Tokens
from ..diffusion.predictors import check_base, dense_base
from ..smc.coupling import row_hash
from ..smc.sampler import check_seed, mix, uniforms_of

_MOST = 1 << 20  # completions of a state, at most


@dataclass(frozen=True)
class MonteCarloGuidance(BatchScore):
    """The Score guided by a black-box reward: tokens of completions with high rewards become likelier.

    K completions are drawn in one shot, each masked site from the base's law of its clean token. The law of a site is
    estimated by its tokens in them, weighed by $exp(strength * reward)$: $E[1(x0_d = v) e^(strength r) | x]$ over
    $E[e^(strength r) | x]$. A share of the base is mixed in, so that $p/q$ at a revealed site is at most $1 / share$
    and no state is lost. The completions are a deterministic function of the state and the seed, whatever the rest of
    the batch. Use it as `tt.Steered(model, reward, strength, proposal=...)`, whose weight corrects the estimate. It
    costs K calls of the reward for each state that has masks, at every step.

    Args:
        process: The noising process of the base: `tt.Masking(S)`; there is nothing to complete without masks.
        base: Score of the unconditional model.
        reward: Function (x, t) of a batch of clean states [K B, D] and the time 0 that returns one number a state; -inf
            forbids.
        strength: Factor of the reward, finite, -1e9 to 1e9; 1 by default.
        completions: Number of completions per state, K, 2 or more; 16 by default.
        share: Share of the base in the proposal, above 0 and at most 1 (the base itself); .5 by default.
        seed: Seed of the completions, 0 to $2^63 - 1$; 0 by default.
    """

    asks_others: ClassVar[bool] = True
    process: Process
    base: Score
    reward: Potential
    strength: float = 1.0
    completions: int = 16
    share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_base(self.process, self.base)
        if self.process.states == self.process.vocabulary:
            raise InvalidInput(
                f"Monte-Carlo guidance completes masked sites, and {type(self.process).__name__} has no mask; take "
                "tt.Taylor(process, base, differentiable) or tt.Predictor(process, base, log_likelihood)"
            )
        function("the reward", self.reward, "(x, t)", "of states [B, D] and a time, that returns one number a state")
        need = f"it must be finite, at most {LARGEST:.0e}"
        set_fields(
            self,
            strength=number("strength", self.strength, need),
            completions=whole_number("completions", self.completions, 2, _MOST),
            share=number("share", self.share),
            seed=check_seed(self.seed),
        )
        if not abs(self.strength) <= LARGEST:
            raise InvalidInput(f"strength is {self.strength}; {need}")
        if not 0 < self.share <= 1:
            raise InvalidInput(
                f"share is {self.share}; give the base a share above 0, or its states are lost, at most 1"
            )

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        score, mask = dense_base(self.process, self.base, batch, t), self.process.states - 1
        which = (batch.x == mask).any(-1).nonzero().squeeze(-1)  # the score of a clean state is never read
        if not len(which):
            return SiteLogits.of(score)
        x = batch.x[which]
        p = self.process.posterior(SiteLogits.of(score[which]), x, t).dense().double().exp()
        tokens = draw_from(p.cumsum(-1), strata(x, self.seed, self.completions))
        weights = self._weights(torch.where((x == mask)[..., None], tokens, x[..., None]), t)
        mixed = self.share * p + (1 - self.share) * votes(tokens, weights, self.process.vocabulary)
        leaning = self.process.score(SiteLogits.of(mixed.log()), x, t).dense()
        return SiteLogits.of(score.index_copy(0, which, leaning.to(score.dtype)))

    def _weights(self, clean: Tokens, t: float) -> Tensor:
        """The weight of each completion [n, K], from clean states [n, D, K]; equal weights if all are forbidden."""
        states, need = clean.transpose(1, 2).flatten(0, 1), "return one number a state"
        value = tensor_of("what the reward returned", self.reward(states, 0.0), need, clean.device)
        if value.shape != states.shape[:1]:
            raise InvalidInput(
                f"the reward returned shape {tuple(value.shape)} for a batch of completions {tuple(states.shape)}; it "
                f"must return one number a state, [{len(states)}]"
            )
        bad = value.isnan() | (value == torch.inf)
        check(bad.any(), partial(_not_finite, bad, t))
        log_w = torch.where(value == NEG_INF, NEG_INF, self.strength * value.double()).reshape(-1, self.completions)
        return torch.where((log_w == NEG_INF).all(-1, keepdim=True), 0.0, log_w).softmax(-1)


def _not_finite(bad: Tensor, t: float) -> InvalidWeights:
    return InvalidWeights(
        f"the reward returned NaN or +inf for {int(bad.sum())} of {bad.numel()} completions of states at t = {t:.6g}; "
        "return -inf for an impossible state, a finite number otherwise"
    )


def votes(tokens: Tokens, weights: Tensor, vocabulary: int) -> Tensor:
    """The weight of each token at each site [n, D, S], from tokens [n, D, K] with weights [n, K].

    Completions are added one by one, because a parallel sum on a device has no fixed order.
    """
    total = torch.zeros(*tokens.shape[:-1], vocabulary, dtype=weights.dtype, device=weights.device)
    for token, weight in zip(tokens.unbind(-1), weights.unbind(-1), strict=True):
        total.scatter_add_(-1, token[..., None], weight[:, None, None].expand(*token.shape, 1))
    return total


def strata(x: Tokens, seed: int, count: int) -> Tensor:
    """Uniforms [n, D, count], a pure function of each state of x [n, D] and the seed.

    At every site each of `count` equal parts of [0, 1) gets one uniform, in random order (a Latin hypercube): each
    uniform is marginally uniform, and together they are evenly spread.
    """
    n, length = x.shape
    key = mix(row_hash(x) ^ mix(torch.tensor(seed, device=x.device) + 1))
    words = mix(key[:, None] + mix(torch.arange(1, 2 * length * count + 1, device=x.device)))
    order, within = uniforms_of(words).reshape(n, 2, length, count).unbind(1)
    return (order.argsort(-1) + within) / count
