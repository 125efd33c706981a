"""How states look: one particle as a tile of HTML, all of them as one weighted picture, and both on matplotlib axes.

A view draws states [n, D], masked sites included, escapes its HTML, and describes itself as JSON (`view.json` beside a
saved run), so that the run can be shown again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..core.arguments import called, function, has, set_fields, whole_number
from ..core.errors import InvalidInput
from .png import as_uri
from .sheets import sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MASKED = "▢"
END = "¶"  # the piece of a token that ends a text; many in a row are counted


class View(Protocol):
    """States [n, D] as pictures; weights [n] sum to one."""

    @property
    def shape(self) -> str: ...  # of a tile: picture, text or line
    def tile(self, x: np.ndarray, before: np.ndarray | None) -> str:
        """One particle [D] as HTML; `before` is its ancestor at the snapshot before."""
        ...

    def picture(self, x: np.ndarray, weights: np.ndarray) -> str:
        """All particles together as HTML, or nothing."""
        ...

    def draw(self, ax: Axes, x: np.ndarray, weights: np.ndarray) -> None:
        """The particles on matplotlib axes."""
        ...

    def described(self) -> dict[str, Any]:
        """The view as JSON; `viz.view_choice.view_of` reads it."""
        ...


@dataclass(frozen=True)
class Images:
    """Square images of grey levels, of which 0 is paper; tokens beyond the levels are masked.

    Args:
        side: Pixels a side, 1 or more.
        levels: Number of grey levels, 2 or more.
    """

    side: int
    levels: int

    shape = "picture"

    def __post_init__(self) -> None:
        set_fields(self, side=whole_number("side", self.side, 0), levels=whole_number("levels", self.levels, 0))
        if self.side < 1 or self.levels < 2:
            raise InvalidInput(f"images of side {self.side} with {self.levels} levels; need at least 1 and 2")

    def tile(self, x: np.ndarray, before: np.ndarray | None) -> str:
        return f'<img alt="" width="{self.side}" height="{self.side}" src="{as_uri(1 - self._ink(x)[0])}">'

    def picture(self, x: np.ndarray, weights: np.ndarray) -> str:
        return ""

    def draw(self, ax: Axes, x: np.ndarray, weights: np.ndarray) -> None:
        ink = np.where(np.isnan(self._ink(x)), 0.25, self._ink(x))
        sheet(ax, ink.reshape(len(ink), -1), max(1, min(len(x), math.ceil(math.sqrt(2 * len(x))))))

    def described(self) -> dict[str, Any]:
        return {"kind": "images", "side": self.side, "levels": self.levels}

    def _ink(self, x: np.ndarray) -> np.ndarray:
        """Ink 0 .. 1 of states [..., D] as [n, side, side]; NaN where masked."""
        if x.shape[-1] != self.side**2:
            raise InvalidInput(f"states of {x.shape[-1]} sites are no images of side {self.side}; give another view")
        ink = np.where((x >= 0) & (x < self.levels), x / (self.levels - 1), np.nan)
        return ink.reshape(-1, self.side, self.side)


@dataclass(frozen=True)
class TextView:
    """Tokens as text: decode(token) is its piece; what was revealed since the snapshot before is marked.

    A piece may hold bytes that are only part of a character, as lone surrogates (`surrogateescape`); pieces are joined
    before they are read.

    Args:
        decode: Function of a token that returns the piece of text it stands for.
        vocabulary: Number of tokens, without the mask.
        mask: The mask's token. None (the default): there is none.
    """

    decode: Callable[[int], str]
    vocabulary: int
    mask: int | None = None

    shape = "text"

    def __post_init__(self) -> None:
        if not isinstance(self.decode, type):  # a type such as str is accepted unchecked
            function("decode", self.decode, "(token)")
        set_fields(self, vocabulary=whole_number("vocabulary", self.vocabulary, 1))
        if self.mask is not None:
            set_fields(self, mask=whole_number("mask", self.mask, 0))

    def tile(self, x: np.ndarray, before: np.ndarray | None) -> str:
        out: list[str] = []
        fresh = np.zeros(len(x), dtype=bool) if before is None else x != before
        tokens, position = x.tolist(), 0
        while position < len(tokens):
            kind = self._kind(tokens[position], bool(fresh[position]))
            last = position
            while last < len(tokens) and self._kind(tokens[last], bool(fresh[last])) == kind:
                last += 1
            out.append(self._span(kind, tokens[position:last]))
            position = last
        return f"<p>{''.join(out)}</p>"

    def picture(self, x: np.ndarray, weights: np.ndarray) -> str:
        return ""

    def draw(self, ax: Axes, x: np.ndarray, weights: np.ndarray) -> None:
        import textwrap

        _written(ax, [textwrap.shorten(self._text(row), 96) for row in x])

    def described(self) -> dict[str, Any]:
        pieces = [self.decode(token) for token in range(self.vocabulary)]
        return {"kind": "text", "mask": self.mask, "pieces": pieces}

    def _kind(self, token: int, fresh: bool) -> str:
        if token == self.mask:
            return "mask"
        return "end" if self._piece(token) == END else "new" if fresh else ""

    def _span(self, kind: str, tokens: list[int]) -> str:
        if kind == "mask":
            many = len(tokens)
            return f'<span class="masked" title="{many} masked">{MASKED * min(many, 4)}{f"…{many}" * (many > 4)}</span>'
        if kind == "end":
            many = len(tokens)
            return f'<span class="masked" title="{many} ends">{END}{f"×{many} " * (many > 1)}</span>'
        text = escape(_read("".join(self._piece(token) for token in tokens)))
        return f"<ins>{text}</ins>" if kind == "new" else text

    def _piece(self, token: int) -> str:
        return str(called("decode", self.decode, token)) if 0 <= token < self.vocabulary else f"⟨{token}⟩"

    def _text(self, row: np.ndarray) -> str:
        return _read("".join(MASKED if token == self.mask else self._piece(token) for token in row.tolist()))


def _read(pieces: str) -> str:
    """Joined pieces as text: bytes of split characters are decoded together; ▯ for bytes that are no character."""
    return pieces.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\ufffd", "▯")


def view_of_tokens(tokenizer: Any, vocabulary: int, mask: int | None) -> TextView:
    """Words by a tokenizer; without one the numbers of the tokens."""
    if tokenizer is None:
        return TextView(lambda token: f"{token} ", vocabulary, mask)
    pieces = [END if v == tokenizer.end else tokenizer.piece(v) for v in range(vocabulary)]
    return TextView(pieces.__getitem__, vocabulary, mask)


@dataclass(frozen=True)
class Numbers:
    """States as plain numbers: the view used when no other is given."""

    shape = "line"

    def tile(self, x: np.ndarray, before: np.ndarray | None) -> str:
        shown, more = x[:_FIRST], len(x) - _FIRST
        fresh = np.zeros(len(x), dtype=bool) if before is None else x != before
        words = [f"<ins>{v:.4g}</ins>" if new else f"{v:.4g}" for v, new in zip(shown.tolist(), fresh, strict=False)]
        return f"<p><code>{' '.join(words)}{f' … {more} more' * (more > 0)}</code></p>"

    def picture(self, x: np.ndarray, weights: np.ndarray) -> str:
        return ""

    def draw(self, ax: Axes, x: np.ndarray, weights: np.ndarray) -> None:
        _written(ax, [" ".join(f"{v:.4g}" for v in row[:24]) for row in x])

    def described(self) -> dict[str, Any]:
        return {"kind": "numbers"}


_FIRST = 64  # numbers of a state that are written out


def _written(ax: Axes, lines: list[str]) -> None:
    """Lines of text on matplotlib axes without frame or ticks."""
    for number, line in enumerate(lines):
        safe = line.replace("$", r"\$")  # matplotlib would start a formula at $
        ax.text(0.0, -number, safe, family="monospace", fontsize=7.5, va="top")
    ax.set(xlim=(0, 1), ylim=(-len(lines), 0.5))
    ax.axis("off")


def check_view(view: object) -> None:
    """Raise for anything that is not a view or None."""
    if view is not None:
        has(
            "view",
            view,
            ("tile", "picture", "draw", "described"),
            "give tt.Images, tt.TextView, tt.Numbers or the like",
        )
