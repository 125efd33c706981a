"""The figure of the diffusions: draws in the plane, errors against alpha, steps and particles, and the time error."""

from __future__ import annotations

from typing import Any

import torch

from ..commands.job_runner import Answer
from ..continuous.mixtures import GaussianMixture
from ..viz.disks import COLOURS

TITLES = {"target": "target π ∝ p₀ p(ζ|x)^α", "guidance": "guidance, β = α", "truetilt": "truetilt, smc-tilted"}
LINES = {  # marker, dash and tint of each method, distinguishable without colour
    "guidance": ("v", "--", "#c8322b"),
    "smc-tilted": ("o", "-", "#2e8b57"),
    "smc-tilted-plain": ("s", "-.", "#1f6f9f"),
    "smc-steered": ("D", ":", "#7a4fa3"),
    "smc-edges": ("^", (0, (5, 1)), "#8a6d1d"),
    "smc-edges-guided": ("P", (0, (1, 1)), "#555555"),
    "guidance at 1": ("<", "-", "#e8871e"),
}


def draw(result: Answer) -> Any:
    """Three rows: the plane; errors against alpha for each dimension; against steps, particles, and the limits."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.6, 12.0), layout="constrained")
    axes = figure.subplots(3, 3)
    _plane(axes[0], result["picture"])
    rows = result["rows"]
    dimensions = sorted({r["dimension"] for r in rows})
    for ax, d in zip(axes[1], dimensions, strict=True):
        here = [r for r in rows if r["dimension"] == d]
        _curves(ax, _main(here), "alpha", "α")
        ax.set_title(f"D = {d}", fontsize=10)
    shown = [r for r in rows if (r["dimension"], r["alpha"]) == (8, 4.0)]
    _curves(axes[2, 0], [r for r in shown if r["particles"] == 2000], "steps", "steps")
    _curves(axes[2, 1], [r for r in shown if r["steps"] == 200], "particles", "particles")
    for ax, title in zip(axes[2], ("D = 8, α = 4, 2,000 particles", "D = 8, α = 4, 200 steps"), strict=False):
        ax.set_title(title, fontsize=10)
    _limits(axes[2, 2], [r for r in result["limits"] if r["kernel"] == "euler_maruyama"])
    for ax in (axes[1, 0], axes[2, 0]):
        ax.set_ylabel("sliced Wasserstein, times that of\nindependent draws (dotted: 1 and 1.5)", fontsize=9)
    handles = {label: h for ax in axes[1] for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), fontsize=9, loc="outside lower center", ncols=len(handles))
    return figure


def _plane(axes: Any, picture: Answer) -> None:
    """Clouds of draws over the contours of the target."""
    law = GaussianMixture(*(torch.tensor(picture["law"][key]) for key in ("weights", "means", "std")))
    every = torch.tensor([row for cloud in picture["clouds"].values() for row in cloud])
    low, high = every.amin(0) - 0.3, every.amax(0) + 0.3
    x, y = (torch.linspace(float(a), float(b), 160, dtype=torch.float64) for a, b in zip(low, high, strict=True))
    at = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
    density = law.log_prob(at).exp()
    top = float(density.max())
    for ax, (kind, cloud) in zip(axes, picture["clouds"].items(), strict=True):
        levels = [share * top for share in (0.01, 0.05, 0.2, 0.5)]
        ax.contour(x.numpy(), y.numpy(), density.numpy(), levels, colors="black", linewidths=0.6, alpha=0.7)
        points = torch.tensor(cloud)
        ax.scatter(points[:, 0], points[:, 1], s=5, color=COLOURS[kind], alpha=0.7, linewidths=0)
        ax.set_title(TITLES[kind], fontsize=10)
        ax.set(xlim=(float(low[0]), float(high[0])), ylim=(float(low[1]), float(high[1])))
        ax.tick_params(labelsize=8)
    axes[0].set_ylabel(f"two dimensions, α = {picture['alpha']:g};\n600 draws, contours of the target", fontsize=9)


def _main(rows: list[Answer]) -> list[Answer]:
    """One point for each alpha and method: the first, since steps and particles are varied after."""
    found: dict[tuple[float, str], Answer] = {}
    for row in rows:
        found.setdefault((row["alpha"], row["method"]), row)
    return list(found.values())


def _curves(ax: Any, rows: list[Answer], key: str, label: str) -> None:
    """Ratio to the floor against one setting."""
    for name in (n for n in LINES if any(r["method"] == n for r in rows)):
        marker, dash, tint = LINES[name]
        points = sorted((r[key], r["ratio_to_floor"]) for r in rows if r["method"] == name)
        ax.plot(*zip(*points, strict=True), marker=marker, ls=dash, color=tint, lw=1.3, ms=5, label=name)
    for level in (1.0, 1.5):
        ax.axhline(level, color="black", ls=":", lw=0.9)
    _logs(ax, sorted({r[key] for r in rows}), label)
    ticks = [t for t in (1, 1.5, 2, 3, 5, 10, 20, 40) if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks], fontsize=8)
    ax.set_yticks([], minor=True)


def _limits(ax: Any, rows: list[Answer]) -> None:
    """Infinitely many particles on a line: the time error alone, against the steps."""
    for name in (n for n in LINES if any(r["value"] == n for r in rows)):
        marker, dash, tint = LINES[name]
        points = sorted((r["steps"], r["tv"]) for r in rows if r["value"] == name)
        words = name.replace(" at 1", " at α = 1")
        ax.plot(*zip(*points, strict=True), marker=marker, ls=dash, color=tint, lw=1.3, ms=5, label=words)
    steps = sorted({r["steps"] for r in rows})
    low = max(r["tv"] for r in rows if r["value"].startswith("smc") and r["steps"] == steps[0])
    ax.plot(steps, [low * steps[0] / t for t in steps], color="black", lw=0.7, label="1 / steps")
    _logs(ax, steps, "steps")
    ax.set_title("N → ∞, D = 1, α = 4: total variation to the target", fontsize=10)
    ax.legend(fontsize=7, loc="lower left")


def _logs(ax: Any, values: list[float], label: str) -> None:
    ax.set(xscale="log", yscale="log", xlabel=label)
    ax.set_xticks(values, [f"{v:,g}" for v in values], fontsize=8)
    ax.set_xticks([], minor=True)
    ax.grid(color="#e5e5e5", lw=0.5)
