"""The figure of a comparison: reward against naturalness, one mark a method, with its intervals over seeds.

The axes span the methods that have the target, the base, and methods near them. A method far from these is drawn at the
edge, with an arrow and its figures, so that the others stay readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..viz.plots import ALIVE, SOFT
from ..viz.reward_gain import told

_LOOKS = tuple(
    zip(
        ("#4477aa", "#ee6677", "#aa3377", "#44aadd", "#b8a020", "#0077bb", "#cc3311", "#997700", "#332288", "#7a7a7a"),
        "osv^<DPXph",
        strict=True,
    )
)
_OWN = {"truetilt": (ALIVE, "o"), "base": (SOFT, "+")}
_NEAR = 1.0  # a method is near if it lies within this many spans of the methods with the target and the base
Ends = tuple[float, float]


def draw_comparison(result: dict[str, Any]) -> Any:
    """Filled marks have the target, hollow ones a law of their own; lines cross at the exact target, if it is known."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), layout="constrained")
    ax = figure.subplots()
    known = [line for line in result["summary"] if line["reward"] is not None]
    others = [line["method"] for line in known if line["method"] not in _OWN]
    exact, asked = result["exact"], result["asked"]
    spans = _span(known, exact, "naturalness"), _span(known, exact, "reward")
    if exact is not None:
        how: dict[str, Any] = {"color": "black", "lw": 0.9, "ls": (0, (4, 3)), "zorder": 1}
        ax.axhline(exact["reward"], label="exact target, where lines cross", **how)
        ax.axvline(exact["naturalness"], **how)
    for line in known:
        name = line["method"]
        _mark(ax, line, _OWN[name] if name in _OWN else _LOOKS[others.index(name) % len(_LOOKS)], spans)
    ax.set(xlim=_room(spans[0]), ylim=_room(spans[1]))
    most = f"{asked['calls']:,} distinct calls"
    if asked["evaluations"] is not None:
        most += f" or {asked['evaluations']:,} network evaluations"
    bars = "; bars: 95 % over seeds" if asked["seeds"] > 1 else "; one seed"
    ax.set(xlabel="naturalness: mean log p0 a site", ylabel="mean reward")
    ax.set_title(f"strength {asked['strength']:g}, at most {most}{bars}", fontsize=10, loc="left")
    ax.grid(alpha=0.25, lw=0.6)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9, labelspacing=0.9,
                  title="filled: p0 exp(λ r) is its target\nhollow: none", title_fontsize=8)  # fmt: skip
    return figure


def _mark(ax: Any, line: dict[str, Any], look: tuple[str, str], spans: tuple[Ends, Ends]) -> None:
    """A method's mark at its place, or at the edge with an arrow pointing outwards."""
    colour, mark = look
    at = line["naturalness"], line["reward"]
    x, y = (_shown(value, span) for value, span in zip(at, spans, strict=True))
    own = line["method"] in _OWN
    if (x, y) == at:
        ax.errorbar(x, y, line["reward_half"], line["naturalness_half"], color=colour, lw=1, capsize=2.5, alpha=0.55)
    else:
        away = [0 if now == there else 1 if there > now else -1 for now, there in zip((x, y), at, strict=True)]
        ax.annotate("", (x, y), (24 * away[0], 24 * away[1]), textcoords="offset points",
                    arrowprops={"arrowstyle": "<-", "color": colour}, annotation_clip=False)  # fmt: skip
        words = f"{line['title']}: {told(at[0], 3)}, reward {told(at[1], 3)}"
        side, gap = ("right", -10) if away[0] > 0 else ("left", 10)
        ax.annotate(words, (x, y), (gap, 0), textcoords="offset points", fontsize=8, color=colour, ha=side, va="center",
                    bbox={"color": "white", "pad": 0.5})  # fmt: skip
    ax.plot(x, y, mark, color=colour, ms=12 if own else 8, mew=1.6, ls="none", label=line["title"],
            mfc=colour if line["has_target"] else "white", zorder=2.5 if own else 3)  # fmt: skip


def _span(lines: Sequence[dict[str, Any]], exact: dict[str, Any] | None, key: str) -> Ends:
    """The range of an axis: the methods near those with the target, the base and the exact answer."""
    every = [line[key] for line in lines] or [0.0]
    core = [line[key] for line in lines if line["has_target"] or line["method"] == "base"] or every
    core += [] if exact is None else [exact[key]]
    room = _NEAR * (max(core) - min(core))
    near = [value for value in every if min(core) - room <= value <= max(core) + room]
    return min(core + near), max(core + near)


def _shown(value: float, span: Ends) -> float:
    """The drawn position of a value: if it lies beyond the span, between the span and the edge."""
    low, high = span
    more = 0.08 * (high - low) or 0.3
    return low - more if value < low else high + more if value > high else value


def _room(span: Ends) -> Ends:
    """A span with a margin for the marks."""
    low, high = span
    more = 0.16 * (high - low) or 0.6
    return low - more, high + more
