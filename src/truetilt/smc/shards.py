"""Which particles are here: all of them, or one rank's share of a run that several carry out together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..core.types import Aux, FeynmanKac, LogWeights, Move, Particles, State, Step, asks_freely

Settings = Mapping[str, Any]  # how a run goes, as plain data


class Origin(NamedTuple):
    """What a move was made of: enough to make it again for particles that arrive from another rank."""

    fk: FeynmanKac
    step: Step
    particles: Particles
    u: Tensor  # the uniforms of their choices

    def make(self, particles: Particles, u: Tensor) -> Move:
        """The move of this step for other particles."""
        return self.fk.move(particles, self.step.t, self.step.s, u)


Drawn = tuple[State, LogWeights, Aux]  # next states, what the draw adds to the log-weights, and memory


class Drawing(Protocol):
    """How the particles of a shard draw in a step: the uniforms of a move, and what it draws with them."""

    def uniforms(self, move: Move) -> Tensor: ...
    def sample(self, move: Move, u: Tensor) -> Drawn: ...
    def __call__(self, move: Move) -> Drawn: ...


class Shard(Protocol):
    """A share of the particles of every population, and how it meets the rest."""

    @property
    def first(self) -> int:
        """The number of its first particle: uniforms are counted by number."""
        ...

    @property
    def complete(self) -> bool:
        """Whether every population is seen from here: if not, those here may all be dead and others live."""
        ...

    def share(self, particles: int) -> int:
        """How many of so many particles are here."""
        ...

    def everyone(self, here: Tensor) -> Tensor:
        """Values of all particles [populations, N, ...], the same bits everywhere, from those of the ones here."""
        ...

    def mine(self, everyone: Tensor) -> Tensor:
        """Those of the ones here."""
        ...

    def draw(self, move: Move, ancestors: Tensor, origin: Origin | None, how: Drawing) -> Drawn:
        """What the ones here draw by the move of their ancestors [populations, N], numbered among all."""
        ...

    def agreed(self, wish: bool) -> bool:
        """Whether anyone wishes it: the same answer everywhere."""
        ...

    def compare(self, settings: Settings) -> None:
        """Raise if another rank was told otherwise, before anything is computed."""
        ...


def _alone(settings: Settings) -> None:
    """There is nobody to compare with."""


@dataclass(frozen=True)
class Whole:
    """All particles are here; of every population, unless they are not `complete`: then `meet` compares settings."""

    first: int = 0
    complete: bool = True
    meet: Callable[[Settings], None] = _alone

    def share(self, particles: int) -> int:
        return particles

    def everyone(self, here: Tensor) -> Tensor:
        return here

    def mine(self, everyone: Tensor) -> Tensor:
        return everyone

    def draw(self, move: Move, ancestors: Tensor, origin: Origin | None, how: Drawing) -> Drawn:
        return how(move if _own(ancestors) else move.take(ancestors))

    def agreed(self, wish: bool) -> bool:
        return wish

    def compare(self, settings: Settings) -> None:
        self.meet(settings)


def _own(ancestors: Tensor) -> bool:
    """Whether everyone is known to be their own ancestor; where a device would have to be asked, it is not known."""
    return asks_freely(ancestors) and torch.equal(ancestors, torch.arange(ancestors.shape[-1]).expand_as(ancestors))


WHOLE = Whole()
