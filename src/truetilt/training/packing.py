"""Tokens into rows of equal length: padded segments, or a stream cut into full rows.

A padded row is a text, then end tokens up to the length. The padding is noised and learned like the text: a sampler
fills every site of a row, so the network must know what follows the first end token. A full row has no end token: its
text goes on. A packed row is cut from texts concatenated with an end token between them, and has no padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..core.errors import InvalidInput


def segments(parts: Sequence[Sequence[int]], length: int) -> Iterator[list[int]]:
    """The sentences of a text, as tokens, joined while they and an end token fit into `length`; a longer one is cut."""
    held: list[int] = []
    for part in parts:
        if held and len(held) + len(part) >= length:
            yield held
            held = []
        held = [*held, *part]
        if len(held) >= length:
            yield held[:length]
            held = []
    if held:
        yield held


def padded(flat: np.ndarray, lengths: np.ndarray, length: int, end: int) -> np.ndarray:
    """Texts concatenated in `flat` as rows [n, length], one each, filled up with end tokens."""
    if len(lengths) and int(lengths.max()) > length:
        raise InvalidInput(f"a text has {int(lengths.max())} tokens and a row {length}; cut it into segments first")
    if int(lengths.sum()) != len(flat):
        raise InvalidInput(f"the texts have {int(lengths.sum())} tokens by their lengths and {len(flat)} are there")
    rows = np.full((len(lengths), length), end, flat.dtype)
    rows[np.arange(length) < lengths[:, None]] = flat
    return rows


def packed(texts: Iterable[Sequence[int] | np.ndarray], length: int, end: int) -> Iterator[np.ndarray]:
    """Full rows [length] of concatenated texts, an end token after each; the remainder is dropped."""
    held = np.empty(0, np.int64)
    for text in texts:
        held = np.concatenate([held, np.asarray(text, np.int64), [end]])
        full = len(held) // length
        yield from held[: full * length].reshape(full, length)
        held = held[full * length :]
