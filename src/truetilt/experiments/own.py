"""Sampling a table of the user's own, from a JSON file, beside its exact answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..api import sample
from ..exact.tables import Table
from ..metrics.divergences import total_variation
from ..processes import Masking, Uniform
from ..schedules import LogLinear
from ..storage import write_json, write_with
from ..types import InvalidInput, StepInfo
from ..viz.disks import disks
from . import toys

PARTICLES, STEPS = 1000, 100  # what is taken where the user says nothing
LARGEST_PICTURE = 16  # tokens a side that disks can still show


def read_table(path: Path, process: str, sigma_eps: float) -> Table:
    """A table from JSON with the keys p0 and likelihood; every fault is named."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        p0, likelihood = (torch.tensor(found[key], dtype=torch.float64) for key in ("p0", "likelihood"))
    except FileNotFoundError as e:
        raise InvalidInput(f"there is no file {path}; give a JSON table with the keys p0 and likelihood") from e
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise InvalidInput(f"{path} cannot be read as JSON ({e})") from e
    except (KeyError, TypeError, ValueError) as e:
        raise InvalidInput(f"{path} must hold p0 and likelihood as nested lists of numbers of one shape ({e})") from e
    size = p0.shape[0] if p0.dim() else 0
    made = {"masking": Masking, "uniform": Uniform}[process](size, LogLinear(sigma_eps))
    return Table(made, p0, likelihood)


def sample_table(
    path: Path,
    noise: tuple[str, float],
    strengths: tuple[float, float | None],
    sizes: tuple[int, int, int, int],
    folder: Path,
    advance: Callable[[], Any],
) -> dict[str, Any]:
    """Sample, save the particles, and say how far the weighted histogram is from the exact target."""
    table = read_table(path, *noise)
    (alpha, beta), (particles, populations, steps, seed) = strengths, sizes

    def tick(done: int, total: int, info: StepInfo) -> None:
        if done:
            advance()

    result = sample(
        table.model(), alpha, beta, particles=particles, populations=populations, num_inference_steps=steps, seed=seed,
        callback_on_step_end=tick,
    )  # fmt: skip
    target, law = table.target(alpha), toys.weighted_law(table, result)
    exact_z = table.log_z_tilted(alpha) if beta is None else table.log_z_tempered(alpha)
    rows = {
        "total variation to the exact target": float(total_variation(target, law)),
        "log Z": result.log_z,
        "log Z, exact": float(exact_z),
        "effective sample size": float(result.final_ess.sum()),
        "particles": particles * populations,
        "surviving first draws": int(result.roots.sum()),
    }
    result.save(folder)
    summary = {
        "settings": result.settings,
        "rows": [{"quantity": name, "value": value} for name, value in rows.items()],
        "law": law.tolist(),
        "target": target.tolist(),
    }
    write_json(folder / "result.json", summary)
    write_with(folder / "figure.png", lambda out: _draw(target, law).savefig(out, dpi=150))
    return summary


def _draw(target: torch.Tensor, law: torch.Tensor) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    if target.dim() <= 2 and target.shape[0] <= LARGEST_PICTURE:
        unit = float(torch.maximum(target.max(), law.max()))
        for ax, (kind, table) in zip(figure.subplots(1, 2), {"target": target, "truetilt": law}.items(), strict=True):
            disks(ax, table.numpy(), kind, unit)
            ax.set_title("target" if kind == "target" else "truetilt (weighted)")
        return figure
    ax = figure.subplots()
    ax.loglog(target.reshape(-1), law.reshape(-1).clamp(min=1e-10), ".", ms=3)
    ax.set_xlabel("exact probability")
    ax.set_ylabel("weighted frequency")
    return figure
