"""A landscape: how strongly a protein binds each of the 65,536 DNA 8-mers, read from a folder of the user's."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InvalidInput
from .dna_landscape_files import FORMATS, LENGTH, LETTERS, array_pairs, is_table, read_arrays, read_text

COUNT = len(LETTERS) ** LENGTH
STRONG = 0.9  # the quantile above which an 8-mer is a strong binder


class Landscape(NamedTuple):
    """A score for every 8-mer, in the order of AAAAAAAA to TTTTTTTT, and the source files."""

    scores: Tensor  # [65536], float64
    files: tuple[str, ...]
    rows: int  # rows read
    filled: int  # 8-mers that got the score of their reverse complement

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.scores.numpy().tobytes()).hexdigest()[:16]

    @property
    def threshold(self) -> float:
        return float(self.scores.quantile(STRONG))

    @property
    def temperature(self) -> float:
        return float(self.scores.std(correction=0)) / 4


def read_landscape(folder: Path) -> Landscape:
    """Read the scores in a folder."""
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder}; --data must name one that holds {FORMATS}")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    pairs, texts = array_pairs(files), [path for path in files if is_table(path)]
    if len(texts) + bool(pairs) > 1:
        names = ", ".join(path.name for path in [*(pair[0] for pair in pairs), *texts])
        raise InvalidInput(f"{folder} holds several landscapes ({names}); leave only one there")
    if not pairs and not texts:
        raise InvalidInput(f"{folder} holds no landscape; it must hold {FORMATS}")
    used = [path for pair in pairs for path in pair] or texts
    parts = [read_arrays(*pair) for pair in pairs] or [read_text(texts[0])]
    index, scores = (np.concatenate(each) for each in zip(*parts, strict=True))
    table, filled = _whole(index, scores, folder)
    found = Landscape(torch.from_numpy(table), tuple(path.name for path in used), len(index), filled)
    if not found.temperature > 0:
        raise InvalidInput(f"{folder}: every 8-mer has the same score; a landscape must tell them apart")
    return found


def _whole(index: np.ndarray, scores: np.ndarray, folder: Path) -> tuple[np.ndarray, int]:
    """A score for every 8-mer; if only one strand of a pair is listed, the other gets its score."""
    table = np.full(COUNT, math.nan)
    table[index] = scores
    strays = ~np.isclose(table[index], scores, rtol=1e-6, atol=0)
    if strays.any():
        raise InvalidInput(f"{folder}: {_word(int(index[strays.argmax()]))} is listed twice with different scores")
    missing = np.isnan(table)
    table[missing] = table[_other_strand(np.flatnonzero(missing))]
    lost = np.flatnonzero(np.isnan(table))
    if len(lost):
        raise InvalidInput(
            f"{folder} has no score for {len(lost):,} of the {COUNT:,} 8-mers on either strand, {_word(int(lost[0]))} "
            "the first; all are needed"
        )
    return table, int(missing.sum())


def _word(index: int) -> str:
    return "".join(LETTERS[index // len(LETTERS) ** k % len(LETTERS)] for k in reversed(range(LENGTH)))


def _other_strand(index: np.ndarray) -> np.ndarray:
    """The reverse complement: A with T, C with G, read backwards."""
    digits = index[:, None] // len(LETTERS) ** np.arange(LENGTH) % len(LETTERS)  # already in reverse order
    return (len(LETTERS) - 1 - digits) @ len(LETTERS) ** np.arange(LENGTH)[::-1]
