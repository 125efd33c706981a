"""Rewards of molecules by name: qed, logp=3, sa, similar=SMILES, contains=SMARTS, lacks=SMARTS.

Several are joined by " and ". Each has a default factor, chosen so that strength 1 has a visible effect; another factor
is written in front: 10*qed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..core.errors import InvalidInput
from .rewards import Contains, Lacks, MoleculeScore, SimilarTo, Together, easy_to_make, logp_near, qed, within

KNOWN = "qed, qed>0.9, logp=3, logp>3, sa, similar=SMILES, contains=SMARTS, lacks=SMARTS; several joined by ' and '"
_FORM = re.compile(r"(?:(?P<factor>[-+.\deE]+)\*)?(?P<name>[a-z]+)(?:(?P<sign>[=<>])(?P<what>\S+))?")


def _near(text: str) -> MoleculeScore:
    return logp_near(_number(text))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no number; write a reward such as logp=3 or qed>0.9") from error


_FORMS: dict[tuple[str, str | None], tuple[Callable[[str], MoleculeScore], float]] = {  # constructor and default factor
    ("qed", None): (lambda _: qed, 30.0),
    ("qed", ">"): (lambda text: within("qed", least=_number(text)), 1.0),
    ("qed", "<"): (lambda text: within("qed", most=_number(text)), 1.0),
    ("logp", "="): (_near, 1.0),
    ("logp", ">"): (lambda text: within("logp", least=_number(text)), 1.0),
    ("logp", "<"): (lambda text: within("logp", most=_number(text)), 1.0),
    ("sa", None): (lambda _: easy_to_make, 3.0),
    ("similar", "="): (SimilarTo, 30.0),
    ("contains", "="): (Contains, 1.0),
    ("lacks", "="): (Lacks, 1.0),
}


def named_score(text: str) -> Together:
    """The reward of a name, or of several joined by " and ", each with its factor."""
    return Together(tuple(_one(part.strip()) for part in text.split(" and ")))


def _one(text: str) -> tuple[MoleculeScore, float]:
    found = _FORM.fullmatch(text)
    made = None if found is None else _FORMS.get((found["name"], found["sign"]))
    if found is None or made is None:
        raise InvalidInput(f"the reward {text!r} is not known; give {KNOWN}; or file.py:function of an RDKit molecule")
    make, factor = made
    return make(found["what"] or ""), factor if found["factor"] is None else _number(found["factor"])
