"""A local judge of toxicity: fitted to labelled comments, calibrated to published scores of the Perspective API.

Half of the scored comments calibrate it, the other half measure its agreement with the scores. It is a small linear
judge. The service itself is not used: it ends in 2026.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.storage import read_unpacked
from .judges import Encode, LinearJudge, calibrated, fitted
from .regression import pearson, spearman

CLASSES = ("not toxic", "toxic")


class Scored(NamedTuple):
    """Texts and a number for each, from 0 to 1: a score, or a label."""

    texts: list[str]
    scores: Tensor  # float64 [n]


@dataclass(frozen=True)
class Agreement:
    """How well a judge's probabilities agree with another's scores, on texts that neither was fitted to."""

    texts: int
    pearson: float
    spearman: float
    mean_error: float  # absolute error of probability against score


def toxicity_judge(
    encode: Encode, labelled: Scored, scored: Scored, penalty: float = 1e-4
) -> tuple[LinearJudge, Agreement]:
    """The judge, and its agreement on every second scored text; the others calibrate it."""
    both = len(set(labelled.texts) & set(scored.texts))
    if both:
        raise InvalidInput(f"{both} texts are labelled and scored; take them out of either, or agreement means nothing")
    shares = torch.stack([1 - labelled.scores, labelled.scores], -1)
    judge = fitted(encode, labelled.texts, shares, CLASSES, penalty)
    first, second = (Scored(scored.texts[k::2], scored.scores[k::2]) for k in (0, 1))
    judge = calibrated(judge, *first)
    return judge, agreement(judge, second)


def agreement(judge: LinearJudge, scored: Scored) -> Agreement:
    """Correlations of the judge's probability of its second class with the scores, and the mean error."""
    found = judge(scored.texts)[:, 1].exp()
    error = float((found - scored.scores).abs().mean())
    return Agreement(len(scored.texts), pearson(found, scored.scores), spearman(found, scored.scores), error)


def read_scored(path: str | Path, text: str | int = "comment_text", score: str | int = "TOXICITY@6") -> Scored:
    """Texts and numbers of a CSV file, plain, gzip or xz; columns by name, or by number if there is no header."""
    try:
        rows = list(csv.reader(io.StringIO(_content(Path(path)), newline="")))
    except csv.Error as error:
        raise InvalidInput(f"{path} is not CSV ({error})") from error
    if isinstance(text, str) != isinstance(score, str):
        raise InvalidInput(f"columns {text!r} and {score!r}; give both by name, or both by number")
    if isinstance(text, str):
        header, rows = (rows[0], rows[1:]) if rows else ([], [])
        missing = [name for name in (text, score) if name not in header]
        if missing:
            raise InvalidInput(f"{path} has no column {missing[0]!r}; it has {', '.join(header[:8])}")
        text, score = header.index(text), header.index(str(score))
    return _scored(path, rows, int(text), int(score))


def _scored(path: str | Path, rows: Sequence[Sequence[str]], text: int, score: int) -> Scored:
    found: dict[str, float] = {}  # each text once
    for number, row in enumerate(rows, 1):
        try:
            words, value = row[text], float(row[score])
        except (IndexError, ValueError) as error:
            raise InvalidInput(f"{path}, row {number}: no text and number in columns {text} and {score}") from error
        if not 0 <= value <= 1:
            raise InvalidInput(f"{path}, row {number}: {value} is not from 0 to 1")
        if words.strip():
            found.setdefault(words, value)
    if not found:
        raise InvalidInput(f"{path} holds no texts")
    return Scored(list(found), torch.tensor(list(found.values()), dtype=torch.float64))


def _content(path: Path) -> str:
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}; give a CSV file, plain, gzip or xz")
    try:
        return read_unpacked(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is broken, cut short or not UTF-8 ({error}); copy it again") from error
