"""Gaps in a text that the user writes: [MASK] for one token, [MASK:8] for eight."""

from __future__ import annotations

import re

from ..core.errors import InvalidInput

_GAP = re.compile(r"\[mask(?::(\d+))?\]", re.IGNORECASE)
TextOrGap = str | int  # a piece of text, or the size of a gap


def parts_of(text: str, most: int) -> list[TextOrGap]:
    """A text split at its gaps: non-empty pieces of text, and sizes of gaps, each at most `most`."""
    out: list[TextOrGap] = []
    for number, part in enumerate(_GAP.split(text)):
        if number % 2:
            out.append(_size(part, most))
        elif part:
            out.append(part)
    return out


def has_gaps(text: str) -> bool:
    """Whether a text has a gap."""
    return _GAP.search(text) is not None


def parts_with_gaps(text: str, most: int) -> list[TextOrGap]:
    """A text split at its gaps, as by `parts_of`; raises if it has none."""
    if not text.strip():
        raise InvalidInput("the text is empty; write one with a gap, such as 'the film was [MASK:8].'")
    if not has_gaps(text):
        raise InvalidInput(f"{text!r} has no gap; write [MASK] for one token, [MASK:8] for eight")
    return parts_of(text, most)


def _size(digits: str | None, most: int) -> int:
    if digits is not None and (len(digits) > 9 or int(digits) > most):
        raise InvalidInput(f"a gap of {digits[:30]} tokens; the nets read {most} in all: write a smaller [MASK:n]")
    size = 1 if digits is None else int(digits)
    if size < 1:
        raise InvalidInput("a gap of 0 tokens is none; write [MASK:n] with n of at least 1")
    return size
