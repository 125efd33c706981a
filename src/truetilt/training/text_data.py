"""Texts from files, one at a time: plain lines, labelled tables, and the layouts of IMDB, SST-2 and Civil Comments.

Files may be plain, .gz or .xz, in UTF-8. A malformed line is an error that names its file and number. All texts are
normalised (`normalise`), so that corpora can be mixed.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from ..core.errors import InvalidInput
from ..core.storage import check_plain
from ..models.text_normalisation import normalise

csv.field_size_limit(10**8)
_SPLITS = ("train", "dev", "test")


class Example(NamedTuple):
    """A text in normal form, the number of its label (None: not labelled), and train, dev or test."""

    text: str
    label: int | None
    split: str


Reader = Callable[[Path], Iterator[Example]]


def sentences(text: str) -> list[str]:
    """A normalised text split after full stops, exclamation and question marks."""
    return re.split(r"(?<=[.!?]) |(?<=[.!?][\"')]) ", text)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers from 1, without line ends."""
    number = 0
    try:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as e:
        raise InvalidInput(f"{path}, after line {number}: not UTF-8 ({e.reason}); convert the file to UTF-8") from e
    except (lzma.LZMAError, EOFError, gzip.BadGzipFile, zlib.error) as e:
        raise InvalidInput(f"{path} is no whole {path.suffix} file ({e}); fetch it again") from e
    if not number:
        raise InvalidInput(f"{path} is empty; give a file with texts")


def opened(path: Path) -> IO[str]:
    """An open text file, decompressed if its ending says so."""
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}; check the data folder and the name")
    check_plain(path)
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8", newline="\n")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="\n")
    return open(path, encoding="utf-8", newline="\n")


def table(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table with their numbers; quoted fields of a .csv may contain line ends."""
    if separator == "\t":
        yield from ((number, line.split("\t")) for number, line in lines(path))
        return
    rows = csv.reader((f"{line}\n" for _, line in lines(path)), delimiter=separator)
    try:
        yield from enumerate(rows, 1)
    except csv.Error as e:
        raise InvalidInput(f"{path}, row {rows.line_num}: {e}; it is no table separated by {separator!r}") from e


def read_plain(path: Path, split: str = "train") -> Iterator[Example]:
    """A user's file: .txt has a text per line, .tsv label and text, .csv text and label; labels are 0, 1, ..."""
    kind = path.with_suffix("").suffix if path.suffix in (".xz", ".gz") else path.suffix
    if kind == ".txt":
        for number, line in lines(path):
            yield Example(_text(line, path, number), None, split)
    elif kind in (".tsv", ".csv"):
        for number, fields in table(path, "\t" if kind == ".tsv" else ","):
            if len(fields) != 2:
                raise InvalidInput(f"{path}, row {number}: {len(fields)} fields; a {kind} table has a label and a text")
            label, text = fields if kind == ".tsv" else fields[::-1]
            yield Example(_text(text, path, number), _label(label, path, number), split)
    else:
        raise InvalidInput(f"{path} ends in {kind!r}; texts are read from .txt, .tsv and .csv, plain or as .xz or .gz")


def read_folder(path: Path) -> Iterator[Example]:
    """A user's texts: a file, or a folder of files named train.*, dev.* and test.*."""
    if not path.is_dir():
        yield from read_plain(path)
        return
    found = sorted(file for file in path.iterdir() if file.name.split(".")[0] in _SPLITS)
    if not found:
        raise InvalidInput(f"{path} holds no file named train.*, dev.* or test.*; name your texts so")
    for file in found:
        yield from read_plain(file, file.name.split(".")[0])


def read_imdb(path: Path) -> Iterator[Example]:
    """Reviews as `split/label<TAB>id_rating<TAB>text`, label neg, pos or unsup."""
    labels = {"neg": 0, "pos": 1, "unsup": None}
    for number, line in lines(path):
        fields = line.split("\t", 2)  # a text may contain tabs
        split, _, label = fields[0].partition("/")
        if len(fields) != 3 or split not in _SPLITS or label not in labels:
            raise InvalidInput(
                f"{path}, row {number}: {fields[0][:40]!r} in {len(fields)} fields; expected train/pos, id_rating, text"
            )
        yield Example(_text(fields[2], path, number), labels[label], split)


def read_sst2(path: Path) -> Iterator[Example]:
    """A folder with train.tsv, dev.tsv and test.tsv, and the phrases of glue-phrases-train.tsv.xz if they are there.

    A phrase that is a dev or test sentence is left out.
    """
    held = set()
    for split in ("dev", "test", "train"):
        for example in read_plain(path / f"{split}.tsv", split):
            held |= {example.text} if split != "train" else set()
            yield example
    phrases = path / "glue-phrases-train.tsv.xz"
    for number, fields in table(phrases, "\t") if phrases.is_file() else ():
        if number == 1 or (len(fields) == 2 and not normalise(fields[1])):  # the header; a phrase of punctuation only
            continue
        if len(fields) != 2:
            raise InvalidInput(f"{phrases}, row {number}: {len(fields)} fields; expected a label and a phrase")
        text = _text(fields[1], phrases, number)
        if text not in held:
            yield Example(text, _label(fields[0], phrases, number), "train")


def read_civil(path: Path) -> Iterator[Example]:
    """A folder with civil-comments.csv.xz and civil-annotations.csv.xz; toxic: fewer than half said "not toxic"."""
    votes: defaultdict[str, list[bool]] = defaultdict(list)
    annotations, comments = path / "civil-annotations.csv.xz", path / "civil-comments.csv.xz"
    for number, fields in table(annotations, ","):
        if number > 1:
            if len(fields) != 6 or fields[5] not in ("True", "False"):
                raise InvalidInput(f"{annotations}, row {number}: expected 6 fields that end in True or False")
            votes[fields[1]].append(fields[5] == "True")
    for number, fields in table(comments, ","):
        if number > 1:
            if len(fields) != 2 or not votes[fields[0]]:
                raise InvalidInput(f"{comments}, row {number}: comment {fields[0]!r} has no text or no annotation")
            toxic = sum(votes[fields[0]]) < len(votes[fields[0]]) / 2
            yield Example(_text(fields[1], comments, number), int(toxic), "train")


READERS: dict[str, Reader] = {"plain": read_folder, "imdb": read_imdb, "sst2": read_sst2, "civil": read_civil}


def _text(text: str, path: Path, number: int) -> str:
    found = normalise(text)
    if not found:
        raise InvalidInput(f"{path}, row {number}: the text is empty; take the row out, or fill it in")
    return found


def _label(text: str, path: Path, number: int) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"{path}, row {number}: the label is {text[:40]!r}; give a whole number from 0")
    return int(text)
