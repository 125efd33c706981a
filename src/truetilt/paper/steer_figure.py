"""The figure of the steer experiment: errors on chains against calls, on tables against the best route in hindsight."""

from __future__ import annotations

from typing import Any

from ..commands.job_runner import Answer
from .steer_tables import OURS

MARKS = ("s", "^", "v", "D", "P", "X", "<")
COLOURS = ("#D55E00", "#0072B2", "#56B4E9", "#CC79A7", "#E69F00", "#000000", "#999999")  # Okabe and Ito's
GREEN = "#009E73"


def draw(result: Answer) -> Any:
    """A panel for each length of chain, and one for the tables."""
    from matplotlib.figure import Figure

    rows = result["rows"]
    chains = list(dict.fromkeys(row["problem"] for row in rows if row["problem"].startswith("chain")))
    figure = Figure(figsize=(5.2 * (len(chains) + 1), 4.4), layout="constrained")
    axes = figure.subplots(1, len(chains) + 1, squeeze=False)[0]
    for ax, name in zip(axes, chains, strict=False):
        _curves(ax, [row for row in rows if row["problem"] == name], name)
    _hindsight(axes[-1], result["hindsight"])
    return figure


def _curves(ax: Any, rows: list[Answer], title: str) -> None:
    """Error over that of 500 independent draws, against distinct calls, with 95 % intervals over the problems."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    others = [name for name in methods if name != OURS]
    for name in methods:
        mine = [row for row in rows if row["method"] == name]
        look = (GREEN, "o") if name == OURS else (COLOURS[others.index(name)], MARKS[others.index(name)])
        x, y = [row["calls"] for row in mine], [row["tv"] / row["floor"] for row in mine]
        bars = [row["half_width"] / row["floor"] for row in mine]
        ax.errorbar(
            x, y, bars, color=look[0], marker=look[1], ms=5, lw=1.6 if name == OURS else 1, capsize=2, label=name
        )
    ax.axhline(1, color="0.6", lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="distinct calls of the reward", title=title)
    ax.set_ylabel("error / that of 500 independent draws")
    calls = sorted({row["calls"] for row in rows})
    ax.set_xticks(calls, [f"{count:,}" for count in calls])
    ax.set_xticks([], minor=True)
    ax.legend(fontsize=7, frameon=False)


def _hindsight(ax: Any, rows: list[Answer]) -> None:
    """Our error over that of the best fixed route, a point per table."""
    ax.scatter([row["table"] for row in rows], [row["ratio"] for row in rows], color=GREEN, s=24, zorder=3)
    ax.axhline(1, color="0.6", lw=0.8, ls=":")
    ax.axhline(1.5, color="#D55E00", lw=0.8, ls="--")
    ax.set(xlabel="table (from 10 on: rare events)", title="tables", ylim=(0, None), xticks=range(0, len(rows), 5))
    ax.set_ylabel("error / that of the best way in hindsight")
