"""A move of which some particles came from elsewhere: what was worked out here is kept, and only guests cost anew."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..smc.shards import Origin
from ..types import Aux, Law, LogWeights, Move, Particles, State, take


@dataclass(frozen=True)
class Hosted:
    """The move of the guests where `away` [populations, n] says so, else that of those who were here."""

    away: Tensor
    guests: Move
    own: Move

    @property
    def uniforms(self) -> int:
        return self.own.uniforms

    @property
    def log_before(self) -> LogWeights:
        return torch.where(self.away, self.guests.log_before, self.own.log_before)

    @property
    def labels(self) -> Tensor:
        return _either(self.away, self.guests.labels, self.own.labels)

    @property
    def law(self) -> Law:
        return HostedLaw(self.away, self.guests.law, self.own.law)

    def after(self, y: State) -> tuple[LogWeights, Aux]:
        theirs, aux = self.guests.after(_either(self.away, y, _any(self.guests, y)))
        ours, other = self.own.after(_either(self.away, _any(self.own, y), y))
        memory = {key: _either(self.away, value, other[key]) for key, value in aux.items()}
        return torch.where(self.away, theirs, ours), memory

    def take(self, ancestors: Tensor) -> Hosted:
        return Hosted(take(self.away, ancestors), self.guests.take(ancestors), self.own.take(ancestors))


@dataclass(frozen=True)
class HostedLaw:
    """The law of such a move."""

    away: Tensor
    guests: Law
    own: Law

    def sample(self, u: Tensor) -> State:
        return _either(self.away, self.guests.sample(u), self.own.sample(u))

    def log_prob(self, y: State) -> Tensor:
        return torch.where(self.away, self.guests.log_prob(y), self.own.log_prob(y))

    def take(self, ancestors: Tensor) -> HostedLaw:
        return HostedLaw(take(self.away, ancestors), self.guests.take(ancestors), self.own.take(ancestors))


def hosted(move: Move, arrived: Particles, u: Tensor, origin: Origin, ancestors: Tensor) -> Hosted:
    """`move` of those whose ancestors [populations, n] are here, made again of the rest, who `arrived`.

    Ancestors are numbered from the first particle here; those of guests lie outside. Populations have unequal numbers
    of guests: the fewer are filled up with particles that are here.
    """
    n = arrived.log_w.shape[-1]
    away = (ancestors < 0) | (ancestors >= n)
    slots = away.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[:, : int(away.sum(-1).max())]
    fresh = Particles(*(take(part, slots) for part in arrived[:2]), {k: take(v, slots) for k, v in arrived.aux.items()})
    place = (away.cumsum(-1) - 1).clamp(min=0)  # a guest's number among its population's; any for the others
    guests = origin.make(fresh, take(u, slots)).take(place.clamp(max=slots.shape[-1] - 1))
    return Hosted(away, guests, move.take(torch.where(away, 0, ancestors)))


def _any(move: Move, y: State) -> State:
    """States the move can draw, in place of those it cannot weigh: another move drew them."""
    return move.law.sample(torch.zeros(*y.shape[:2], move.uniforms, dtype=torch.float64, device=y.device))


def _either(away: Tensor, theirs: Tensor, ours: Tensor) -> Tensor:
    return torch.where(away.reshape(away.shape + (1,) * (ours.dim() - away.dim())), theirs, ours)
