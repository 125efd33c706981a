"""The training tasks: which network is built, its loss, and the bound that is measured.

Here are the tasks of digits; those of texts are in `text_tasks`. Diffusion networks return posterior logits; the
edge-form guide returns log-ratios on top of a frozen base; classifiers return log-odds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput
from ..diffusion.processes import Masking, Uniform
from ..models.classifier import Classifier, ClassifierConfig
from ..models.layers import compiled, placed
from ..models.pretrained import config_of
from ..models.unet import UNet, UNetConfig
from .config import TrainConfig
from .losses import Noised, deft_edges, log_scores, posterior_cross_entropy, potential_cross_entropy, score_entropy
from .task_record import LogScores, Loss, TrainingBatch, TrainingTask
from .text_tasks import text_task


def build_task(config: TrainConfig, device: torch.device | str = "cpu") -> TrainingTask:
    """The task of a configuration with its networks on the device, channels last."""
    if config.modality == "text":
        return text_task(config, device)
    process = config.noising()
    if config.task in ("potential", "classifier"):
        made = Classifier(config_of(ClassifierConfig, config.net, "net"), config.seed)
        return TrainingTask(placed(made, device), process, _asked_for_labels, clean=config.task == "classifier")
    net = placed(UNet(config_of(UNetConfig, config.net, "net"), config.seed), device)
    if config.task == "deft":
        return _deft(net, process, config, device)
    return TrainingTask(net, process, *_diffusion(process), told=config.task == "conditional")


def _asked_for_labels(net: nn.Module, batch: TrainingBatch) -> Tensor:
    noised = batch.noised
    return potential_cross_entropy(net(noised.x, noised.noise.t.float()), batch.label)


def _diffusion(process: Masking | Uniform) -> tuple[Loss, LogScores]:
    """The loss and the log-scores of a diffusion network; for masking, the equal but cheaper posterior form."""

    def scores(net: nn.Module, noised: Noised, told: Tensor) -> Tensor:
        return log_scores(process, _answer(net, noised, told), noised)

    def loss(net: nn.Module, batch: TrainingBatch) -> Tensor:
        if isinstance(process, Masking):
            return posterior_cross_entropy(process, _answer(net, batch.noised, batch.told), batch.noised)
        return score_entropy(process, scores(net, batch.noised, batch.told), batch.noised)

    return loss, scores


def _deft(net: UNet, process: Masking | Uniform, config: TrainConfig, device: torch.device | str) -> TrainingTask:
    base = placed(_frozen_base(config.base, config.net), device)
    asked = compiled(base, config.compile)

    def loss(guide: nn.Module, batch: TrainingBatch) -> Tensor:
        noised = batch.noised
        return deft_edges(process, _unconditional(asked, noised), _answer(guide, noised, batch.told), noised)

    def scores(guide: nn.Module, noised: Noised, told: Tensor) -> Tensor:
        return log_scores(process, _unconditional(base, noised), noised) + _answer(guide, noised, told)

    return TrainingTask(net, process, loss, scores, base=base)


def _frozen_base(folder: str, guide: Mapping[str, Any]) -> UNet:
    if not folder:
        raise InvalidInput("deft trains a guide for a frozen network; name its folder as `base`")
    base = UNet.from_pretrained(Path(folder)).eval().requires_grad_(False)
    for name in ("side", "vocabulary", "classes"):
        own, other = getattr(base.config, name), guide.get(name, getattr(UNetConfig(), name))
        if own != other:
            raise InvalidInput(f"the base has {name} {own}, the guide {other}; they must agree")
    return base


def _answer(net: nn.Module, noised: Noised, told: Tensor) -> Tensor:
    return net(noised.x, noised.noise.t.float(), told)


@torch.no_grad()
def _unconditional(base: nn.Module, noised: Noised) -> Tensor:
    return base(noised.x, noised.noise.t.float())
