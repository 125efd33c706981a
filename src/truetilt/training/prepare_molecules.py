"""Molecules to the arrays that training reads: SMILES or SELFIES in pieces, some labelled with the bin of a property.

MOSES is in the package `molsets` (moses/dataset/data: train.csv.gz, test.csv.gz). The length of a row comes from the
data. A row has at most one label, so each property has rows of its own. A classifier of bins gives the law of a
property of a partly masked molecule, and with it log E[f(property) | x_t] for every f.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import compress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ..core.chemistry import PROPERTIES, parsed
from ..core.errors import InvalidInput
from ..core.storage import write_json, write_with
from ..models.pretrained import config_of
from ..models.tokenizer import TOKENIZER, Tokenizer
from ..molecules.tokenizer import SMILES_SYMBOLS, plain_smiles, train_pieces
from .config import parse_file
from .corpus import COLUMNS, CORPUS, PARTS, ROWS, TOKENS, array_hash
from .recipe import fraction

_FILES = {"guidance": "train.csv.gz", "test": "test.csv.gz"}
_BATCH = 50_000  # SMILES encoded at a time
_CHUNK = 2_000  # molecules per task of a worker process


@dataclass(frozen=True)
class MoleculeRecipe:
    """How SMILES become rows. `levels` are the shares of molecules below the edges of a property's bins."""

    notation: str = "smiles"
    vocabulary: int = 512
    tokenizer_share: float = 0.125  # share of the training molecules that the pieces are learned from
    left_out: float = 1e-4  # largest share of the training molecules that may be too long for a row
    test_share: float = 0.25  # share of the test molecules
    properties: tuple[str, ...] = ("qed", "logp")
    labelled_share: float = 0.2  # share of the training molecules, for each property
    levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

    def __post_init__(self) -> None:
        if not 32 <= self.vocabulary <= 2**16:
            raise InvalidInput(f"vocabulary is {self.vocabulary}; give a number of pieces from 32 to 65536")
        if self.notation not in NOTATIONS:
            raise InvalidInput(f"notation is {self.notation!r}; choose one of {', '.join(NOTATIONS)}")
        unknown = [name for name in self.properties if name not in PROPERTIES]
        if unknown or self.labelled_share * len(self.properties) > 1:
            raise InvalidInput(
                f"properties are {self.properties} for {self.labelled_share} of the molecules each; a molecule has one "
                f"label, and known are {', '.join(PROPERTIES)}"
            )
        if any(low >= high for low, high in zip((0.0, *self.levels), (*self.levels, 1.0), strict=True)):
            raise InvalidInput(f"levels are {self.levels}; give shares between 0 and 1 that grow")


def prepare_molecules(config: Path, data: Path, out: Path) -> dict[str, Any]:
    """Read, label, encode and write; returns the contents of corpus.json."""
    recipe: MoleculeRecipe = config_of(MoleculeRecipe, _plain(config), str(config))
    _check_installed(recipe)
    smiles = {part: read_moses(data / name) for part, name in _FILES.items()}
    smiles["test"] = [one for one in smiles["test"] if fraction(one, "test") < recipe.test_share]
    every, symbols = NOTATIONS[recipe.notation]([one for part in smiles.values() for one in part])
    read = [fraction(one, "tokenizer") < recipe.tokenizer_share for one in smiles["guidance"]]
    tokenizer = train_pieces(compress(every, read), recipe.vocabulary, symbols)
    flat, lengths = encode(every, tokenizer)
    length = _length(lengths[: len(smiles["guidance"])], recipe.left_out)
    labels, bins = _labels(recipe, smiles)
    columns = {"length": lengths, "begins": np.ones_like(lengths), "label": labels, "source": np.zeros_like(lengths)}
    columns["part"] = np.repeat([PARTS.index(part) for part in smiles], [len(part) for part in smiles.values()])
    kept = lengths < length
    flat = flat[np.repeat(kept, lengths)]
    rows = np.stack([columns[name][kept] for name in COLUMNS], 1).astype(np.int16)
    return _write(out, tokenizer, flat, rows, {"length": length, "bins": bins, "notation": recipe.notation})


def _check_installed(recipe: MoleculeRecipe) -> None:
    """Raise if a package that the recipe needs is missing."""
    needed = {"rdkit": bool(recipe.properties), "selfies": recipe.notation == "selfies"}
    missing = [name for name, wanted in needed.items() if wanted and find_spec(name) is None]
    if missing:
        raise InvalidInput(f"such molecules need the package {missing[0]}: pip install {missing[0]}")


def read_moses(path: Path) -> list[str]:
    """The SMILES column of a MOSES file, one molecule per line."""
    if not path.is_file():
        raise InvalidInput(f"{path} is missing; name moses/dataset/data of the unpacked package molsets as --data")
    with gzip.open(path, "rt", encoding="ascii") as file:
        head, *lines = (line.strip().split(",")[0] for line in file)
    if head != "SMILES":
        raise InvalidInput(f"{path} begins with {head[:80]!r}; its first column must be called SMILES")
    return [one for one in lines if plain_smiles(one)]


