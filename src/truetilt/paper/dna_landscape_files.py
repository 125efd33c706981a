"""Readers of a landscape's files: Design-Bench arrays, or a text table with one 8-mer per row."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import numpy as np

from ..core.errors import InvalidInput
from ..core.storage import TEXT, read_array, read_unpacked

LETTERS, LENGTH = "ACGT", 8
SEQUENCE_NAMES = ("sequence", "seq", "8mer", "kmer", "dna", "x")
SCORE_NAMES = ("escore", "score", "bindingscore", "binding", "y", "value", "zscore")
FORMATS = (
    "arrays as Design-Bench has them (*x*.npy [n, 8] and *y*.npy [n]), or one .csv, .tsv or .txt (.gz or .xz too) "
    "whose header names a sequence and a score column"
)


def array_pairs(files: list[Path]) -> list[tuple[Path, Path]]:
    """Arrays of sequences, each with its array of scores; several pairs are shards."""
    arrays = [path for path in files if path.suffix == ".npy"]
    xs, ys = ([path for path in arrays if _names(path.stem, letter)] for letter in "xy")
    if len(xs) != len(ys):
        names = ", ".join(path.name for path in arrays)
        raise InvalidInput(f"{len(xs)} arrays of sequences (*x*.npy) and {len(ys)} of scores (*y*.npy) in {names}")
    return list(zip(xs, ys, strict=True))


def _names(stem: str, letter: str) -> bool:
    """Whether a file name stands for x (or y): as a separate word, or by containing that letter and not the other."""
    words = set(re.split(r"[^a-z]+", stem.lower()))
    if words & {"x", "y"}:
        return letter in words
    return letter in stem.lower() and ("y" if letter == "x" else "x") not in stem.lower()


def read_arrays(x_path: Path, y_path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The index of each sequence and its score."""
    x, y = _load(x_path), _load(y_path)
    if x.ndim != 2 or x.shape[1] != LENGTH:
        raise InvalidInput(f"{x_path} has shape {x.shape}; it must be [n, {LENGTH}], one 8-mer a row")
    if not ((x >= 0) & (x < len(LETTERS)) & (x == np.round(x))).all():
        raise InvalidInput(f"{x_path} has letters other than 0, 1, 2, 3 (A, C, G, T)")
    if y.shape not in ((len(x),), (len(x), 1)):
        raise InvalidInput(f"{y_path} has shape {y.shape}; {x_path.name} has {len(x)} rows, so it must be [{len(x)}]")
    scores = y.reshape(-1).astype(np.float64)
    bad = ~np.isfinite(scores)
    if bad.any():
        raise InvalidInput(f"{y_path}, row {int(bad.argmax())}: a score is NaN or infinite")
    return x.astype(np.int64) @ (len(LETTERS) ** np.arange(LENGTH)[::-1]), scores


def _load(path: Path) -> np.ndarray:
    try:
        found = read_array(path)
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path} cannot be read as an array of numbers; it may be cut short ({e})") from e
    if found.dtype.kind not in "iuf":
        raise InvalidInput(f"{path} is not an array of numbers")
    return found


def is_table(path: Path) -> bool:
    """Whether a file is a table: a .csv or .tsv is; a .txt is if its header says so."""
    ends = [end for end in path.suffixes if end not in (".gz", ".xz")][-1:]
    if ends == [".txt"]:
        lines = _text(path).splitlines()
        return None not in _columns(lines[0] if lines else "")[1:3]
    return ends in ([".csv"], [".tsv"])


def _text(path: Path) -> str:
    """The text of a file, decompressed if it is gzip or xz."""
    try:
        return read_unpacked(path, TEXT).decode("utf-8-sig")
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path} cannot be read as text; it may be cut short ({e})") from e


def _columns(header: str) -> tuple[str, int | None, int | None, int | None]:
    """The separator, and the columns of the sequence, the score and, under the sequence's name, the other strand."""
    mark = next((mark for mark in "\t,;" if mark in header), ",")
    names = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in header.split(mark)]
    places = ([names.index(n) for n in known if n in names] for known in (SEQUENCE_NAMES, SCORE_NAMES))
    sequence, score = (next(iter(place), None) for place in places)
    strands = [place for place, name in enumerate(names) if sequence is not None and name == names[sequence]]
    return mark, sequence, score, strands[1] if len(strands) > 1 else None


def read_text(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The index of each sequence and its score."""
    text = _text(path)
    header = text.split("\n", 1)[0].strip()
    mark, sequence, score, mate = _columns(header)
    if sequence is None or score is None:
        raise InvalidInput(
            f"{path}: the header is {header[:80]!r}; it must name a sequence column (such as sequence or 8-mer) and a "
            "score column (such as score or E-score)"
        )
    index, scores, reader = [], [], csv.reader(io.StringIO(text), delimiter=mark)
    try:
        next(reader)
        for row in filter(None, reader):
            index.append(_place(row[sequence]))
            scores.append(_finite(row[score]))
            if mate is not None:
                _check_mate(row[sequence], row[mate])
    except (ValueError, IndexError, csv.Error) as e:
        why = "a column is missing" if isinstance(e, IndexError) else e
        raise InvalidInput(f"{path}, line {reader.line_num}: {why}") from e
    return np.array(index, dtype=np.int64), np.array(scores)


def _place(sequence: str) -> int:
    """The number of an 8-mer, in the order of AAAAAAAA to TTTTTTTT."""
    sequence = sequence.strip().upper()
    if len(sequence) != LENGTH or not set(sequence) <= set(LETTERS):
        raise ValueError(f"{sequence[:40]!r} is not {LENGTH} letters of {LETTERS}")
    return int(sequence.translate(str.maketrans(LETTERS, "0123")), len(LETTERS))


def _check_mate(sequence: str, mate: str) -> None:
    """Raise unless two columns of one name hold the two strands of a word."""
    sequence, mate = sequence.strip().upper(), mate.strip().upper()
    if mate != sequence[::-1].translate(str.maketrans(LETTERS, LETTERS[::-1])):
        raise ValueError(f"{mate[:40]!r} is not the reverse complement of {sequence!r}")


def _finite(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"the score {word!r} is not a finite number")
    return value
