"""The value of a masked state by lookahead: K one-shot completions, and the average of their rewards.

The masked sites are filled independently from the network's posterior, which is cheap but ignores their dependence. The
completions are a deterministic function of the state and a seed: evaluated twice, a state has the same value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..core.arguments import LONGEST, bounded, function, reals, set_fields, shown, whole_number
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, ask
from ..core.logits import SiteLogits
from ..core.types import NEG_INF, Model, Tokens, check_model
from ..diffusion.processes import Masking
from ..rewards.calls import Rewarding, call_reward, check_reward_of, check_strength_of
from ..smc.sampler import check_seed, mix, uniforms_of
from ..targets.any_order import RevealLaw

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed word
_NUMBERS = 1 << 23  # uniforms generated at a time


class Average(Protocol):
    """Averages the rewards of completions [B, K] to values [B], given the strength of the reward."""

    def __call__(self, rewards: Tensor, strength: float) -> Tensor: ...


def soft_mean(rewards: Tensor, strength: float) -> Tensor:
    """$log mean exp(strength * reward) / strength$ over the completions, as in FK steering: approximates the ideal
    twist.

    If good completions are rare it needs many of them, and is too low with few.

    Args:
        rewards: Rewards of the completions [B, K].
        strength: Factor of the reward in the target, not 0.
    """
    rewards, strength = _of_completions(rewards), check_strength_of(strength)
    scaled = strength * rewards
    return (scaled.logsumexp(-1) - math.log(rewards.shape[-1])) / strength


def plain_mean(rewards: Tensor, strength: float) -> Tensor:
    """The mean reward of the completions, as in SVDD-PM: less noisy, and below the soft mean.

    Args:
        rewards: Rewards of the completions [B, K].
        strength: Factor of the reward in the target; not used.
    """
    return _of_completions(rewards).mean(-1)


def _of_completions(rewards: object) -> Tensor:
    """The rewards of completions as a float64 tensor [..., K]."""
    need = "give the rewards of completions [B, K], one or more of each state"
    found = reals("rewards", rewards, need)
    if not found.dim() or not found.shape[-1]:
        raise InvalidInput(f"rewards is {shown(rewards)}; {need}")
    return found


@dataclass(frozen=True)
class Lookahead:
    """A state's value by its one-shot completions, in units of the reward; on clean states the reward itself.

    Costs one network evaluation and `completions` calls of the reward for each masked state.

    Args:
        model: A `tt.Model` on `tt.Masking`; its base score fills the masked sites.
        reward: Function of clean states [B, D] (or of them and a time) that returns one number a state; -inf forbids.
        strength: Factor of the reward in the target, not 0; 1 by default.
        completions: Number of completions per state, 16 by default.
        average: `tt.soft_mean` (the default) or `tt.plain_mean`, or a function (rewards [B, K], strength) of your own.
        lowest: Value of $strength * reward$ that a forbidden completion (-inf) counts as, -100 by default: a state with
            forbidden completions may still have allowed ones.
        seed: Seed of the completions, 0 by default.
    """

    model: Model
    reward: Rewarding
    strength: float = 1.0
    completions: int = 16
    average: Average = soft_mean
    lowest: float = -100.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_model(self.model)
        if not isinstance(self.model.process, Masking):
            name = type(self.model.process).__name__
            raise InvalidInput(f"completions fill masked sites, and {name} has no mask; use tt.Masking")
        function("average", self.average, "(rewards, strength)", "such as tt.soft_mean or tt.plain_mean")
        strength = check_reward_of(self.reward, self.strength, self.model.process.vocabulary)
        lowest = bounded("lowest", self.lowest, "it must be finite")
        set_fields(self, strength=strength, lowest=lowest, seed=check_seed(self.seed))
        set_fields(self, completions=whole_number("completions", self.completions, 1, LONGEST))

    @torch.no_grad()
    def __call__(self, x: Tokens, t: float) -> Tensor:
        masked = (x == self.model.process.states - 1).any(-1)
        out = torch.empty(len(x), dtype=torch.float64, device=x.device)
        if bool((~masked).any()):
            out[~masked] = call_reward(self.reward, x[~masked])
        some = masked.nonzero().squeeze(-1)
        if not len(some):
            return out
        for part in some.split(max(_NUMBERS // (self.completions * x.shape[-1]), 1)):
            out[part] = self._looked(x[part], t)
        return out

    def _looked(self, x: Tokens, t: float) -> Tensor:
        rewards = call_reward(self.reward, self.complete(x, t).reshape(-1, x.shape[-1])).reshape(
            len(x), self.completions
        )
        softened = torch.where(rewards == NEG_INF, self.lowest / self.strength, rewards)
        found = self.average(softened, self.strength)
        if not isinstance(found, Tensor) or found.shape != x.shape[:1]:
            raise InvalidInput(f"average returned {shown(found)}; it must return one number a state, [{len(x)}]")
        return found.double()

    def complete(self, x: Tokens, t: float) -> Tokens:
        """The completions of states [B, D]: clean states [B, K, D]."""
        process = self.model.process
        posterior = process.posterior(ask(self.model.base, Batch(x, self.model.log), t), x, t)
        u = self._uniforms(x)
        many, sites = x[:, None].expand(u.shape), torch.arange(x.shape[-1], device=x.device).expand(u.shape)
        drawn = RevealLaw(many, sites, SiteLogits(posterior.store, posterior.index[:, None].expand(u.shape))).sample(u)
        return torch.where(many == process.states - 1, drawn, many)

    def _uniforms(self, x: Tokens) -> Tensor:
        """Uniforms [B, K, D] from a counter-based stream keyed by the seed and the tokens of each state."""
        key = mix(torch.full_like(x[:, 0], self.seed) + _GOLDEN)
        for column in x.unbind(-1):
            key = mix(key + (column + 1) * _GOLDEN)
        count = torch.arange(1, self.completions * x.shape[-1] + 1, device=x.device)
        return uniforms_of(mix(key[:, None] + count * _GOLDEN)).reshape(len(x), self.completions, x.shape[-1])
