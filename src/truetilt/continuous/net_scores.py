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

from ..core.arguments import function, listed, reals, set_fields, shown, tensor_of, whole_number
from ..core.errors import InvalidInput
from ..core.eval_mode import evaluating
from ..core.types import State
from .processes import Process, check_noise

Reading = Callable[[Tensor, State, float, float], Tensor]  # (the network's output, x, m, s) to eps
Clock = Callable[[float, Process], float]  # the time that a network is given


def noise(predicted: Tensor, x: State, m: float, s: float) -> Tensor:
    """The network returns $eps$.

    Args:
        predicted: The network's output, of the shape of x.
        x: The noised states.
        m: Factor of the data in x at this time; not used.
        s: Factor of the noise in x at this time; not used.
    """
    return predicted


def velocity(predicted: Tensor, x: State, m: float, s: float) -> Tensor:
    """The network returns $v = m eps - s x_0$, so $eps = (s x + m v) / (m^2 + s^2)$.

    Args:
        predicted: The network's output, of the shape of x.
        x: The noised states.
        m: Factor of the data in x at this time.
        s: Factor of the noise in x at this time.
    """
    return (s * x + m * predicted) / (m * m + s * s)


def data(predicted: Tensor, x: State, m: float, s: float) -> Tensor:
    """The network returns $x_0$, so $eps = (x - m x_0) / s$.

    Args:
        predicted: The network's output, of the shape of x.
        x: The noised states.
        m: Factor of the data in x at this time.
        s: Factor of the noise in x at this time.
    """
    return (x - m * predicted) / s


def own_time(t: float, process: Process) -> float:
    """The network is given t itself."""
    return t


def trained_steps(alphas_cumprod: Sequence[float] | Tensor) -> Clock:
    """For networks trained on numbered steps: the step whose share of signal is nearest to the process's at t.

    `alphas_cumprod` is the scheduler's decreasing table. Noise levels are matched, not times, so a network trained on
    one variance-preserving schedule may run on another, within the levels it has seen.
    """
    table = reals("alphas_cumprod", alphas_cumprod, "give a list of numbers that falls inside (0, 1)", "cpu")
    if table.dim() != 1 or len(table) < 2 or not bool(((table > 0) & (table < 1)).all() & (table.diff() < 0).all()):
        raise InvalidInput("alphas_cumprod must be a list of numbers that falls strictly inside (0, 1)")
    log_odds = torch.logit(table)

    def number(t: float, process: Process) -> int:
        size = process.mean(t) ** 2 + process.std(t) ** 2
        if abs(size - 1) > 1e-3:
            raise InvalidInput(
                f"at t = {t:.6g} {type(process).__name__} gives unit data a variance of {size:.4g}; networks of "
                "numbered steps were trained on variance-preserving noise: use VP"
            )
        level = 2 * math.log(process.mean(t) / process.std(t))
        return int((log_odds - level).abs().argmin())

    return number


@dataclass(frozen=True)
class NetScore:
    """The score of a network (x, time), as samplers of real vectors take it.

    Leading axes are flattened into the batch, and the coordinates take the network's `shape`. The network is always in
    eval mode.

    Args:
        process: The noising process that the network was trained for.
        net: The network: x float32 [B, *shape] and time [B] to a tensor, or a record with `.sample`.
        reads: How its output is read: `noise` (the default), `velocity` or `data`, or a function (predicted, x, m, s)
            of your own that returns the noise.
        shape: Sizes of one state as the network takes it, such as (3, 32, 32). None (the default): [D].
        clock: The time that the network is given, a function (t, process); t itself by default. For numbered steps see
            `trained_steps`.
        condition: Passed to the network by keyword, such as class_labels=3 or encoder_hidden_states [L, C]: the value
            for one state, repeated for each row. None (the default): nothing.
        batch: Rows evaluated at a time, 1 or more; the last batch is padded, so that no chunk of a run changes a bit.
            None (the default): all rows at once.
    """

    process: Process
    net: Callable[..., Any]
    reads: Reading = noise
    shape: tuple[int, ...] | None = None
    clock: Clock = own_time
    condition: dict[str, Any] | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        check_noise(self.process)
        function("reads", self.reads, "(predicted, x, m, s)", "such as tt.continuous.noise")
        function("clock", self.clock, "(t, process)", "such as tt.continuous.trained_steps(alphas_cumprod)")
        if self.shape is not None:
            sizes = listed("the network's shape", self.shape, "give sizes such as (3, 32, 32)")
            set_fields(self, shape=tuple(whole_number("a size of the network's shape", size, 1) for size in sizes))
        if self.condition is not None and not isinstance(self.condition, dict):
            raise InvalidInput(f"condition is {shown(self.condition)}; give what the network is told, by keyword")
        function("net", self.net, "(x, time)", keywords=self.condition or ())
        if self.batch is not None:
            set_fields(self, batch=whole_number("batch", self.batch, 1))

    def __call__(self, x: State, t: float) -> Tensor:
        m, s = self.process.mean(t), self.process.std(t)
        if s == 0:
            raise InvalidInput(f"a network of noise has no score at t = {t}, where there is none; ask it earlier")
        read = self.reads(self._ask(x, t).to(x.dtype), x, m, s)
        need = f"return the noise of states {tuple(x.shape)}, as tt.continuous.noise does"
        found = tensor_of("what reads returned", read, need, x.device)
        if found.shape != x.shape:
            raise InvalidInput(f"what reads returned is {shown(read)}; {need}")
        return found / -s

    @torch.no_grad()
    def _ask(self, x: State, t: float) -> Tensor:
        shape = self.shape or x.shape[-1:]
        if math.prod(shape) != x.shape[-1]:
            raise InvalidInput(f"the network's shape {shape} holds {math.prod(shape)} numbers, a state {x.shape[-1]}")
        rows, time = x.reshape(-1, *shape).float(), self.clock(t, self.process)
        size = self.batch or max(1, len(rows))
        with evaluating(self.net):
            answers = [self._rows(part, time, size)[: len(part)] for part in rows.split(size)]
        return torch.cat(answers).reshape(x.shape)

    def _rows(self, rows: Tensor, time: float, size: int) -> Tensor:
        rows = torch.cat([rows, rows[:1].expand(size - len(rows), *rows.shape[1:])])
        told = {name: _repeated(value, rows) for name, value in (self.condition or {}).items()}
        answer = self.net(rows, torch.full((size,), time, device=rows.device), **told)
        answer = answer[0] if isinstance(answer, tuple) else getattr(answer, "sample", answer)
        if not isinstance(answer, Tensor) or answer.shape != rows.shape:
            found = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise InvalidInput(
                f"the network returned {found} for {tuple(rows.shape)}; it must predict what it is given (of a network "
                "that also learns variances, keep the first half of the channels)"
            )
        return answer.flatten(1).clone()  # a compiled network reuses its output buffer


def _repeated(value: Any, rows: Tensor) -> Any:
    """The condition of one state for every row: numbers and tensors gain a leading axis, other values are unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float | Tensor):
        return value
    one = torch.as_tensor(value, device=rows.device)
    return one.expand(len(rows), *one.shape)
