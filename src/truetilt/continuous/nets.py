"""Networks as scores: adapters for predictors of the noise, of the velocity or of the clean data.

With x = m x_0 + s eps at time t, a network may return eps, v = m eps - s x_0, or x_0; each gives the score -eps / s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..types import InvalidInput, State
from .processes import Process

Reading = Callable[[Tensor, State, float, float], Tensor]  # (what the net returned, x, m, s) to eps
Clock = Callable[[float, Process], float]  # the time a net is told


def noise(predicted: Tensor, x: State, m: float, s: float) -> Tensor:
    """The network returns eps."""
    return predicted


def velocity(predicted: Tensor, x: State, m: float, s: float) -> Tensor:
    """The network returns v = m eps - s x_0, so eps = (s x + m v) / (m^2 + s^2)."""
    return (s * x + m * predicted) / (m * m + s * s)


def data(predicted: Tensor, x: State, m: float, s: float) -> Tensor:
    """The network returns x_0, so eps = (x - m x_0) / s."""
    return (x - m * predicted) / s


def own_time(t: float, process: Process) -> float:
    """The network knows t itself."""
    return t


def trained_steps(alphas_cumprod: Sequence[float] | Tensor) -> Clock:
    """For networks trained on numbered steps: the number whose share of signal is nearest to the process's at t.

    `alphas_cumprod` is the scheduler's table, falling. Noise levels are matched, not times, so a network trained on one
    variance-preserving schedule may run on another, within the levels it has seen.
    """
    table = torch.as_tensor(alphas_cumprod).detach().double().cpu()
    if table.dim() != 1 or len(table) < 2 or not bool(((table > 0) & (table < 1)).all() & (table.diff() < 0).all()):
        raise InvalidInput("alphas_cumprod must be a list of numbers that falls strictly inside (0, 1)")
    log_odds = torch.logit(table)

    def number(t: float, process: Process) -> int:
        level = 2 * math.log(process.mean(t) / process.std(t))
        return int((log_odds - level).abs().argmin())

    return number


@dataclass(frozen=True)
class NetScore:
    """The score of net(x, time): x float32 [B, *shape], time [B]; the answer a tensor, or a record with `.sample`.

    `condition` goes to the network by keyword, as encoder_hidden_states or class_labels do; leading axes are flattened
    into the batch, `batch` rows at a time, and the coordinates take the network's `shape`.
    """

    process: Process
    net: Callable[..., Any]
    reads: Reading = noise
    shape: tuple[int, ...] | None = None
    clock: Clock = own_time
    condition: dict[str, Any] | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.shape is not None and math.prod(self.shape) < 1:
            raise InvalidInput(f"the network's shape is {self.shape}; give sizes such as (3, 32, 32)")
        if self.batch is not None and self.batch < 1:
            raise InvalidInput(f"batch is {self.batch}; give at least one row at a time, or None for all")

    def __call__(self, x: State, t: float) -> Tensor:
        m, s = self.process.mean(t), self.process.std(t)
        if s == 0:
            raise InvalidInput(f"a network of noise has no score at t = {t}, where there is none; ask it earlier")
        return self.reads(self._ask(x, t).to(x.dtype), x, m, s) / -s

    @torch.no_grad()
    def _ask(self, x: State, t: float) -> Tensor:
        shape = self.shape or x.shape[-1:]
        if math.prod(shape) != x.shape[-1]:
            raise InvalidInput(f"the network's shape {shape} holds {math.prod(shape)} numbers, a state {x.shape[-1]}")
        rows, time = x.reshape(-1, *shape).float(), self.clock(t, self.process)
        answers = [self._rows(part, time) for part in rows.split(self.batch or max(1, len(rows)))]
        return torch.cat(answers).reshape(x.shape)

    def _rows(self, rows: Tensor, time: float) -> Tensor:
        answer = self.net(rows, torch.full((len(rows),), time, device=rows.device), **(self.condition or {}))
        answer = getattr(answer, "sample", answer)
        if answer.shape != rows.shape:
            raise InvalidInput(
                f"the network returned {tuple(answer.shape)} for {tuple(rows.shape)}; it must predict what it is given "
                "(of a network that also learns variances, keep the first half of the channels)"
            )
        return answer.flatten(1)
