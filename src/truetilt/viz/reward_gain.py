"""What the reward of a steered run was before and after, as its settings keep it: words, and bars as an SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

_BARS = 24  # of rewards that are not whole numbers


class RewardSide(NamedTuple):
    """One side: the mean reward with its 95 % interval in words, rewards drawn by weight (NaN: forbidden)."""

    name: str
    mean: float | None
    interval: str
    values: np.ndarray


class GainWords(NamedTuple):
    """Both sides, some draws of the model [n, D] with their rewards, and the rewards of particles that are shown."""

    before: RewardSide
    after: RewardSide
    states: np.ndarray
    rewards: list[float | None]
    lines: dict[tuple[int, int], float]

    @property
    def sides(self) -> tuple[RewardSide, RewardSide]:
        return self.before, self.after

    @property
    def span(self) -> tuple[float, float]:
        """The least and the largest reward of both sides."""
        every = np.concatenate([self.before.values, self.after.values])
        every = every[np.isfinite(every)]
        return (float(every.min()), float(every.max())) if len(every) else (0.0, 0.0)


def gain_words(settings: Mapping[str, Any]) -> GainWords | None:
    """The rewards that a result's settings keep; None for a run that keeps none."""
    story = settings.get("steer")
    kept = story.get("rewards") if isinstance(story, Mapping) else None
    if not isinstance(kept, Mapping) or not {"before", "after", "lines"} <= kept.keys():
        return None
    before, after = kept["before"], kept["after"]
    share = before["forbidden"]
    more = f"; {share:.2g} of the draws are forbidden" if share else ""
    return GainWords(
        _side("before: draws of the model", before, more), _side("after: the weighted answer", after, ""),
        np.array(before["states"], dtype=np.int64), list(before["rewards"]),
        {(int(p), int(n)): float(value) for p, n, value in kept["lines"] if value is not None},
    )  # fmt: skip


def without_states(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings to be read by people: the rewards of single draws are left out."""
    story = settings.get("steer")
    if not isinstance(story, Mapping) or "rewards" not in story:
        return dict(settings)
    long = ("values", "states", "rewards")
    rewards = {
        side: {name: value for name, value in story["rewards"][side].items() if name not in long}
        for side in ("before", "after")
    }
    return {**settings, "steer": {**story, "rewards": rewards}}


def _side(name: str, kept: Mapping[str, Any], more: str) -> RewardSide:
    low, high = kept["low"], kept["high"]
    words = "no interval" if low is None or high is None else f"95 % interval {told(low)} to {told(high)}"
    values = np.array([np.nan if one is None else one for one in kept["values"]], dtype=np.float64)
    return RewardSide(name, kept["mean"], words + more, values)


def told(value: float | None, digits: int = 4) -> str:
    """A number with a true minus sign; a dash for none."""
    return "–" if value is None else f"{value:.{digits}g}".replace("-", "−")


def binned(values: np.ndarray, weights: np.ndarray, span: tuple[float, float]) -> tuple[np.ndarray, np.ndarray, bool]:
    """Shares of weight, the edges of the bins over a range, and whether each whole number has a bin of its own."""
    low, high = span
    some = (weights > 0) & np.isfinite(values)
    whole = bool((values[some] == values[some].round()).all()) and low == round(low) and high - low < _BARS
    count = int(high - low) + 1 if whole else _BARS
    edge = (low - 0.5, high + 0.5) if whole else (low, high if high > low else low + 1)
    share, edges = np.histogram(values[some], bins=count, range=edge, weights=weights[some])
    return share / max(share.sum(), 1e-300), edges, whole


def reward_bars(values: np.ndarray, weights: np.ndarray, span: tuple[float, float]) -> str:
    """How much weight each reward has, as bars over a range that all panes share."""
    share, _, whole = binned(values, weights, span)
    wide, top = 240 / len(share), max(float(share.max()), 1e-9)
    bars = "".join(
        f'<rect x="{k * wide + 1:.1f}" y="{50 - 46 * part / top:.1f}" width="{max(wide - 2, 1):.1f}" '
        f'height="{46 * part / top:.1f}"/>'
        for k, part in enumerate(share.tolist())
        if part > 0
    )
    ends = told(span[0], 3), told(span[1], 3)
    inset = wide / 2 if whole else 0
    return (
        f'<svg class="rewards" viewBox="0 0 240 66" role="img" aria-label="rewards from {ends[0]} to {ends[1]}">'
        f'<path class="frame" d="M0 50H240"/>{bars}<text x="{inset:.0f}" y="63" '
        f'text-anchor="{"middle" if whole else "start"}">{ends[0]}</text><text x="{240 - inset:.0f}" y="63" '
        f'text-anchor="{"middle" if whole else "end"}">{ends[1]}</text><text x="120" y="63" text-anchor="middle">'
        "reward</text></svg>"
    )
