"""Export of a training run: the running mean of the weights as a pretrained network, and its model card."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..core.storage import read_json, write_json
from ..models.layers import placed
from ..models.pretrained import CARD
from .checkpoints import Learner, TrainingProgress
from .evaluation import evaluate
from .journal import read_losses
from .runs import TrainingRun

_ONE = {"images": "digit", "rows": "text"}


def export(run: TrainingRun, learner: Learner, progress: TrainingProgress) -> dict[str, Any]:
    """Save the running mean as a pretrained network, measure what was saved, and write its card."""
    config, folder = run.config, run.folder / "model"
    learner.net.load_state_dict({**learner.net.state_dict(), **learner.ema})
    plain, unit = run.task.plain(run.task.net), run.train.unit
    (folder / CARD).unlink(missing_ok=True)  # the old card described the weights that are replaced
    exact = {} if config.export_dtype != "int8" else _measured(run, plain)  # what rounding to integers costs
    plain.save_pretrained(folder, dtype=getattr(torch, config.export_dtype))
    run.task.leave(folder)
    saved = placed(type(plain).from_pretrained(folder), run.device)
    metrics = _measured(run, saved)
    card = {
        "task": config.task,
        "architecture": saved.architecture,
        "parameters": sum(p.numel() for p in saved.parameters()),
        "weights": config.export_dtype,
        "data": {unit: run.train.count, "share": config.share, "fingerprint": run.train.fingerprint()},
        f"test_{unit}": run.test.count,
        "steps": progress.step,
        "planned_steps": config.steps,
        "seed": config.seed,
        "training_loss": (read_losses(run.folder) or [{"loss": None}])[-1]["loss"],
        "training_seconds": round(progress.seconds, 1),
        "metrics": metrics,
        **({"metrics_in_float32": exact} if exact else {}),
        "units": f"bounds in nats a dimension, cross-entropies in nats a {_ONE[unit]}",
        **run.task.facts,
        "device": torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "truetilt": __version__,
        "config": {**asdict(config), "data": Path(config.data).name, "base": Path(config.base).name},
    }
    write_json(folder / CARD, card)
    return read_json(folder / CARD)


def _measured(run: TrainingRun, net: Any) -> dict[str, float]:
    """The figures of a network on the test rows."""
    return evaluate(replace(run.task, net=net), run.test, run.config.seed, run.config.evaluation_passes)
