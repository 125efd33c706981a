"""Sampling a table from a JSON file of the user's, compared with its exact answer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from ..core.errors import InvalidInput
from ..exact.tables import Table, flat_index
from ..metrics.divergences import histogram, total_variation
from ..result import Result
from ..viz.clouds import LARGEST_TABLE, Disks
from ..viz.disks import disks
from .outputs import command, noted, rows_of, sample_model, summary_of, write_outputs
from .request import SampleRequest, TableNoise
from .table_files import read_table

PARTICLES, STEPS = 1000, 100  # defaults for tables


def sample_table(
    path: Path, noise: TableNoise, request: SampleRequest, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Sample, save the particles, and return the distance of the weighted histogram from the exact target."""
    table = read_table(path, *noise)
    alpha, beta, sizes = request.alpha, request.beta, request.sizes
    _check_strength(table, alpha)
    result = sample_model(table.model(), request, options)
    asked = {"alpha": alpha, "beta": beta, "process": noise.process, "sigma-eps": noise.sigma_eps}
    asked |= {**sizes._asdict(), "seed": request.seed}
    result = noted(result, bundle=path.name, command=command(["sample", str(path)], asked))
    target, law = table.target(alpha), weighted_law(table, result)
    exact_z = table.log_z_tilted(alpha) if beta is None else table.log_z_tempered(alpha)
    rows = {
        "total variation to the exact target": float(total_variation(target, law)),
        "log Z": result.log_z,
        "log Z, exact": float(exact_z),
    }
    result.save(folder, Disks(target.shape[0]) if _fits_disks(target) else None)
    summary = summary_of(result, rows | rows_of(result)) | {"law": law.tolist(), "target": target.tolist()}
    write_outputs(folder, summary, _draw(target, law))
    return summary


def _check_strength(table: Table, alpha: float) -> None:
    """Raise for an exponent at which the exact target, used for comparison, underflows or overflows."""
    if 0 <= alpha < math.inf and not bool(table.target(alpha).isfinite().all()):
        raise InvalidInput(
            f"alpha is {alpha}: p(zeta|x)^alpha is zero or infinite for every state of this table; take a smaller "
            "alpha, or scale the likelihood so that its largest value is 1"
        )


def weighted_law(table: Table, result: Result) -> torch.Tensor:
    """The weighted histogram of a result, as a table."""
    vocabulary = table.process.vocabulary
    counts = histogram(flat_index(result.particles, vocabulary), result.weights, vocabulary**table.length)
    return counts.reshape(table.p0.shape)


def _fits_disks(target: torch.Tensor) -> bool:
    return target.dim() <= 2 and 2 <= target.shape[0] <= LARGEST_TABLE


def _draw(target: torch.Tensor, law: torch.Tensor) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    if _fits_disks(target):
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
