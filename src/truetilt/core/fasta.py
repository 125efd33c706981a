"""Proteins as text: the letters of amino acids, their tokens, and FASTA files, whose faults are found at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .arguments import shown
from .errors import InvalidInput
from .storage import read_text, write_text

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"  # in alphabetical order, which is that of the tokens of most networks
_WIDTH = 80  # letters in a line
_DNA = frozenset("ACGTUN")
_LARGEST = 10_000_000  # bytes of a file to read, at most


class ProteinSequence(NamedTuple):
    """A protein and its name."""

    name: str
    letters: str


def read_fasta(path: str | Path) -> list[ProteinSequence]:
    """The proteins of a FASTA file, in capital letters."""
    path = Path(path)
    try:
        text = read_text(path, _LARGEST)
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {path}; give the path of a FASTA file") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as text ({error}); give a FASTA file") from error
    parts: list[tuple[str, list[str]]] = []  # of each sequence its name and its lines, joined once: in linear time
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith(">"):
            parts.append((line[1:].strip() or f"sequence {len(parts) + 1}", []))
        elif line and not parts:
            raise InvalidInput(f"{path}, line {number}: a sequence without a name; FASTA has a line >name before each")
        elif line:
            parts[-1][1].append("".join(line.split()).upper().removesuffix("*"))
    if not parts:
        raise InvalidInput(f"{path} holds no sequence; FASTA has a line >name, then the letters of the protein")
    return [ProteinSequence(name, check_protein("".join(lines), f"{path}, {shown(name)}")) for name, lines in parts]


def check_protein(letters: str, where: str) -> str:
    """A sequence of the 20 amino acids; raises for DNA, gaps and unknown residues."""
    if not isinstance(letters, str) or not letters:
        raise InvalidInput(f"{where} is {shown(letters)}; give the amino acids of a protein in one-letter code")
    if set(letters) <= _DNA:
        raise InvalidInput(f"{where} has only the letters {_listed(letters)}: that is DNA or RNA; translate it first")
    odd = [(site, letter) for site, letter in enumerate(letters, start=1) if letter not in AMINO_ACIDS]
    if odd:
        site, letter = odd[0]
        raise InvalidInput(
            f"{where}: residue {site} is {letter!r}, which is none of the 20 amino acids {AMINO_ACIDS} "
            f"({len(odd)} such in all); replace unknown residues, and take gaps out"
        )
    return letters


def _listed(letters: str) -> str:
    return ", ".join(sorted(set(letters)))


def write_fasta(path: Path, sequences: Iterable[ProteinSequence]) -> None:
    """Write sequences with their names, 80 letters per line."""
    write_text(path, fasta_text(sequences))


def tokens_of(letters: str) -> Tensor:
    """The tokens of a protein, int64 [D]."""
    return torch.tensor([AMINO_ACIDS.index(letter) for letter in letters], dtype=torch.int64)


def letters_of(x: Tensor) -> list[str]:
    """The letters of finished sequences, int64 [B, D]."""
    return ["".join(AMINO_ACIDS[token] for token in row) for row in x.tolist()]


def fasta_text(sequences: Iterable[tuple[str, str]]) -> str:
    """The text of a FASTA file of named sequences, 80 letters a line."""
    lines: list[str] = []
    for name, letters in sequences:
        lines += [f">{name}", *(letters[k : k + _WIDTH] for k in range(0, len(letters), _WIDTH))]
    return "".join(f"{line}\n" for line in lines)
