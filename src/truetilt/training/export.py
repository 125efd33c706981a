"""What a run leaves: the running mean of the weights as a pretrained network, and a card of what it is worth."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..storage import write_json
from .checkpoints import Learner, Progress
from .evaluation import evaluate
from .journal import read_losses
from .runs import Run
from .tasks import placed


def export(run: Run, learner: Learner, progress: Progress) -> dict[str, Any]:
    """Save the running mean as a pretrained network, measure what was saved, and write its card."""
    config, folder = run.config, run.folder / "model"
    learner.net.load_state_dict(learner.ema)
    run.task.net.save_pretrained(folder, dtype=getattr(torch, config.export_dtype))
    saved = placed(type(run.task.net).from_pretrained(folder), run.device)
    metrics = evaluate(replace(run.task, net=saved), run.test, config.seed, config.evaluation_passes)
    card = {
        "task": config.task,
        "architecture": saved.architecture,
        "parameters": sum(p.numel() for p in saved.parameters()),
        "weights": config.export_dtype,
        "data": {"images": run.digits.count, "share": config.share, "fingerprint": run.digits.fingerprint()},
        "test_images": run.test.count,
        "steps": progress.step,
        "planned_steps": config.steps,
        "seed": config.seed,
        "training_loss": (read_losses(run.folder) or [{"loss": None}])[-1]["loss"],
        "training_seconds": round(progress.seconds, 1),
        "metrics": metrics,
        "units": "bounds in nats a dimension, cross-entropies in nats a digit",
        "device": torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "truetilt": __version__,
        "config": {**asdict(config), "data": Path(config.data).name, "base": Path(config.base).name},
    }
    write_json(folder / "card.json", card)
    return json.loads((folder / "card.json").read_text(encoding="utf-8"))
