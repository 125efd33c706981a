"""Which particles are here: all of them, or one rank's share of a run that several carry out together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from ..types import Move, Particles


class Origin(NamedTuple):
    """What a move was made of: enough to make it again, of particles that came from elsewhere."""

    make: Callable[[Particles, Tensor], Move]
    particles: Particles
    u: Tensor  # of their choices


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

    def take(self, move: Move, ancestors: Tensor, origin: Origin | None) -> Move:
        """The move of the ancestors [populations, N], numbered among all, of the ones here."""
        ...

    def agreed(self, wish: bool) -> bool:
        """Whether anyone wishes it: the same answer everywhere."""
        ...


@dataclass(frozen=True)
class Whole:
    """All particles are here; of every population, unless they are not `complete`."""

    first: int = 0
    complete: bool = True

    def share(self, particles: int) -> int:
        return particles

    def everyone(self, here: Tensor) -> Tensor:
        return here

    def mine(self, everyone: Tensor) -> Tensor:
        return everyone

    def take(self, move: Move, ancestors: Tensor, origin: Origin | None) -> Move:
        return move.take(ancestors)

    def agreed(self, wish: bool) -> bool:
        return wish


WHOLE = Whole()
