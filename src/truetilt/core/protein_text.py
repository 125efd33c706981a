"""Proteins as text: the letters of amino acids, and sequences as a FASTA file has them."""

from __future__ import annotations

from collections.abc import Iterable

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"  # in alphabetical order, which is that of the tokens of most networks
_WIDTH = 80  # letters in a line


def fasta_text(sequences: Iterable[tuple[str, str]]) -> str:
    """The text of a FASTA file of named sequences, 80 letters a line."""
    lines: list[str] = []
    for name, letters in sequences:
        lines += [f">{name}", *(letters[k : k + _WIDTH] for k in range(0, len(letters), _WIDTH))]
    return "".join(f"{line}\n" for line in lines)
