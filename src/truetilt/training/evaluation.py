"""What a trained network is worth on digits it never saw: the test bound in nats a dimension, and accuracies.

Each test digit is asked once a pass at a time of its own; the times of a pass are stratified over (0, 1), one digit a
stratum, which estimates the continuous-time integral with little noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..smc.stream import Stream
from .batches import EVALUATION, times
from .data import Digits
from .losses import Noise, Noised, bound, corrupt, corrupt_from_all
from .tasks import LogScores, Task

POTENTIAL_TIMES = (0.0, 0.25, 0.5, 0.75, 0.9)
_BATCH = 250


@torch.no_grad()
def evaluate(task: Task, digits: Digits, seed: int = 0, passes: int = 1) -> dict[str, float]:
    """Every figure of this task's network on these digits, computed in float32."""
    task.net.eval()
    if task.log_scores is None:
        moments = (0.0,) if task.clean else POTENTIAL_TIMES
        return {name: value for t in moments for name, value in _answers_at(task, digits, seed, t).items()}
    if not task.told:
        return _bounds(task.log_scores, task, digits, (seed, passes), told=False)
    found = _bounds(task.log_scores, task, digits, (seed, passes), told=True)
    given = {f"conditional_{name}": value for name, value in found.items()}
    if task.base is not None:  # a guide without a label says nothing
        return given
    return given | _bounds(task.log_scores, task, digits, (seed, passes), told=False)


def _bounds(log_scores: LogScores, task: Task, digits: Digits, draws: tuple[int, int], told: bool) -> dict[str, float]:
    """The mean of the bound over digits and passes, and its standard error."""
    seed, passes = draws
    values = []
    for number in range(passes):
        u, v = (Stream(seed, number).uniforms(k, EVALUATION, 1, (0, digits.count))[0] for k in (0, 1))
        t = times(u)[v.argsort(stable=True)]
        for noised, label in _noised(task, digits, t, Stream(seed, number, digits.images.device), corrupt_from_all):
            known = label if told else torch.full_like(label, task.classes)
            values.append(bound(task.process, log_scores(task.net, noised, known), noised).double())
    every = torch.cat(values)
    return {"bound": float(every.mean()), "bound_stderr": float(every.std() / len(every) ** 0.5)}


def _answers_at(task: Task, digits: Digits, seed: int, t: float) -> dict[str, float]:
    """Accuracy and cross-entropy at one time."""
    moments = torch.full((digits.count,), t, dtype=torch.float64)
    right, cost = [], []
    for noised, label in _noised(task, digits, moments, Stream(seed, device=digits.images.device), corrupt):
        log_p = torch.log_softmax(task.net(noised.x, noised.noise.t.float()).double(), -1)
        right.append((log_p.argmax(-1) == label).double())
        cost.append(-log_p.gather(-1, label[:, None])[:, 0])
    name = "" if task.clean else f"_t{t:g}"
    return {f"accuracy{name}": float(torch.cat(right).mean()), f"cross_entropy{name}": float(torch.cat(cost).mean())}


def _noised(
    task: Task, digits: Digits, t: Tensor, stream: Stream, noised_by: Callable[..., Noised]
) -> Iterator[tuple[Noised, Tensor]]:
    """The digits in batches, each digit at its time, with their labels."""
    length, noise = digits.images.shape[1], Noise.at(task.process, t).to(digits.images.device)
    for first in range(0, digits.count, _BATCH):
        last = min(first + _BATCH, digits.count)
        x0 = digits.images[first:last].long()
        u = stream.uniforms(2, EVALUATION, 1, (first * length, last * length)).view(x0.shape)
        part = Noise(*(values[first:last] for values in noise))
        yield noised_by(task.process, x0, part, u), digits.labels[first:last]
