"""`python -m truetilt.training.prepare --data DIR --out DIR`: texts or molecules to the arrays that training reads.

Writes tokenizer.json, tokens.npy (uint16, concatenated segments), rows.npy (a line for each segment) and, last,
corpus.json, which describes the three and holds their fingerprints. Training needs only these files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import InvalidInput, TruetiltError
from ..core.storage import write_json, write_with
from ..models.tokenizer import TOKENIZER, Tokenizer, gpt2_tokenizer, load_tokenizer, train_tokenizer
from .corpus import COLUMNS, CORPUS, PARTS, ROWS, TOKENS, array_hash
from .packing import segments
from .prepare_molecules import prepare_molecules
from .recipe import CorpusSource, Recipe, fraction, half_of, read_recipe, roots
from .text_data import READERS, Example, sentences

_BATCH = 2000  # texts encoded at a time
_ORDER = ("test", "dev", "guidance", "judge")  # a segment found in several parts is kept in the first of these


class Placed(NamedTuple):
    """A text with the number of its class (-1: none), its part and its source."""

    text: str
    label: int
    part: str
    source: int


def prepare(recipe: Recipe, data: Path, out: Path) -> dict[str, Any]:
    """Read, assign, encode and write; returns the contents of corpus.json."""
    if recipe.vocabulary > 2**16:
        raise InvalidInput(f"vocabulary is {recipe.vocabulary}; tokens are kept in 16 bits, so give at most 65536")
    texts = place_all(recipe, data)
    tokenizer = _tokenizer(recipe, data, texts)
    flat, rows = encode_all(recipe, texts, tokenizer)
    (out / CORPUS).unlink(missing_ok=True)  # so that no crash leaves arrays of one corpus described by another
    tokenizer.save(out)
    for name, values in ((TOKENS, flat), (ROWS, rows)):
        write_with(out / name, lambda path, values=values: np.save(path, values, allow_pickle=False))
    facts = {
        **{"length": recipe.length, "vocabulary": tokenizer.vocabulary, "end": tokenizer.end},
        **{"classes": recipe.classes, "groups": recipe.groups, "withheld": recipe.withheld},
        **{"sources": list(recipe.sources), "columns": COLUMNS, "parts": PARTS},
        "fingerprints": {**{TOKENIZER: tokenizer.fingerprint(), TOKENS: array_hash(flat), ROWS: array_hash(rows)}},
        "counts": _counts(recipe, rows),
    }
    write_json(out / CORPUS, facts)
    return facts


def prepare_texts(config: Path, data: Path, out: Path) -> dict[str, Any]:
    """Texts by the recipe in this file; returns the contents of corpus.json."""
    return prepare(read_recipe(config), data, out)


_SOURCES = {"texts": (prepare_texts, "reviews"), "moses": (prepare_molecules, "molecules")}


def place_all(recipe: Recipe, data: Path) -> list[Placed]:
    """Every text once, with its part, held-out texts first; a text held out by any source is in no training part."""
    found = {name: list(READERS[source.reader](data / source.path)) for name, source in recipe.sources.items()}
    held = {
        example.text for name, source in recipe.sources.items() for example in found[name] if _held(source, example)
    }
    seen: set[str] = set()
    placed = []
    for number, (name, source) in enumerate(recipe.sources.items()):
        for text, label, part in _places(source, found[name], held):
            if text not in seen:
                seen.add(text)
                placed.append(Placed(text, recipe.class_of(source, label), part, number))
    return sorted(placed, key=lambda text: _ORDER.index(text.part))


def _places(source: CorpusSource, examples: list[Example], held: set[str]) -> Iterator[tuple[str, int | None, str]]:
    """The texts of a source that are used, with their labels and parts."""
    whole = all(example.split == "train" for example in examples)  # no held-out texts, so a share is taken
    training = [example.text for example in examples if example.split == "train"]
    root = roots(training) if source.nested else {}
    for text, label, split in examples:
        label = label if source.group else None
        tested = fraction(text, "test") < source.test_share
        if split != "train" and (tested or not source.rest):
            if tested:
                yield text, label, split
        elif text not in held and source.least_words <= len(text.split()) <= source.most_words:
            if whole and source.test_share < 1 and tested:
                yield text, label, "test"
            else:
                yield text, label, "guidance" if label is None else half_of(root.get(text, text))


def _held(source: CorpusSource, example: Example) -> bool:
    """Whether a source keeps this text for test or dev, or at least out of training."""
    kept = not source.rest or fraction(example.text, "test") < source.test_share
    return example.split != "train" and kept


def _tokenizer(recipe: Recipe, data: Path, texts: list[Placed]) -> Tokenizer:
    """The tokenizer that the recipe names, or one trained on texts outside the judge and test parts."""
    if recipe.tokenizer:
        folder = data / recipe.tokenizer
        return load_tokenizer(folder) if (folder / TOKENIZER).is_file() else gpt2_tokenizer(folder)
    read = [source.tokenizer for source in recipe.sources.values()]
    usable = [text.text for text in texts if text.part == "guidance" and read[text.source]]
    every = max(1, round(sum(map(len, usable)) / recipe.tokenizer_characters))
    made = train_tokenizer(usable[::every], recipe.vocabulary)
    if made.vocabulary != recipe.vocabulary:
        raise InvalidInput(
            f"the texts have merges for {made.vocabulary} tokens, not for {recipe.vocabulary}; lower vocabulary"
        )
    return made


def encode_all(recipe: Recipe, texts: list[Placed], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The segments of all texts concatenated, uint16, and a line for each, int16 [n, 5].

    A segment that an earlier part has is left out: different reviews may share a sentence, different parts may not.
    """
    flat: list[np.ndarray] = []
    rows: list[tuple[int, ...]] = []
    owner: dict[bytes, str] = {}
    for first in range(0, len(texts), _BATCH):
        batch = texts[first : first + _BATCH]
        parts = [sentences(text.text) for text in batch]
        encoded = iter(tokenizer.encode_all([part for each in parts for part in each]))
        for text, each in zip(batch, parts, strict=True):
            cut, begun = list(segments([next(encoded) for _ in each], recipe.length)), set()
            for segment, label, part in _labelled(recipe, text, cut):
                tokens = np.array(segment, np.uint16)
                if owner.setdefault(tokens.tobytes(), part) == part:
                    flat.append(tokens)
                    rows.append((len(segment), int(part not in begun), label, PARTS.index(part), text.source))
                    begun.add(part)
    return np.concatenate(flat), np.array(rows, np.int16)