def encode(smiles: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of all molecules concatenated, uint16, and the number of pieces of each."""
    flat, lengths = [], []
    for first in range(0, len(smiles), _BATCH):
        found = tokenizer.encode_all(smiles[first : first + _BATCH])
        lengths.append(np.fromiter(map(len, found), np.int64))
        flat.append(np.fromiter((token for each in found for token in each), np.uint16))
    return np.concatenate(flat), np.concatenate(lengths)


def _length(lengths: np.ndarray, left_out: float) -> int:
    """Sites of a row: all molecules but this share fit with an end token."""
    return int(np.quantile(lengths, 1 - left_out, method="higher")) + 1


def _labels(recipe: MoleculeRecipe, smiles: Mapping[str, list[str]]) -> tuple[np.ndarray, dict[str, Any]]:
    """The class of every molecule (-1: none), and the edges and means of each property's bins."""
    shares = {part: 1 / max(1, len(recipe.properties)) if part == "test" else recipe.labelled_share for part in smiles}
    place = np.array([fraction(one, "property") / shares[part] for part in smiles for one in smiles[part]])
    every = [one for part in smiles.values() for one in part]
    labels, bins = np.full(len(every), -1), {}
    for number, name in enumerate(recipe.properties):
        mine = np.flatnonzero((place >= number) & (place < number + 1))
        values = property_values(name, [every[row] for row in mine])
        learned = values[mine < len(smiles["guidance"])]
        edges = np.quantile(learned, recipe.levels)
        found = np.searchsorted(edges, values, side="right")
        inside = found[mine < len(smiles["guidance"])]
        means = [float(learned[inside == one].mean()) for one in range(len(edges) + 1)]
        bins[name] = {"edges": edges.tolist(), "means": means}
        labels[mine] = found + number * (len(edges) + 1)
    return labels, bins


def property_values(name: str, smiles: Sequence[str]) -> np.ndarray:
    """A property of each molecule, float64."""
    return np.concatenate(in_processes(partial(_values, name), smiles))


def in_processes(function: Callable[[Sequence[str]], Any], smiles: Sequence[str]) -> list[Any]:
    """The results of a function on parts of the molecules, computed by one process per core."""
    parts = [smiles[first : first + _CHUNK] for first in range(0, len(smiles), _CHUNK)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, parts))


def _as_smiles(smiles: list[str]) -> tuple[list[str], tuple[str, ...]]:
    return smiles, SMILES_SYMBOLS


def _as_selfies(smiles: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The SELFIES of these molecules, and all symbols that occur in them."""
    found = [one for part in in_processes(_selfies, smiles) for one in part]
    return found, tuple(sorted({symbol for one in found for symbol in re.findall(r"\[[^]]+\]", one)}))


def _selfies(smiles: Sequence[str]) -> list[str]:
    import selfies

    return [selfies.encoder(one) for one in smiles]


NOTATIONS = {"smiles": _as_smiles, "selfies": _as_selfies}  # the strings of molecules, and their longer symbols


def _values(name: str, smiles: Sequence[str]) -> np.ndarray:
    return np.array([PROPERTIES[name](parsed(one)) for one in smiles])


def _plain(config: Path) -> dict[str, Any]:
    found = parse_file(config)
    if not isinstance(found, dict):
        raise InvalidInput(f"{config} holds {type(found).__name__}; a recipe is a list of `key: value`")
    return found


def _write(
    out: Path, tokenizer: Tokenizer, flat: np.ndarray, rows: np.ndarray, found: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the arrays, then corpus.json, which describes them."""
    (out / CORPUS).unlink(missing_ok=True)  # so that no crash leaves arrays of one corpus described by another
    tokenizer.save(out)
    for name, values in ((TOKENS, flat), (ROWS, rows)):
        write_with(out / name, lambda path, values=values: np.save(path, values, allow_pickle=False))
    groups = {
        name: [f"{name} {number}" for number in range(len(each["means"]))] for name, each in found["bins"].items()
    }
    classes = [member for members in groups.values() for member in members]
    facts = {
        **{"length": found["length"], "vocabulary": tokenizer.vocabulary, "end": tokenizer.end},
        **{"classes": classes, "groups": groups, "withheld": [len(classes)] * (len(classes) + 1)},
        "notation": found["notation"],
        **{"sources": ["moses"], "columns": COLUMNS, "parts": PARTS, "bins": found["bins"]},
        "fingerprints": {TOKENIZER: tokenizer.fingerprint(), TOKENS: array_hash(flat), ROWS: array_hash(rows)},
        "counts": {part: int((rows[:, COLUMNS.index("part")] == PARTS.index(part)).sum()) for part in _FILES},
    }
    write_json(out / CORPUS, facts)
    return facts
