"""The law of any guided jump process by the Kolmogorov forward equation, on an enumerable space.

The generator is frozen over each interval of the grid and its exponential applied: positive, mass-preserving and
insensitive to stiffness, because every term is positive. A masking clock that runs to infinity at t = 0 is handled by
repeated squaring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ..core.arguments import function, reals, shown
from ..core.errors import InvalidInput, InvalidWeights
from ..core.logits import SiteLogits
from ..core.types import NEG_INF, Process, Score, check_process
from ..diffusion.grids import check_grid
from .tables import enumerate_states, flat_index

_TERMS = 24  # terms of the exponential series, after scaling to rates of at most 1: error below 1e-23
_SQUARINGS_TO_INFINITY = 1100  # 2^1100 exceeds every ratio of float64 rates


def forward_equation(process: Process, score: Score, start: Tensor, grid: Sequence[float]) -> Tensor:
    """The law at the end of a time grid of the reverse process that jumps at a score's rates, by matrix exponentials.

    Args:
        process: The noising process of the score: `tt.Masking(S)` or `tt.Uniform(S)`.
        score: Function (x, t) whose rates the process jumps at, such as `model.base`.
        start: Probability of every state at the grid's first time [K], where K is all states of all sites.
        grid: Times that fall strictly from 1 (noise) to 0 (data); the generator is taken in the middle of each
            interval.
    """
    check_process(process)
    function("score", score, "(x, t)")
    start, grid = reals("start", start, "give the probability of every state"), check_grid(grid)
    if not bool((start >= 0).all()) or not float(start.sum()) < math.inf:
        raise InvalidInput("start has negative, NaN or infinite entries; give the probability of every state")
    length = _length(process, start)
    law = start
    for t, s in pairwise(grid):
        middle = 0.5 * (t + s)
        generator, clock = jump_generator(process, score, middle, t, s, length)
        law = law @ transition(generator, clock)
    if not bool((law >= 0).all()) or abs(float(law.sum()) - float(start.sum())) > 1e-9:
        raise InvalidWeights(f"the forward equation lost mass: {float(start.sum())} became {float(law.sum())}")
    return law


def jump_generator(process: Process, score: Score, at: float, t: float, s: float, length: int) -> tuple[Tensor, float]:
    """Off-diagonal intensities [K, K] of single-site jumps with the score frozen at `at`, and the clock from t to s."""
    x = enumerate_states(process.states, length)
    logits = score(x, at)
    if not isinstance(logits, SiteLogits) or logits.index.shape != x.shape or logits.vocabulary != process.vocabulary:
        raise InvalidInput(
            f"the score returned {shown(logits)}; it must return tt.SiteLogits of states {tuple(x.shape)}"
        )
    frozen = process.jumps(logits, x, at, at / 2)  # the second time only sets the clock, replaced below
    clock = process.jumps(score(x[:1], t), x[:1], t, s).log_clock.exp()
    log_rate = frozen.log_reference[..., None] + frozen.logits.dense()  # [K, D, S]
    log_rate = torch.where(frozen.movable[..., None], log_rate, NEG_INF)
    y = x[:, None, None, :].repeat(1, length, process.vocabulary, 1)
    for d in range(length):
        y[:, d, :, d] = torch.arange(process.vocabulary)
    rate = torch.where((y == x[:, None, None, :]).all(-1), 0.0, log_rate.double().exp())
    generator = torch.zeros(len(x), len(x), dtype=torch.float64)
    rows = torch.arange(len(x))[:, None, None].expand(rate.shape)
    generator.index_put_((rows, flat_index(y, process.states)), rate, accumulate=True)
    return generator, float(clock)


def transition(rates: Tensor, clock: float) -> Tensor:
    """exp(clock * generator) for off-diagonal rates [K, K], row-stochastic to rounding; clock may be infinite."""
    fastest = float(rates.sum(-1).max())
    if not math.isfinite(fastest):
        raise InvalidInput("jump rates exceed float64: guidance this strong has no forward equation to solve")
    if fastest == 0:
        return torch.eye(len(rates), dtype=rates.dtype)
    if math.isinf(clock):
        return _square(_exponential(rates / fastest), _SQUARINGS_TO_INFINITY)
    halvings = max(0, math.ceil(math.log2(fastest) + math.log2(clock)))
    return _square(_exponential(rates * (clock / 2.0**halvings)), halvings)


def _exponential(rates: Tensor) -> Tensor:
    """exp(G) for exit rates of at most 1, by uniformisation: e^-1 sum of P^k / k! with P = I + G >= 0."""
    jump = rates + torch.diag(1 - rates.sum(-1))
    term = torch.eye(len(rates), dtype=rates.dtype)
    total = term.clone()
    for k in range(1, _TERMS):
        term = term @ jump / k
        total = total + term
    return total / total.sum(-1, keepdim=True)


def _square(p: Tensor, times: int) -> Tensor:
    """p^(2^times), rows renormalised so that rounding does not grow; stops when nothing changes."""
    for _ in range(times):
        new = p @ p
        new = new / new.sum(-1, keepdim=True)
        if torch.equal(new, p):
            return new
        p = new
    return p


def _length(process: Process, start: Tensor) -> int:
    length = 0
    while process.states**length < start.numel():
        length += 1
    if length < 1 or process.states**length != start.numel() or start.dim() != 1:
        raise InvalidInput(f"a start of shape {tuple(start.shape)} is no law on sites of {process.states} states each")
    return length
