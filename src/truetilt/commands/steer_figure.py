"""The figure of `truetilt steer`: the reward before and after, log Z of the populations, costs, and contact sheets.

Contact sheets are for models of images: draws of the model, and draws of the answer.
"""

from __future__ import annotations

from itertools import groupby
from textwrap import fill
from typing import Any

import numpy as np

from ..result import Result
from ..viz.plots import ALIVE, SOFT
from ..viz.reward_gain import GainWords, binned, gain_words, told
from ..viz.views import View

IMAGES = 16  # images per sheet
_WIDE = 34  # characters per line of a stage's name


def draw_steered(result: Result, view: View | None = None) -> Any:
    """A matplotlib figure with those panels that have data."""
    from matplotlib.figure import Figure

    gained = gain_words(result.settings)
    pictures = gained is not None and view is not None and view.shape in ("picture", "structure")
    columns = 2 if gained is None else 3
    figure = Figure(figsize=(4.4 * columns, 7.6 if pictures else 4), layout="constrained")
    above: Any = figure
    if pictures and gained is not None and view is not None:
        parts: Any = figure.subfigures(2, 1)
        above, below = parts
        _sheets(below.subplots(1, 2), gained, result, view)
    *first, middle, last = above.subplots(1, columns)
    if first and gained is not None:
        _rewards(first[0], gained)
    _log_z(middle, result)
    _costs(last, result)
    return figure


def _rewards(ax: Any, gained: GainWords) -> None:
    """Histograms of the rewards of both sides, over a common range."""
    for side, colour, name in zip(gained.sides, (SOFT, ALIVE), ("before", "after"), strict=True):
        share, edges, _ = binned(side.values, np.ones(len(side.values)), gained.span)
        label = f"{name}: mean {told(side.mean)}\n{side.interval}"
        ax.stairs(share, edges, fill=True, color=colour, alpha=0.55, label=label)
    ax.set(xlabel="reward", ylabel="share of draws", title="the reward, before and after", ylim=(0, None))
    ax.set_ylim(0, 1.4 * ax.get_ylim()[1])  # room for the legend
    ax.legend(frameon=False, fontsize=8, loc="upper left")


def _log_z(ax: Any, result: Result) -> None:
    """The difference of each population's log Z from the overall one, so that small differences are visible."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    each = result.population_log_z.double().cpu().numpy()
    away = each[np.isfinite(each)] - result.log_z
    ax.hist(away, bins=12, color=ALIVE)
    ax.axvline(0, color="black", lw=1)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: told(value, 3)))
    dead = f", {len(each) - len(away)} died" if len(away) < len(each) else ""
    ax.set(
        xlabel=f"log Z of a population, less {told(result.log_z, 6)}",
        ylabel=f"populations of {len(each)}{dead}",
        title=f"{result.trust().verdict!s}: log Z {told(result.log_z)}",
    )
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _costs(ax: Any, result: Result) -> None:
    """The cost of each stage in units of the limiting budget: calls if they are limited, else evaluations."""
    story = result.settings["steer"]
    calls = story["asked"]["calls"] is not None
    key, unit = ("distinct", "distinct calls of the reward") if calls else ("evaluations", "network evaluations")
    groups = [list(group) for _, group in groupby(story["stages"], key=lambda stage: stage["why"])]
    names = [f"{n}. {_short(group[0]['what'], len(group))}" for n, group in enumerate(groups, start=1)]
    costs = [sum(stage["spent"][key] for stage in group) for group in groups]
    places = range(len(groups))[::-1]
    bars = ax.barh(list(places), costs, color=ALIVE, height=0.6)
    ax.bar_label(bars, [f"{cost:,}" for cost in costs], padding=3, fontsize=8)
    ax.set_yticks(list(places), names, fontsize=8)
    ax.set(xlabel=unit, title="what each stage cost", xlim=(0, 1.25 * max([*costs, 1])))
    ax.locator_params(axis="x", nbins=4)


def _short(what: str, count: int) -> str:
    """A stage's name without its sizes, broken into lines that fit beside the axis."""
    name = what.partition(":")[0].partition(" (")[0]
    return fill(name + (f", {count} runs" if count > 1 else ""), _WIDE)


def _sheets(axes: Any, gained: GainWords, result: Result, view: View) -> None:
    after = result.draw(IMAGES).cpu().numpy()
    for ax, x, side in zip(axes, (gained.states[:IMAGES], after), gained.sides, strict=True):
        view.draw(ax, x, np.full(len(x), 1 / len(x)))
        ax.set_title(f"{side.name} (mean reward {told(side.mean)})", fontsize=10)
