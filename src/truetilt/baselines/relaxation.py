"""Values of masked states that have a gradient: learned twists and regressed values as functions of one-hot states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import function
from ..core.errors import InvalidInput
from ..core.twists import Relaxable
from ..twists.kriging import TabulatedTwist
from ..twists.learned_twist import LearnedTwist
from ..twists.network import NetworkTwist
from ..twists.tables import TableTwist

Differentiable = Callable[[Tensor, float], Tensor]  # (one-hot states [B, D, S + 1] with the mask last, time) to [B]


def relaxed(value: Any) -> Differentiable:
    """A value as a differentiable function of one-hot states.

    A twist of `tt.learn_twist` is extended linearly in each site. A value with a method `relaxed` is called through it.
    Any other function must itself take (onehot, t).
    """
    if isinstance(value, LearnedTwist):
        if not isinstance(value.twist, TableTwist | NetworkTwist | TabulatedTwist):
            raise InvalidInput(
                f"a {type(value.twist).__name__} is a twist of a family of your own, which has no gradient here; give "
                "a function (onehot, t) of one-hot states"
            )
        return RelaxedTwist(value.twist, value.strength)
    own = value.relaxed if isinstance(value, Relaxable) else value
    function("value", own, "(onehot, t)", "of one-hot states [B, D, S + 1] and a time")
    return own


@dataclass(frozen=True, eq=False)
class RelaxedTwist:
    """A learned twist as a function of one-hot states, in units of the reward."""

    twist: TableTwist | NetworkTwist | TabulatedTwist
    strength: float

    def __call__(self, onehot: Tensor, t: float) -> Tensor:
        hot = onehot.double()
        if isinstance(self.twist, TabulatedTwist):
            return _of_states(self.twist, hot) / self.strength
        nats = _of_tables(self.twist, hot) if isinstance(self.twist, TableTwist) else _of_network(self.twist, hot)
        return nats / self.strength


def _of_states(twist: TabulatedTwist, hot: Tensor) -> Tensor:
    """The entries' mean, each site's token drawn by its own weights."""
    length, states, _ = twist.layout
    found = twist.entries.to(hot.device).reshape(1, states, -1)
    for site in range(length):
        found = torch.einsum("bs,bsr->br", hot[:, site], found.expand(len(hot), -1, -1))
        found = found.reshape(len(hot), states, -1) if site + 1 < length else found
    return found.squeeze(-1)


def _of_tables(twist: TableTwist, hot: Tensor) -> Tensor:
    """The sum over sites, pairs and the constant, in the layout of `TableLayout`."""
    length, states, reach = twist.layout
    entries, first = twist.entries.to(hot.device), length * states
    found = (hot * entries[:first].reshape(length, states)).sum((-1, -2)) + entries[-2]
    for distance in range(1, reach + 1):
        last = first + (length - distance) * states**2
        pairs = entries[first:last].reshape(-1, states, states)
        found = found + torch.einsum("bds,dst,bdt->b", hot[:, :-distance], pairs, hot[:, distance:])
        first = last
    return found


def _of_network(twist: NetworkTwist, hot: Tensor) -> Tensor:
    sites, inner, bias, outer = (part.to(hot.device) for part in twist.tensors.values())
    hidden = bias + torch.einsum("bds,dsh->bh", hot, inner)
    return (hot * sites).sum((-1, -2)) + torch.tanh(hidden) @ outer
