"""The backbone of a protein: N, CA, C and O of every residue, read from a PDB or mmCIF file by gemmi.

Unusable input raises a one-line error that names the residue: a file without a backbone, a residue with missing atoms,
a name that is no amino acid. A broken chain gives a warning. The network sees residue numbers with their jumps, as in
training.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.arguments import path_of
from ..core.errors import InvalidInput
from ..core.fasta import AMINO_ACIDS
from ..core.storage import check_plain, read_bytes, read_unpacked

UNKNOWN = "X"  # its 21st token
ATOMS = ("N", "CA", "C", "O")
BLANK = "_"  # the name of a chain without one
FARTHEST = 5.0  # Å from CA to its own N, C and O, at most; 2.4 in a protein
BOND = (0.8, 2.5)  # Å from N to CA, of the middle residue: 1.46 in a protein, .146 where a file counts in nanometres
BROKEN = 2.5  # Å from C to the next N, 1.33 where they are bound
_PLACE = re.compile(rb" *[+-]?[0-9]+(\.[0-9]*)? *")  # of a PDB file: a coordinate in its eight columns
_NUMBER = re.compile(rb" *-?[0-9]+ *|[A-Za-z][0-9A-Za-z]{3}")  # and a residue's number, which goes on in letters
_INSTALL = "pip install 'truetilt[protein]'"


class Residue(NamedTuple):
    """A residue: its chain, its number there with its insertion code, and its letter (X if unknown)."""

    chain: str
    number: int
    code: str
    letter: str

    @property
    def name(self) -> str:
        """Its name in the notation of requests: A39, or A39B with the insertion code B."""
        return f"{self.chain}{self.number}{self.code}"


@dataclass(frozen=True, eq=False)
class Structure:
    """Residues of all chains in the order of the file, and the coordinates of their backbones in Å [L, 4, 3]."""

    residues: tuple[Residue, ...]
    backbone: Tensor

    def __post_init__(self) -> None:
        shape = (len(self.residues), len(ATOMS), 3)
        if tuple(self.backbone.shape) != shape or not self.residues:
            raise InvalidInput(f"the backbone has shape {tuple(self.backbone.shape)}; give N, CA, C, O as {shape}")
        if not bool(self.backbone.isfinite().all()):
            raise InvalidInput("the backbone holds coordinates that are not finite; give them in Å")

    @property
    def chains(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(residue.chain for residue in self.residues))

    @property
    def letters(self) -> str:
        """The sequence of the file, chains one after another."""
        return "".join(residue.letter for residue in self.residues)

    @property
    def indices(self) -> Tensor:
        """The position of every residue in its chain, int64 [L]: jumps where the numbers jump, by at least 1."""
        out: list[int] = []
        for k, residue in enumerate(self.residues):
            before = self.residues[k - 1] if k else None
            same = before is not None and before.chain == residue.chain
            out.append(out[-1] + max(1, residue.number - before.number) if same and before is not None else 0)
        return torch.tensor(out)

    @property
    def chain_numbers(self) -> Tensor:
        """The number of every residue's chain, int64 [L]."""
        number = {chain: k for k, chain in enumerate(self.chains)}
        return torch.tensor([number[residue.chain] for residue in self.residues])


def read_structure(path: str | Path) -> Structure:
    """The backbone in a PDB or mmCIF file (also gzipped): its first model, without water, ligands and nucleic acids."""
    path = path_of("structure", path)
    if not path.is_file():
        found = f"{path} is a folder" if path.is_dir() else f"there is no file {path}"
        raise InvalidInput(f"{found}; give the path of a structure, PDB or mmCIF")
    _check_text(path)
    named = [(_residue(chain.name.strip() or BLANK, found), found) for chain in _first_model(path) for found in chain]
    pairs = [(residue, found) for residue, found in named if residue is not None]
    if not any(not _lacking(found) for _, found in pairs):
        of = f" (of {len(pairs)}, the first has {', '.join(a.name for a in pairs[0][1])} alone)" if pairs else ""
        raise InvalidInput(f"{path} has no residue with a backbone (N, CA, C, O){of}; ProteinMPNN reads nothing else")
    residues = tuple(residue for residue, _ in pairs)
    places = np.array([_atoms(path, residue, found) for residue, found in pairs], dtype=np.float32)
    off = np.abs(places - places[:, 1:2]).max((1, 2))  # NaN where a coordinate of an mmCIF file is none
    bond = float(np.nanmedian(np.linalg.norm(places[:, 1] - places[:, 0], axis=-1)))
    if not BOND[0] <= bond <= BOND[1]:
        raise InvalidInput(f"{path}: N and CA are {bond:.3g} apart, and 1.46 in a protein; give coordinates in Å")
    if not (off <= FARTHEST).all():
        name = residues[int((~(off <= FARTHEST)).argmax())].name
        raise InvalidInput(
            f"{path}: the backbone of residue {name} has coordinates that no residue has (N, C and O lie within 2.5 Å "
            "of CA); mend them, or remove the residue from the file"
        )
    _warn_of_gaps(path, residues, places)
    return Structure(residues, torch.from_numpy(places))


