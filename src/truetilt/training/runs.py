"""A training run as a value: a configuration with its data and networks on the device, and where it begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..models.layers import compiled
from ..types import InvalidInput
from .batches import Batches
from .checkpoints import Learner, Progress, found_checkpoints, load_checkpoint
from .config import TrainConfig
from .data import Digits, load_digits, subset, tokens_of
from .tasks import Task, build_task, weights_fingerprint


@dataclass(frozen=True)
class Run:
    """A training run: what is learned from what, where, and into which folder."""

    config: TrainConfig
    task: Task
    forward: nn.Module  # the network, perhaps compiled
    digits: Digits
    test: Digits
    folder: Path
    device: torch.device

    @staticmethod
    def prepare(config: TrainConfig, folder: Path, device: torch.device | str = "cpu") -> Run:
        """Read the data, build the networks, and check that they fit: what is wrong shows before the first step."""
        _check_device(device)
        task = build_task(config, device)
        digits, test = (_fitting(load_digits(config.data, split, task.classes), task) for split in ("train", "test"))
        digits = subset(digits, config.share, config.data_seed)
        forward = compiled(task.net, config.compile)
        return Run(config, task, forward, digits.to(device), test.to(device), folder, torch.device(device))

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def fingerprint(self) -> str:
        """A name for everything that decides what is learned."""
        return "-".join((self.config.fingerprint(), self.digits.fingerprint(), weights_fingerprint(self.task.base)))

    def batches(self) -> Batches:
        config = self.config
        dropout = config.label_dropout if self.task.told else 1.0
        most = config.max_shift if config.augment == "shift" else 0
        return Batches(
            self.digits, self.task.process, config.batch, config.seed, self.task.classes, dropout, self.task.clean, most
        )


def _check_device(device: torch.device | str) -> None:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as e:
        raise InvalidInput(f"cannot compute on {device} ({str(e).splitlines()[0]}); use the device cpu") from e


def fresh(run: Run) -> Learner:
    """The learner of step 0."""
    fused = run.device.type == "cuda"
    optimizer = torch.optim.AdamW(
        run.task.net.parameters(), lr=run.config.lr, weight_decay=run.config.weight_decay, fused=fused
    )
    weights = dict(run.task.net.state_dict())
    ema = {name: tensor.clone() for name, tensor in weights.items()}
    return Learner(run.task.net, weights, ema, optimizer, torch.zeros((), dtype=torch.float64, device=run.device))


def start(run: Run, resume: bool) -> tuple[Learner, Progress]:
    """A fresh learner, or the last checkpoint's."""
    learner = fresh(run)
    found = found_checkpoints(run.checkpoints)
    if not found:
        return learner, Progress()
    if not resume:
        raise InvalidInput(f"{run.folder} holds a run already; add --resume to go on with it, or choose another --out")
    return learner, load_checkpoint(found[-1], learner, run.fingerprint())


def _fitting(digits: Digits, task: Task) -> Digits:
    """The digits, if the network is for such grids and grey levels."""
    if digits.side != task.net.config.side:
        raise InvalidInput(
            f"the images are {digits.side} pixels wide, the network {task.net.config.side}; set net.side to match"
        )
    tokens_of(digits.images, task.net.config.vocabulary)
    return digits
