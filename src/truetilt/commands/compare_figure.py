"""The figure of a comparison: reward against naturalness, one mark a method, with its intervals over seeds."""

from __future__ import annotations

from typing import Any

from ..viz.plots import ALIVE, SOFT

_LOOKS = tuple(
    zip(
        ("#4477aa", "#ee6677", "#aa3377", "#44aadd", "#b8a020", "#0077bb", "#cc3311", "#997700", "#332288", "#7a7a7a"),
        "osv^<DPXph",
        strict=True,
    )
)


def draw_comparison(result: dict[str, Any]) -> Any:
    """Filled marks have the target, hollow ones a law of their own; the star is the exact target, where it is known."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), layout="constrained")
    ax = figure.subplots()
    known = [line for line in result["summary"] if line["reward"] is not None]
    others = [line["method"] for line in known if line["method"] not in ("truetilt", "base")]
    for line in known:
        name = line["method"]
        own = {"truetilt": (ALIVE, "o"), "base": (SOFT, "+")}
        colour, mark = own[name] if name in own else _LOOKS[others.index(name) % len(_LOOKS)]
        x, y = line["naturalness"], line["reward"]
        ax.errorbar(x, y, line["reward_half"], line["naturalness_half"], color=colour, lw=1, capsize=2.5, alpha=0.55)
        ax.plot(x, y, mark, color=colour, ms=12 if name in own else 8, mew=1.6, ls="none", label=line["title"],
                mfc=colour if line["has_target"] else "white", zorder=2.5 if name == "truetilt" else 3)  # fmt: skip
    exact = result["exact"]
    if exact is not None:
        ax.plot(exact["naturalness"], exact["reward"], "*", color="black", ms=17, mfc="none", mew=1.3, ls="none",
                label="exact target", zorder=5)  # fmt: skip
    asked = result["asked"]
    most = f"{asked['calls']:,} distinct calls"
    if asked["evaluations"] is not None:
        most += f" or {asked['evaluations']:,} network evaluations"
    ax.set(xlabel="naturalness: mean log p0 a site", ylabel="mean reward")
    ax.set_title(f"strength {asked['strength']:g}, at most {most}; bars: 95 % over seeds", fontsize=10, loc="left")
    ax.grid(alpha=0.25, lw=0.6)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9, labelspacing=0.9,
                  title="filled: p0 exp(λ r) is its target\nhollow: none", title_fontsize=8)  # fmt: skip
    return figure
