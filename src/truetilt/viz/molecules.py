"""Molecules drawn by RDKit as SVG, without a network: one as a tile, the heaviest as a sheet with duplicates counted.

A row that is not finished, or is no molecule, is shown as its pieces; so is every row where RDKit is not installed.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.chemistry import canonical, has_rdkit, parsed, smiles_of
from .views import END, TextView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE, _HIGH = 220, 160  # of a tile
SHEET = 24  # molecules of a sheet


class DistinctMolecule(NamedTuple):
    """A molecule among weighted rows: its share of the weight, and how many rows are it."""

    smiles: str
    weight: float
    count: int
    valid: bool


def distinct_molecules(smiles: Sequence[str], weights: Sequence[float]) -> list[DistinctMolecule]:
    """The distinct molecules, the heaviest first; strings that are none among them."""
    share: dict[str, float] = {}
    count: dict[str, int] = {}
    for one, weight in zip(smiles, weights, strict=True):
        share[one], count[one] = share.get(one, 0.0) + weight, count.get(one, 0) + 1
    found = [DistinctMolecule(one, share[one], count[one], parsed(one) is not None) for one in share]
    return sorted(found, key=lambda each: (-each.weight, -each.count, each.smiles))


@lru_cache(maxsize=4096)
def structure_svg(smiles: str, wide: int = _WIDE, high: int = _HIGH) -> str:
    """The structure of a SMILES as SVG on a clear ground."""
    from rdkit.Chem.Draw import rdMolDraw2D

    pen = rdMolDraw2D.MolDraw2DSVG(wide, high)
    _prepare(pen)
    rdMolDraw2D.PrepareAndDrawMolecule(pen, parsed(smiles))
    pen.FinishDrawing()
    text = re.sub(r"<\?xml[^>]*>|<!--.*?-->|class='[^']*'", "", pen.GetDrawingText(), flags=re.DOTALL)
    return " ".join(re.sub(r"(\d+\.\d)\d+", r"\1", text).split())


def sheet_svg(molecules: Sequence[tuple[str, str]], columns: int = 4, wide: int = 250, high: int = 200) -> str:
    """Molecules (SMILES and what stands under each) side by side as one SVG."""
    from rdkit.Chem.Draw import rdMolDraw2D

    columns = max(1, min(columns, len(molecules)))
    lines = -(-len(molecules) // columns)
    pen = rdMolDraw2D.MolDraw2DSVG(columns * wide, lines * high, wide, high)
    _prepare(pen)
    pen.drawOptions().legendFontSize = 15
    pen.DrawMolecules([parsed(smiles) for smiles, _ in molecules], legends=[words for _, words in molecules])
    pen.FinishDrawing()
    return pen.GetDrawingText()


def _prepare(pen: Any) -> None:
    how = pen.drawOptions()
    how.clearBackground, how.bondLineWidth, how.padding = False, 1.3, 0.06
    how.fixedBondLength = 28.0
    how.minFontSize = 9


def _as_image(svg: str, words: str) -> str:
    data = base64.b64encode(svg.encode()).decode("ascii")
    return (
        f'<img class="structure" alt="{escape(words)}" title="{escape(words)}" src="data:image/svg+xml;base64,{data}">'
    )


def _figure(one: DistinctMolecule, reward: float | None) -> str:
    """A molecule with its reward, its share of the weight, and how often it is there."""
    times = f", {one.count} times" if one.count > 1 else ""
    worth = "" if reward is None else f"r = {reward:.4g} · "
    words = f"{worth}{100 * one.weight:.3g} % of the weight{times}"
    return f'<li>{_as_image(structure_svg(one.smiles), one.smiles)}<span class="worth">{words}</span></li>'


@dataclass(frozen=True)
class MoleculeView:
    """Rows of pieces as molecules; `pieces` are what tokens spell, `given` tokens that are kept around open sites."""

    pieces: tuple[str, ...]
    end: int
    mask: int
    notation: str = "smiles"
    given: tuple[int | None, ...] | None = None
    rewards: tuple[tuple[str, float], ...] = ()  # of SMILES, shown under their structures

    shape = "structure"

    def tile(self, x: np.ndarray, before: np.ndarray | None) -> str:
        smiles = self.smiles(x)
        if smiles is not None and parsed(smiles) is not None:
            return _as_image(structure_svg(smiles), smiles)
        return self._words(x, before)

    def picture(self, x: np.ndarray, weights: np.ndarray) -> str:
        """The distinct molecules by weight, with how many rows are each; nothing where none is finished."""
        found = [one for one in self.distinct(x, weights) if one.valid and one.weight > 0]
        if not found:
            return ""
        worth = dict(self.rewards)
        figures = "".join(_figure(one, worth.get(one.smiles)) for one in found[:SHEET])
        more = f", the heaviest {SHEET} here" if len(found) > SHEET else ""
        words = f"{len(found):,} distinct molecules among {len(x):,} particles{more}."
        return f'<p class="fine">{words}</p><ol class="tiles structure">{figures}</ol>'

    def draw(self, ax: Axes, x: np.ndarray, weights: np.ndarray) -> None:
        """The heaviest distinct molecules, drawn as one image; as text without RDKit."""
        found = [one for one in self.distinct(x, weights) if one.valid and one.weight > 0][:16]
        if not found:
            self._text_view().draw(ax, self._whole(x), weights)
            return
        columns = math.ceil(math.sqrt(len(found)))
        ax.imshow(_sheet_pixels([(one.smiles, self._caption(one)) for one in found], columns))
        ax.axis("off")

    def described(self) -> dict[str, Any]:
        given = None if self.given is None else list(self.given)
        told = {"end": self.end, "mask": self.mask, "notation": self.notation, "given": given}
        worth = {"rewards": [list(one) for one in self.rewards]} if self.rewards else {}
        return {"kind": "molecules", "pieces": list(self.pieces), **told, **worth}

    def _caption(self, one: DistinctMolecule) -> str:
        """The reward of a molecule (its share of the weight without one), and how often it is there."""
        reward = dict(self.rewards).get(one.smiles)
        first = f"{100 * one.weight:.2g} %" if reward is None else f"r = {reward:.4g}"
        return first + (f"  {one.count} times" if one.count > 1 else "")

    def rated(self, x: np.ndarray, weights: np.ndarray, score: Callable[[Any], float]) -> MoleculeView:
        """The view with the rewards of the heaviest molecules among these rows, by a function of RDKit molecules."""
        found = [one for one in self.distinct(x, weights) if one.valid and one.weight > 0][:SHEET]
        return replace(self, rewards=tuple((one.smiles, float(score(parsed(one.smiles)))) for one in found))

    def distinct(self, x: np.ndarray, weights: np.ndarray) -> list[DistinctMolecule]:
        """The distinct molecules among finished rows [n, D]; none without RDKit."""
        spelled = [(self.smiles(row), weight) for row, weight in zip(x, weights.tolist(), strict=True)]
        some = [(smiles, weight) for smiles, weight in spelled if smiles is not None]
        return distinct_molecules([smiles for smiles, _ in some], [weight for _, weight in some])

    def smiles(self, x: np.ndarray) -> str | None:
        """The SMILES of a finished row [D]; None of a masked one, or where RDKit is missing."""
        row = self._whole(x[None])[0].tolist()
        if not has_rdkit() or any(not 0 <= token < len(self.pieces) for token in row):
            return None
        kept = row[: row.index(self.end)] if self.end in row else row
        text = smiles_of("".join(self.pieces[token] for token in kept), self.notation)
        return canonical(text) or text

    def _whole(self, x: np.ndarray) -> np.ndarray:
        """Rows with what is kept around the open sites."""
        if self.given is None or x.shape[-1] == len(self.given):
            return x
        out = np.tile(np.array([-1 if token is None else token for token in self.given]), (len(x), 1))
        out[:, [token is None for token in self.given]] = x
        return out

    def _words(self, x: np.ndarray, before: np.ndarray | None) -> str:
        then = None if before is None else self._whole(before[None])[0]
        return self._text_view().tile(self._whole(x[None])[0], then)

    def _text_view(self) -> TextView:
        pieces = [END if token == self.end else piece for token, piece in enumerate(self.pieces)]
        return TextView(pieces.__getitem__, len(pieces), self.mask)


def _sheet_pixels(molecules: Sequence[tuple[str, str]], columns: int) -> Any:
    """A sheet of molecules (SMILES and what stands under each) as an array of pixels."""
    from matplotlib.image import imread
    from rdkit.Chem.Draw import rdMolDraw2D

    lines = -(-len(molecules) // columns)
    pen = rdMolDraw2D.MolDraw2DCairo(2 * _WIDE * columns, 2 * _HIGH * lines, 2 * _WIDE, 2 * _HIGH)
    pen.drawOptions().bondLineWidth = 2.0
    pen.drawOptions().legendFontSize = 30
    pen.DrawMolecules([parsed(smiles) for smiles, _ in molecules], legends=[words for _, words in molecules])
    pen.FinishDrawing()
    return imread(io.BytesIO(pen.GetDrawingText()), format="png")
