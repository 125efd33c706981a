"""Sequences: the information-content logo of weighted particles, and each of them letter by letter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arguments import listed, set_fields, shown
from ..core.errors import InvalidInput
from .views import MASKED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"A": "#2e8b57", "C": "#2f6db5", "G": "#d98a12", "T": "#c8322b", "U": "#c8322b"}
RESIDUES = {  # amino acids by their chemistry: greasy, aromatic, positive, negative, polar, and those that bend
    **dict.fromkeys("AILMV", "#33691e"),
    **dict.fromkeys("FWY", "#7a4fa3"),
    **dict.fromkeys("KRH", "#2f6db5"),
    **dict.fromkeys("DE", "#c8322b"),
    **dict.fromkeys("NQST", "#3d8f8f"),
    **dict.fromkeys("CGP", "#d98a12"),
}
OTHER = ("#2e8b57", "#2f6db5", "#d98a12", "#c8322b", "#7a4fa3", "#3d8f8f")
_NAMES = "give the name of each site, as a list of texts"
_WIDE, _HIGH = 40, 34  # units of a column, and of a bit
_LONGEST, _ROW = 40, 25  # sites of a logo in one row, and of a row where there are several


@dataclass(frozen=True)
class SequenceLogo:
    """Sequences over an alphabet, such as "ACGT", shown as a logo; tokens beyond it are masked.

    Args:
        alphabet: The letters of tokens 0, 1, ...: two or more, each once.
        names: Name of each site. Empty (the default): sites are numbered.
    """

    alphabet: str
    names: tuple[str, ...] = ()

    shape = "line"

    def __post_init__(self) -> None:
        if not isinstance(self.alphabet, str) or len(self.alphabet) < 2 or len(set(self.alphabet)) < len(self.alphabet):
            raise InvalidInput(f"the alphabet is {shown(self.alphabet)}; give two or more letters, each once")
        names = listed("names", self.names, _NAMES)
        if not all(isinstance(name, str) for name in names):
            raise InvalidInput(f"names is {shown(self.names)}; {_NAMES}")
        set_fields(self, names=tuple(names))

    def heights(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Height in bits of every letter at every site [D, letters]: its share times what the site tells.

        A site tells $log2(letters)$ less the entropy of the revealed letters, times the mass that is revealed.
        """
        size = len(self.alphabet)
        mass = np.stack([((x == letter) * weights[:, None]).sum(0) for letter in range(size)], 1)
        seen = mass.sum(1, keepdims=True)
        share = np.divide(mass, seen, out=np.zeros_like(mass), where=seen > 0)
        logs = np.log2(share, out=np.zeros_like(share), where=share > 0)
        told = np.log2(size) + (share * logs).sum(1, keepdims=True)
        return share * told * seen

    def tile(self, x: np.ndarray, before: np.ndarray | None) -> str:
        out = []
        for site, token in enumerate(x.tolist()):
            letter = self._letter(token)
            kind = "masked" if letter == MASKED else f"l{token % len(OTHER)}"
            fresh = before is not None and bool(before[site] != token)
            out.append(f'<b class="{kind}{" fresh" * fresh}">{escape(letter)}</b>')
        return f'<p class="letters">{"".join(out)}</p>'

    def picture(self, x: np.ndarray, weights: np.ndarray) -> str:
        heights, tall = self.heights(x, weights), float(np.log2(len(self.alphabet))) * _HIGH
        names = self.names if len(self.names) == len(heights) else ()
        row = len(heights) if len(heights) <= _LONGEST else _ROW
        deep = tall + 30 + 8 * max([len(name) for name in names], default=0)
        starts = range(0, len(heights), max(row, 1))
        rows = [
            f'<g transform="translate(0 {k * deep:.0f})">{self._row(heights, start, row, names)}</g>'
            for k, start in enumerate(starts)
        ]
        kind, box = "logo rows" if len(rows) > 1 else "logo", f"-44 -10 {row * _WIDE + 54} {len(rows) * deep + 10:.0f}"
        return f'<svg class="{kind}" viewBox="{box}" role="img" aria-label="Sequence logo">{"".join(rows)}</svg>'

    def _row(self, heights: np.ndarray, start: int, most: int, names: tuple[str, ...]) -> str:
        """The logo of one row: at most `most` sites, from `start` on."""
        top = float(np.log2(len(self.alphabet)))
        tall, shown = top * _HIGH, heights[start : start + most]
        parts = [_axis(top, tall, start, len(shown), names)]
        for place, column in enumerate(shown):
            floor, site = 0.0, start + place
            for token in np.argsort(column, kind="stable").tolist():
                if column[token] < top / 400:
                    continue
                high = float(column[token]) * _HIGH
                where = f"translate({place * _WIDE + 2} {tall - floor:.2f}) scale({_WIDE - 4} {-high:.2f})"
                which = names[site] if names else f"site {site + 1}"
                share = f"{self.alphabet[token]} at {which}: {column[token]:.3f} bits"
                tint = f' style="fill:{RESIDUES[self.alphabet[token]]}"' if self._is_protein else ""
                kind = f'class="l{token % len(OTHER)}"{tint}'
                path = f'<path {kind} transform="{where}" d="{_glyph(self.alphabet[token])}">'
                parts.append(f"{path}<title>{escape(share)}</title></path>")
                floor += high
        return "".join(parts)

    def draw(self, ax: Axes, x: np.ndarray, weights: np.ndarray) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.transforms import Affine2D

        heights = self.heights(x, weights)
        for site, column in enumerate(heights):
            floor = 0.0
            for token in np.argsort(column, kind="stable").tolist():
                if column[token] <= 0:
                    continue
                letter = self.alphabet[token]
                move = Affine2D().scale(0.9, float(column[token])).translate(site + 0.55, floor)
                colour = (RESIDUES if self._is_protein else COLOURS).get(letter, OTHER[token % len(OTHER)])
                ax.add_patch(PathPatch(_outline(letter).transformed(move), fc=colour, lw=0))
                floor += float(column[token])
        ax.set(xlim=(0.4, len(heights) + 0.6), ylim=(0, float(np.log2(len(self.alphabet)))))
        ax.set(xlabel="site", ylabel="information (bits)", xticks=range(1, len(heights) + 1))

    def described(self) -> dict[str, Any]:
        names = {"names": list(self.names)} if self.names else {}
        return {"kind": "logo", "alphabet": self.alphabet} | names

    @property
    def _is_protein(self) -> bool:
        return set(self.alphabet) == set(RESIDUES)

    def _letter(self, token: int) -> str:
        return self.alphabet[token] if 0 <= token < len(self.alphabet) else MASKED


