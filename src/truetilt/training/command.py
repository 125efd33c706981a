"""The work of the command `truetilt train`, separate from the command line because two entry points share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from .config import TrainConfig, read_config
from .loop import Report, steps_within, train_run
from .runs import TrainingRun


def read_plan(file: Path, changes: dict[str, Any], task: str | None = None) -> TrainConfig:
    """The configuration with the user's changes (None: no change); `task`, if given, must be the configuration's."""
    config = read_config(file, **{name: value for name, value in changes.items() if value is not None})
    if task not in (None, config.task):
        raise InvalidInput(f"{file} is for the task {config.task}, not {task}; give another file, or say {config.task}")
    if not config.data:
        raise InvalidInput(
            f"{file} names no data folder; add --data FOLDER with IDX files or prepared texts, or a line `data:`"
        )
    return config


def run_training(
    config: TrainConfig, folder: Path, device: str, resume: bool, report: Report, fit_seconds: float | None = None
) -> dict[str, Any]:
    """Train; return the model card with its figures as rows."""
    run = TrainingRun.prepare(config, folder, device)
    run = run if fit_seconds is None else _fitted(run, fit_seconds, resume)
    card = train_run(run, resume, report)
    first = {name: card[name] for name in ("parameters", "steps", "training_seconds", "training_loss")}
    rows = [{"quantity": name, "value": value} for name, value in (first | card["metrics"]).items()]
    return card | {"folder": str(folder / "model"), "rows": rows}


def _fitted(run: TrainingRun, seconds: float, resume: bool) -> TrainingRun:
    """The configuration with as many steps as fit into the time limit; a resumed run keeps its number of steps."""
    began = run.folder / "config.json"
    steps = read_config(began).steps if resume and began.is_file() else steps_within(run, seconds)
    return replace(run, config=replace(run.config, steps=steps))


def counted(advance: Callable[[int], Any]) -> Report:
    """Turn reports of the step reached into increments of a progress bar."""
    reached = 0

    def report(step: int, loss: float) -> None:
        nonlocal reached
        advance(step - reached)
        reached = step

    return report
