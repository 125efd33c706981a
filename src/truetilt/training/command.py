"""What the command `truetilt train` does, free of any command line, so that two of them can share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.types import InvalidInput
from .config import TrainConfig, read_config
from .loop import Report, steps_within, train_run
from .runs import TrainingRun


def read_plan(file: Path, changes: dict[str, Any], task: str | None = None) -> TrainConfig:
    """The configuration with what the user changed of it (None: nothing); it must be for `task` where that is given."""
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
    """Train; returns the card with its figures as rows."""
    run = TrainingRun.prepare(config, folder, device)
    run = run if fit_seconds is None else _fitted(run, fit_seconds, resume)
    card = train_run(run, resume, report)
    first = {name: card[name] for name in ("parameters", "steps", "training_seconds", "training_loss")}
    rows = [{"quantity": name, "value": value} for name, value in (first | card["metrics"]).items()]
    return card | {"folder": str(folder / "model"), "rows": rows}


def _fitted(run: TrainingRun, seconds: float, resume: bool) -> TrainingRun:
    """With as many steps as fit into the seconds; a run that goes on keeps the steps it began with."""
    began = run.folder / "config.json"
    steps = read_config(began).steps if resume and began.is_file() else steps_within(run, seconds)
    return replace(run, config=replace(run.config, steps=steps))


def counted(advance: Callable[[int], Any]) -> Report:
    """Reports of the step reached as advances of a progress bar."""
    reached = 0

    def report(step: int, loss: float) -> None:
        nonlocal reached
        advance(step - reached)
        reached = step

    return report
