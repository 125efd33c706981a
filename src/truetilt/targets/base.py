"""What every model in clock time is made of, tokens or reals: a lazy move over t -> s, its proposal and its tilt.

A model says how it proposes and what tilt it carries; the moves follow from that and are the same for both. Nothing
here looks inside a state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from ..core.logits import Sites
from ..core.target import UNKNOWN, Remedies
from ..core.types import (
    LARGEST,
    NEG_INF,
    Aux,
    InvalidInput,
    Law,
    LogWeights,
    Move,
    Particles,
    Potential,
    Schedule,
    State,
    Target,
    function,
    number,
    take,
)
from ..diffusion.laws import SiteLaw
from .ramps import Ramp
from .values import scaled, value_of

AnyLaw = TypeVar("AnyLaw", bound=Law)


@dataclass(frozen=True)
class Proposal(Generic[AnyLaw]):
    """The law that draws y and the laws whose log-probabilities weigh it: log weight = sum of c * log law(y)."""

    law: AnyLaw
    ratios: tuple[tuple[float, AnyLaw], ...] = ()

    def log_ratio(self, y: State, zero: LogWeights) -> LogWeights:
        """sum of c * log law(y), added to zeros; laws over sites share which of them the draw changed."""
        if self.ratios and isinstance(self.law, SiteLaw):
            changed = self.law.changed(y)
            return sum((c * _over_sites(law, y, changed) for c, law in self.ratios), zero)
        return sum((c * law.log_prob(y) for c, law in self.ratios), zero)


def _over_sites(law: Law, y: State, changed: Sites) -> Tensor:
    return law.log_prob(y, changed) if isinstance(law, SiteLaw) else law.log_prob(y)


def powers(*ratios: tuple[float, Any]) -> tuple[tuple[float, Any], ...]:
    """Leave out what has exponent 0: 0 log 0 counts as 0."""
    return tuple((c, law) for c, law in ratios if c != 0)


@dataclass(frozen=True)
class Tilt:
    """log-weight exponent(t) * potential(x, t) that a particle carries; differences of it telescope."""

    potential: Potential
    exponent: Schedule

    def __call__(self, x: State, t: float) -> Tensor:
        share = float(self.exponent(t))
        if share == 0:  # not evaluated: 0 * anything is 0
            return torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
        return scaled(value_of(self.potential, x, t), share)


def growing(potential: Potential, height: float, ramp: Ramp) -> Tilt:
    """A tilt whose exponent grows with elapsed time, up to `height`."""
    return Tilt(potential, Growing(height, ramp))


@dataclass(frozen=True)
class Growing:
    """An exponent in clock time: height * ramp(elapsed time)."""

    height: float
    ramp: Ramp

    def __call__(self, t: float) -> float:
        return self.height * self.ramp(1 - t)


@dataclass(frozen=True)
class ClockMove(Generic[AnyLaw]):
    """A lazy move over t -> s: nothing is evaluated before `law` is read, so `take` costs no network."""

    lazy: ClassVar[bool] = True
    x: State
    log_tilt: LogWeights  # what the particle's weight already holds of the tilt
    propose: Callable[[State], Proposal[AnyLaw]]
    end: Callable[[State], LogWeights] | None  # the tilt at s

    @property
    def uniforms(self) -> int:
        return self.x.shape[-1]

    @property
    def log_before(self) -> LogWeights:
        return torch.zeros_like(self.log_tilt)

    @property
    def labels(self) -> Tensor:
        """Whole numbers that are equal where the states are: of reals, their bits."""
        return self.x.view(torch.int64) if self.x.dtype == torch.float64 else self.x

    @cached_property
    def proposal(self) -> Proposal[AnyLaw]:
        return self.propose(self.x)

    @property
    def law(self) -> AnyLaw:
        return self.proposal.law

    def after(self, y: State) -> tuple[LogWeights, Aux]:
        log_ratio = self.proposal.log_ratio(y, torch.zeros_like(self.log_tilt))
        log_end = self.end(y) if self.end else torch.zeros_like(self.log_tilt)
        return log_ratio + log_end - self.log_start, {"log_tilt": log_end}

    @property
    def log_start(self) -> LogWeights:
        """The tilt to take off. A dead particle has none to give back: it stays dead."""
        return torch.where(self.log_tilt == NEG_INF, torch.inf, self.log_tilt)

    def take(self, ancestors: Tensor) -> ClockMove[AnyLaw]:
        return replace(self, x=take(self.x, ancestors), log_tilt=take(self.log_tilt, ancestors))


class Clockwork(ABC):
    """A model in clock time: say where it starts, how it proposes and what tilt it carries; the moves follow."""

    @property
    def tilt(self) -> Tilt | None:
        return None

    @property
    @abstractmethod
    def device(self) -> torch.device | str:
        """Where its tensors live."""

    @property
    def target(self) -> Target | None:
        """What the weighted particles aim at; None where a model does not say."""
        return None

    @property
    def remedies(self) -> Remedies:
        """What may help where its weights are bad."""
        return UNKNOWN

    @abstractmethod
    def propose(self, x: Any, t: float, s: float) -> Proposal[Any]: ...

    @abstractmethod
    def nowhere(self, shape: tuple[int, ...]) -> State:
        """Blank states [*shape, D], from which the first move goes."""

    @abstractmethod
    def prior(self, x: State) -> Law:
        """The law of the first draw, whatever the blank states x."""

    def start(self, shape: tuple[int, ...], t: float) -> ClockMove[Any]:
        nowhere = self.nowhere(shape)
        zeros = torch.zeros(shape, dtype=torch.float64, device=nowhere.device)
        return ClockMove(nowhere, zeros, FirstProposal(self), self._end(t))

    def choices(self, t: float, s: float) -> int:
        return 0

    def branches(self, particles: Particles, t: float, s: float) -> Sequence[tuple[Tensor, Move]]:
        return [(torch.zeros_like(particles.log_w), self.move(particles, t, s))]

    def move(self, particles: Particles, t: float, s: float, u: Tensor | None = None) -> ClockMove[Any]:
        return ClockMove(particles.x, particles.aux["log_tilt"], ProposalOver(self, t, s), self._end(s))

    def _end(self, t: float) -> Callable[[State], LogWeights] | None:
        return None if self.tilt is None else EndTilt(self.tilt, t)


@dataclass(frozen=True)
class FirstProposal:
    """How a model makes its first draw, whatever the blank states."""

    fk: Clockwork

    def __call__(self, x: State) -> Proposal[Any]:
        return Proposal(self.fk.prior(x))


@dataclass(frozen=True)
class ProposalOver:
    """How a model proposes from states over t -> s."""

    fk: Clockwork
    t: float
    s: float

    def __call__(self, x: State) -> Proposal[Any]:
        return self.fk.propose(x, self.t, self.s)


@dataclass(frozen=True)
class EndTilt:
    """The tilt at the time where a move ends."""

    tilt: Tilt
    t: float

    def __call__(self, y: State) -> LogWeights:
        return self.tilt(y, self.t)


_EXPONENT = f"the target's exponent must be finite and at least 0, at most {LARGEST:.0e} (or log-weights lose digits)"


def check_alpha(alpha: float) -> float:
    """The exponent as a plain number."""
    alpha = number("alpha", alpha, _EXPONENT)
    if not 0 <= alpha <= LARGEST:
        raise InvalidInput(f"alpha is {alpha}; {_EXPONENT}")
    return alpha


def check_reward(reward: Potential, strength: float) -> float:
    """The reward is a function of (x, t); its strength as a plain number."""
    function("the reward", reward, "(x, t)", "of states [..., D] and a time, that returns one number a state")
    need = f"it must be finite, at most {LARGEST:.0e}"
    strength = number("the reward's strength", strength, need)
    if not abs(strength) <= LARGEST:
        raise InvalidInput(f"the reward's strength is {strength}; {need}")
    return strength
