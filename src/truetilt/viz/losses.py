"""The loss curve of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
