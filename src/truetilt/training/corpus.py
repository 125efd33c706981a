"""A prepared corpus: tokens of segments, their labels and parts in arrays on disk, and the rows a network learns from.

`corpus.json` beside them describes the columns and holds a fingerprint of every file. The table `withheld` gives the
label that replaces a dropped one: a comment without its label is still labelled as a comment, so that the conditional
network and the same network without the label differ only in the condition, not in the kind of text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.storage import read_array
from ..models.pretrained import read_json
from ..models.tokenizer import TOKENIZER, Tokenizer, load_tokenizer
from ..runtime.memory import check_fits
from .packing import packed, padded

CORPUS, TOKENS, ROWS = "corpus.json", "tokens.npy", "rows.npy"
COLUMNS = ("length", "begins", "label", "part", "source")  # columns of rows.npy; begins 1: a new text; label -1: none
PARTS = ("guidance", "judge", "test", "dev")


@dataclass(frozen=True)
class Corpus:
    """A prepared folder and the contents of its corpus.json."""

    folder: Path
    length: int
    vocabulary: int
    end: int
    classes: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]  # groups of mutually exclusive classes
    withheld: tuple[int, ...]  # the label used instead of each class when it is withheld; the last is for no class
    sources: tuple[str, ...]
    fingerprints: Mapping[str, str]
    bins: Mapping[str, Any] = field(default_factory=dict)  # for properties, whose classes are bins: edges and means
    notation: str | None = None  # for molecules

    @staticmethod
    def read(folder: str | Path) -> Corpus:
        """The corpus of a folder; the arrays stay on disk."""
        folder = Path(folder)
        if not (folder / CORPUS).is_file():
            raise InvalidInput(
                f"{folder} has no {CORPUS}; prepare the texts first: python -m truetilt.training.prepare --out {folder}"
            )
        found = read_json(folder / CORPUS)
        try:
            groups = {name: tuple(members) for name, members in found["groups"].items()}
            sizes = {name: int(found[name]) for name in ("length", "vocabulary", "end")}
            withheld, sources = tuple(found["withheld"]), tuple(found["sources"])
            names = tuple(found["classes"]), groups, withheld, sources, found["fingerprints"]
            more = found.get("bins", {}), found.get("notation")
            made = Corpus(folder, sizes["length"], sizes["vocabulary"], sizes["end"], *names, *more)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
            raise InvalidInput(f"{folder / CORPUS} lacks {e}; prepare the texts again") from e
        made._check()
        return made

    def _check(self) -> None:
        """Raise for a corpus.json whose entries contradict each other."""
        classes, members = self.classes, [name for group in self.groups.values() for name in group]
        fits = self.length >= 1 and 0 <= self.end < self.vocabulary < 2**31 and isinstance(self.fingerprints, dict)
        names = all(isinstance(name, str) for name in (*classes, *members, *self.sources))
        told = all(type(number) is int and 0 <= number <= len(classes) for number in self.withheld)
        if not (
            fits and names and told and members == list(classes[: len(members)]) and TOKENIZER in self.fingerprints
        ):
            raise InvalidInput(f"{self.folder / CORPUS} does not agree with itself; prepare the texts again")
        if len(self.withheld) != len(classes) + 1:
            raise InvalidInput(f"{self.folder / CORPUS}: withheld names one class for each and one for none")

    def _check_arrays(self, tokens: np.ndarray, rows: np.ndarray) -> None:
        """Raise for arrays whose shapes, dtypes or ranges differ from corpus.json."""
        whole = tokens.dtype.kind in "iu" and rows.dtype.kind in "iu"
        if not whole or tokens.ndim != 1 or rows.ndim != 2 or rows.shape[1] != len(COLUMNS) or not len(tokens):
            raise InvalidInput(f"{self.folder} holds arrays of other shapes than a corpus has; prepare the texts again")
        low = np.array([0, 0, -1, 0, 0])
        high = np.array([self.length, 1, len(self.classes) - 1, len(PARTS) - 1, len(self.sources) - 1])
        inside = ((rows >= low) & (rows <= high)).all() and int(tokens.min()) >= 0
        if not inside or int(tokens.max()) >= self.vocabulary:
            raise InvalidInput(
                f"{self.folder} holds tokens, labels or parts that {CORPUS} does not know; prepare again"
            )
        check_fits(8 * len(rows) * self.length, f"{len(rows):,} rows of {self.length:,} tokens")

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Number of classes in each group; these are the first classes, in this order."""
        return tuple(len(members) for members in self.groups.values())

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of these tokens."""
        made = load_tokenizer(self.folder)
        made.check_fits(self.vocabulary, self.fingerprints[TOKENIZER], str(self.folder / CORPUS))
        return made

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """All tokens and the table of rows, checked against the fingerprints in corpus.json."""
        found = []
        for name in (TOKENS, ROWS):
            path = self.folder / name
            try:
                found.append(read_array(path))
            except (OSError, ValueError) as e:
                raise InvalidInput(f"{path} cannot be read ({e}); prepare the texts again") from e
            if array_hash(found[-1]) != self.fingerprints.get(name):
                raise InvalidInput(f"{path} is not the file that {CORPUS} names; prepare the texts again")
        self._check_arrays(found[0], found[1])
        return found[0], found[1]

    def texts(self, parts: tuple[str, ...], labelled: bool, packing: bool = False) -> Texts:
        """The rows of these parts, in the order of the corpus; only labelled ones if `labelled`."""
        flat, table = self.arrays()
        columns = dict(zip(COLUMNS, table.T.astype(np.int64), strict=True))
        chosen = np.isin(columns["part"], [PARTS.index(part) for part in parts])
        if labelled:
            chosen &= np.isin(columns["label"], range(sum(self.group_sizes)))
        flat = flat[np.repeat(chosen, columns["length"])]
        columns = {name: values[chosen] for name, values in columns.items()}
        if not chosen.any():
            raise InvalidInput(f"{self.folder} has no {'labelled ' * labelled}rows for {' or '.join(parts)}; add texts")
        if packing:
            return self._packed(flat, columns)
        rows = padded(flat, columns["length"], self.length, self.end)
        labels = torch.from_numpy(columns["label"])
        labels = torch.where(labels < 0, len(self.classes), labels)
        used = torch.from_numpy(np.minimum(columns["length"] + 1, self.length))
        return Texts(self._narrow(rows), labels, torch.tensor(self.withheld), used, self._kinds(columns))

    def _kinds(self, columns: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """The rows that belong to each source and to each group of classes, as masks."""
        kinds = {name: columns["source"] == number for number, name in enumerate(self.sources)}
        for name, members in self.groups.items():
            kinds[name] = np.isin(columns["label"], [self.classes.index(member) for member in members])
        return {name: torch.from_numpy(rows) for name, rows in kinds.items() if rows.any()}

    def _packed(self, flat: np.ndarray, columns: Mapping[str, np.ndarray]) -> Texts:
        starts = (np.cumsum(columns["length"], dtype=np.int64) - columns["length"])[columns["begins"] == 1]
        rows = list(packed(np.split(flat, starts[1:]), self.length, self.end))
        if not rows:
            raise InvalidInput(f"{self.folder} has {len(flat)} tokens, too few for a row of {self.length}; add texts")
        labels = torch.full((len(rows),), len(self.classes))
        used = torch.full((len(rows),), self.length)
        return Texts(self._narrow(np.stack(rows)), labels, torch.tensor(self.withheld), used)

    def _narrow(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows.astype(np.int16 if self.vocabulary < 2**15 else np.int32))


@dataclass(frozen=True)
class Texts:
    """Rows of tokens and their labels; a row without a label has the number of "no condition"."""

    unit: ClassVar[str] = "rows"
    tokens: Tensor  # int16 or int32 [n, D]
    labels: Tensor  # int64 [n]
    withheld: Tensor  # int64 [classes + 1]: the replacement labels
    used: Tensor  # int64 [n]: tokens of the text, including its end token if it has one
    kinds: Mapping[str, Tensor] = field(default_factory=dict)  # bool [n] by name: rows with a figure of their own

    @property
    def count(self) -> int:
        return self.tokens.shape[0]

    def to(self, device: torch.device | str) -> Texts:
        kinds = {name: rows.to(device) for name, rows in self.kinds.items()}
        moved = (part.to(device) for part in (self.tokens, self.labels, self.withheld, self.used))
        return Texts(*moved, kinds)

    def take(self, chosen: Tensor) -> Texts:
        """The rows with these indices."""
        kinds = {name: rows[chosen] for name, rows in self.kinds.items()}
        parts = (self.tokens[chosen], self.labels[chosen], self.withheld, self.used[chosen])
        return Texts(*parts, kinds)

    def told_instead(self, labels: Tensor, classes: int) -> Tensor:
        """The label given to a network in place of each of these when it is withheld (label dropout)."""
        return self.withheld[labels]

    def fingerprint(self) -> str:
        """A hash of these rows and labels."""
        digest = hashlib.sha256()
        for part in (self.tokens, self.labels, self.withheld):
            digest.update(part.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


def mixed(texts: Texts, repeats: Mapping[str, Any]) -> Texts:
    """The texts with the rows of each named kind repeated this many times (0: left out), others once."""
    unknown = sorted(repeats.keys() - texts.kinds.keys())
    bad = [
        name for name, times in repeats.items() if isinstance(times, bool) or not isinstance(times, int) or times < 0
    ]
    if unknown or bad:
        raise InvalidInput(f"mix: {', '.join(unknown + bad)}; give a whole number for each of {', '.join(texts.kinds)}")
    times = torch.ones(texts.count, dtype=torch.int64)
    for name, count in repeats.items():
        times[texts.kinds[name]] = count
    if not int(times.sum()):
        raise InvalidInput("mix leaves no row; give at least one kind of text a number above 0")
    return texts.take(torch.repeat_interleave(torch.arange(texts.count), times))


def array_hash(values: np.ndarray) -> str:
    """A hash of this array."""
    head = f"{values.dtype.str}{values.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