def _axis(top: float, tall: float, start: int, sites: int, names: tuple[str, ...]) -> str:
    """Bits on the left, sites below, by number or upright by name."""
    wide = sites * _WIDE
    lines = []
    for bits in np.arange(0, top + 1e-9, 1.0 if top <= 3 else 2.0):
        y = tall - bits * _HIGH
        lines.append(f'<line class="rule" x1="0" x2="{wide}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{bits:g}</text>')
    every = 1 if sites <= 24 or names else 5
    for site in range(0, sites, every):
        x = (site + 0.5) * _WIDE
        turned = f'transform="translate({x + 5} {tall + 10:.0f}) rotate(-90)" text-anchor="end"'
        placed = turned if names else f'x="{x}" y="{tall + 20:.0f}" text-anchor="middle"'
        lines.append(f"<text {placed}>{escape(names[start + site]) if names else start + site + 1}</text>")
    lines.append(f'<text transform="translate(-32 {tall / 2:.0f}) rotate(-90)" text-anchor="middle">bits</text>')
    return "".join(lines)


@lru_cache
def _outline(letter: str) -> Any:
    """The letter as a path that fills the unit square; monospaced, whose I has serifs and is no bare bar there."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.path import Path
    from matplotlib.textpath import TextPath

    path = TextPath(
        (0, 0), letter.replace("$", r"\$"), size=1, prop=FontProperties(family="DejaVu Sans Mono", weight="bold")
    )
    box = path.get_extents()
    span = np.array([box.width or 1.0, box.height or 1.0])
    return Path((path.vertices - [box.x0, box.y0]) / span, path.codes)


@lru_cache
def _glyph(letter: str) -> str:
    """The outline of a letter as the `d` of an SVG path."""
    words = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}
    out = []
    for points, code in _outline(letter).iter_segments(curves=True, simplify=False):
        out.append(words[int(code)] + ("" if code == 79 else " ".join(f"{v:.3f}" for v in points)))
    return "".join(out)
