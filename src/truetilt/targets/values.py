"""What states are worth: values of potentials, twists and rewards, asked about a batch and checked.

A move that redraws a site asks what the state is worth with each token there. A potential that can answer that at once
(a linear one, say) has a method `site_values`; any other is asked about every such state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..core.asking import check_strings
from ..core.types import NEG_INF, InvalidInput, InvalidWeights, Potential, Questions, Tokens, check, function, tensor_of


@runtime_checkable
class SiteValued(Protocol):
    """A potential that also answers for all tokens of a site at once."""

    def __call__(self, x: Tokens, t: float) -> Tensor: ...
    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor: ...  # [B, D], [B] -> [B, S]


@dataclass(frozen=True)
class OfFinished:
    """A function of finished states alone as a potential: the time is not asked."""

    function: Callable[[Tokens], Tensor]

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        return self.function(x)


@dataclass(frozen=True)
class EndsIn:
    """On the way what a twist says, at the end the reward itself."""

    twist: Potential
    reward: Potential

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.reward(x, t) if t == 0 else self.twist(x, t)


def as_potential(name: str, given: Any) -> Potential:
    """A function of (x, t) as it is, a function of x alone made one."""
    takes = "of a batch of states [B, D], or of it and a time, that returns one number a state"
    called = given.forward if isinstance(given, torch.nn.Module) else given
    try:
        inspect.signature(called).bind(0, 0)
    except (TypeError, ValueError):  # of x alone; or a builtin, which does not say
        function(name, given, "(x)", takes)
        return OfFinished(given)
    if isinstance(given, type):
        function(name, given, "(x)", takes)
    return given


def check_fits(twist: object, length: int, vocabulary: int) -> None:
    """A learned twist must have been learned for states of this length and these tokens."""
    if not hasattr(twist, "held_out"):
        return
    for name, mine in {"length": length, "vocabulary": vocabulary}.items():
        theirs = getattr(twist, name, None)
        if theirs not in (None, mine):
            raise InvalidInput(
                f"the twist was learned for a model of {name} {theirs}, and this one has {mine}; learn one for this "
                "model with tt.learn_twist"
            )


def value_of(potential: Potential, x: Tokens, t: float, questions: Questions | None = None) -> Tensor:
    """The value of states [..., D], float64 [...]: asked as one batch, with its shape and NaN checked."""
    batch = x.reshape(-1, x.shape[-1])
    try:
        value = potential(batch, t)
    except (AttributeError, TypeError, RuntimeError) as error:
        check_strings("the potential (reward)", error, batch)
        raise
    real = isinstance(value, Tensor) and value.dtype in (torch.float64, torch.float32)
    if not real or value.requires_grad or value.layout != torch.strided or value.device != x.device:
        value = tensor_of("what the potential returned", value, "return one number a state", x.device)
    if value.shape != batch.shape[:1]:
        raise InvalidInput(
            f"the potential (reward) returned shape {tuple(value.shape)} for a batch of states "
            f"{tuple(batch.shape)}; it must return one number a state, [{len(batch)}]"
        )
    check(
        value.isnan().any(),
        lambda: InvalidWeights(
            f"the potential (reward) returned NaN for {int(value.isnan().sum())} of {value.numel()} states at "
            f"t = {t:.6g}; return -inf for an impossible state, a finite number otherwise"
        ),
        questions,
    )
    return value.double().reshape(x.shape[:-1])


def scaled(value: Tensor, factor: float) -> Tensor:
    """factor * value; a value of -inf is impossible at any factor but 0, where it is not asked."""
    return torch.where(value == NEG_INF, NEG_INF, factor * value) if factor != 0 else torch.zeros_like(value)


def token_values(
    potential: Potential, x: Tokens, sites: Tensor, t: float, asked: Tensor, questions: Questions | None = None
) -> Tensor:
    """The value of x with each site [..., k] set to each token, float64 [..., k, S], where `asked`; 0 elsewhere."""
    if isinstance(potential, SiteValued):
        found = [_by_site(potential, x, site, t, asked.shape[-1]) for site in sites.unbind(-1)]
        return torch.where(asked, torch.stack(found, -2), 0.0)
    where = asked.nonzero(as_tuple=True)  # (*particle, site, token)
    *particle, k, token = where
    y = x[tuple(particle)]
    y = y.scatter(-1, sites[(*particle, k)][:, None], token[:, None])
    out = torch.zeros(asked.shape, dtype=torch.float64, device=x.device)
    if len(y):
        out[where] = value_of(potential, y, t, questions)
    return out


def _by_site(potential: SiteValued, x: Tokens, site: Tensor, t: float, size: int) -> Tensor:
    batch = x.reshape(-1, x.shape[-1])
    need = "return a number for each token"
    found = tensor_of("what site_values returned", potential.site_values(batch, site.reshape(-1), t), need, x.device)
    if tuple(found.shape) != (len(batch), size):
        raise InvalidInput(
            f"site_values of the {type(potential).__name__} returned shape {tuple(found.shape)} for a batch of states "
            f"{tuple(batch.shape)}; it must return one number for each of {size} tokens, [{len(batch)}, {size}]"
        )
    return found.double().reshape(*x.shape[:-1], size)
