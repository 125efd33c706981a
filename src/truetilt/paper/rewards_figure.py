"""The figure of the rewards experiment: chains by method, TF Bind 8 by method, GB1 against distinct calls."""

from __future__ import annotations

from typing import Any

from ..commands.job_runner import Answer

OURS, THEIRS = "#009E73", "#D55E00"  # Okabe and Ito's
BASELINES = ("best of N", "importance", "FK steering", "SVDD")
WORDS = {"screened": (OURS, "o"), "importance": (THEIRS, "s"), "annealed": ("#CC79A7", "D")}
CURVES = {
    "annealed": ("annealed", OURS, "o"),
    "annealed, recycled": ("annealed, recycled", OURS, "D"),
    "importance": ("importance", THEIRS, "s"),
    "importance, recycled": ("importance, recycled", THEIRS, "v"),
    "FK steering, K = 4": ("FK steering", "#0072B2", "^"),
}


def draw(result: Answer) -> Any:
    """Three kinds of panels, for which there are rows."""
    from matplotlib.figure import Figure

    rows = result["rows"]
    chains = [(d, [r for r in rows if r["problem"] == "chain" and r["dimension"] == d]) for d in _of(rows, "dimension")]
    chains = [(d, some) for d, some in chains if some]
    words = [p for p in _of(rows, "problem") if p.startswith("tfbind8")]
    alphas = [a for a in _of(rows, "alpha") if any(r["problem"] != "chain" and r["alpha"] == a for r in rows)]
    fitness = [a for a in alphas if any(r["problem"] == "gb1" and r["alpha"] == a for r in rows)]
    below = 2 if words or fitness else 1
    figure = Figure(figsize=(13, 4.6 * below), layout="constrained")
    parts = figure.subfigures(below, 1, squeeze=False)[:, 0]
    for ax, (d, some) in zip(parts[0].subplots(1, len(chains), squeeze=False)[0], chains, strict=True):
        _bars(ax, some, f"chains of {d} sites, {result['problems']} problems")
    if below == 2:
        panels = [("words", words)] * bool(words) + [("fitness", alpha) for alpha in fitness]
        for ax, (kind, what) in zip(parts[1].subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            if kind == "words":
                _words(ax, [r for r in rows if r["problem"] in what])
            else:
                _curves(ax, [r for r in rows if r["problem"] == "gb1" and r["alpha"] == what], what)
    return figure


def _of(rows: list[Answer], key: str) -> list[Any]:
    return list(dict.fromkeys(r[key] for r in rows))


def _bars(ax: Any, rows: list[Answer], title: str) -> None:
    """The error of each method over the floor, with its cost beside it."""
    names = [r["method"] for r in rows]
    tints = [THEIRS if r["method"].startswith(BASELINES) else OURS for r in rows]
    values = [r["ratio_to_floor"] for r in rows]
    ax.hlines(names, 1, values, color=tints, lw=1.2)
    ax.scatter(values, names, color=tints, s=28, zorder=3)
    for name, value, row in zip(names, values, rows, strict=True):
        text = f"{value:.1f}  ({row['reward_calls'] / 1000:,.0f}k calls)" if value >= 10 else f"{value:.2f}"
        text = text if value >= 10 else f"{text}  ({row['reward_calls'] / 1000:,.0f}k calls)"
        ax.annotate(text, (value, name), (7, 0), textcoords="offset points", fontsize=7, va="center")
    ax.axvline(1, color="black", ls=":", lw=0.9)
    ax.set(xscale="log", xlim=(0.8, 400), title=title)
    ax.set_xticks([1, 2, 5, 10, 30], ["1", "2", "5", "10", "30"])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("error over that of 500 independent draws", fontsize=9)
    ax.tick_params(labelsize=8)
    ax.invert_yaxis()


def _words(ax: Any, rows: list[Answer]) -> None:
    """TF Bind 8: a group of dots for each base and alpha."""
    groups = sorted({(r["problem"], r["alpha"]) for r in rows})
    for method in _of(rows, "method"):
        some = {(r["problem"], r["alpha"]): r["ratio_to_floor"] for r in rows if r["method"] == method}
        tint, marker = WORDS.get(method, ("#0072B2", "^"))
        values = [some[group] for group in groups]
        ax.scatter(range(len(groups)), values, s=40, label=method, color=tint, marker=marker)
    ax.axhline(1, color="black", ls=":", lw=0.9)
    ax.axhline(2, color="black", ls=":", lw=0.6)
    ax.set_yscale("log")
    ax.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    ax.set_yticks([], minor=True)
    labels = [f"{problem.split(', ')[1]}\nα = {alpha:g}" for problem, alpha in groups]
    ax.set_xticks(range(len(groups)), labels, fontsize=8)
    ax.margins(x=0.15)
    ax.set_title("TF Bind 8, 2,000 distinct calls")
    ax.set_ylabel("error over that of 1,000 independent draws", fontsize=9)
    ax.legend(fontsize=7)


def _curves(ax: Any, rows: list[Answer], alpha: float) -> None:
    """GB1: error against distinct calls."""
    for name, (label, tint, marker) in CURVES.items():
        some = [r for r in rows if _plain(r["method"]) == name]
        some.sort(key=lambda r: r["distinct_calls"])
        style = "--" if "recycled" in name else "-"
        xs, ys = [r["distinct_calls"] for r in some], [r["tv_mean"] for r in some]
        ax.plot(xs, ys, style, marker=marker, color=tint, lw=1, ms=5, label=label)
    ax.axhline(rows[0]["floor"], color="black", ls=":", lw=0.9, label="2,048 independent draws")
    ax.set(xscale="log", yscale="log", xlabel="distinct reward calls", title=f"GB1, α = {alpha:g}")
    ax.set_ylabel("mean marginal TV", fontsize=9)
    ax.grid(color="#e5e5e5", lw=0.5)
    ax.legend(fontsize=7)


def _plain(method: str) -> str:
    """The method without its size: "annealed / 64, recycled" is "annealed, recycled"."""
    first, _, rest = method.partition(" / ")
    return first + (", recycled" if rest.endswith("recycled") else "")
