"""Evaluation of a trained network on held-out rows: the likelihood bound in nats per dimension, and accuracies.

Each test row is evaluated once per pass, at a time of its own. The times of a pass are stratified over (0, 1), one row
per stratum, which estimates the continuous-time integral with little noise. For texts the bound is also given per
token: the same nats divided by the number of sites that are not padding. The bound is of random masks: it bounds
-log p(x) of drawing in a random order. A network that is also trained from left to right gets a second figure,
`in_order`: -log p(x) of drawing from left to right up to the end token, no bound but the likelihood itself, estimated
at one site of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn

from ..diffusion.processes import Masking
from ..models.net_facts import groups_of
from ..models.net_score import normalised
from ..smc.sampler import Stream
from .batches import EVALUATION, SUFFIXES, times
from .left_to_right import next_token_nats, suffixes
from .losses import Noise, Noised, bound, corrupt, corrupt_from_all
from .task_record import LogScores, TrainingRows, TrainingTask

POTENTIAL_TIMES = (0.0, 0.25, 0.5, 0.75, 0.9)
_BATCH = 250


@torch.no_grad()
def evaluate(task: TrainingTask, rows: TrainingRows, seed: int = 0, passes: int = 1) -> dict[str, float]:
    """Every figure of this task's network on these rows, computed in float32."""
    task.net.eval()
    if task.log_scores is None:
        moments = (0.0,) if task.clean else POTENTIAL_TIMES
        return {name: value for t in moments for name, value in _answers_at(task, rows, seed, t).items()}
    if not task.told:
        return _bounds(task.log_scores, task, rows, seed, passes, told=False)
    found = _bounds(task.log_scores, task, rows, seed, passes, told=True)
    given = {f"conditional_{name}": value for name, value in found.items()}
    if task.base is not None:  # a guide has no unconditional answer
        return given
    return given | _bounds(task.log_scores, task, rows, seed, passes, told=False)


def _bounds(
    log_scores: LogScores, task: TrainingTask, rows: TrainingRows, seed: int, passes: int, told: bool
) -> dict[str, float]:
    """The mean of the bound over rows and passes, and its standard error."""
    values = []
    for number in range(passes):
        u, v = (Stream(seed, number).uniforms(k, EVALUATION, 1, rows.count)[0] for k in (0, 1))
        t = times(u)[v.argsort(stable=True)]
        for noised, label in _noised(task, rows, t, Stream(seed, number, rows.tokens.device), corrupt_from_all):
            known = label if told else rows.told_instead(label, task.classes)
            values.append(bound(task.process, log_scores(task.net, noised, known), noised).double())
    found = _figures("bound", torch.cat(values), rows)
    return found | (_in_order(log_scores, task, rows, seed, passes, told) if task.in_order else {})


def _figures(name: str, every: Tensor, rows: TrainingRows) -> dict[str, float]:
    """Mean and standard error of nats per dimension; for texts also the mean per token."""
    found = {name: float(every.mean()), f"{name}_stderr": float(every.std() / len(every) ** 0.5)}
    if rows.used is None:
        return found
    return found | {f"{name}_per_token": found[name] * rows.tokens.shape[1] / float(rows.used.double().mean())}


def _in_order(
    log_scores: LogScores, task: TrainingTask, rows: TrainingRows, seed: int, passes: int, told: bool
) -> dict[str, float]:
    """-log p(x) of drawing from left to right in nats a dimension, at one drawn site of each row and pass."""
    values, length = [], rows.tokens.shape[1]
    used = torch.full_like(rows.labels, length) if rows.used is None else rows.used
    for number in range(passes):
        u = Stream(seed, number, rows.tokens.device).uniforms(0, SUFFIXES, 1, rows.count)[0]
        for first in range(0, rows.count, _BATCH):
            part, label = slice(first, first + _BATCH), rows.labels[first : first + _BATCH]
            noised = suffixes(cast("Masking", task.process), rows.tokens[part].long(), used[part], u[part])
            known = label if told else rows.told_instead(label, task.classes)
            nats = next_token_nats(noised, log_scores(task.net, noised, known))
            values.append(nats / length)
    return _figures("in_order", torch.cat(values), rows)


def _answers_at(task: TrainingTask, rows: TrainingRows, seed: int, t: float) -> dict[str, float]:
    """Accuracy and cross-entropy at one time, overall and for each kind of row."""
    moments = torch.full((rows.count,), t, dtype=torch.float64)
    right, cost = [], []
    for noised, label in _noised(task, rows, moments, Stream(seed, device=rows.tokens.device), corrupt):
        log_p = normalised(task.net(noised.x, noised.noise.t.float()).double(), task.net)
        right.append((_likeliest(log_p, label, task.net) == label).double())
        cost.append(-log_p.gather(-1, label[:, None])[:, 0])
    found, name = {"accuracy": torch.cat(right), "cross_entropy": torch.cat(cost)}, "" if task.clean else f"_t{t:g}"
    figures = {f"{figure}{name}": float(values.mean()) for figure, values in found.items()}
    for kind, chosen in rows.kinds.items():
        figures |= {f"{figure}_{kind}{name}": float(values[chosen].mean()) for figure, values in found.items()}
    return figures


def _likeliest(log_p: Tensor, label: Tensor, net: nn.Module) -> Tensor:
    """The likeliest class of the group that the label is in."""
    groups = groups_of(net, log_p.shape[-1])
    group = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor(groups)).to(label.device)
    return log_p.masked_fill(group != group[label, None], -torch.inf).argmax(-1)


def _noised(
    task: TrainingTask, rows: TrainingRows, t: Tensor, stream: Stream, noised_by: Callable[..., Noised]
) -> Iterator[tuple[Noised, Tensor]]:
    """The rows in batches, each row at its time, with their labels."""
    length, noise = rows.tokens.shape[1], Noise.at(task.process, t).to(rows.tokens.device)
    for first in range(0, rows.count, _BATCH):
        last = min(first + _BATCH, rows.count)
        x0 = rows.tokens[first:last].long()
        u = stream.uniforms(2, EVALUATION, 1, x0.numel(), first * length).view(x0.shape)
        part = Noise(*(values[first:last] for values in noise))
        yield noised_by(task.process, x0, part, u), rows.labels[first:last]
