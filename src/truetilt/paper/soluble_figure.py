"""The figure of whole-chain redesign: surface, recovery, the ratio evaluated in another order; every method."""

from __future__ import annotations

import statistics
from typing import Any

from ..commands.job_runner import Answer

TINTS = ("#009E73", "#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = "osD^vPX"
PANELS = (
    ("surface", "hydrophobic share of the surface"),
    ("recovery", "native residues that come back"),
    ("log_ratio", "log soluble / vanilla, nats a residue"),
)


def draw(result: Answer) -> Any:
    """A line for each backbone: truetilt solid, guidance dotted, native as a star; the ratio in another order dashed.

    Last, all methods at one exponent.
    """
    from matplotlib.figure import Figure

    rows = result["rows"]
    figure = Figure(figsize=(18, 4.4), layout="constrained")
    names = list(dict.fromkeys(row["backbone"] for row in rows))
    *panels, last = figure.subplots(1, len(PANELS) + 1)
    for ax, (key, label) in zip(panels, PANELS, strict=True):
        for name, tint in zip(names, TINTS, strict=False):
            _line(ax, [r for r in rows if r["backbone"] == name and r["method"] == "truetilt"], key, tint, "o-", name)
            if key != "log_ratio":
                _line(ax, [r for r in rows if r["backbone"] == name and r["method"] == "guidance"], key, tint, "x:")
            else:
                mine = [r for r in rows if r["backbone"] == name and r["method"] == "truetilt"]
                _line(ax, mine, "log_ratio_retold", tint, "s--")
            if key == "surface":
                native = next(r["native_surface"] for r in rows if r["backbone"] == name)
                ax.plot([-0.3], [native], "*", color=tint, ms=9)
        ax.set(xlabel="α", ylabel=label, xticks=[0, 1, 2, 4])
        ax.grid(alpha=0.25, lw=0.4)
        ax.axvspan(2.5, 4.3, color="#D55E00", alpha=0.08, lw=0)
    figure.axes[0].legend(fontsize=7)
    figure.axes[0].set_title("solid: truetilt; dotted: guidance; star: native", fontsize=9, loc="left")
    figure.axes[2].set_title("dashed: the same designs in the reverse order", fontsize=9, loc="left")
    _methods(last, rows)
    return figure


def _methods(ax: Any, rows: list[Answer]) -> None:
    """The ratio against p0, both a residue, of every method at the exponent of the baselines."""
    alpha = min(row["alpha"] for row in rows if row["method"] == "guidance")
    for number, name in enumerate(dict.fromkeys(row["method"] for row in rows)):
        mine = [row for row in rows if row["method"] == name and row["alpha"] == alpha]
        if not mine:
            continue
        x, y = (statistics.fmean(row[key] / row["sites"] for row in mine) for key in ("log_p0", "log_ratio"))
        ax.plot([x], [y], MARKS[number % len(MARKS)], ms=7, color=TINTS[number % len(TINTS)], label=name)
    ax.legend(fontsize=8)
    ax.set(xlabel="log p0, nats a residue", ylabel="log soluble / vanilla, nats a residue")
    ax.margins(0.2)
    ax.grid(alpha=0.25, lw=0.4)
    ax.set_title(f"α = {alpha:g}, equal evaluations: mean of all backbones", fontsize=9, loc="left")


def _line(ax: Any, rows: list[Answer], key: str, tint: str, style: str, label: str | None = None) -> None:
    alphas = sorted({row["alpha"] for row in rows})
    scale = {row["backbone"]: row["sites"] if key.startswith("log_ratio") else 1 for row in rows}
    means = [statistics.fmean(r[key] / scale[r["backbone"]] for r in rows if r["alpha"] == alpha) for alpha in alphas]
    ax.plot(alphas, means, style, color=tint, ms=4, lw=1.3, label=label)
