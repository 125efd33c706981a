"""Figures of the text tasks in the paper's form: metrics against beta, one line per alpha."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ..commands.job_runner import Answer
from .text_grid import BASELINE, CURVES, GUIDANCE, LONG_CURVE
from .text_rows import LEAST_DISTINCT, MOST_PERPLEXITY

PLACE = 2.15  # position on the beta axis of samplers without a beta
ALPHA = 4.0  # alpha of the marks, or the largest below it
QUANTITIES = {
    "score": "",
    "perplexity": "perplexity",
    "distinct_2": "distinct-2",
    "bertscore": "BERTScore F1",
    "kept_unclamped": "given tokens, unclamped",
}
CLAIMS = {  # the claims and their critical values
    "accuracy_difference": ("accuracy less guidance's", 0.0),
    "perplexity_ratio": ("perplexity over guidance's", MOST_PERPLEXITY),
    "distinct_2_ratio": ("distinct-2 over guidance's", LEAST_DISTINCT),
}
_AT_BOTH = ("prompting", *CURVES, LONG_CURVE, *GUIDANCE)  # methods with rows of both numbers of steps
_MARKS = "xs^vD*P<>"


def draw_curves(result: Answer) -> Any:
    """A row of panels for each method with a curve; guidance is dashed, other samplers are marks."""
    from matplotlib.figure import Figure

    rows = [row for row in result["rows"] if not row["claim"]]
    if not rows:
        return draw_claims(result)
    curves = sorted({(r["method"], r["steps"]) for r in rows if _is_curve(r, rows)}) or [(BASELINE, 0)]
    panels = _panels(result, rows)
    figure = Figure(figsize=(2.9 * len(panels), 2.6 * len(curves) + 0.9), layout="constrained")
    axes = figure.subplots(len(curves), len(panels), squeeze=False)
    for line, (method, steps) in zip(axes, curves, strict=True):
        here = [row for row in rows if row["steps"] == steps or not steps or row["method"] not in _AT_BOTH]
        for ax, (name, words, only) in zip(line, panels, strict=True):
            _panel(ax, [row for row in here if only in (None, row.get("condition"))], method, name)
            ax.set(xlabel="β", ylabel=words)
            title = [method, *[f"{steps} steps"] * bool(steps), *[f"asked: {only}"] * bool(only)]
            ax.set_title(", ".join(title), fontsize=9)
    drawn = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside lower center", ncols=max(2, round(1.3 * len(panels))), fontsize=8
    )
    return figure


def _panels(result: Answer, rows: Sequence[Answer]) -> list[tuple[str, str, str | None]]:
    """(quantity, label, class or None) of each panel: per class if a mean over classes is meaningless."""
    out: list[tuple[str, str, str | None]] = []
    for name, words in QUANTITIES.items():
        if any(row.get(name) is not None for row in rows):
            apart = [None] if words else result.get("apart") or [None]
            out += [(name, words or result["score"], condition) for condition in apart]
    return out


def draw_claims(result: Answer) -> Any:
    """Each claimant against guidance: the difference in accuracy and its cost, with intervals."""
    from matplotlib.figure import Figure

    found = result.get("claims") or {}
    names = {name: words for name, words in CLAIMS.items() if any(claim.get(name) for claim in found.values())}
    figure = Figure(figsize=(3.2 * max(1, len(names)) + 2, 0.3 * len(found) + 1.2), layout="constrained")
    axes = figure.subplots(1, max(1, len(names)), squeeze=False)[0]
    for ax, (name, (words, level)) in zip(axes, names.items(), strict=False):
        for place, claim in enumerate(found.values()):
            value = claim[name]
            if value is not None:
                reach = [[value["value"] - value["low"]], [value["high"] - value["value"]]]
                ax.errorbar([value["value"]], [place], xerr=reach, fmt="o", ms=4, lw=1, capsize=2, color="#2e8b57")
        ax.axvline(level, color="black", lw=0.8, ls="--")
        ax.set_title(words, fontsize=9)
        ax.set_yticks([])
        ax.invert_yaxis()
        ax.tick_params(axis="x", labelsize=7)
    axes[0].set_yticks(range(len(found)), list(found), fontsize=7)
    return figure


def _has_grid(row: Answer) -> bool:
    return row["method"] in (*CURVES, LONG_CURVE, *GUIDANCE)


def _is_curve(row: Answer, rows: Sequence[Answer]) -> bool:
    """Whether a row lies on a curve: its method was run at more values of beta than the two of the paper's tables."""
    same = {r["beta"] for r in rows if (r["method"], r["steps"]) == (row["method"], row["steps"])}
    return row["method"] in (*CURVES, LONG_CURVE) and len(same) > 2


def _panel(ax: Any, rows: Sequence[Answer], method: str, name: str) -> None:
    for number, alpha in enumerate(sorted({r["alpha"] for r in rows if r["method"] == method and r["alpha"]})):
        found = _by_beta([r for r in rows if (r["method"], r["alpha"]) == (method, alpha)], name)
        ax.plot(*found, "o-", ms=3, lw=1.2, color=f"C{number}", label=f"SMC, α = {alpha:g}")
    wanted = ("guidance-deft",) if "deft" in method else GUIDANCE[:2]
    for guidance, style in zip(wanted, ("k:", "k--") if len(wanted) > 1 else ("k--",), strict=True):
        found = _by_beta([r for r in rows if r["method"] == guidance], name)
        if found[0]:
            ax.plot(*found, style, lw=1.2, label=guidance)
    for number, (other, alpha) in enumerate(_others(rows)):
        values = [r[name] for r in rows if (r["method"], r["alpha"]) == (other, alpha) and r.get(name) is not None]
        if values:
            words = other if alpha is None else f"{other}, α = {alpha:g}"
            look = {"ms": 5, "color": f"C{4 + number % 6}", "label": words}
            ax.plot([PLACE], [statistics.fmean(values)], _MARKS[number % len(_MARKS)], ls="", **look)


def _others(rows: Sequence[Answer]) -> list[tuple[str, float | None]]:
    """Samplers without a curve, each at one alpha."""
    found: dict[str, list[float | None]] = {}
    for row in rows:
        if not _has_grid(row):
            found.setdefault(row["method"], []).append(row["alpha"])
    best = {m: max((a for a in own if a is not None and a <= ALPHA), default=own[0]) for m, own in found.items()}
    return sorted(best.items(), key=lambda pair: pair[0])


def _by_beta(rows: Sequence[Answer], name: str) -> tuple[list[float], list[float]]:
    """The mean over the conditions at each beta."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if row.get(name) is not None:
            found.setdefault(row["beta"], []).append(row[name])
    betas = sorted(found)
    return betas, [statistics.fmean(found[beta]) for beta in betas]
