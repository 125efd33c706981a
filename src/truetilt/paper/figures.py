"""Figures 1 and 2: six states of one site and nine of two; target, guidance and truetilt side by side.

The tables are fixed and were chosen so that the miss can be seen (of 60 random tables of each kind guidance at
alpha = 4 misses the median one by a TV of 0.045 and 0.085). Figure 1 uses the uniform process: on one masked site
guidance has nothing to disagree with and is exact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..api import run
from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..commands.outputs import noted
from ..diffusion.grids import uniform_grid
from ..diffusion.processes import Masking, Uniform
from ..exact.tables import Table
from ..metrics.divergences import total_variation
from ..targets.on_clock import Tilted
from ..viz.clouds import Disks
from ..viz.disks import COLOURS, disks
from . import toys

P0_6 = [11, 39, 16, 4, 2, 28]
LIKELIHOOD_6 = [0.10, 0.11, 0.15, 0.58, 0.56, 0.29]
P0_9 = [[5, 17, 21], [4, 9, 22], [2, 9, 11]]
LIKELIHOOD_9 = [[0.90, 0.01, 0.39], [0.23, 0.52, 0.53], [0.71, 0.94, 0.11]]
SAMPLES, QUICK_SAMPLES = 50_000, 10_000
PANELS = {"target": "target π ∝ p₀ p(ζ|x)^α", "guidance": "guidance, β = α", "truetilt": "truetilt (weighted)"}


def six_states(device: str) -> Table:
    return Table(Uniform(6), torch.tensor(P0_6, device=device), torch.tensor(LIKELIHOOD_6, device=device))


def nine_states(device: str) -> Table:
    return Table(Masking(3), torch.tensor(P0_9, device=device), torch.tensor(LIKELIHOOD_9, device=device))


def figure1_jobs(settings: Settings) -> list[Job]:
    return [Job("figure1-4", one_panel, ("figure1", 4.0, settings))]


def figure2_jobs(settings: Settings) -> list[Job]:
    return [Job(f"figure2-{alpha:g}", one_panel, ("figure2", alpha, settings)) for alpha in (2.0, 4.0)]


def one_panel(figure: str, alpha: float, settings: Settings) -> Answer:
    """Target, guidance and truetilt on one table at one alpha, with their distances and estimates."""
    table = {"figure1": six_states, "figure2": nine_states}[figure](settings.device)
    n = QUICK_SAMPLES if settings.quick else SAMPLES
    target = table.target(alpha)
    rows = [_row(figure, alpha, "target", target, target, 0.0)]
    for kind, method in (("guidance", "guidance-rate"), ("truetilt", "smc-tilted")):
        drawn = toys.sample_toy(table, alpha, method, n, settings.seed)
        exact = toys.miss(target, toys.exact_law(table, alpha, method), 0.0)
        row = _row(figure, alpha, kind, target, toys.weighted_law(table, drawn.result), exact)
        row |= {"network_evaluations": drawn.meter.rounds, "network_passes": drawn.meter.passes}
        if kind == "truetilt":
            row |= {"log_z": drawn.result.log_z, "log_z_exact": float(table.log_z_tilted(alpha))}
            row |= {"ess": float(drawn.result.final_ess[0]) / n}
        rows.append(row)
    return {"rows": rows}


def _row(figure: str, alpha: float, kind: str, target: torch.Tensor, law: torch.Tensor, exact: float) -> Answer:
    return {
        "figure": figure,
        "process": "uniform" if figure == "figure1" else "masking",
        "alpha": alpha,
        "method": kind,
        "tv": float(total_variation(target, law)),
        "kl": toys.miss(target, law),
        "kl_exact": exact,
        "law": law.cpu().tolist(),
    }


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    rows = [row for _, answer in sorted(answers.items()) for row in answer["rows"]]
    return {"samples": QUICK_SAMPLES if settings.quick else SAMPLES, "rows": rows}


def keep_run(device: str, seed: int, folder: Path) -> Path:
    """A run on the nine states, saved beside the figure, and its report."""
    fk = Tilted(nine_states(device).model(), 4.0)
    result = run(fk, uniform_grid(toys.STEPS), particles=256, populations=16, seed=seed, snapshots=8)
    result = noted(result, bundle="Nine states of the demo", command=f"truetilt demo --seed {seed}")
    result.save(folder, Disks(3))
    return result.report(folder / "report.html", Disks(3))


def draw(result: Answer) -> Any:
    """A row of three panels for each (figure, alpha)."""
    from matplotlib.figure import Figure

    lines = sorted({(r["figure"], r["alpha"]) for r in result["rows"]})
    heights = [1.0 if figure == "figure1" else 2.6 for figure, _ in lines]
    figure = Figure(figsize=(11, 1.15 + 1.5 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(lines), 3, squeeze=False, gridspec_kw={"height_ratios": heights})
    for line, (name, alpha) in zip(axes, lines, strict=True):
        rows = {r["method"]: r for r in result["rows"] if (r["figure"], r["alpha"]) == (name, alpha)}
        unit = max(float(np.max(r["law"])) for r in rows.values())
        for ax, kind in zip(line, PANELS, strict=True):
            disks(ax, np.array(rows[kind]["law"]), kind, unit)
            note = "" if kind == "target" else f"\nTV to the target {rows[kind]['tv']:.3f}"
            ax.set_title(f"{PANELS[kind]}{note}", fontsize=10, color=COLOURS[kind])
        where = f"{rows['target']['process']} process\nα = {alpha:g}"
        line[0].set_ylabel(where, fontsize=10)
    samples = result["samples"]
    figure.suptitle(f"Disk area is probability; {samples:,} particles, {toys.STEPS} steps", fontsize=10)
    return figure


_COLUMNS = ("figure", "process", "alpha", "method", "tv", "kl", "kl_exact")
FIGURE1 = Experiment("figure1", "Six states, uniform process", figure1_jobs, collect, draw, _COLUMNS)
FIGURE2 = Experiment("figure2", "Nine states, masking process", figure2_jobs, collect, draw, _COLUMNS)
DEMO = Experiment(
    "demo", "Figures 1 and 2 of the paper", lambda s: figure1_jobs(s) + figure2_jobs(s), collect, draw, _COLUMNS
)
