"""Calls of a reward on clean states, with its values and its strength checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import bounded, takes_time, tensor_of
from ..core.errors import InvalidInput
from ..core.evaluation import CountedFunction
from ..core.types import NEG_INF, Tokens
from ..core.user_functions import call_user
from .reward import Reward

Rewarding = Callable[..., Any]  # of clean states [B, D], or of them and a time; one number a state


def check_reward_of(reward: object, strength: object, vocabulary: int | None = None) -> float:
    """The strength of a reward as a plain number, finite and not 0; the reward must be a function, and know all tokens
    of a vocabulary if one is given.
    """
    takes_time("the reward", reward, "of clean states [B, D]")
    if vocabulary is not None:
        check_alphabet(reward, vocabulary)
    return check_strength_of(strength, "the reward's strength")


def check_strength_of(strength: object, name: str = "strength") -> float:
    """The factor of a reward as a plain number, finite and not 0."""
    need = "it must be finite and not 0"
    if found := bounded(name, strength, need):
        return found
    raise InvalidInput(f"{name} is {found}; {need}")


def check_alphabet(reward: object, vocabulary: int) -> None:
    """Raise for a `Reward` whose alphabet has fewer tokens than the model draws."""
    known = reward.vocabulary if isinstance(reward, Reward) else None
    if known is not None and known < vocabulary:
        raise InvalidInput(
            f"the alphabet of the reward has {known:,} tokens and the model draws {vocabulary:,}; give the reward the "
            "tokenizer that the model was made with, or vocabulary= the model's"
        )


def call_reward(reward: Rewarding, x: Tokens) -> Tensor:
    """The reward of clean states [B, D], float64 [B] on their device, with its shape and NaN checked.

    The function is given a copy: what it writes into its input changes no state.
    """
    own = reward.function if isinstance(reward, CountedFunction) else reward
    given = (x.clone(), 0.0) if takes_time("the reward", own) else (x.clone(),)
    found = call_user("the reward", reward, *given)
    value = tensor_of("what the reward returned", found, "return one number a state", x.device).double()
    if value.shape != x.shape[:1]:
        raise InvalidInput(
            f"the reward returned shape {tuple(value.shape)} for a batch of states {tuple(x.shape)}; it must return "
            f"one number a state, [{len(x)}]"
        )
    bad = value.isnan() | (value == torch.inf)
    if bool(bad.any()):
        raise InvalidInput(
            f"the reward is NaN or +inf for {int(bad.sum())} of {len(x)} states, the first of them "
            f"{x[int(bad.nonzero()[0])].tolist()}; return -inf for a forbidden state, a finite number otherwise"
        )
    return value


def scaled(value: Tensor, strength: float) -> Tensor:
    """strength * reward; -inf (forbidden) stays -inf."""
    return torch.where(value == NEG_INF, NEG_INF, strength * value)
