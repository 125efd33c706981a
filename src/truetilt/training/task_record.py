"""A training task as a record of functions, so that loop and evaluation are the same for all tasks.

`TrainingRows` is the interface of a data set: tokens and labels; `DigitImages` and `Texts` implement it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ..diffusion.processes import Masking, Uniform
from ..models.classifier import Classifier
from ..models.layers import compiled
from ..models.text_classifier import TextClassifier
from ..models.transformer import SEDD
from ..models.unet import UNet
from .losses import Noised

Net = UNet | Classifier | SEDD | TextClassifier


class TrainingRows(Protocol):
    """Rows of tokens and their labels."""

    unit: ClassVar[str]  # their name on a model card

    @property
    def tokens(self) -> Tensor: ...  # integers [n, D]
    @property
    def labels(self) -> Tensor: ...  # int64 [n]
    @property
    def used(self) -> Tensor | None: ...  # int64 [n]: sites that are not padding; None: all are
    @property
    def kinds(self) -> Mapping[str, Tensor]: ...  # bool [n] by name: rows for which a separate figure is computed
    @property
    def count(self) -> int: ...

    def told_instead(self, labels: Tensor, classes: int) -> Tensor:
        """The label given to a network in place of each of these when it is withheld (label dropout)."""
        ...

    def take(self, chosen: Tensor) -> Any:
        """The rows with these indices."""
        ...

    def to(self, device: torch.device | str) -> Any: ...
    def fingerprint(self) -> str: ...


class TrainingBatch(NamedTuple):
    """Noised rows, their labels, and the labels given to the network."""

    noised: Noised
    label: Tensor  # int64 [B]; the true one
    told: Tensor  # int64 [B]; the one given to the network: the label, or its replacement if withheld


Loss = Callable[[nn.Module, TrainingBatch], Tensor]  # (network, perhaps compiled, batch) to nats [B]
LogScores = Callable[[nn.Module, Noised, Tensor], Tensor]  # (network, noised tokens, given labels) to [B, D, V]


@dataclass(frozen=True)
class TrainingTask:
    """The network of a task, its loss, and how it is evaluated and saved."""

    net: Net
    process: Masking | Uniform
    loss: Loss
    log_scores: LogScores | None = None  # for a diffusion task
    told: bool = True  # whether the network is given the label
    clean: bool = False  # whether it sees only t = 0
    base: nn.Module | None = None  # frozen network under a guide
    started_from: str = ""  # hash of the pretrained weights that training started from, if any
    in_order: bool = False  # whether it is also trained and evaluated as drawn from left to right
    given: int = 0  # sites taken by a prompt
    plain: Callable[[Any], Any] = lambda net: net  # the network as it is saved
    leave: Callable[[Path], None] = lambda folder: None  # writes further files beside the saved network
    facts: Mapping[str, Any] = field(default_factory=dict)  # for its card

    @property
    def classes(self) -> int:
        return self.net.config.classes

    @property
    def length(self) -> int:
        """Sites of a row."""
        return self.net.config.length - self.given

    @property
    def scale(self) -> int:
        """The divisor of a loss: diffusion losses are reported per dimension."""
        return self.length if self.log_scores is not None else 1


def weights_fingerprint(net: nn.Module | None) -> str:
    """A hash of these weights; empty if there are none."""
    if net is None:
        return ""
    digest = hashlib.sha256()
    for name, tensor in sorted(net.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def quick(net: Any, wanted: bool) -> nn.Module:
    """The network compiled; for a transformer only its blocks, because its head must not be compiled."""
    if not isinstance(net, SEDD | TextClassifier):
        return compiled(net, wanted)
    for block in net.blocks if wanted else ():
        block.compile()
    return net
