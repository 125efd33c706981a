"""Figures with matplotlib: of a run, on axes that are given or new, and the loss curve of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core.arguments import has, whole_number
from ..core.errors import InvalidInput
from ..core.logits import pick_at
from . import report_data
from .view_choice import suggested_view
from .views import View, check_view

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALIVE, EACH, DEAD, SOFT = "#17714a", "#9fb8ab", "#c9c8c0", "#626a65"
SHOWN = 32  # samples


@dataclass(frozen=True)
class Plots:
    """Figures of one run; each takes `ax` (None: axes of a new figure) and returns it."""

    run: report_data.ResultLike

    def ess(self, ax: Axes | None = None) -> Axes:
        """Effective sample size at every step, as a share of the particles: mean and populations."""
        ax, told = _axes(ax), report_data.courses(self.run)
        self._each(ax, told, told["ess_each"])
        ax.plot(told["steps"], _known(told["ess"]), color=ALIVE, lw=2, label="mean of the populations")
        ax.set(xlabel="step", ylabel="effective share of the particles", ylim=(0, 1.03))
        return ax

    def log_z(self, ax: Axes | None = None) -> Axes:
        """log Z after every step, all populations together, with its 95 % interval where there are several."""
        ax, told = _axes(ax), report_data.courses(self.run)
        self._each(ax, told, told["log_z_each"])
        if told["low"]:
            ax.fill_between(told["steps"], _known(told["low"]), _known(told["high"]), color=ALIVE, alpha=0.18, lw=0,
                            label="95 % interval")  # fmt: skip
        ax.plot(told["steps"], _known(told["log_z"]), color=ALIVE, lw=2, label="all together")
        ax.set(xlabel="step", ylabel="log Z")
        return ax

    def genealogy(self, ax: Axes | None = None, population: int = 0) -> Axes:
        """The genealogy of one population: surviving lines thick, lines that die faint."""
        count = self.run.log_weights.shape[0]
        if not 0 <= (population := whole_number("population", population, 0)) < count:
            raise InvalidInput(f"population {population} of {count}; they are numbered from 0")
        ax = _axes(ax)
        tree, _ = report_data.family_tree(self.run, population)
        for chain in sorted(tree.chains, key=lambda chain: chain.leads_to):
            steps = tree.steps[chain.start : chain.start + len(chain.places)]
            if chain.leads_to == 0:
                ax.plot(steps, chain.places, color=DEAD, lw=0.7, marker=".", ms=2, markevery=[-1])
            else:
                wide = 0.8 + 4 * np.sqrt(chain.leads_to / tree.particles) * (chain.leads_to > 1)
                ax.plot(steps, chain.places, color=ALIVE, lw=wide, solid_capstyle="round")
        shown = "" if len(tree.shown) == tree.particles else f" ({len(tree.shown)} lines of {tree.particles} drawn)"
        ax.set(xlabel="step", ylabel="particles, families together", ylim=(tree.particles - 0.5, -0.5))
        ax.set_title(f"{tree.families[-1]} of {tree.particles} first draws lead to the end{shown}", fontsize=9)
        return ax

    def weights(self, ax: Axes | None = None) -> Axes:
        """Weights of the union from the heaviest down, as multiples of an equal share."""
        ax, told = _axes(ax), report_data.weight_bars(self.run)
        ax.fill_between(np.array(told["ranks"]) + 1, told["weights"], step="mid", color=ALIVE, lw=0)
        ax.axhline(1.0, color=SOFT, lw=1, ls="--")
        ax.set(xlabel=f"rank among {told['count']:,} particles", ylabel="weight, 1 = an equal share", ylim=(0, None))
        ax.set_xlim(0.5, told["count"] + 0.5)
        return ax

    def samples(self, ax: Axes | None = None, view: View | None = None) -> Axes:
        """The particles of the end as `view` shows them: all weighted in one picture, or draws by mass side by side."""
        check_view(view)
        ax, x = _axes(ax), report_data.plain(self.run.particles).flatten(0, 1).flatten(1)
        view, weights = view or suggested_view(x), self.run.weights.reshape(-1).cpu().numpy()
        states = x.numpy()
        if not view.picture(states[:1], np.ones(1)):  # without a picture of all particles: some, drawn by mass
            middle = (np.arange(min(SHOWN, len(states))) + 0.5) / min(SHOWN, len(states))
            cdf = weights.cumsum() / weights.sum()
            chosen = pick_at(torch.from_numpy(cdf), torch.from_numpy(middle)).numpy()
            states, weights = states[chosen], np.full(len(chosen), 1 / len(chosen))
        view.draw(ax, states, weights)
        return ax

    def _each(self, ax: Axes, told: dict, curves: list) -> None:
        if self.run.log_weights.shape[0] > 1:
            for curve in curves:
                ax.plot(told["steps"], _known(curve), color=EACH, lw=0.8)


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        has("ax", ax, ("plot", "fill_between", "set_title"), "give matplotlib axes, or None for new ones")
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _known(values: list[float | None]) -> np.ndarray:
    """Values with NaN where there is no number."""
    return np.array([np.nan if v is None else v for v in values])


def draw_losses(lines: Sequence[dict[str, Any]], title: str) -> Figure:
    """Loss against steps from the lines of loss.jsonl, on a log scale where it can be; the learning rate beneath."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    steps, losses = [line["step"] for line in lines], [line["loss"] for line in lines]
    above.plot(steps, losses, color="#2e8b57", marker="o", ms=3, lw=1.2)
    above.set(ylabel="training loss", title=title, yscale="log" if min(losses, default=0) > 0 else "linear")
    below.plot(steps, [line["lr"] for line in lines], color="#555555", lw=1.2)
    below.set(xlabel="step", ylabel="learning rate")
    for ax in (above, below):
        ax.grid(color="#e5e5e5", lw=0.5, which="both")
    return figure
