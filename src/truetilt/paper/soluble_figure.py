"""The figure of whole-chain redesign: surface, recovery, and the ratio evaluated in another order."""

from __future__ import annotations

import statistics
from typing import Any

from ..commands.jobs import Answer

TINTS = ("#009E73", "#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
PANELS = (
    ("surface", "hydrophobic share of the surface"),
    ("recovery", "native residues that come back"),
    ("log_ratio", "log soluble / vanilla, nats a residue"),
)


def draw(result: Answer) -> Any:
    """A line for each backbone: truetilt solid, guidance dotted, native as a cross; the ratio in another order
    dashed."""
    from matplotlib.figure import Figure

    rows = result["rows"]
    figure = Figure(figsize=(14, 4.4), layout="constrained")
    names = list(dict.fromkeys(row["backbone"] for row in rows))
    for ax, (key, label) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
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
    return figure


def _line(ax: Any, rows: list[Answer], key: str, tint: str, style: str, label: str | None = None) -> None:
    alphas = sorted({row["alpha"] for row in rows})
    scale = {row["backbone"]: row["sites"] if key.startswith("log_ratio") else 1 for row in rows}
    means = [statistics.fmean(r[key] / scale[r["backbone"]] for r in rows if r["alpha"] == alpha) for alpha in alphas]
    ax.plot(alphas, means, style, color=tint, ms=4, lw=1.3, label=label)
