"""The texts of a finished lane as HTML: duplicates merged and counted, the heaviest first, each with its score.

Below them stands the judge's mean over all particles of the lane, by weight.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np

from ..viz.views import View
from .jobs import Lane, LaneFrame

SHOWN = 8  # different texts per lane


class MergedText(NamedTuple):
    """A text that one or more particles are: their number, their share of the weight, the judge's probability."""

    x: np.ndarray
    count: int
    weight: float
    score: float | None


def merged(frame: LaneFrame, scores: np.ndarray | None) -> list[MergedText]:
    """The different texts of a frame, the heaviest first; equal weights in the order of the particles."""
    _, first, which, count = np.unique(frame.x, axis=0, return_index=True, return_inverse=True, return_counts=True)
    weights = np.bincount(which.reshape(-1), frame.weights, len(count))
    order = np.lexsort((first, -weights))
    told = [None] * len(frame.x) if scores is None else scores.tolist()
    return [MergedText(frame.x[first[k]], int(count[k]), float(weights[k]), told[first[k]]) for k in order.tolist()]


def final_texts(view: View, frame: LaneFrame, lane: Lane, weighted: bool) -> str:
    """The heaviest texts of a finished lane as a list, with what was left out."""
    found = merged(frame, lane.scores)
    most = max(found[0].weight, 1e-300)
    rows = "".join(
        f'<li>{view.tile(text.x, None)}<span class="sub">{_words(text, weighted)}</span>'
        f'<i class="bar"><i style="width:{100 * text.weight / most:.0f}%"></i></i></li>'
        for text in found[:SHOWN]
    )
    which = f"The {SHOWN} heaviest" if weighted else f"{SHOWN}"
    some = f"{which} of {len(found):,} different texts" if len(found) > SHOWN else "All different texts"
    return f'<ul class="tiles text">{rows}</ul><p class="sub">{some}; {len(frame.x):,} particles.</p>'


def _words(text: MergedText, weighted: bool) -> str:
    parts = [] if text.score is None else [f'judge <b class="score">{text.score:.2f}</b>']
    parts += [f"×{text.count}"] if text.count > 1 else []
    parts += [f"{100 * text.weight:.2g} % of the weight"] if weighted else []
    return " · ".join(parts)


def mean_score(lane: Lane, condition: object) -> str:
    """The judge's mean probability of the condition over the lane, by weight; empty if nobody judged."""
    if lane.scores is None or lane.frame is None:
        return ""
    mean, asked = float(lane.frame.weights @ lane.scores), escape(str(condition))
    return f'<p class="miss judged">the judge: p({asked} | text) is <b>{mean:.2f}</b> on average</p>'
