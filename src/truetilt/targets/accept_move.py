"""Moves of Markov kernels: a Metropolis move, and a kernel's move after a change of the target.

A Metropolis move goes to the proposed state or stays, and the particle keeps the memory (aux) of the state it ends in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from ..core.arguments import shown
from ..core.errors import InvalidInput
from ..core.logits import take
from ..core.types import NEG_INF, Aux, LogWeights, Redraw, Tokens


@dataclass(frozen=True)
class AcceptLaw:
    """Go from x to y with probability $exp(log_accept)$, else stay."""

    x: Tokens
    y: Tokens
    log_accept: Tensor

    def sample(self, u: Tensor) -> Tokens:
        return torch.where(u < self.log_accept.exp()[..., None], self.y, self.x)

    def log_prob(self, y: Tokens) -> Tensor:
        go = torch.where((y == self.y).all(-1), self.log_accept, NEG_INF)
        stay = torch.where((y == self.x).all(-1), torch.log1p(-self.log_accept.exp()), NEG_INF)
        return torch.logaddexp(go, stay)

    def support(self) -> tuple[Tokens, Tensor]:
        """The two possible states of flat particles [N, D]: x and y as [N, 2, D], and their log-probabilities; where x
        = y they are added.
        """
        return torch.stack([self.x, self.y], 1), torch.stack([torch.log1p(-self.log_accept.exp()), self.log_accept], 1)

    def take(self, ancestors: Tensor) -> AcceptLaw:
        return AcceptLaw(take(self.x, ancestors), take(self.y, ancestors), take(self.log_accept, ancestors))


@dataclass(frozen=True)
class AcceptMove:
    """A Metropolis move: go from x to y with probability $exp(log_accept)$, else stay; no weight.

    Args:
        x: The states of the particles [..., D].
        y: The proposed states [..., D].
        log_accept: Log of the acceptance probability [...], at most 0 and never NaN; of any value where y is x.
        aux_x: What the run remembers of the particles (their auxiliary values), tensors [..., ...] by name: for values
            on `OnClock` with a tilt `{"log_tilt": fk.tilt(x, t)}`, for any-order values what `fk.keep` returns.
        aux_y: The same of the proposed states, with the same names.
    """

    lazy: ClassVar[bool] = False  # its networks have been asked
    x: Tokens
    y: Tokens
    log_accept: Tensor
    aux_x: Aux
    aux_y: Aux

    def __post_init__(self) -> None:
        shape, accept = self.x.shape, self.log_accept
        if self.y.shape != shape or not isinstance(accept, Tensor) or accept.shape != shape[:-1]:
            raise InvalidInput(
                f"AcceptMove goes from x, {shown(self.x)}, to y, {shown(self.y)}, with log_accept {shown(accept)}; y "
                f"has the shape of x, and log_accept is one number for each particle, {tuple(shape[:-1])}"
            )
        if unknown := sorted(self.aux_y.keys() - self.aux_x.keys()):
            raise InvalidInput(f"AcceptMove remembers {unknown} of y and not of x; give aux_x and aux_y the same names")

    @property
    def uniforms(self) -> int:
        return 1

    @property
    def log_before(self) -> LogWeights:
        return torch.zeros_like(self.log_accept)

    @property
    def labels(self) -> Tensor:
        return torch.cat([self.x, self.y], -1)

    @property
    def law(self) -> AcceptLaw:
        return AcceptLaw(self.x, self.y, self.log_accept)

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        there = (y != self.x).any(-1)  # where y equals x, the aux values of x are kept
        both = {key: (value, self.aux_x[key]) for key, value in self.aux_y.items()}
        aux = {
            key: torch.where(there[(...,) + (None,) * (a.dim() - there.dim())], a, b) for key, (a, b) in both.items()
        }
        return torch.zeros_like(self.log_accept), aux

    def take(self, ancestors: Tensor) -> AcceptMove:
        def pick(aux: Aux) -> Aux:
            return {key: take(value, ancestors) for key, value in aux.items()}

        law = self.law.take(ancestors)
        return AcceptMove(law.x, law.y, law.log_accept, pick(self.aux_x), pick(self.aux_y))


@dataclass(frozen=True)
class WeighedMove:
    """A change of the target followed by a move of a Markov kernel; the weight is the ratio of the two targets, known
    before the draw.
    """

    lazy: ClassVar[bool] = False  # its networks have been asked
    redraw: Redraw
    log_before: LogWeights

    @property
    def uniforms(self) -> int:
        return self.redraw.uniforms

    @property
    def labels(self) -> Tensor:
        return self.redraw.labels

    @property
    def law(self) -> Any:
        return self.redraw.law

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        return self.redraw.after(y)

    def take(self, ancestors: Tensor) -> WeighedMove:
        return WeighedMove(cast("Redraw", self.redraw.take(ancestors)), take(self.log_before, ancestors))
