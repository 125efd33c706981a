"""Humanness of an antibody: the share of its 9-mers that many people have (OASis), and its identity to the parent.

The 9-mers are those found in at least 10 % of the subjects of the Observed Antibody Space, as shipped in the package
`promb`. AntiBERTy was trained on the same database.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from ..core.errors import InvalidInput
from ..core.storage import read_unpacked

LENGTH = 9
_FILE = "OASis_9mers_v1_10perc_subjects.txt.gz"


def peptide_file() -> Path:
    """The file of 9-mers inside the installed package, whose code is not run."""
    found = find_spec("promb")
    if found is None or not found.submodule_search_locations:
        raise InvalidInput("the 9-mers of OASis are in the package promb; pip install promb==1.0.2")
    return Path(next(iter(found.submodule_search_locations))) / "resources" / _FILE


@lru_cache(maxsize=1)
def human_peptides(path: Path) -> frozenset[str]:
    """The 9-mers of a file, one per line, compressed or not."""
    found = frozenset(read_unpacked(path).decode("ascii").split())
    if not found or any(len(peptide) != LENGTH for peptide in found):
        raise InvalidInput(f"{path} does not list words of {LENGTH} letters; give the file of OASis 9-mers")
    return found


def oasis_content(sequence: str, peptides: frozenset[str]) -> float:
    """The share of a sequence's overlapping 9-mers that are in this set."""
    words = [sequence[k : k + LENGTH] for k in range(len(sequence) - LENGTH + 1)]
    if not words:
        raise InvalidInput(f"a sequence of {len(sequence)} residues has no word of {LENGTH}")
    return sum(word in peptides for word in words) / len(words)


def identity(sequence: str, parent: str) -> float:
    """The share of residues equal to the parent's; both have the same length."""
    if len(sequence) != len(parent) or not parent:
        raise InvalidInput(f"sequences of {len(sequence)} and {len(parent)} residues; compare those of one length")
    return sum(a == b for a, b in zip(sequence, parent, strict=True)) / len(parent)
