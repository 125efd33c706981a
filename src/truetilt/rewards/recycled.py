"""A second estimate beside the particles: the target renormalised over all states that the reward was evaluated on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.arguments import LARGEST, bounded, function, has, tensor_of
from ..core.errors import DegenerateWeights, InvalidInput
from ..core.types import NEG_INF, Tokens


class Recycled(NamedTuple):
    """All evaluated states and their weights under $p0 exp(strength r)$, which sum to 1.

    Biased: states that were never evaluated are missing, so `log_z` is always below the truth. It uses every
    evaluation, not only the states in which particles ended, so where a few states hold most of the mass it is much the
    better estimate. It carries no error bar: compare it with the particles' log Z, whose Z is unbiased.

    Args:
        states: The evaluated states [K, D].
        weights: Their weights, float64 [K].
        log_z: Log of the sum of $p0(x) exp(strength r(x))$ over them: a lower bound of log Z.
    """

    states: Tokens  # [K, D]
    weights: Tensor  # float64 [K]
    log_z: float  # log of the sum of p0(x) exp(strength r(x)) over the evaluated states: a lower bound

    def expectation(self, h: Callable[[Tokens], Tensor]) -> Tensor:
        """Weighted mean of h(x); h maps states [K, D] to values [K, ...]."""
        function("h", h, "(x)", "of states [K, D]")
        value = tensor_of("what h returned", h(self.states), "return a number, or several, a state").double()
        if value.shape[:1] != self.weights.shape:
            raise InvalidInput(f"h returned shape {tuple(value.shape)} for {len(self.states)} states; return [K, ...]")
        return torch.tensordot(self.weights, value, 1)


def recycled(reward: Any, log_prob: Callable[[Tokens], Tensor], strength: float = 1.0) -> Recycled:
    """$p0 exp(strength r)$ renormalised over all states that a `tt.Reward` was evaluated on; biased, see `Recycled`.

    Args:
        reward: The `tt.Reward` of one or several runs, with `cached=True`.
        log_prob: Function of clean states [K, D] that returns log p0 of each, normalised: of a table, a chain, or a
            model with a whole-sequence law.
        strength: Factor of the reward; 1 by default.
    """
    has("reward", reward, ("known",), "give the tt.Reward that a run was given")
    function("log_prob", log_prob, "(x)", "of clean states [K, D] that returns log p0")
    strength = bounded("strength", strength, f"it must be finite, at most {LARGEST:.0e}")
    states, values = reward.known()
    if len(states) == 0:
        raise InvalidInput("the reward has not been called yet: there is no state to weigh; run a sampler first")
    log_p = tensor_of("what log_prob returned", log_prob(states), "return log p0 of each state").double().cpu()
    if log_p.shape != values.shape or bool(log_p.isnan().any()) or bool((log_p > 1e-6).any()):
        raise InvalidInput(
            f"log_prob returned shape {tuple(log_p.shape)} for {len(states)} states, or NaN, or numbers above 0; it "
            "must return log p0(x) of each state, [K]"
        )
    log_w = torch.where(values == NEG_INF, NEG_INF, strength * values) + log_p
    log_z = float(log_w.logsumexp(0))
    if log_z == NEG_INF:
        raise DegenerateWeights("every state called is forbidden or impossible: there is nothing to weigh")
    return Recycled(states, (log_w - log_z).exp(), log_z)
