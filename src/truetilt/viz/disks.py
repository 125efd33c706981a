"""Laws on small spaces as disks whose area is the probability, as in the paper's Figures 1 and 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"target": "#e8871e", "guidance": "#c8322b", "truetilt": "#2e8b57"}
HATCHES = {"target": "", "guidance": "///", "truetilt": "..."}


def disks(ax: Axes, law: np.ndarray, kind: str, unit: float) -> None:
    """Draw a law of one or two sites; `unit` is the probability whose disk fills a cell. The ring is `target`'s."""
    from matplotlib.patches import Circle

    grid = np.atleast_2d(np.asarray(law, dtype=float))
    for (row, column), p in np.ndenumerate(grid):
        radius = 0.48 * np.sqrt(p / unit)
        ax.add_patch(
            Circle((column, -row), radius, facecolor=COLOURS[kind], hatch=HATCHES[kind], edgecolor="white", lw=0.5)
        )
        inside, words = radius > 0.3, f"{100 * p:.1f}%" if p >= 0.0005 else "0%"
        height = -row if inside else -row - min(radius + 0.14, 0.42)
        ax.annotate(
            words, (column, height), ha="center", va="center", fontsize=7.5, color="black", zorder=5,
            bbox={"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.75 if inside else 0.0},
        )  # fmt: skip
    ax.set_xlim(-0.6, grid.shape[1] - 0.4)
    ax.set_ylim(-grid.shape[0] + 0.4, 0.6)
    ax.set_aspect("equal")
    ax.set_xticks(range(grid.shape[1]), [chr(65 + i) for i in range(grid.shape[1])])
    rows = grid.shape[0]
    ax.set_yticks([-r for r in range(rows)] if rows > 1 else [], [chr(65 + r) for r in range(rows)] if rows > 1 else [])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_color("#cccccc")
