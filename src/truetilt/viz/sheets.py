"""Contact sheets: many small images on one axis, those of the wrong class in a red frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, WRONG = "#222222", "#c8322b"
_GAP = 2  # pixels between images


def tiled(images: np.ndarray, columns: int) -> np.ndarray:
    """Square images [n, D] of grey levels 0..1 as one picture, a gap between them; places left over are blank."""
    side = math.isqrt(images.shape[-1])
    if images.ndim != 2 or side * side != images.shape[-1] or columns < 1:
        raise InvalidInput(f"images of shape {images.shape} in {columns} columns; give square images [n, D]")
    rows = -(-len(images) // columns)
    step = side + _GAP
    picture = np.zeros((max(rows, 1) * step - _GAP, columns * step - _GAP))
    for number, image in enumerate(images):
        top, left = number // columns * step, number % columns * step
        picture[top : top + side, left : left + side] = image.reshape(side, side)
    return picture


def sheet(ax: Axes, images: np.ndarray, columns: int, title: str = "", wrong: Sequence[bool] = ()) -> None:
    """Draw images [n, D] of grey levels 0..1 in rows, dark on light, and frame the wrong ones."""
    from matplotlib.patches import Rectangle

    picture = tiled(images, columns)
    ax.imshow(picture, cmap="gray_r", vmin=0.0, vmax=1.0, interpolation="nearest")
    side = math.isqrt(images.shape[-1])
    for number, bad in enumerate(wrong):
        if bad:
            corner = (number % columns * (side + _GAP) - 1.0, number // columns * (side + _GAP) - 1.0)
            ax.add_patch(Rectangle(corner, side + 1, side + 1, fill=False, ec=WRONG, lw=1.0))
    rows, across = picture.shape
    ax.set(xticks=[], yticks=[], xlim=(-_GAP, across + _GAP - 1), ylim=(rows + _GAP - 1, -_GAP))  # room for frames
    for edge in ax.spines.values():
        edge.set_color("#cccccc")
    if title:
        ax.set_title(title, fontsize=8, color=INK)
