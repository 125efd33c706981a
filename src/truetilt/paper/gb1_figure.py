"""The figure of GB1: error against distinct calls of the reward for every sampler and baseline; and the guide."""

from __future__ import annotations

from typing import Any

from ..commands.jobs import Answer

OURS = {
    "kriged twist": ("#009E73", "o"),
    "annealed, Metropolis": ("#0072B2", "s"),
    "annealed, Gibbs": ("#56B4E9", "D"),
    "tt.steer": ("#CC79A7", "^"),
    "importance": ("#000000", "x"),
}
TICKS, LEVELS = (250, 500, 1_000, 2_000, 4_000), (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
GREYS = ("#8c8c8c", "#a6a6a6", "#b3b3b3", "#737373", "#999999", "#808080", "#bfbfbf", "#666666", "#adadad")


def draw(result: Answer) -> Any:
    """A panel for each strength, particles as lines and recycled as dashes; one for soluble over vanilla."""
    from matplotlib.figure import Figure

    means = result["means"]
    alphas = sorted({m["alpha"] for m in means if m["problem"] == "fitness"})
    figure = Figure(figsize=(5.2 * (len(alphas) + 1), 6), layout="constrained")
    panels = figure.subplots(1, len(alphas) + 1)
    for ax, alpha in zip(panels, alphas, strict=False):
        _curves(ax, [m for m in means if m["problem"] == "fitness" and m["alpha"] == alpha])
        ax.set_title(f"fitness of GB1, α = {alpha:g}", fontsize=10, loc="left")
    panels[0].legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.11), ncol=3, frameon=False)
    _guided(panels[-1], [m for m in means if m["problem"] == "soluble / vanilla"])
    return figure


def _curves(ax: Any, means: list[Answer]) -> None:
    ends = []
    for number, name in enumerate(dict.fromkeys(m["method"] for m in means)):
        each = sorted((m for m in means if m["method"] == name), key=lambda m: m["calls"])
        colour, mark = OURS.get(name, (GREYS[number % len(GREYS)], "."))
        x, tv = [m["reward_calls"] for m in each], [m["tv"] for m in each]
        label = name if name in OURS else None
        ax.plot(x, tv, mark, ls="-", color=colour, ms=4.5, lw=1.6 if name in OURS else 0.8, label=label)
        if name not in OURS:
            ends.append((tv[-1], x[-1], name, colour))
        elif all(m["recycled"] is not None for m in each):
            ax.plot(x, [m["recycled"] for m in each], mark, ls="--", color=colour, ms=3, lw=0.9, mfc="white")
    _names(ax, ends)
    ax.set(
        xscale="log", yscale="log", xlabel="distinct calls of the reward", ylabel="mean marginal TV to the exact law"
    )
    ax.minorticks_off()
    ax.set_xticks(TICKS, [f"{tick:,}" for tick in TICKS])
    ax.set_yticks(LEVELS, [f"{level:g}" for level in LEVELS])
    ax.plot([], [], "k--", lw=0.9, label="dashed: recycled")
    ax.plot([], [], ".-", color=GREYS[0], lw=0.8, label="grey: baselines, named at their ends")
    ax.grid(alpha=0.25, which="both", lw=0.4)


def _names(ax: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """The names of lines at their ends, moved apart where they would lie on one another."""
    last = 0.0
    for tv, x, name, colour in sorted(ends):
        place = max(tv, last * 1.09)
        ax.annotate(name, (x, tv), (x * 1.05, place), fontsize=6, color=colour, va="center")
        last = place


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
