"""Small tables as disks, and real vectors as points: weighted particles in one picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arguments import listed, set_fields, whole_number
from ..core.errors import InvalidInput
from ..runtime.snapshots import evenly
from .disks import disks
from .views import MASKED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST_TABLE = 16  # tokens that disks can still show
_CELL, _TALL = 64, 80  # units of a cell: the disk, and its number below
_MOST_POINTS = 600


@dataclass(frozen=True)
class Disks:
    """States of one or two sites of few tokens: a disk for each, its area the probability."""

    vocabulary: int

    shape = "line"

    def __post_init__(self) -> None:
        set_fields(self, vocabulary=whole_number("vocabulary", self.vocabulary, 0))
        if not 2 <= self.vocabulary <= LARGEST_TABLE:
            raise InvalidInput(f"disks for {self.vocabulary} tokens; they can show 2 to {LARGEST_TABLE}")

    def law(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The weighted law of the clean states, as a table with a row for the first site; masked mass is left out."""
        if x.shape[1] > 2:
            raise InvalidInput(f"disks show one or two sites and the states have {x.shape[1]}; give another view")
        clean = ((x >= 0) & (x < self.vocabulary)).all(1)
        law = np.zeros((self.vocabulary,) * x.shape[1])
        np.add.at(law, tuple(x[clean].astype(int).T), weights[clean])
        return np.atleast_2d(law)

    def tile(self, x: np.ndarray, before: np.ndarray | None) -> str:
        letters = [chr(65 + v) if 0 <= v < self.vocabulary else MASKED for v in x.tolist()]
        fresh = [before is not None and bool(before[site] != v) for site, v in enumerate(x.tolist())]
        out = "".join(f'<b class="{"fresh" * new}">{a}</b>' for a, new in zip(letters, fresh, strict=True))
        return f'<p class="letters">{out}</p>'

    def picture(self, x: np.ndarray, weights: np.ndarray) -> str:
        law = self.law(x, weights)
        rows, across = law.shape
        parts = [_words((k + 0.5) * _CELL, -6, chr(65 + k)) for k in range(across)]
        parts += [_words(-14, (k + 0.5) * _TALL, chr(65 + k)) for k in range(rows if rows > 1 else 0)]
        for (row, column), p in np.ndenumerate(law):
            left, top, middle = column * _CELL, row * _TALL, (column + 0.5) * _CELL
            radius = 0.46 * _CELL * math.sqrt(p / max(float(law.max()), 1e-300))
            parts.append(f'<rect class="cell" x="{left}" y="{top}" width="{_CELL}" height="{_TALL}"/>')
            parts.append(f'<circle class="disk" cx="{middle}" cy="{top + _CELL / 2}" r="{radius:.2f}"/>')
            parts.append(_words(middle, top + _CELL + 11, f"{100 * p:.1f}%", "value"))
        gone = 1 - float(law.sum())
        note = f"{100 * gone:.1f}% of the mass still masked" if gone > 5e-4 else "all revealed"
        parts.append(f'<text x="0" y="{rows * _TALL + 20}">{note}</text>')
        box = f"-28 -24 {max(across * _CELL, 190) + 36} {rows * _TALL + 54}"
        return f'<svg class="disks" viewBox="{box}" role="img" aria-label="Law of the states">{"".join(parts)}</svg>'

    def draw(self, ax: Axes, x: np.ndarray, weights: np.ndarray) -> None:
        law = self.law(x, weights)
        disks(ax, law, "truetilt", max(float(law.max()), 1e-300))

    def described(self) -> dict[str, Any]:
        return {"kind": "disks", "vocabulary": self.vocabulary}


@dataclass(frozen=True)
class Points:
    """Real vectors by two of their coordinates; the area of a point is its weight."""

    axes: tuple[int, int] = (0, 1)

    shape = "line"

    def __post_init__(self) -> None:
        named = listed("axes", self.axes, "give two coordinates, such as (0, 1)")
        if len(named) != 2:
            raise InvalidInput(f"axes is {self.axes}; give two coordinates, such as (0, 1)")
        set_fields(self, axes=tuple(whole_number("one of the axes", axis, 0) for axis in named))

    def tile(self, x: np.ndarray, before: np.ndarray | None) -> str:
        shown = ", ".join(f"{v:.3g}" for v in x[:6].tolist())
        return f"<p><code>({escape(shown)}{', …' * (len(x) > 6)})</code></p>"

    def picture(self, x: np.ndarray, weights: np.ndarray) -> str:
        across, up, sizes = self._seen(x, weights)
        reach = max(float(np.abs(np.concatenate([across, up])).max(initial=0.0)), 1e-9) * 1.06
        ends = _nice(reach)
        parts = [f'<rect class="cell" width="320" height="320"/><path class="rule" d="{_cross(ends, reach)}"/>']
        for value in (-ends, ends):
            spot = _spot(value, reach)
            parts.append(f'<text x="{spot:.1f}" y="336" text-anchor="middle">{value:g}</text>')
            parts.append(f'<text x="-6" y="{320 - spot + 4:.1f}" text-anchor="end">{value:g}</text>')
        for a, b, size in zip(across.tolist(), up.tolist(), sizes.tolist(), strict=True):
            place = f'cx="{_spot(a, reach):.1f}" cy="{320 - _spot(b, reach):.1f}"'
            parts.append(f'<circle class="dot" {place} r="{size:.2f}"/>')
        i, j = self.axes
        parts.append(f'<text x="160" y="336" text-anchor="middle">x{_below(i)}</text>')
        parts.append(f'<text x="-6" y="164" text-anchor="end">x{_below(j)}</text>')
        name = f"{len(across)} of {len(x)} particles" if len(across) < len(x) else f"{len(x)} particles"
        return f'<svg class="cloud" viewBox="-48 -8 376 352" role="img" aria-label="{name}">{"".join(parts)}</svg>'

    def draw(self, ax: Axes, x: np.ndarray, weights: np.ndarray) -> None:
        across, up, sizes = self._seen(x, weights)
        ax.scatter(across, up, s=sizes**2 * 3, alpha=0.6, color="#2e8b57", edgecolor="white", linewidth=0.4)
        ax.set(xlabel=f"x[{self.axes[0]}]", ylabel=f"x[{self.axes[1]}]")
        ax.set_aspect("equal", adjustable="datalim")

    def described(self) -> dict[str, Any]:
        return {"kind": "points", "axes": list(self.axes)}

    def _seen(self, x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coordinates and radii of a limited number of points, evenly taken."""
        if not 0 <= min(self.axes) <= max(self.axes) < x.shape[1]:
            raise InvalidInput(
                f"points by coordinates {self.axes} of states that have {x.shape[1]}; give axes they have"
            )
        chosen = list(evenly(len(x), _MOST_POINTS))
        seen = x[chosen].astype(float)
        return seen[:, self.axes[0]], seen[:, self.axes[1]], 4.0 * np.sqrt(np.minimum(weights[chosen] * len(x), 12.0))


def _words(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="middle">{text}</text>'


def _spot(value: float, reach: float) -> float:
    return 160 * (1 + value / reach)


def _cross(ends: float, reach: float) -> str:
    low, high = _spot(-ends, reach), _spot(ends, reach)
    return f"M160 0V320M0 160H320M{low:.1f} 316V320M{high:.1f} 316V320M0 {320 - low:.1f}H4M0 {320 - high:.1f}H4"


def _nice(reach: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that does not exceed a value."""
    ten = 10.0 ** math.floor(math.log10(reach))
    return max(step * ten for step in (1, 2, 5) if step * ten <= reach)


def _below(number: int) -> str:
    return str(number + 1).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
