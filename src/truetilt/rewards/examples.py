"""Rewards to begin with, a few lines each: of tables, of digits, of texts. Copy one, and change it to what you want.

Those of tables and digits take tokens [B, D] and return one number a state; those of texts take one text.
"""

from __future__ import annotations

import re

from torch import Tensor

DARK = 128  # the grey level from which a pixel is part of the digit


def ones(x: Tensor) -> Tensor:
    """How many sites hold token 1."""
    return (x == 1).sum(-1)


def apart(x: Tensor) -> Tensor:
    """How far the tokens of the first and the last site are apart."""
    return (x[:, 0] - x[:, -1]).abs()


def palindrome(x: Tensor) -> Tensor:
    """1 if it reads the same backwards, else 0."""
    return (x == x.flip(-1)).all(-1)


def ink(x: Tensor) -> Tensor:
    """The mean grey level of the pixels."""
    return x.double().mean(-1)


def symmetry(x: Tensor) -> Tensor:
    """Minus the mean difference between the image and its mirror image, in grey levels: 0 is symmetric."""
    image = _square(x).double()
    return -(image - image.flip(-1)).abs().mean((-2, -1))


def height(x: Tensor) -> Tensor:
    """How many rows of pixels the digit takes."""
    return (_square(x) >= DARK).any(-1).sum(-1)


def _square(x: Tensor) -> Tensor:
    side = round(x.shape[-1] ** 0.5)
    return x.reshape(len(x), side, side)


def exclamations(text: str) -> float:
    """How many exclamation marks it has."""
    return float(text.count("!"))


def long_words(text: str) -> float:
    """The mean number of letters of its words."""
    words = _words(text)
    return sum(map(len, words)) / max(len(words), 1)


def says_great(text: str) -> float:
    """1 if it says "great", else 0."""
    return float("great" in _words(text))


def no_repeats(text: str) -> float:
    """Minus how many of its words were there before: 0 if none was."""
    words = _words(text)
    return float(len(set(words)) - len(words))


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.lower())