def _check_text(path: Path) -> None:
    """Raise if a file is of another kind: a FASTA file has no coordinates."""
    if path.suffix == ".gz":
        return
    head = read_bytes(check_plain(path))[:2000].lstrip()
    if head.startswith(b">"):
        raise InvalidInput(
            f"{path} is a FASTA file, a sequence without coordinates; give the structure (PDB or mmCIF) of its backbone"
        )
    if not head:
        raise InvalidInput(f"{path} is empty; give a structure, PDB or mmCIF")


def _first_model(path: Path) -> Any:
    try:
        import gemmi
    except ImportError as error:
        raise InvalidInput(f"structures are read by gemmi, which is not installed; {_INSTALL}") from error
    try:
        structure = gemmi.read_structure(str(path))
        if structure.input_format == gemmi.CoorFormat.Pdb:
            _check_columns(path)
        structure.setup_entities()
        structure.remove_alternative_conformations()
        structure.remove_hydrogens()
    except InvalidInput:
        raise
    except Exception as error:  # gemmi raises RuntimeError, ValueError and others
        words = str(error).strip().split("\n")[0][:200]
        raise InvalidInput(f"{path} cannot be read as a structure ({words}); give PDB or mmCIF") from error
    if len(structure) == 0 or not any(len(chain) for chain in structure[0]):
        raise InvalidInput(f"{path} has no atoms; give a structure, PDB or mmCIF")
    return structure[0]


def _check_columns(path: Path) -> None:
    """Raise for an atom of a PDB file whose columns hold anything but what they are for: gemmi reads junk as 0."""
    for number, line in enumerate(read_unpacked(path).splitlines(), start=1):
        if not line.startswith((b"ATOM  ", b"HETATM")):
            continue
        odd = [line[a : a + 8] for a in (30, 38, 46) if not _PLACE.fullmatch(line[a : a + 8])]
        odd += [] if _NUMBER.fullmatch(line[22:26]) else [line[22:26]]
        odd += [] if line[:54].isascii() else [line[12:27]]
        if odd:
            said = odd[0].decode("ascii", "replace")
            raise InvalidInput(
                f"{path}, line {number}: an atom with {said!r} where its name, its residue's number and three "
                "coordinates in Å stand in columns; mend the line, or write the file again"
            )


def _residue(chain: str, found: Any) -> Residue | None:
    """The residue of an amino acid; None for anything that is not part of a protein."""
    import gemmi

    kind = gemmi.find_tabulated_residue(found.name)
    named = kind.is_amino_acid()
    if not named and (kind.found() or not all(_atom(found, name) for name in ("N", "CA", "C"))):
        return None  # water, a ligand, an ion, a nucleotide
    letter = kind.one_letter_code.upper() if named else UNKNOWN
    letter = letter if letter in AMINO_ACIDS else UNKNOWN  # a modified residue counts as its parent amino acid
    return Residue(chain, found.seqid.num, found.seqid.icode.strip(), letter)


def _atom(found: Any, name: str) -> Any:
    return next((atom for atom in found if atom.name == name), None)


def _places(found: Any) -> dict[str, list[float]]:
    """The positions of the atoms of a residue; OXT and the like replace an O missing at a chain's end."""
    places = {atom.name: atom.pos.tolist() for atom in found}
    other = places.get("OXT", places.get("OT1"))
    return places if other is None else {"O": other} | places


def _lacking(found: Any) -> list[str]:
    """The backbone atoms that a residue lacks."""
    places = _places(found)
    return [name for name in ATOMS if name not in places]


def _atoms(path: Path, residue: Residue, found: Any) -> list[list[float]]:
    """The coordinates of N, CA, C and O."""
    places, lacking = _places(found), _lacking(found)
    if lacking:
        raise InvalidInput(
            f"{path}: residue {residue.name} ({found.name}) lacks {', '.join(lacking)} of its backbone; complete it "
            "(a loop builder does), or remove the residue from the file"
        )
    return [places[name] for name in ATOMS]


def _warn_of_gaps(path: Path, residues: Sequence[Residue], places: np.ndarray) -> None:
    """Warn in one line where chains are broken: C and the next N are not bonded, whatever the residue numbers."""
    reach = np.linalg.norm(places[1:, 0] - places[:-1, 2], axis=-1)
    pairs = [
        (a, b) for (a, b), far in zip(pairwise(residues), reach, strict=True) if a.chain == b.chain and far > BROKEN
    ]
    if pairs:
        gaps = [f"{a.name} and {b.name}" for a, b in pairs]
        more = f" and {len(gaps) - 3} more" if len(gaps) > 3 else ""
        warnings.warn(
            f"{path} has gaps: the chain is broken between {', '.join(gaps[:3])}{more}; designs are of the residues "
            "that are there, which the network sees by their numbers",
            stacklevel=3,
        )
