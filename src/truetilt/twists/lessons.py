"""Training data of a twist: clean states with their rewards, mutants of them, and the steps of the draws that made
them.

All values are in nats: strength times reward. A step is a masked state, the site revealed there and the base's
probabilities of its tokens. The ideal value H obeys H(x) = log sum_v p(v|x) exp H(x, v) at every step, from whatever
law the draws come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.types import NEG_INF, Potential, Tokens

_LOW = 0.05  # share of the target's mass below the value that `low` returns
_PARTS = 5  # number of cross-validation parts
_EFFECTIVE = 25.0  # effective held-out draws below which all parts are used in turn


class Steps(NamedTuple):
    """Steps of draws: masked states x [R, D], the site revealed [R], its likely tokens [R, K] and their log p."""

    x: Tokens
    site: Tensor
    tokens: Tokens
    log_p: Tensor
    draw: Tensor  # int64 [R], the index of the draw that the step belongs to

    def thinned(self, most: int) -> Steps:
        """Every k-th step, with the smallest k that leaves at most `most` of them."""
        every = -(-len(self.x) // most) or 1
        return Steps(*(column[::every] for column in self))


class Mutants(NamedTuple):
    """Clean states that differ from a draw at one site: the draw's index, the site, the new token, and the value."""

    draw: Tensor
    site: Tensor
    token: Tokens
    value: Tensor


class Lessons(NamedTuple):
    """Training data of a twist family: draws with their values, mutants and recorded steps.

    Args:
        x: Draws, clean states int64 [n, D].
        value: Value of each draw in nats [n].
        mutants: Draws with one token changed, and their values.
        steps: Steps of the draws: masked states, the site revealed, its likely tokens and their log-probabilities.
        mask: Number of the mask's token.
        log_weight: Log importance weight of each draw towards $p0 exp(value)$ [n], up to a constant.
        latest: Whether each draw belongs to the last round, bool [n].
    """

    x: Tokens
    value: Tensor
    mutants: Mutants
    steps: Steps
    mask: int
    log_weight: Tensor
    latest: Tensor

    def parts(self) -> list[tuple[Lessons, Lessons]]:
        """Splits into a training and a held-out part (four fifths and one fifth of the draws); equal draws are on the
        same side.

        One split if enough of its held-out draws are effective, else five, so that each draw is held out once.
        """
        states, number = torch.unique(self.x, dim=0, return_inverse=True)
        number = number if len(states) >= 2 * _PARTS else torch.arange(len(self.x))
        held = [number % _PARTS == part for part in reversed(range(_PARTS))]
        few = effective(self.log_weight[held[0]]) < _EFFECTIVE
        return [(self._of(~one), self._of(one)) for one in (held if few else held[:1])]

    def clean(self) -> tuple[Tokens, Tensor]:
        """Draws and mutants as one batch of clean states with their values."""
        changed = self.mutants
        mutants = self.x[changed.draw].scatter(1, changed.site[:, None], changed.token[:, None])
        return torch.cat([self.x, mutants]), torch.cat([self.value, changed.value])

    def valued(self, value: Tensor) -> Lessons:
        """The same lessons with other values of the clean states."""
        first = len(self.x)
        return self._replace(value=value[:first], mutants=self.mutants._replace(value=value[first:]))

    @property
    def low(self) -> float:
        """The value below which 5% of the target's mass lies, by the draws' weights."""
        order = self.value.argsort()
        mass = self.log_weight[order].softmax(0).cumsum(0)
        return float(self.value[order[int((mass < _LOW).sum())]])

    @property
    def known(self) -> float:
        """The share of the target on states that rounds before the last one drew, by the last round's draws and their
        weights; 0 with one round."""
        if bool(self.latest.all()):
            return 0.0
        states, number = torch.unique(self.x, dim=0, return_inverse=True)
        before = torch.zeros(len(states), dtype=torch.bool).index_fill(0, number[~self.latest], True)
        return float(self.log_weight[self.latest].double().softmax(0) @ before[number[self.latest]].double())

    def _of(self, chosen: Tensor) -> Lessons:
        """The lessons of selected draws (bool [n]), renumbered."""
        number = chosen.long().cumsum(0) - 1
        mutants = Mutants(*(column[chosen[self.mutants.draw]] for column in self.mutants))
        steps = Steps(*(column[chosen[self.steps.draw]] for column in self.steps))
        return Lessons(
            self.x[chosen],
            self.value[chosen],
            mutants._replace(draw=number[mutants.draw]),
            steps._replace(draw=number[steps.draw]),
            self.mask,
            self.log_weight[chosen],
            self.latest[chosen],
        )


def together(parts: Sequence[Lessons]) -> Lessons:
    """Lessons of several rounds joined into one."""
    first = [sum(len(part.x) for part in parts[:k]) for k in range(len(parts))]
    mutants, steps = (
        [getattr(part, name)._replace(draw=getattr(part, name).draw + n) for part, n in zip(parts, first, strict=True)]
        for name in ("mutants", "steps")
    )
    return Lessons(
        torch.cat([part.x for part in parts]),
        torch.cat([part.value for part in parts]),
        Mutants(*(torch.cat(column) for column in zip(*mutants, strict=True))),
        Steps(*(torch.cat(column) for column in zip(*steps, strict=True))),
        parts[0].mask,
        torch.cat([part.log_weight for part in parts]),
        torch.cat([part.latest & (part is parts[-1]) for part in parts]),
    )


def effective(log_weight: Tensor) -> float:
    """Effective sample size of these log-weights."""
    return math.exp(2 * float(log_weight.logsumexp(0)) - float((2 * log_weight).logsumexp(0)))


class TwistFamily(Protocol):
    """A form of twist: `fit` returns a function (x, t) of states [B, D], clean or partly masked.

    The function should approximate $log E[exp(value) | x]$, in nats, and must be finite on every state. If it also has
    a method `site_values(x, site, t)` [B, S], the value of x [B, D] with `site` [B] set to each token, a run calls that
    instead.
    """

    @property
    def name(self) -> str: ...
    def fit(self, lessons: Lessons) -> Potential: ...


def softened(values: Tensor, log_weight: Tensor | None = None, share: float = 0.5) -> Tensor:
    """Values with -inf (forbidden) replaced by a finite floor, at least one nat (or their spread) below all others.

    With the draws' log-weights towards p0 the floor is lowered to where what is forbidden holds at most this `share` of
    the softened target: a fit that meets few allowed states then does not spend itself on the others.
    """
    allowed = values > NEG_INF
    finite = values[allowed]
    if len(finite) == 0:
        raise InvalidInput(
            f"the reward is -inf on all {len(values)} states drawn from the model, so there is nothing to learn from; "
            "give a reward that is finite on some of its draws, or more calls"
        )
    low = float(finite.min()) - max(float(finite.std(correction=0)), 1.0)
    if log_weight is not None and len(finite) < len(values):
        mass = (log_weight + values)[allowed].logsumexp(0) - log_weight[~allowed].logsumexp(0)
        low = min(low, float(mass) + math.log(share / (1 - share))) if mass.isfinite() else low
    return torch.where(allowed, values, low)
