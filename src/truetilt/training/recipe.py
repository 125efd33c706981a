"""The recipe of a corpus, read from YAML or JSON, and the part (guidance, judge, test, dev) of each text.

Networks that guide and the judge of their samples learn from disjoint halves. The half of a text is decided by a hash
of the longest text that contains it, so that a sentence and its phrases are always in the same half. A text that any
source holds out for test or dev is in no training part.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..models.pretrained import check_keys
from .config import parse_file
from .text_data import READERS


@dataclass(frozen=True)
class CorpusSource:
    """A file or folder of texts, and the meaning of its labels 0, 1, ..."""

    path: str  # relative to the data folder
    reader: str = "plain"
    group: str = ""  # the group of classes that the labels refer to; empty: labels are ignored
    unlabelled: str = ""  # the class of texts without a label; empty: the group's kind, or none
    test_share: float = 1.0  # share of the held-out texts that is used; of all texts if the source holds out none
    least_words: int = 1  # shorter training texts are left out
    most_words: int = 10**9  # longer ones too
    nested: bool = False  # some training texts are parts of others
    tokenizer: bool = True  # whether a tokenizer trained for this corpus uses it
    rest: bool = False  # whether held-out texts beyond test_share are training texts
    middles: bool = False  # whether segments without a label of the judge's texts go to the nets that guide
    label_at: str = "all"  # "ends": the first and last segments of a long text have its label, those between have none

    def __post_init__(self) -> None:
        if self.reader not in READERS:
            raise InvalidInput(f"reader is {self.reader!r}; choose one of {', '.join(READERS)}")
        if self.label_at not in ("all", "ends"):
            raise InvalidInput(f"label_at is {self.label_at!r}; choose all or ends")
        if not 0 < self.test_share <= 1:
            raise InvalidInput(f"test_share is {self.test_share}; give a number above 0 and at most 1")


@dataclass(frozen=True)
class Recipe:
    """The recipe of a corpus. `kinds` names, by group, the class that replaces a withheld label (default: none)."""

    sources: Mapping[str, CorpusSource]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    length: int = 64
    vocabulary: int = 4096
    tokenizer: str = ""  # folder of GPT-2's files or of a tokenizer.json, below the data folder; empty: train one
    tokenizer_characters: int = 40_000_000  # characters to train it on

    def __post_init__(self) -> None:
        if not self.sources:
            raise InvalidInput("the recipe names no sources; add at least one")
        if self.length < 2 or self.tokenizer_characters < 1:
            raise InvalidInput(f"length is {self.length}, tokenizer_characters {self.tokenizer_characters}; too few")
        members = [member for group in self.groups.values() for member in group]
        others = {*self.kinds.values(), *(source.unlabelled for source in self.sources.values())}
        if len(set(members)) < len(members) or others & set(members):
            raise InvalidInput(f"the classes are {members} and {sorted(others)}; a member of a group is nothing else")
        strangers = {source.group for source in self.sources.values()} | self.kinds.keys()
        if strangers - {"", *self.groups}:
            raise InvalidInput(
                f"no group is called {sorted(strangers - {'', *self.groups})}; known are {[*self.groups]}"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """The members of all groups, then the kinds, then the classes of texts without a label."""
        members = (member for members in self.groups.values() for member in members)
        unlabelled = (source.unlabelled for source in self.sources.values() if source.unlabelled)
        return tuple(dict.fromkeys((*members, *self.kinds.values(), *unlabelled)))

    def class_of(self, source: CorpusSource, label: int | None) -> int:
        """The number of the class that a label of a source means; -1 for no condition."""
        if label is None or not source.group:
            name = source.unlabelled or self.kinds.get(source.group, "")
            return self.classes.index(name) if name else -1
        members = self.groups[source.group]
        if label >= len(members):
            raise InvalidInput(f"{source.path} has the label {label} and {source.group} {len(members)} classes, from 0")
        return self.classes.index(members[label])

    @property
    def withheld(self) -> tuple[int, ...]:
        """The number of the class that replaces each class when its label is withheld and, last, of no class."""
        none = len(self.classes)
        group_of = {member: group for group, members in self.groups.items() for member in members}
        instead = (self.kinds.get(group_of[name]) if name in group_of else name for name in self.classes)
        return (*(none if name is None else self.classes.index(name) for name in instead), none)


def read_recipe(path: Path) -> Recipe:
    """The recipe in a YAML or JSON file."""
    found = _record(Recipe, parse_file(path), str(path))
    sources = {
        name: CorpusSource(**_record(CorpusSource, values, f"{path}: {name}"))
        for name, values in found["sources"].items()
    }
    groups = {name: tuple(map(str, members)) for name, members in (found.get("groups") or {}).items()}
    named: dict[str, Any] = {"sources": sources, "groups": groups}
    return Recipe(**{**found, **named})


def _record(kind: Any, values: Any, where: str) -> dict[str, Any]:
    """Values checked to have all required names and no unknown one."""
    if not isinstance(values, dict):
        raise InvalidInput(f"{where} holds {type(values).__name__}; give `key: value` lines")
    types = check_keys(kind, values, where)
    kinds = {"int": int, "str": str, "bool": bool, "float": (int, float)}
    for name, value in values.items():
        wanted = kinds.get(str(types[name]), dict)
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise InvalidInput(f"{where}: {name} is {value!r}; it must be of kind {types[name]}")
    return values


def fraction(text: str, purpose: str) -> float:
    """A number in [0, 1) that depends on the text alone: the same text is always on the same side."""
    return int.from_bytes(hashlib.sha256(f"{purpose}\n{text}".encode()).digest()[:8], "big") / 2**64


def half_of(text: str) -> str:
    """The half of the training texts that this text belongs to."""
    return "guidance" if fraction(text, "half") < 0.5 else "judge"


def roots(texts: Sequence[str]) -> dict[str, str]:
    """For each text the longest of all texts that contains it, word by word; the first of equals."""
    ordered = sorted(set(texts), key=lambda text: (-len(text), text))
    words = {text: _words(text) for text in ordered}
    holders: defaultdict[str, list[str]] = defaultdict(list)  # the longest first
    for text in ordered:
        for word in dict.fromkeys(words[text].split()):
            holders[word].append(text)
    found = {}
    for text in ordered:
        rarest: Iterable[str] = min((holders[word] for word in words[text].split()), key=len, default=[text])
        inner = f" {words[text]} "
        found[text] = next(text_ for text_ in rarest if inner in f" {words[text_]} ")
    return found


def _words(text: str) -> str:
    """The words of a text without punctuation."""
    return " ".join(re.findall(r"[\w']+", text))
