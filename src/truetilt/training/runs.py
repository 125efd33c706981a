"""A training run as a record: a configuration with its data and networks on the device, and its initial state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.errors import InvalidInput
from ..runtime.checkpoints import found as found_checkpoints
from .batches import Batches
from .checkpoints import Learner, TrainingProgress, load_checkpoint
from .config import TrainConfig
from .data import DigitImages, load_digits, subset, tokens_of
from .muon import Muon, matrices_of
from .task_record import TrainingRows, TrainingTask, quick, weights_fingerprint
from .tasks import build_task
from .text_tasks import load_texts


@dataclass(frozen=True)
class TrainingRun:
    """A training run: the configuration, the task, the data, the device and the output folder."""

    config: TrainConfig
    task: TrainingTask
    forward: nn.Module  # the network, possibly compiled
    train: TrainingRows
    test: TrainingRows
    folder: Path
    device: torch.device

    @staticmethod
    def prepare(config: TrainConfig, folder: Path, device: torch.device | str = "cpu") -> TrainingRun:
        """Read the data, build the networks, and check that they fit together, before the first step."""
        _check_device(device)
        task = build_task(config, device)
        rows, test = (load_texts if config.modality == "text" else _load_digits)(config, task)
        forward = quick(task.net, config.compile)
        return TrainingRun(config, task, forward, rows.to(device), test.to(device), folder, torch.device(device))

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def fingerprint(self) -> str:
        """A hash of everything that affects what is learned."""
        before = self.task.started_from or weights_fingerprint(self.task.base)
        return "-".join((self.config.fingerprint(), self.train.fingerprint(), before))

    def batches(self) -> Batches:
        config = self.config
        dropout = config.label_dropout if self.task.told else 1.0
        most = config.max_shift if config.augment == "shift" else 0
        blank = config.max_blank if config.augment == "mask" else 0.0
        rows, task = self.train, self.task
        return Batches(
            rows, task.process, config.batch, config.seed, task.classes, dropout, task.clean, most, blank,
            config.suffix_share,
        )  # fmt: skip


def _check_device(device: torch.device | str) -> None:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as e:
        raise InvalidInput(f"cannot compute on {device} ({str(e).splitlines()[0]}); use the device cpu") from e


def fresh(run: TrainingRun) -> Learner:
    """The learner at step 0."""
    net, config = run.task.net, run.config
    options: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": run.device.type == "cuda"}
    learned = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if config.optimizer == "muon":
        matrices = matrices_of(net)
        own = {id(parameter) for parameter in matrices}
        optimizer = Muon(matrices, [parameter for parameter in learned if id(parameter) not in own], **options)
    else:
        optimizer = torch.optim.AdamW(learned, **options)
    frozen = {name for name, parameter in net.named_parameters() if not parameter.requires_grad}
    weights = {name: tensor for name, tensor in net.state_dict().items() if name not in frozen}
    ema = {name: tensor.clone() for name, tensor in weights.items()}
    return Learner(run.task.net, weights, ema, optimizer, torch.zeros((), dtype=torch.float64, device=run.device))


def start(run: TrainingRun, resume: bool) -> tuple[Learner, TrainingProgress]:
    """A fresh learner, or that of the last checkpoint."""
    learner = fresh(run)
    found = found_checkpoints(run.checkpoints)
    if not found:
        return learner, TrainingProgress()
    if not resume:
        raise InvalidInput(f"{run.folder} holds a run already; add --resume to go on with it, or choose another --out")
    return learner, load_checkpoint(found[-1], learner, run.fingerprint())


def _load_digits(config: TrainConfig, task: TrainingTask) -> tuple[DigitImages, DigitImages]:
    """Training and test digits, validated against the network's grid."""
    rows, test = (_fitting(load_digits(config.data, split, task.classes), task) for split in ("train", "test"))
    return subset(rows, config.share, config.data_seed), test


def _fitting(digits: DigitImages, task: TrainingTask) -> DigitImages:
    """The digits, checked against the network's grid and grey levels."""
    config: Any = task.net.config
    if digits.side != config.side:
        raise InvalidInput(
            f"the images are {digits.side} pixels wide, the network {config.side}; set net.side to match"
        )
    tokens_of(digits.images, config.vocabulary)
    return digits
