"""The figure of the humanise experiment: how human the chains look against how much of the parent they keep."""

from __future__ import annotations

from typing import Any

from ..baselines.methods import TITLES as BASELINES
from ..commands.job_runner import Answer
from .humanise_designs import OURS

TITLES = {
    "parental": "mouse parent",
    "humab": "Hu-mAb",
    "sapiens1": "Sapiens, 1 round",
    "sapiens3": "Sapiens, 3 rounds",
    "vernier_grafts": "grafts, Vernier zone kept",
    "straight_grafts": "straight grafts",
    "experimental": "marketed forms",
}
COLOURS = ("#000000", "#E69F00", "#0072B2", "#56B4E9", "#CC79A7", "#D55E00", "#999999")  # Okabe and Ito's
MARKS = ("*", "P", "s", "D", "v", "^", "X")
GREENS = ("#009E73", "#66c2a4", "#00543d", "#a1d99b")


def draw(result: Answer) -> Any:
    """Means over the chains with 95 % intervals: published methods as points, our cells as lines along the pull.

    Baselines are drawn where they were run on all chains.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.2), layout="constrained")
    ax = figure.subplots()
    x, y = zip(*result["front"], strict=True)
    ax.plot(x, y, color="0.75", lw=1, ls="--", zorder=1, label="front of what is published")
    for row in result["rows"]:
        if row["method"] in TITLES:
            number = list(TITLES).index(row["method"])
            _point(ax, row, COLOURS[number], MARKS[number], TITLES[row["method"]])
    ours = [row for row in result["rows"] if row["method"] == OURS]
    kinds = list(dict.fromkeys((row["unseen"], row["sweeps"], row.get("readings", 0)) for row in ours))
    for number, kind in enumerate(kinds):
        _line(ax, [row for row in ours if (row["unseen"], row["sweeps"], row.get("readings", 0)) == kind], number)
    for row in result["rows"]:
        if row["method"] in BASELINES and not row.get("incomplete", True):  # a few chains are no point beside 25
            _point(ax, row, "0.6", "x", BASELINES[row["method"]])
            ax.annotate(BASELINES[row["method"]], (row["identity"], row["oasis"]), fontsize=6, color="0.4")
    ax.set_xlabel("identity to the parent, heavy chain")
    ax.set_ylabel("OASis: 9-mers found in at least 10 % of people")
    ax.set_title("numbers at our points: the pull, nats for each change", fontsize=9)
    ax.legend(fontsize=7, frameon=False, loc="lower left")
    return figure


def _line(ax: Any, rows: list[Answer], number: int) -> None:
    """Our designs of one kind along the pull."""
    mine = sorted(rows, key=lambda row: row["pull"])
    read = f"{mine[0].get('readings', 0) or 1} reading{'s' if mine[0].get('readings', 0) > 1 else ''}"
    label = f"truetilt, {read}, CDRs unseen: {mine[0]['unseen']}, sweeps: {mine[0]['sweeps']}"
    x, y = [row["identity"] for row in mine], [row["oasis"] for row in mine]
    bars = [row["half_width"] or 0.0 for row in mine]
    ax.errorbar(x, y, bars, color=GREENS[number % len(GREENS)], marker="o", ms=5, lw=1.6, capsize=2, label=label)
    for row in mine:
        spot = (row["identity"], row["oasis"])
        ax.annotate(f"{row['pull']:g}", spot, (4, 3), textcoords="offset points", fontsize=7)


def _point(ax: Any, row: Answer, colour: str, mark: str, label: str) -> None:
    ax.errorbar(
        row["identity"], row["oasis"], row["half_width"] or 0.0, color=colour, marker=mark, ms=7, capsize=2, ls="",
        label=label,
    )  # fmt: skip