def _labelled(recipe: Recipe, text: Placed, cut: list[list[int]]) -> Iterator[tuple[list[int], int, str]]:
    """The segments of a text, their labels and parts; middle segments may have no label.

    Those are of no use to a judge or a test; of the judge's texts the nets that guide may have them.
    """
    source = list(recipe.sources.values())[text.source]
    for place, segment in enumerate(cut):
        if source.label_at == "all" or place in (0, len(cut) - 1):
            yield segment, text.label, text.part
        elif text.part == "guidance" or (text.part == "judge" and source.middles):
            yield segment, recipe.class_of(source, None), "guidance"


def _counts(recipe: Recipe, rows: np.ndarray) -> list[dict[str, Any]]:
    """Rows and tokens of each part, source and class."""
    names = (*recipe.classes, "none")
    columns = dict(zip(COLUMNS, rows.T, strict=True))
    keys = list(zip(*(columns[name].tolist() for name in ("part", "source", "label")), strict=True))
    count, tokens = Counter(keys), Counter[tuple[int, ...]]()
    for key, length in zip(keys, columns["length"].tolist(), strict=True):
        tokens[key] += length
    sources = list(recipe.sources)
    return [
        {"part": PARTS[p], "source": sources[s], "class": names[c], "rows": count[p, s, c], "tokens": tokens[p, s, c]}
        for p, s, c in sorted(count)
    ]


def main(arguments: Iterable[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m truetilt.training.prepare", description="Texts or molecules to arrays.")
    parser.add_argument("--source", choices=_SOURCES, default="texts", help="what is read: texts, or MOSES' molecules")
    parser.add_argument("--config", type=Path, help="the recipe; that of the source in configs/ if not given")
    parser.add_argument("--data", type=Path, required=True, help="folder below which the sources lie")
    parser.add_argument("--out", type=Path, help="folder to write; runs/ and the source's name if not given")
    given = parser.parse_args(None if arguments is None else list(arguments))
    make, name = _SOURCES[given.source]
    config, out = given.config or Path("configs") / name / "tokenizer.yaml", given.out or Path("runs") / name
    try:
        facts: Mapping[str, Any] = make(config, given.data, out)
    except (TruetiltError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, InvalidInput) else 1
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
