"""What every model in clock time is made of, tokens or reals: a lazy move over t -> s, its proposal and its tilt.

A model says how it proposes and what tilt it carries; the moves follow from that and are the same for both. Nothing
here looks inside a state.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from ..core.arguments import LARGEST, number
from ..core.errors import InvalidInput
from ..core.evaluation import Questions, check
from ..core.logits import take
from ..core.target import SaysNothing
from ..core.types import NEG_INF, Aux, Law, LogWeights, Move, Particles, State
from ..diffusion.kernels import SiteLaw
from .tilts import Tilt

AnyLaw = TypeVar("AnyLaw", bound=Law)


@dataclass(frozen=True)
class Proposal(Generic[AnyLaw]):
    """The law that draws y and the laws whose log-probabilities weigh it: log weight = sum of $c * log law(y)$."""

    law: AnyLaw
    ratios: tuple[tuple[float, AnyLaw], ...] = ()

    def log_ratio(self, y: State, zero: LogWeights) -> LogWeights:
        """sum of $c * log law(y)$, added to zeros; laws over sites share which of them the draw changed."""
        changed = self.law.changed(y) if self.ratios and isinstance(self.law, SiteLaw) else None
        log_ratio = zero
        for c, law in self.ratios:
            shared = changed is not None and isinstance(law, SiteLaw)
            log_ratio = log_ratio + c * (law.log_prob(y, changed) if shared else law.log_prob(y))
        return log_ratio


def both_times(t: float | tuple[float, float], s: float | None) -> tuple[float, float]:
    """The interval t -> s of a step, given as two numbers or, as it once was, as a pair."""
    if isinstance(t, tuple):
        warnings.warn("give the times of a step as t, s, not as a pair (t, s)", DeprecationWarning, stacklevel=3)
        return t
    if s is None:
        raise InvalidInput(f"a step begins at t = {t:.6g} and has no end; give t and s")
    return t, s


def powers(*ratios: tuple[float, Any]) -> tuple[tuple[float, Any], ...]:
    """The (exponent, law) pairs without those of exponent 0, since $0 log 0$ counts as 0."""
    return tuple((c, law) for c, law in ratios if c != 0)


@dataclass(frozen=True)
class ClockMove(Generic[AnyLaw]):
    """A lazy move over $t -> s$: nothing is evaluated before `law` is read, so `take` costs no network."""

    lazy: ClassVar[bool] = True
    x: State
    log_tilt: LogWeights  # what the particle's weight already holds of the tilt
    propose: Callable[[State], Proposal[AnyLaw]]
    end: Callable[[State], LogWeights] | None  # the tilt at s
    questions: Questions | None = None  # of the step, where its checks wait for the device

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
        found, checked = self.propose(self.x), None
        for _, law in ((1.0, found.law), *found.ratios):
            doubt = law.doubt if isinstance(law, SiteLaw) else None
            if doubt is not None and doubt is not checked:  # laws made together share one
                check(*doubt, self.questions)
                checked = doubt
        if self.questions is None or not isinstance(found.law, SiteLaw):
            return found
        return replace(found, law=replace(found.law, questions=self.questions))

    @property
    def law(self) -> AnyLaw:
        return self.proposal.law

    def after(self, y: State) -> tuple[LogWeights, Aux]:
        log_start = self.log_start
        log_ratio = self.proposal.log_ratio(y, torch.zeros_like(self.log_tilt))
        log_end = self.end(y) if self.end else torch.zeros_like(self.log_tilt)
        return log_ratio + log_end - log_start, {"log_tilt": log_end}

    @property
    def log_start(self) -> LogWeights:
        """The tilt to subtract; +inf for a particle of weight 0, so that its weight stays 0."""
        return torch.where(self.log_tilt == NEG_INF, torch.inf, self.log_tilt)

    def take(self, ancestors: Tensor) -> ClockMove[AnyLaw]:
        return replace(self, x=take(self.x, ancestors), log_tilt=take(self.log_tilt, ancestors))


class Clockwork(SaysNothing, ABC):
    """A model in clock time: say where it starts, how it proposes and what tilt it carries; the moves follow."""

    @property
    def tilt(self) -> Tilt | None:
        return None

    @property
    @abstractmethod
    def device(self) -> torch.device | str:
        """Where its tensors live."""

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
        return ClockMove(nowhere, zeros, self._first, self._end(t, None))

    def _first(self, x: State) -> Proposal[Any]:
        return Proposal(self.prior(x))

    def choices(self, t: float, s: float) -> int:
        return 0

    def branches(self, particles: Particles, t: float, s: float) -> Sequence[tuple[Tensor, Move]]:
        return [(torch.zeros_like(particles.log_w), self.move(particles, t, s))]

    def move(self, particles: Particles, t: float, s: float, u: Tensor | None = None) -> ClockMove[Any]:
        propose, asked = partial(self.propose, t=t, s=s), particles.questions
        return ClockMove(particles.x, particles.aux["log_tilt"], propose, self._end(s, asked), asked)

    def _end(self, t: float, questions: Questions | None) -> Callable[[State], LogWeights] | None:
        """The tilt at the time where a move ends, as a function of the states there."""
        tilt = self.tilt
        return None if tilt is None else partial(tilt, t=t, questions=questions)


def most_log_ratio(alpha: float, log_p_condition: float | None) -> float | None:
    """log of the most that (p(zeta|x) / p(zeta))^(alpha - 1) can be, where p(zeta) is known and alpha > 1."""
    return None if log_p_condition is None or alpha <= 1 else -(alpha - 1) * log_p_condition


_EXPONENT = f"the target's exponent must be finite and at least 0, at most {LARGEST:.0e} (or log-weights lose digits)"


def check_alpha(alpha: float) -> float:
    """The exponent as a plain number."""
    alpha = number("alpha", alpha, _EXPONENT)
    if not 0 <= alpha <= LARGEST:
        raise InvalidInput(f"alpha is {alpha}; {_EXPONENT}")
    return alpha
