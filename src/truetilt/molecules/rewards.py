"""Rewards of molecules, a few lines each: functions of an RDKit molecule that return a number. Copy one, and change it.

-inf forbids a molecule. A `PropertyScore` is a reward of a property that the network's potential predicts (QED, logP):
the potential then gives a value of partly masked molecules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from ..core.arguments import function, number, set_fields, shown
from ..core.chemistry import PROPERTIES, parsed, rdkit
from ..core.errors import InvalidInput

MoleculeScore = Callable[[Any], float]  # of an RDKit molecule
RANGES = {"qed": (0.0, 1.0)}  # of a property


def property_values(smiles: str) -> dict[str, float | None]:
    """The properties of a molecule by name; None for an invalid one."""
    mol = parsed(smiles)
    return {name: None if mol is None else float(value(mol)) for name, value in PROPERTIES.items()}


def itself(value: float) -> float:
    """The property as it is."""
    return value


def bell(value: float, centre: float, width: float) -> float:
    """The logarithm of a Gaussian of this centre and width, 0 at its top."""
    return -0.5 * ((value - centre) / width) ** 2


def step(value: float, least: float, most: float) -> float:
    """0 inside an interval, -inf outside."""
    return 0.0 if least <= value <= most else -math.inf


@dataclass(frozen=True)
class PropertyScore:
    """A reward f(property) of a property that the potential predicts, "qed" or "logp"; f is the identity by default."""

    name: str
    of_value: Callable[[float], float] = itself

    def __post_init__(self) -> None:
        if self.name not in PROPERTIES:
            raise InvalidInput(f"the property is {shown(self.name)}; known are {', '.join(PROPERTIES)}")
        function("of_value", self.of_value, "(value)")

    def __call__(self, mol: Any) -> float:
        return self.of_value(PROPERTIES[self.name](mol))


qed = PropertyScore("qed")


def logp_near(value: float, width: float = 0.25) -> PropertyScore:
    """logP towards a value: the logarithm of a Gaussian of this width (a quarter by default)."""
    centre, width = number("the logP", value, "give a number"), number("width", width, "give a number above 0")
    if not (math.isfinite(centre) and 0 < width < math.inf):
        raise InvalidInput(f"logP near {centre} with width {width}; give a number, and a width above 0")
    return PropertyScore("logp", partial(bell, centre=centre, width=width))


def within(name: str, least: float = -math.inf, most: float = math.inf) -> PropertyScore:
    """A property inside an interval, all else forbidden: within("qed", 0.94) is QED of at least .94."""
    least, most = (number(f"the limit of {name}", value, "give a number") for value in (least, most))
    low, high = RANGES.get(name, (-math.inf, math.inf))
    if least > high or most < low or least > most:
        raise InvalidInput(
            f"no molecule has {name} between {least:g} and {most:g}; {name} lies between {low:g} and {high:g}"
        )
    return PropertyScore(name, partial(step, least=least, most=most))


@lru_cache(maxsize=1)
def _sa_scorer() -> Any:
    """The SA score of Ertl and Schuffenhauer (2009), from RDKit's contrib folder."""
    rdkit()
    try:
        from rdkit.Contrib.SA_Score import sascorer
    except ImportError as error:
        raise InvalidInput("this RDKit has no SA score among its contributions; pip install rdkit has it") from error
    return sascorer


def easy_to_make(mol: Any) -> float:
    """Minus the SA score, which ranges from 1 (easy to make) to 10."""
    return -float(_sa_scorer().calculateScore(mol))


def _molecule(what: str, text: object, read: Callable[[str], Any]) -> Any:
    """A molecule or pattern given by the user; raises if RDKit cannot read it."""
    found = read(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(
            f"the {what} is {shown(text)}, which RDKit cannot read; check its brackets, rings and valences"
        )
    return found


@lru_cache(maxsize=1)
def _fingerprints() -> Any:
    rdkit()
    from rdkit.Chem import rdFingerprintGenerator

    return rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)


@dataclass(frozen=True)
class SimilarTo:
    """The Tanimoto similarity of Morgan fingerprints (radius 2, 2048 bits) to a given molecule, 0 to 1."""

    smiles: str

    def __post_init__(self) -> None:
        _molecule("molecule to be similar to", self.smiles, parsed)

    def __call__(self, mol: Any) -> float:
        from rdkit import DataStructs

        return DataStructs.TanimotoSimilarity(_fingerprint(self.smiles), _fingerprints().GetFingerprint(mol))


@lru_cache(maxsize=64)
def _fingerprint(smiles: str) -> Any:
    return _fingerprints().GetFingerprint(parsed(smiles))


@lru_cache(maxsize=256)
def pattern(smarts: str) -> Any:
    """A substructure, SMARTS or SMILES, as an RDKit pattern; None if it cannot be read."""
    return rdkit().MolFromSmarts(smarts) if smarts else None


@dataclass(frozen=True)
class Contains:
    """0 if a molecule has this substructure (SMARTS), else -inf (forbidden)."""

    smarts: str

    def __post_init__(self) -> None:
        _molecule("substructure", self.smarts, pattern)

    def __call__(self, mol: Any) -> float:
        return 0.0 if mol.HasSubstructMatch(pattern(self.smarts)) else -math.inf


@dataclass(frozen=True)
class Lacks:
    """0 if a molecule has no such substructure (SMARTS), else -inf."""

    smarts: str

    def __post_init__(self) -> None:
        _molecule("substructure", self.smarts, pattern)

    def __call__(self, mol: Any) -> float:
        return -math.inf if mol.HasSubstructMatch(pattern(self.smarts)) else 0.0


@dataclass(frozen=True)
class Together:
    """A weighted sum of rewards; a molecule that one of them forbids is forbidden."""

    parts: tuple[tuple[MoleculeScore, float], ...]

    def __post_init__(self) -> None:
        for score, factor in self.parts:
            function("a reward", score, "(mol)")
            number("the factor of a reward", factor, "give a number")
        set_fields(self, parts=tuple((score, float(factor)) for score, factor in self.parts))

    def __call__(self, mol: Any) -> float:
        values = [(score(mol), factor) for score, factor in self.parts]
        return -math.inf if any(value == -math.inf for value, _ in values) else sum(v * f for v, f in values)


def together(*scores: MoleculeScore | tuple[MoleculeScore, float]) -> Together:
    """A weighted sum of rewards: together(qed, (easy_to_make, 0.1), Lacks("[N+](=O)[O-]"))."""
    return Together(tuple(one if isinstance(one, tuple) else (one, 1.0) for one in scores))


@dataclass(frozen=True, eq=False)
class MoleculeFunction:
    """A function of an RDKit molecule as a function of SMILES; -inf if invalid or without the kept fragment."""

    score: Any = None  # None: 0 for every molecule
    kept: Contains | None = None

    def __call__(self, smiles: str) -> float:
        mol = parsed(smiles)
        if mol is None or (self.kept is not None and self.kept(mol) != 0):
            return -math.inf
        return 0.0 if self.score is None else self.score(mol)

    @property
    def __name__(self) -> str:
        return "valid" if self.score is None else getattr(self.score, "__name__", type(self.score).__name__)
