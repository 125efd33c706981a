"""Steps shared by the sampling commands: check the sizes, sample, record the request, write the outputs."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..api import sample
from ..core.storage import write_json, write_text, write_with
from ..core.types import Model, Tokens
from ..result import Result
from ..runtime.checkpoints import check_states
from ..runtime.memory import check_run
from ..smc.resampling import effective_sample_size
from .request import SampleRequest

SNAPSHOTS = 8  # number of snapshots kept for the report
DRAWS = "draws.csv"


class DrawnSequence(NamedTuple):
    """A sequence that was drawn, its share of the weight, its reward if there is one, and how often it was drawn."""

    sequence: str
    weight: float
    reward: float | None
    count: int


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
        "effective sample size": float(effective_sample_size(result.log_weights.reshape(-1))),
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


def merged_draws(
    result: Result, draws: Tokens, spell: Callable[[Tokens], list[str]]
) -> tuple[Tokens, list[DrawnSequence]]:
    """The different sequences among unweighted draws, with the first state [k, D] of each: how often it was drawn, and
    the weight of all particles that read the same."""
    texts, weight, row, count = spell(draws), dict[str, float](), dict[str, int](), dict[str, int]()
    weights = (result.weights / result.weights.sum()).reshape(-1).tolist()
    for text, mass in zip(spell(result.particles.flatten(0, 1)), weights, strict=True):
        weight[text] = weight.get(text, 0.0) + mass
    for number, text in enumerate(texts):
        row.setdefault(text, number)
        count[text] = count.get(text, 0) + 1
    return draws[list(row.values())], [DrawnSequence(text, weight[text], None, count[text]) for text in row]


def as_tokens(x: Tokens) -> list[str]:
    """States as their tokens, where there are no letters."""
    return [" ".join(map(str, row)) for row in x.tolist()]


def write_draws(folder: Path, draws: list[DrawnSequence]) -> None:
    """Write draws.csv: a line for each different sequence."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(DrawnSequence._fields)
    rows.writerows(draws)
    write_text(folder / DRAWS, out.getvalue())


def write_outputs(folder: Path, summary: dict[str, Any], figure: Any) -> None:
    """Write result.json, and a matplotlib figure as figure.png."""
    write_json(folder / "result.json", summary)
    write_with(folder / "figure.png", lambda path: figure.savefig(path, dpi=150))
