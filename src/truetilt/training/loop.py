"""The one training loop: AdamW, warm-up, a running mean of the weights, checkpoints; the same for every task.

A step is a function of the learner and the step number: batches come from a counter and nothing else is random. A run
killed at any moment and resumed from its last checkpoint continues, on the CPU bit for bit, as if uninterrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import TruetiltError
from ..core.storage import write_json
from .checkpoints import Learner, TrainingProgress, save_checkpoint
from .config import TrainConfig
from .export import export
from .journal import Journal
from .runs import TrainingRun, fresh, start
from .task_record import TrainingBatch

Report = Callable[[int, float], None]  # the step and the mean loss since the last report


def train(
    config: TrainConfig,
    folder: Path,
    device: torch.device | str = "cpu",
    resume: bool = False,
    report: Report | None = None,
) -> dict[str, Any]:
    """Train, export the running mean of the weights to folder/model, evaluate it; returns its card."""
    return train_run(TrainingRun.prepare(config, folder, device), resume, report)


def train_run(run: TrainingRun, resume: bool = False, report: Report | None = None) -> dict[str, Any]:
    """Train a prepared run; returns the model card."""
    learner, progress = start(run, resume)
    write_json(run.folder / "config.json", asdict(run.config))
    with _fast_convolutions():
        progress = learn(run, learner, progress, report or (lambda step, loss: None))
    return export(run, learner, progress)


def learn(run: TrainingRun, learner: Learner, progress: TrainingProgress, report: Report) -> TrainingProgress:
    """Run all remaining steps, or as many as the time limit allows."""
    config, batches, mark = run.config, run.batches(), run.fingerprint()
    learner.net.train()
    journal = Journal(run.folder, progress.step)
    began = time.monotonic() - progress.seconds
    try:
        while progress.step < config.steps and not _late(config, progress):
            value = step(run, learner, batches.at(progress.step), progress.step)
            learner.loss_sum.add_(value)
            progress = TrainingProgress(progress.step + 1, progress.window + 1, time.monotonic() - began)
            last = _late(config, progress) or progress.step == config.steps
            if progress.step % config.log_every == 0 or last:
                loss = _mean_loss(learner, progress)
                rate = learning_rate(config, progress.step - 1)
                journal.write(progress.step, loss=loss, lr=rate, seconds=round(progress.seconds, 3))
                report(progress.step, loss)
                progress = progress._replace(window=0)
            if progress.step % config.checkpoint_every == 0 or last:
                _check_finite(float(learner.loss_sum), progress.step)
                save_checkpoint(run.checkpoints, learner, progress, mark)
    finally:
        journal.close()
    return progress


def _late(config: TrainConfig, progress: TrainingProgress) -> bool:
    return config.max_seconds is not None and progress.seconds >= config.max_seconds


def steps_within(run: TrainingRun, seconds: float, trial: int = 100) -> int:
    """The number of steps that fit into `seconds`, estimated from a trial; the weights are restored afterwards."""
    learner, batches = fresh(run), run.batches()
    before, began = {name: tensor.clone() for name, tensor in learner.weights.items()}, 0.0
    with _fast_convolutions():
        for number in range(2 * trial):  # the first half compiles and warms up
            began = _now(run.device) if number == trial else began
            step(run, learner, batches.at(number), number)
    took = _now(run.device) - began
    for name, tensor in learner.weights.items():
        tensor.copy_(before[name])
    return max(1, int(seconds * trial / took))


@contextmanager
def _fast_convolutions() -> Generator[None, None, None]:
    """Let cuDNN benchmark its convolution algorithms: input shapes do not change."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _now(device: torch.device) -> float:
    """The time after a device synchronisation."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()


def step(run: TrainingRun, learner: Learner, batch: TrainingBatch, number: int) -> Tensor:
    """One step of AdamW and of the running mean; returns the loss without a device synchronisation."""
    config = run.config
    with torch.autocast(run.device.type, torch.bfloat16, enabled=config.bf16 and run.device.type == "cuda"):
        loss = run.task.loss(run.forward, batch).mean() / run.task.scale
    learner.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(learner.net.parameters(), config.clip)
    for group in learner.optimizer.param_groups:
        group["lr"] = learning_rate(config, number)
    learner.optimizer.step()
    follow(learner, min(config.ema, (1 + number) / (10 + number)))
    return loss.detach()


def learning_rate(config: TrainConfig, number: int) -> float:
    """Linear warm-up, then constant or a half cosine down to 0 at the planned end."""
    rising = min(1.0, (number + 1) / (config.warmup + 1))
    if config.schedule == "constant":
        return config.lr * rising
    left = max(1, config.steps - config.warmup)
    return config.lr * rising * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0, number - config.warmup) / left)))


@torch.no_grad()
def follow(learner: Learner, decay: float) -> None:
    """Move the running mean towards the weights."""
    torch._foreach_lerp_(list(learner.ema.values()), list(learner.weights.values()), 1 - decay)


def _mean_loss(learner: Learner, progress: TrainingProgress) -> float:
    """The mean since the last report; the running sum starts again."""
    loss = float(learner.loss_sum) / progress.window
    learner.loss_sum.zero_()
    _check_finite(loss, progress.step)
    return loss


def _check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise TruetiltError(
            f"the loss is {loss} after step {step}; lower lr or clip, or turn bf16 off, and start again"
        )
