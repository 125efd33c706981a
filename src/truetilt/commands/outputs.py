"""Steps shared by the sampling commands: check the sizes, sample, record the request, write the outputs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..api import sample
from ..core.storage import write_json, write_with
from ..core.types import Model
from ..result import Result
from ..runtime.checkpoints import check_states
from ..runtime.memory import check_run
from .request import SampleRequest

SNAPSHOTS = 8  # number of snapshots kept for the report


def sample_model(model: Model, request: SampleRequest, options: dict[str, Any]) -> Result:
    """Sample as requested, after checking that the run fits into memory and that a checkpoint belongs to this model."""
    sizes = request.sizes
    check_run(sizes, model.length, SNAPSHOTS, model.device)
    check_states(options.get("checkpoint"), model.length, model.process.states)
    return sample(
        model, request.alpha, request.beta, particles=sizes.particles, populations=sizes.populations,
        num_inference_steps=sizes.steps, seed=request.seed, snapshots=SNAPSHOTS, **options,
    )  # fmt: skip


def command(words: list[str], options: dict[str, Any]) -> str:
    """The command line for the same run; options that are None or off are left out."""
    told = []
    for key, value in options.items():
        name = f"--{key.replace('_', '-')}"
        told += [] if value is None or value is False else [name] if value is True else [name, str(value)]
    return shlex.join(["truetilt", *words, *told])


def noted(result: Result, **facts: Any) -> Result:
    """The result with these facts among its settings, for its report."""
    return replace(result, settings=result.settings | facts)


def rows_of(result: Result) -> dict[str, Any]:
    """The figures that every command reports of a result."""
    return {
        "log Z": result.log_z,
        "effective sample size": float(result.final_ess.sum()),
        "particles": result.log_weights.numel(),
        "surviving first draws": int(result.roots.sum()),
        "network evaluations": result.evaluations,
    }


def summary_of(result: Result, rows: dict[str, Any]) -> dict[str, Any]:
    """The contents of result.json that all runs share."""
    return {
        "settings": result.settings,
        "rows": [{"quantity": name, "value": value} for name, value in rows.items()],
        "log_z": result.log_z_words,
        "spent": result.spent._asdict(),
        "verdict": result.trust().lines,
    }


def write_outputs(folder: Path, summary: dict[str, Any], figure: Any) -> None:
    """Write result.json, and a matplotlib figure as figure.png."""
    write_json(folder / "result.json", summary)
    write_with(folder / "figure.png", lambda path: figure.savefig(path, dpi=150))
