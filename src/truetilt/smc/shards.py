"""Shards of a population: which particles this process holds, all of them or one rank's share of a distributed run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from ..core.bases import FeynmanKac
from ..core.types import Aux, LogWeights, Move, Particles, State, Step

SharedSettings = Mapping[str, Any]  # the settings of a run, as plain data


class Origin(NamedTuple):
    """The inputs a move was built from: enough to rebuild it for particles received from another rank."""

    fk: FeynmanKac
    step: Step
    particles: Particles
    u: Tensor  # uniforms of the particles' choices

    def make(self, particles: Particles, u: Tensor) -> Move:
        """The move of this step for other particles."""
        return self.fk.move(particles, self.step.t, self.step.s, u)


Drawn = tuple[State, LogWeights, Aux]  # next states, what the draw adds to the log-weights, and memory


class Drawing(Protocol):
    """How the particles of this process draw: the uniforms a move needs, and the states drawn with them."""

    def unmoved(self, ancestors: Tensor) -> bool: ...
    def uniforms(self, move: Move) -> Tensor: ...
    def __call__(self, move: Move, u: Tensor | None = None) -> Drawn: ...


class Shard(Protocol):
    """This process's share of the particles of every population, and the collective operations over all shards."""

    @property
    def first(self) -> int:
        """Global number of this shard's first particle; the random stream counts uniforms by global number."""
        ...

    @property
    def complete(self) -> bool:
        """Whether this process sees the weights of every population.

        If it does not, all populations here may be dead while others are alive elsewhere.
        """
        ...

    def share(self, particles: int) -> int:
        """How many of so many particles this shard holds."""
        ...

    def everyone(self, here: Tensor) -> Tensor:
        """All-gather: values of all particles [populations, N, ...] from this shard's, equal bits on every rank."""
        ...

    def mine(self, everyone: Tensor) -> Tensor:
        """This shard's slice of values that cover all particles."""
        ...

    def draw(self, move: Move, ancestors: Tensor, origin: Origin | None, draws: Drawing) -> Drawn:
        """Draw this shard's next states from the moves of their ancestors [populations, N], global numbers."""
        ...

    def summed(self, here: Tensor) -> Tensor:
        """All-reduce: whole numbers added up over the ranks that share these particles."""
        ...

    def agreed(self, flag: bool) -> bool:
        """All-reduce: whether the flag of any rank is true; the same answer on every rank."""
        ...

    def compare(self, settings: SharedSettings) -> None:
        """Raise before any work if the settings of another rank differ from these."""
        ...
