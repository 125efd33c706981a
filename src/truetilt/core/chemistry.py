"""Molecules as RDKit reads them: SMILES and SELFIES, parsed without its messages; one line where a package is missing.

Nothing here is imported before it is needed: `pip install 'truetilt[chem]'` brings RDKit and selfies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from .errors import InvalidInput

SMILES, SELFIES = "smiles", "selfies"
NEED = "pip install 'truetilt[chem]'"
_KEPT = 16_384  # molecules in the cache of parsed structures: a reward, a table and a picture use the same ones


def has_rdkit() -> bool:
    """Whether RDKit is installed, so that molecules can be parsed and drawn."""
    return find_spec("rdkit") is not None


@lru_cache(maxsize=1)
def rdkit() -> Any:
    """The package rdkit.Chem, its messages about rejected molecules switched off."""
    if not has_rdkit():
        raise InvalidInput(f"molecules are read by RDKit, which is not installed: {NEED}")
    from rdkit import Chem, rdBase

    rdBase.DisableLog("rdApp.*")
    return Chem


def selfies_library() -> Any:
    """The package selfies."""
    if find_spec("selfies") is None:
        raise InvalidInput(f"this network writes SELFIES, which the package selfies reads: {NEED}")
    import selfies

    return selfies


@lru_cache(maxsize=_KEPT)
def parsed(smiles: str) -> Any:
    """The molecule of a SMILES, None where RDKit finds none (wrong syntax or valences, or no atom)."""
    found = rdkit().MolFromSmiles(smiles) if smiles else None
    return None if found is None or not found.GetNumAtoms() else found


@lru_cache(maxsize=_KEPT)
def canonical(smiles: str) -> str | None:
    """The one SMILES that RDKit writes for a molecule, None where there is none."""
    found = parsed(smiles)
    return None if found is None else rdkit().MolToSmiles(found)


def smiles_of(text: str, notation: str) -> str:
    """The SMILES of a string in this notation; an empty one, or one without an atom, is the empty string."""
    return text if notation == SMILES else selfies_library().decoder(text)


def in_notation(smiles: str, notation: str) -> str:
    """A SMILES converted to this notation, its atoms in the same order."""
    if notation == SMILES:
        return smiles
    library = selfies_library()
    try:
        return library.encoder(smiles)
    except library.EncoderError as error:
        raise InvalidInput(f"{smiles!r} has no SELFIES ({' '.join(str(error).split())[:120]})") from error


def qed_value(mol: Any) -> float:
    """The drug-likeness QED of a molecule, 0 to 1 (Bickerton et al. 2012)."""
    rdkit()
    from rdkit.Chem import QED

    return QED.qed(mol)


def logp_value(mol: Any) -> float:
    """Crippen's log P of a molecule, the partition coefficient of octanol and water."""
    rdkit()
    from rdkit.Chem.rdMolDescriptors import CalcCrippenDescriptors

    return CalcCrippenDescriptors(mol)[0]


PROPERTIES: Mapping[str, Callable[[Any], float]] = {"qed": qed_value, "logp": logp_value}
