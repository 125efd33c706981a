"""The figure of GB1: error against distinct calls of the reward for every sampler and baseline; and the guide."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from ..commands.job_runner import Answer

OURS = {
    "kriged twist": ("#009E73", "o"),
    "annealed, Metropolis": ("#0072B2", "s"),
    "annealed, Gibbs": ("#56B4E9", "D"),
    "tt.steer": ("#CC79A7", "^"),
    "importance": ("#000000", "x"),
}
TICKS, LEVELS = (250, 500, 1_000, 2_000, 4_000), (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
GREY, MARKS = "#9a9a9a", ("v", "<", ">", "p", "h", "P", "*", "d", "1", "X")  # colour and markers of baselines


def draw(result: Answer) -> Any:
    """A panel for each strength, ours in colour and baselines in grey; one for soluble over vanilla."""
    from matplotlib.figure import Figure

    means = result["means"]
    alphas = sorted({m["alpha"] for m in means if m["problem"] == "fitness"})
    figure = Figure(figsize=(5.2 * (len(alphas) + 1), 6), layout="constrained")
    panels = figure.subplots(1, len(alphas) + 1)
    for ax, alpha in zip(panels, alphas, strict=False):
        _curves(ax, [m for m in means if m["problem"] == "fitness" and m["alpha"] == alpha])
        ax.set_title(f"fitness of GB1, α = {alpha:g}", fontsize=10, loc="left")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncol=8, frameon=False)
    _guided(panels[-1], [m for m in means if m["problem"] == "soluble / vanilla"])
    return figure


def _curves(ax: Any, means: list[Answer]) -> None:
    names = list(dict.fromkeys(m["method"] for m in means))
    marks = dict(zip([name for name in names if name not in OURS], cycle(MARKS), strict=False))
    for name in names:
        each = sorted((m for m in means if m["method"] == name), key=lambda m: m["calls"])
        colour, mark = OURS.get(name, (GREY, marks.get(name, ".")))
        x, tv = [m["reward_calls"] for m in each], [m["tv"] for m in each]
        ax.plot(x, tv, mark, ls="-", color=colour, ms=4.5, lw=1.6 if name in OURS else 0.7, label=name)
        if name in OURS and all(m["recycled"] is not None for m in each):
            ax.plot(x, [m["recycled"] for m in each], mark, ls="--", color=colour, ms=3, lw=0.9, mfc="white")
    ax.set(
        xscale="log", yscale="log", xlabel="distinct calls of the reward", ylabel="mean marginal TV to the exact law"
    )
    ax.minorticks_off()
    ax.set_xticks(TICKS, [f"{tick:,}" for tick in TICKS])
    ax.set_yticks(LEVELS, [f"{level:g}" for level in LEVELS])
    ax.plot([], [], "k--", lw=0.9, label="dashed: recycled")
    ax.grid(alpha=0.25, which="both", lw=0.4)


def _guided(ax: Any, means: list[Answer]) -> None:
    """TV over that of independent draws, for each exponent."""
    for name, (colour, mark) in zip(
        dict.fromkeys(m["method"] for m in means), (("#009E73", "o"), ("#0072B2", "s"), ("#D55E00", "x")), strict=False
    ):
        each = [m for m in means if m["method"] == name]
        ax.plot(
            [m["alpha"] for m in each], [m["tv"] / m["floor"] for m in each], mark, ls="-", color=colour, label=name
        )
    ax.axhline(1, color="k", lw=0.7)
    ax.axhline(1.5, color="k", lw=0.7, ls=":")
    ax.set(yscale="log", xlabel="α", ylabel="TV over that of 2,048 independent draws", xticks=[1, 2, 4])
    ax.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    ax.minorticks_off()
    ax.set_title("vanilla · (soluble / vanilla)^α, by the networks", fontsize=10, loc="left")
    ax.legend(fontsize=7)
