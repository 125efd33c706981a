"""Scores made of the base and a function of noised states: classifier guidance, exact or by one gradient.

Both use the change of a log-value h(x, t) when one site changes. `Predictor` evaluates h on every neighbour of x;
`Taylor` takes one gradient, an approximation. As the `proposal` of `Steered` either is corrected by the weight p/q, and
the target is that of the base; as the `conditional` of a model it is part of the target, and there `Taylor` changes
what is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from ..core.arguments import function, shown, tensor_of
from ..core.errors import InvalidInput, InvalidWeights
from ..core.eval_mode import evaluating
from ..core.evaluation import Batch, BatchScore, ask, check, check_answer
from ..core.logits import SiteLogits, batch_of
from ..core.types import NEG_INF, Potential, Process, Score, Tokens, check_process

_RELAXED = "(onehot, t)"


@dataclass(frozen=True)
class Predictor(BatchScore):
    """The conditional Score of a classifier $log p_t(zeta|x)$, by exact ratios over every neighbour of x.

    Args:
        process: The noising process of the base: `tt.Masking(S)` or `tt.Uniform(S)`.
        base: Score of the unconditional model.
        log_likelihood: Function (x, t) of a batch of states [B, D] and a time that returns $log p_t(zeta|x)$ [B]. It is
            evaluated on every state that differs from x at one site.
    """

    asks_others: ClassVar[bool] = True
    process: Process
    base: Score
    log_likelihood: Potential

    def __post_init__(self) -> None:
        check_base(self.process, self.base)
        function("log_likelihood", self.log_likelihood, "(x, t)")

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        base, x = dense_base(self.process, self.base, batch, t), batch.x
        here = self._log_likelihood(x, t)[..., None]
        ratio = torch.stack([self._neighbours(x, t, d) for d in range(x.shape[-1])], -2) - here[..., None]
        return SiteLogits.of(base + torch.where((here == NEG_INF)[..., None], 0.0, ratio))

    def _neighbours(self, x: Tokens, t: float, d: int) -> Tensor:
        """log p_t(zeta|y) for y = x with site d set to each token [..., S]."""
        size = self.process.vocabulary
        y = x.unsqueeze(-2).expand(*x.shape[:-1], size, x.shape[-1]).clone()
        y[..., d] = torch.arange(size, device=x.device)
        return self._log_likelihood(y, t)

    def _log_likelihood(self, y: Tokens, t: float) -> Tensor:
        """log p_t(zeta|y) [...] of states [..., D], evaluated as one batch."""
        batch, need = batch_of(y), "return one log-probability a state"
        value = tensor_of("what the classifier returned", self.log_likelihood(batch, t), need, y.device)
        if value.shape != batch.shape[:1]:
            raise InvalidInput(
                f"the classifier returned shape {tuple(value.shape)} for a batch of states {tuple(batch.shape)}; it "
                f"must return one log-probability a state, [{len(batch)}]"
            )
        return (value if value.is_floating_point() else value.double()).reshape(y.shape[:-1])


@dataclass(frozen=True)
class Taylor(BatchScore):
    """The Score guided by a differentiable log-value h, whose ratios to all neighbours come from one gradient.

    $h(y, t) - h(x, t)$, for y = x with site d set to v, is taken to be `grad[d, v] - grad[d, x_d]`: exact where h is
    linear in the one-hot of each site while the others hold, else a first-order guess. Every ratio is finite, so what
    the base can draw can be drawn (on the uniform process by `tt.euler` or `tt.tau_leaping` steps; `tt.tweedie` there
    may lose states under any guidance). Use it as `tt.Steered(model, reward, strength, proposal=tt.Taylor(...))`, whose
    weight corrects the guess; `tt.Guided(process, base, taylor, beta)` leans by a multiple of it.

    Args:
        process: The noising process of the base: `tt.Masking(S)` or `tt.Uniform(S)`.
        base: Score of the unconditional model.
        differentiable: Function (onehot, t) of relaxed one-hot states, float [B, D, S + 1] for masking (the last entry
            is the mask) or [B, D, S], and a time, that returns log-values [B] with a gradient in `onehot`. A network
            with an embedding computes `onehot @ embedding.weight` in place of `embedding(x)`. A torch module is called
            in eval mode; its weights get no gradients.
        dtype: Of the one-hot states: that of the network's weights. float32 by default.
    """

    asks_others: ClassVar[bool] = True
    process: Process
    base: Score
    differentiable: Callable[[Tensor, float], Tensor]
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        check_base(self.process, self.base)
        function("differentiable", self.differentiable, _RELAXED)
        if not isinstance(self.dtype, torch.dtype) or not self.dtype.is_floating_point:
            raise InvalidInput(f"dtype is {shown(self.dtype)}; give that of the network's weights, as torch.float32")

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        base, x = dense_base(self.process, self.base, batch, t), batch.x
        value, slope = value_and_slope(self.differentiable, x, t, self.process.states, self.dtype, "tt.Taylor")
        dead = (value == NEG_INF)[:, None, None]  # no gradient at -inf: the base's ratios are kept
        ratio = torch.where(dead, 0.0, slope[..., : self.process.vocabulary] - slope.gather(-1, x[..., None]))
        bad = value.isnan() | ~ratio.isfinite().flatten(1).all(1)
        check(bad.any(), partial(_not_finite, bad, t, self.dtype))
        return SiteLogits.of(base + ratio)


def _not_finite(bad: Tensor, t: float, dtype: torch.dtype) -> InvalidWeights:
    return InvalidWeights(
        f"the log-value of tt.Taylor or its gradient is NaN or infinite for {int(bad.sum())} of {len(bad)} states at "
        f"t = {t:.6g}, and such a proposal would lose states of the base; look for log(0), or overflow in {dtype}"
    )


def value_and_slope(
    differentiable: Callable[[Tensor, float], Tensor], x: Tokens, t: float, states: int, dtype: torch.dtype, name: str
) -> tuple[Tensor, Tensor]:
    """A log-value [B] of states [B, D] and its gradient in their one-hot entries [B, D, states], by one pass.

    Computed under `torch.no_grad` too; `name` is what errors call the function.
    """
    with torch.inference_mode(False), torch.enable_grad(), evaluating(differentiable):
        blank = torch.zeros(*x.shape, states, dtype=dtype, device=x.device)
        onehot = blank.scatter_(-1, x[..., None], 1.0).requires_grad_()
        value = _relaxed(differentiable, onehot, t, name)
        slope = torch.autograd.grad(value.sum(), onehot, allow_unused=True)[0] if value.requires_grad else None
    if slope is None:
        raise InvalidInput(
            f"the log-value of {name} has no gradient in the one-hot states it is given; compute it from them, "
            "onehot @ embedding.weight, without torch.no_grad, detach or argmax"
        )
    return value.detach(), slope.to(torch.promote_types(slope.dtype, torch.float32))


def _relaxed(differentiable: Callable[[Tensor, float], Tensor], onehot: Tensor, t: float, name: str) -> Tensor:
    """The log-values of one-hot states, checked for shape."""
    try:
        value = differentiable(onehot, t)
    except RuntimeError as error:
        if "dtype" not in str(error):
            raise
        raise InvalidInput(
            f"the log-value of {name} failed on one-hot states of {onehot.dtype} ({error}); give {name} the dtype of "
            "the network's weights, dtype=..."
        ) from error
    if not isinstance(value, Tensor) or value.shape != onehot.shape[:1]:
        raise InvalidInput(
            f"the log-value of {name} is {shown(value)} for one-hot states {tuple(onehot.shape)}; return one number a "
            f"state, a tensor [{len(onehot)}]"
        )
    return value


def check_base(process: Process, base: Score) -> None:
    """Raise unless this is a process, and a base of equally many tokens."""
    check_process(process)
    function("base", base, "(x, t)")
    known = getattr(base, "process", process)  # of a score that says it
    if known.vocabulary != process.vocabulary:
        raise InvalidInput(
            f"the base knows {known.vocabulary} tokens and the process {process.vocabulary}; they must agree"
        )
    if getattr(known, "states", process.states) != process.states:
        raise InvalidInput(f"the base is for {shown(known)} and the process is {shown(process)}; they must agree")


def dense_base(process: Process, base: Score, batch: Batch, t: float) -> Tensor:
    """The base's log-score of every token at every site [B, D, S]."""
    found = ask(base, batch, t)
    check_answer("the base", found, batch.x, process.vocabulary)
    return found.dense()
