"""The two abstract bases, with defaults: what is sampled, and a Markov kernel of moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from .arguments import shown
from .errors import InvalidInput
from .evaluation import RunLog
from .target import UNKNOWN, Remedies, Target
from .types import Model, Move, Particles, Redraw


class FeynmanKac(ABC):
    """What is sampled: a first move out of nothing, then a move for each interval $t -> s$.

    A subclass writes `start` and `move`; all else has a default. Make it a frozen dataclass, with what it samples in a
    field `model`: a run counts the networks and rewards that it finds through fields.
    """

    how: ClassVar[str] = ""  # how it samples, in a few words for the report
    log: RunLog | None = None  # of the run it is bound to (`bind`): what it asks is noted there

    if TYPE_CHECKING:

        @property
        def model(self) -> Any:
            """What it samples; a value may have none (`model_of`)."""

    @abstractmethod
    def start(self, shape: tuple[int, ...], t: float) -> Move:
        """The first move, of particles [*shape], at the time t where the grid begins."""

    @abstractmethod
    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> Move:
        """The move over $t -> s$; u are the uniforms of the choices that come before its weight [..., N, choices]."""

    def choices(self, t: float, s: float) -> int:
        """How many uniforms a particle takes for choices that come before the weight (which site to reveal)."""
        return 0

    def branches(self, particles: Particles, t: float, s: float) -> Sequence[tuple[Tensor, Move]]:
        """All that a step may choose, with log-probabilities [..., N], for exact answers: without choices one move."""
        if self.choices(t, s):
            raise InvalidInput(
                f"{shown(self)} does not list what it may choose, and exact answers sum over that; give it a method "
                "`branches(particles, t, s)`: pairs of a log-probability and a move"
            )
        none = torch.zeros_like(particles.log_w)
        return [(none, self.move(particles, t, s, none.new_empty(*none.shape, 0)))]

    @property
    def target(self) -> Target | None:
        """What the weighted particles aim at; None where a value does not say, and then no moves are checked."""
        return None

    @property
    def remedies(self) -> Remedies:
        """What may help where its weights are bad; by default general advice."""
        return UNKNOWN

    @property
    def most_log_weight(self) -> float | None:
        """log of the most that a state can weigh, where that is known."""
        return None

    @property
    def grid(self) -> Sequence[float] | None:
        """The time grid of its own, if it has one, which `tt.run(fk)` takes."""
        return None

    @property
    def moves(self) -> MoveKernel | None:
        """The Markov kernel that steps of its own move by, as those of `tt.Annealed` do."""
        return None

    @property
    def device(self) -> torch.device | str:
        """Where its tensors are: by default where its model's are, else on the CPU."""
        return getattr(model_of(self), "device", "cpu")

    @property
    def spec(self) -> Target | None:
        """The target with the model where it names none; a run compares it with that of its moves."""
        return self.completed(self.target)

    def completed(self, target: Target | None) -> Target | None:
        """A target of this value or of moves made from it, with what it need not name."""
        return target.completed(model_of(self)) if isinstance(target, Target) else target


def model_of(fk: object) -> Any:
    """The model that a value samples, its field `model`; None where it has none."""
    return getattr(fk, "model", None)


class MoveKernel(ABC):
    """A Markov kernel on particles at time t that leaves a target alone: that of the value in its field `fk`.

    A subclass writes `move`; all else has a default. `number` counts the moves of a run from 0: a systematic scan takes
    its site from it.
    """

    redraws: ClassVar[bool] = False  # whether it redraws sites from the conditionals of `fk`, a `SiteTarget`

    @abstractmethod
    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> Redraw:
        """The move; u are the uniforms of its choices [..., N, choices]. The acceptance draws from one of its own."""

    @property
    def choices(self) -> int:
        """How many uniforms a particle takes for the choices of a move (which site it redraws)."""
        return 0

    def branches(self, particles: Particles, t: float, number: int) -> Sequence[tuple[Tensor, Redraw]]:
        """All that a move may choose, with log-probabilities [..., N] that sum to 1, for exact answers."""
        raise InvalidInput(f"{shown(self)} does not list what it may choose; {_NEEDS_BRANCHES}")

    @property
    def target(self) -> Target | None:
        """What it leaves alone, by default the target of `fk`; None where nobody says, and a run warns of that."""
        return getattr(made_from(self), "target", None)

    @property
    def spec(self) -> Target | None:
        """The target, with what it need not name because `fk` has it."""
        fk, target = made_from(self), self.target
        return fk.completed(target) if isinstance(fk, FeynmanKac) else target


MakeMoves = Callable[[Any], MoveKernel]
"""What makes a Markov kernel of moves from the value whose target it leaves alone, such as `tt.Gibbs`."""

_NEEDS_BRANCHES = "give it a method `branches(particles, t, number)`: pairs of a log-probability and a move"


def made_from(kernel: object) -> Any:
    """The value that a kernel is made from, its field `fk`; None where it has none."""
    return getattr(kernel, "fk", None)


def lists_choices(kernel: object) -> bool:
    """Whether a kernel lists all that it may choose."""
    return isinstance(kernel, MoveKernel) and type(kernel).branches is not MoveKernel.branches


def check_sampled(fk: object) -> None:
    """What a run can sample."""
    if isinstance(fk, FeynmanKac):
        return
    need = "give what to sample, such as tt.Tilted(model, alpha) or tt.AnyOrder(model, alpha)"
    more = "; or call tt.sample" if isinstance(fk, Model) else ""
    own = "; a class of your own derives from tt.feynman_kac.FeynmanKac" if hasattr(fk, "move") else ""
    raise InvalidInput(f"fk is {shown(fk)}; {need}{more}{own}")


def check_kernel_of_moves(kernel: object, need: str, name: str = "kernel") -> MoveKernel:
    """A Markov kernel of moves."""
    if isinstance(kernel, MoveKernel):
        return kernel
    own = "; a class of your own derives from tt.feynman_kac.MoveKernel" if hasattr(kernel, "move") else ""
    raise InvalidInput(f"{name} is {shown(kernel)}; {need}{own}")


def check_listed(name: str, kernel: MoveKernel, need: str) -> MoveKernel:
    """The same kernel, if it lists its choices."""
    if not lists_choices(kernel):
        raise InvalidInput(f"{name} is {shown(kernel)}; {need}")
    return kernel
