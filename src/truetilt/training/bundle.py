"""`python -m truetilt.training.bundle PLAN --data DIR --out DIR`: every network of a text bundle by one command.

A plan (YAML or JSON) names a recipe of texts and the stages in order, each a configuration beside the plan. Finished
stages are kept. With --limit the command ends in time, and the same command goes on from there: for machines that are
lent for minutes. At the end the bundle lies in DIR/bundle, loaded once to see that it can be.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput, TruetiltError
from ..core.storage import read_bytes, write_bytes
from ..models.hub import load
from ..models.pretrained import CARD, CONFIG, WEIGHTS, check_keys, read_card
from ..models.text_bundle import Reviews
from ..models.tokenizer import TOKENIZER
from .command import read_plan, run_training
from .config import parse_file
from .corpus import CORPUS
from .journal import read_losses
from .prepare import prepare_texts

_CORPUS, _BUNDLE = "corpus", "bundle"
MARGIN = 75.0  # seconds kept for writing and measuring a network at the end of a call


@dataclass(frozen=True)
class BundleStage:
    """One network: its configuration, the stage whose network it starts from or guides, its training time."""

    config: str
    base: str = ""
    seconds: float = 0.0  # 0: as many steps as the configuration says

    def __post_init__(self) -> None:
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, int | float) or self.seconds < 0:
            raise InvalidInput(f"seconds is {self.seconds!r}; give the time of a stage, or 0 for its own steps")


@dataclass(frozen=True)
class BundlePlan:
    """The recipe of the texts, the stages in order, and those that make the bundle."""

    corpus: str
    stages: Mapping[str, BundleStage]
    bundle: tuple[str, ...]
    most_mib: float = field(default=1024.0)  # the bundle may not be larger

    def __post_init__(self) -> None:
        for place, (name, stage) in enumerate(self.stages.items()):
            if stage.base and stage.base not in list(self.stages)[:place]:
                raise InvalidInput(f"stage {name} needs {stage.base!r}, which is no stage before it; mend the plan")
        unknown = [name for name in self.bundle if name not in self.stages]
        if unknown or not self.bundle:
            raise InvalidInput(f"the bundle holds {unknown or 'nothing'}; give stages: {', '.join(self.stages)}")


def read_bundle_plan(path: Path) -> BundlePlan:
    """The plan in a YAML or JSON file."""
    found = parse_file(path)
    if not isinstance(found, dict) or not isinstance(found.get("stages"), dict):
        raise InvalidInput(f"{path} is no plan; give corpus, stages and bundle, as configs/reviews/plan.yaml")
    check_keys(BundlePlan, found, str(path))
    stages = {}
    for name, told in found["stages"].items():
        check_keys(BundleStage, told if isinstance(told, dict) else {}, f"{path}: stage {name}")
        stages[name] = BundleStage(**told)
    if not isinstance(found["bundle"], list) or not isinstance(found["corpus"], str):
        raise InvalidInput(f"{path}: corpus is the name of a recipe, and bundle a list of stages; mend the plan")
    told: dict[str, Any] = found | {"stages": stages, "bundle": tuple(map(str, found["bundle"]))}
    return BundlePlan(**told)


@dataclass(frozen=True)
class BundleRun:
    """A plan with the places it reads and writes, and the time (monotonic) at which it must have ended."""

    plan: BundlePlan
    beside: Path  # the folder of the plan, where its configurations lie
    data: Path
    out: Path
    device: str = "cpu"
    ends: float = float("inf")

    def model(self, name: str) -> Path:
        return self.out / name / "model"

    def finished(self, name: str) -> bool:
        """Whether a stage has taken all its steps."""
        card = read_card(self.model(name))
        return bool(card) and card["steps"] >= card["planned_steps"]


def make_bundle(run: BundleRun) -> dict[str, Any]:
    """Prepare the texts and train, as far as the time allows; returns what is done, at the end the bundle's facts."""
    corpus = run.out / _CORPUS
    if not (corpus / CORPUS).is_file():
        _say("preparing the texts")
        prepare_texts(run.beside / run.plan.corpus, run.data, corpus)
    for name, stage in run.plan.stages.items():
        if not run.finished(name) and not _train(run, name, stage, corpus):
            return {"done": False, "stage": name, "seconds": _seconds(run.out / name)}
    return {"done": True, **_assembled(run)}


def _train(run: BundleRun, name: str, stage: BundleStage, corpus: Path) -> bool:
    """Train a stage, or go on with it, until it is finished or the time is over; whether it is finished."""
    folder, left = run.out / name, run.ends - time.monotonic() - MARGIN
    if left <= 0:
        return False
    spent = _seconds(folder)
    changes: dict[str, Any] = {"data": str(corpus), "base": str(run.model(stage.base)) if stage.base else None}
    changes |= {"max_seconds": spent + left} if left < float("inf") else {}
    _say(f"{name}: {spent:.0f} s of training so far")
    config = read_plan(run.beside / stage.config, changes)
    began = (folder / "checkpoints").is_dir()
    run_training(config, folder, run.device, began, _report, stage.seconds or None)
    return run.finished(name)


def _seconds(folder: Path) -> float:
    losses = read_losses(folder) if folder.is_dir() else []
    return float(losses[-1]["seconds"]) if losses else 0.0


def _assembled(run: BundleRun) -> dict[str, Any]:
    """Copy the networks into one folder with their tokenizer, load it, and add up its size."""
    folder, size = run.out / _BUNDLE, 0
    files = {Path(name) / file: run.model(name) / file for name in run.plan.bundle for file in (CARD, CONFIG, WEIGHTS)}
    files[Path(TOKENIZER)] = run.out / _CORPUS / TOKENIZER
    for place, source in files.items():
        content = read_bytes(source)
        write_bytes(folder / place, content)
        size += len(content)
    mib, most = size / 2**20, run.plan.most_mib
    if mib > most:
        raise InvalidInput(f"{folder} has {mib:.1f} MiB, more than {most:g}; make its nets smaller")
    if not isinstance(load(folder), Reviews):
        raise InvalidInput(f"{folder} holds no bundle of texts; a stage called sedd makes one")
    metrics = {name: read_card(folder / name)["metrics"] for name in run.plan.bundle}
    return {"bundle": str(folder), "mib": round(mib, 2), "metrics": metrics}


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m truetilt.training.bundle", description="Train a bundle of text nets.")
    parser.add_argument("plan", type=Path, help="YAML or JSON; see configs/reviews/plan.yaml")
    parser.add_argument("--data", type=Path, required=True, help="folder below which the sources of the texts lie")
    parser.add_argument("--out", type=Path, default=Path("runs/bundle"), help="folder of the corpus, runs and bundle")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--limit", type=float, default=float("inf"), help="end within so many seconds; run it again")
    given = parser.parse_args(arguments)
    ends = time.monotonic() + given.limit
    try:
        plan = read_bundle_plan(given.plan)
        done = make_bundle(BundleRun(plan, given.plan.parent, given.data, given.out, given.device, ends))
    except (TruetiltError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, InvalidInput) else 1
    sys.stdout.write(json.dumps(done, allow_nan=False) + "\n")
    return 0


def _report(step: int, loss: float) -> None:
    _say(f"step {step}: loss {loss:.5f}")


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
