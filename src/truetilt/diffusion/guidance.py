"""Guidance: how a proposal leans towards a condition. Pure functions of two log-scores and beta.

Rate-level guidance multiplies rates, R^beta = R g^beta, and so changes how fast sites unmask; posterior-level guidance
mixes the posteriors and leaves the unmasking rate alone. Both keep the zeros of the base.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from ..core.arguments import LARGEST, called, function, number, set_fields, shown, tensor_of
from ..core.errors import InvalidInput
from ..core.eval_mode import check_logits, evaluating
from ..core.evaluation import Batch, BatchScore, ask, check_answer
from ..core.logits import SiteLogits, batch_of
from ..core.types import NEG_INF, Process, Schedule, Score, Tokens, check_process

_STRENGTH = f"guidance strength must be finite and at least 0, at most {LARGEST:.0e}"


class NoisyState(NamedTuple):
    """States x [..., D] and the time at which the networks saw them."""

    x: Tokens
    t: float


class Guide(Protocol):
    """A way of guiding: the score of strength beta made of base and conditional, at the states and time `at`."""

    def __call__(
        self, process: Process, base: SiteLogits, conditional: SiteLogits, beta: float, at: NoisyState
    ) -> SiteLogits: ...


def rate_level(process: Process, base: SiteLogits, conditional: SiteLogits, beta: float, at: NoisyState) -> SiteLogits:
    """The paper's guided rate $R^beta = R (R^1 / R)^beta$ (Definition 3.1); at beta = 1 the conditional rate itself.

    Args:
        process: The noising process of both scores; not used.
        base: The base's score at the states, a `tt.SiteLogits`.
        conditional: The conditional's score at the states, a `tt.SiteLogits`.
        beta: Strength, 0 or more.
        at: The pair (x, t): states [..., D] and their time; not used.
    """
    if beta == 1:
        return conditional
    return base.join(conditional, partial(interpolate, beta=beta))


def posterior_level(
    process: Process, base: SiteLogits, conditional: SiteLogits, beta: float, at: NoisyState
) -> SiteLogits:
    """softmax of $(1 - beta) log p(x0|x) + beta log p(x0|x, zeta)$, at the base's unmasking rate.

    Args:
        process: The noising process of both scores, which turns scores into posteriors.
        base: The base's score at the states, a `tt.SiteLogits`.
        conditional: The conditional's score at the states, a `tt.SiteLogits`.
        beta: Strength, 0 or more.
        at: The pair (x, t): states [..., D] and their time.
    """
    x, t = at
    p, p_zeta = process.posterior(base, x, t), process.posterior(conditional, x, t)
    return process.score(p.join(p_zeta, partial(interpolate, beta=beta)).normalised(), x, t)


def interpolate(base: Tensor, conditional: Tensor, beta: float) -> Tensor:
    """(1 - beta) base + beta conditional in log space; what the base cannot do stays impossible, and 0^0 = 1."""
    if beta == 0:
        return base
    mixed = torch.add(base, conditional - base, alpha=beta)
    return mixed.masked_fill_(base == NEG_INF, NEG_INF)


@dataclass(frozen=True)
class Guided(BatchScore):
    """The Score of plain guidance: the base leaned towards the conditional by a strength.

    Args:
        process: The noising process of both scores: `tt.Masking(S)` or `tt.Uniform(S)`.
        base: Score of the unconditional model.
        conditional: Score of the conditional model.
        beta: Strength, 0 to 1e9, a number or a function of time: 0 is the base, 1 the conditional, more leans further.
        guide: How two scores make the guided one: `tt.rate_level` (the default, the paper's) or `tt.posterior_level`.
    """

    asks_others: ClassVar[bool] = True
    process: Process
    base: Score
    conditional: Score
    beta: float | Schedule
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        set_fields(self, beta=check_strength(self.beta))
        check_process(self.process)
        function("base", self.base, "(x, t)")
        function("conditional", self.conditional, "(x, t)")
        check_guide(self.guide)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        base, conditional, x = ask(self.base, batch, t), ask(self.conditional, batch, t), batch.x
        for answer in (base, conditional):
            check_answer("a score", answer, x, self.process.vocabulary)
        return guided(self.guide, self.process, base, conditional, strength(self.beta, t), NoisyState(x, t))


@dataclass(frozen=True)
class PosteriorScore:
    """The `Score` of a network that predicts clean tokens, $p(x_0 = v | x_t)$. A torch module is called in eval mode.

    Args:
        process: The noising process the network was trained with: `tt.Masking(S)` or `tt.Uniform(S)`.
        net: Function (x, t) of a batch of states int64 [B, D] and a time from 1 (noise) to 0 (data) that returns logits
            of the clean token [B, D, S], without the mask; they are normalised here.
    """

    process: Process
    net: Callable[[Tokens, float], Tensor]

    def __post_init__(self) -> None:
        check_process(self.process)
        function("net", self.net, "(x, t)")

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        batch, need = batch_of(x), "it must be [B, D, S], logits of the clean token"
        with evaluating(self.net):
            logits = tensor_of("what the network answered", self.net(batch, t), need)
        if logits.dim() != 3 or logits.shape[:2] != batch.shape:
            found = tuple(logits.shape)
            raise InvalidInput(
                f"the network answered {found} to a batch of states {tuple(batch.shape)}; it must be [B, D, S], logits "
                "of the clean token"
            )
        if t >= 1:  # where a run begins: to look at every answer would synchronise the device at every step
            check_logits(logits)
        return self.process.score(SiteLogits.of(logits.log_softmax(-1).reshape(*x.shape, logits.shape[-1])), x, t)


def strength(beta: float | Schedule, t: float) -> float:
    """beta at time t. A number was checked at construction; the value of a schedule is checked at every call."""
    return _checked(called("beta", cast("Schedule", beta), t), t) if callable(beta) else float(beta)


def _checked(beta: object, t: float) -> float:
    value = float(number("beta", beta, f"{_STRENGTH}, at t = {t}"))
    if not 0 <= value <= LARGEST:
        raise InvalidInput(f"beta is {value} at t = {t}; {_STRENGTH}")
    return value


def check_strength(beta: float | Schedule) -> float | Schedule:
    """beta as a plain number, checked; a schedule is checked at both ends of time."""
    if callable(beta):
        function("beta", beta, "(t)")
        for t in (1.0, 0.0):
            strength(beta, t)
        return beta
    _checked(beta, 1.0)
    return number("beta", beta)


def guided(
    guide: Guide, process: Process, base: SiteLogits, conditional: SiteLogits, beta: float, at: NoisyState
) -> SiteLogits:
    """The guided score, checked to be a `SiteLogits`."""
    found = guide(process, base, conditional, beta, at)
    if not isinstance(found, SiteLogits) or found.vocabulary != process.vocabulary or found.index.shape != at.x.shape:
        raise InvalidInput(f"the guide returned {shown(found)}; it must return tt.SiteLogits of the states it is given")
    return found


def check_guide(guide: object) -> None:
    """Raise unless this is a guide: a function of (process, base, conditional, beta, at)."""
    function("guide", guide, "(process, base, conditional, beta, at)", "such as tt.rate_level or tt.posterior_level")
