"""The figure of molecules: reward against diversity and against the distance to the base, a column for each task."""

from __future__ import annotations

from typing import Any

from ..commands.job_runner import Answer

OURS = {
    "truetilt": ("#009E73", "o"),
    "truetilt-last": ("#0072B2", "D"),
    "truetilt-charged": ("#56B4E9", "s"),
    "steer": ("#CC79A7", "^"),
}
GREY, PALE = "#333333", "#c4c4c4"  # of baselines, which are numbered, and of their bars
AXES = {"diversity": "internal diversity", "distance": "Fréchet distance to the base"}


def draw(result: Answer) -> Any:
    """A column for each task; ours in colour, baselines as numbers in grey, 95 % intervals over seeds."""
    from matplotlib.figure import Figure

    summary = result["summary"]
    tasks = list(dict.fromkeys(one["task"] for one in summary))
    figure = Figure(figsize=(max(4.6 * len(tasks), 9.2), 8.6), layout="constrained")
    panels = figure.subplots(2, max(len(tasks), 1), squeeze=False)
    names = list(dict.fromkeys((one["key"], one["method"]) for one in summary))
    theirs = [key for key, _ in names if key not in OURS]
    marks = {key: f"${number}$" for number, key in enumerate(theirs, start=1)}
    for column, task in enumerate(tasks):
        mine = [one for one in summary if one["task"] == task and one["reward"] is not None]
        for row, (axis, label) in enumerate(AXES.items()):
            _panel(panels[row][column], mine, axis, marks)
            panels[row][column].set(xlabel=label, ylabel="mean reward" if column == 0 else None)
        panels[0][column].set_title(task, fontsize=11, loc="left")
    _legend(figure, names, marks)
    return figure


def _panel(ax: Any, mine: list[Answer], axis: str, marks: dict[str, str]) -> None:
    for one in mine:
        if one[axis] is None:
            continue
        colour, mark = OURS.get(one["key"], (GREY, marks.get(one["key"], ".")))
        tint = colour if one["key"] in OURS else PALE
        bars = {"ecolor": tint, "xerr": one[f"{axis}_half"], "yerr": one["reward_half"]}
        front = 3 if one["key"] in OURS else 2
        ax.errorbar(
            one[axis],
            one["reward"],
            **bars,
            ls="",
            marker=mark,
            color=colour,
            ms=8,
            elinewidth=0.8,
            mew=0.3,
            zorder=front,
        )
    if axis == "distance":
        ax.set_xscale("log")
        for side in (ax.xaxis.set_major_formatter, ax.xaxis.set_minor_formatter):
            side("{x:g}")
        ax.invert_xaxis()
    ax.grid(alpha=0.25, lw=0.4)


def _legend(figure: Any, names: list[tuple[str, str]], marks: dict[str, str]) -> None:
    """One legend for all panels; up and to the right is better in each."""
    from matplotlib.lines import Line2D

    handles = []
    for key, title in names:
        colour, mark = OURS.get(key, (GREY, marks.get(key, ".")))
        handles.append(Line2D([], [], ls="", marker=mark, color=colour, ms=8, mew=0.3, label=title))
    figure.legend(handles=handles, loc="outside lower center", ncol=5, fontsize=9, frameon=False)
    figure.suptitle("up and to the right is better; bars: 95 % over seeds", fontsize=10, x=0.01, ha="left")
