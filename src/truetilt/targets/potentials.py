"""Potentials (twists, rewards): functions of a batch of states, the protocols of further methods they may have, and the
check of their strength.

A move that redraws a site needs the value of the state with each token there. A potential that computes all of these at
once (a linear one, say) has a method `site_values`; any other is evaluated on every such state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import LARGEST, bounded, function, takes_time, tensor_of
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog, value_of
from ..core.twists import Learned, SiteValued
from ..core.types import Model, Potential, Score, Tokens
from ..rewards.calls import check_alphabet


def highest_of(reward: Any) -> float | None:
    """The most that a reward can return, where it says so, as `tt.Reward(..., highest=)` does."""
    return getattr(reward, "highest", None)


@dataclass(frozen=True)
class OfFinished:
    """A function of finished states alone as a potential (x, t): the time is ignored."""

    function: Callable[[Tokens], Tensor]

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        return self.function(x)

    @property
    def highest(self) -> float | None:
        return highest_of(self.function)


@dataclass(frozen=True)
class EndsIn:
    """The twist's value before the end of the run, the reward's at the end."""

    twist: Potential
    reward: Potential

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.reward(x, t) if t == 0 else self.twist(x, t)


def as_potential(name: str, given: Any) -> Potential:
    """A function of (x, t) is returned unchanged; one of x alone is wrapped in a function that ignores the time."""
    takes = "of a batch of states [B, D], or of it and a time, that returns one number a state"
    return given if takes_time(name, given, takes) else OfFinished(given)


def check_fits(twist: object, length: int, vocabulary: int) -> None:
    """A learned twist must have been learned for states of this length and these tokens; a `tt.Reward` must know all
    of them.
    """
    check_alphabet(twist, vocabulary)
    if not isinstance(twist, Learned):
        return
    for name, theirs, mine in (("length", twist.length, length), ("vocabulary", twist.vocabulary, vocabulary)):
        if theirs not in (None, mine):
            raise InvalidInput(
                f"the twist was learned for a model of {name} {theirs}, and this one has {mine}; learn one for this "
                "model with tt.learn_twist"
            )


def token_values(
    potential: Potential, x: Tokens, sites: Tensor, t: float, asked: Tensor, log: RunLog | None = None
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
        out[where] = value_of(potential, y, t, log)
    return out


def _by_site(potential: SiteValued, x: Tokens, site: Tensor, t: float, size: int) -> Tensor:
    batch = x.reshape(-1, x.shape[-1])
    need = "return a number for each token"
    found = tensor_of(
        "what site_values returned", potential.site_values(batch.clone(), site.reshape(-1), t), need, x.device
    )
    if tuple(found.shape) != (len(batch), size):
        raise InvalidInput(
            f"site_values of the {type(potential).__name__} returned shape {tuple(found.shape)} for a batch of states "
            f"{tuple(batch.shape)}; it must return one number for each of {size} tokens, [{len(batch)}, {size}]"
        )
    return found.double().reshape(*x.shape[:-1], size)


def most_reward(reward: Potential | None, strength: float, potential: Potential | None) -> float | None:
    """The largest strength * reward(x), where it is known: of a reward with a bound, or of log p(zeta|x) <= 0."""
    if strength <= 0:
        return None
    highest = 0.0 if reward is potential else highest_of(reward)
    return None if highest is None else strength * float(highest)


def check_reward(reward: Potential, strength: float) -> float:
    """The reward is a function of (x, t); its strength as a plain number."""
    function("the reward", reward, "(x, t)", "of states [..., D] and a time, that returns one number a state")
    need = f"it must be finite, at most {LARGEST:.0e}"
    return bounded("the reward's strength", strength, need)


def most_log_ratio(alpha: float, log_p_condition: float | None) -> float | None:
    """log of the most that (p(zeta|x) / p(zeta))^(alpha - 1) can be, where p(zeta) is known and alpha > 1."""
    return None if log_p_condition is None or alpha <= 1 else -(alpha - 1) * log_p_condition


def check_conditional(name: str, model: Model) -> Score:
    """The conditional score; a model without one has its condition as a reward, if there is a potential."""
    if model.conditional is not None:
        return model.conditional
    if model.potential is not None:
        raise InvalidInput(
            f"{name} needs a conditional score, and the model has a potential without one: take it as a reward, "
            "tt.steer(model, lambda x: model.potential(x, 0.0), strength=alpha), or give the model the score"
        )
    raise InvalidInput(
        f"{name} needs a conditional score; give the model one, or a reward, tt.steer(model, reward), or sample p0 "
        "itself, tt.sample(model, alpha=0)"
    )


_EXPONENT = f"the target's exponent must be finite and at least 0, at most {LARGEST:.0e} (or log-weights lose digits)"


def check_alpha(alpha: float) -> float:
    """The exponent as a plain number."""
    return bounded("alpha", alpha, _EXPONENT, least=0)
