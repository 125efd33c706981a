"""The tasks of molecules: what is fixed, the soft reward that steers, and the hard rule that judges.

`USE` has the tasks on which methods are compared; `TRUTH` has hard rewards whose answers draws of the base can check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from ..core.errors import InvalidInput
from ..molecules.bundle import Molecules, load_molecules
from ..molecules.rewards import MoleculeScore, SimilarTo, easy_to_make, logp_near, qed, together, within

CELECOXIB = "Cc1ccc(-c2cc(C(F)(F)F)nn2-c2ccc(S(N)(=O)=O)cc2)cc1"
SCAFFOLD = "*c1ccc2[nH]ccc2c1"  # indole, open at one carbon of its benzene ring
BATCHES = {"cpu": 32, "cuda": 1024}  # rows of a network pass


@dataclass(frozen=True)
class Task:
    """A target p0(x) exp(strength * score(x)), around a fragment if one is fixed, and the rule that judges a draw.

    `known`: the potential predicts the property that matters most, so that guidance can follow its gradient.
    """

    name: str
    title: str
    score: MoleculeScore
    rule: Callable[[Any], bool]  # of an RDKit molecule: whether it is above the threshold
    strength: float = 1.0
    fix: str | None = None
    known: bool = True


def drug_like(mol: Any) -> bool:
    """QED of at least .94."""
    return qed(mol) >= 0.94


def greasy(mol: Any) -> bool:
    """logP of 5, to a quarter."""
    return within("logp", 4.75, 5.25)(mol) == 0


def similar(mol: Any) -> float:
    """Tanimoto similarity to celecoxib; a function, since `SimilarTo` reads its molecule when it is made."""
    return SimilarTo(CELECOXIB)(mol)


def like_celecoxib(mol: Any) -> bool:
    """Tanimoto similarity of at least .4 to celecoxib, and QED of at least .7."""
    return similar(mol) >= 0.4 and qed(mol) >= 0.7


def easy_and_drug_like(mol: Any) -> bool:
    """QED of at least .75 and an SA score of at most 2."""
    return qed(mol) >= 0.75 and -easy_to_make(mol) <= 2.0


USE = (
    Task("qed", "30 QED; QED ≥ .94", together((qed, 30.0)), drug_like),
    Task("logp", "logP near 5; within .25", logp_near(5.0, 0.25), greasy),
    Task(
        "celecoxib",
        "30 similarity to celecoxib + 10 QED; ≥ .4 and ≥ .7",
        together((similar, 30.0), (qed, 10.0)),
        like_celecoxib,
        known=False,
    ),
    Task(
        "scaffold",
        "indole kept, 30 QED − 3 SA; QED ≥ .75, SA ≤ 2",
        together((qed, 30.0), (easy_to_make, 3.0)),
        easy_and_drug_like,
        fix=SCAFFOLD,
    ),
)
TRUTH = (
    Task("qed", "QED ≥ .94", within("qed", 0.94), drug_like),
    Task("logp", "logP from 4.75 to 5.25", within("logp", 4.75, 5.25), greasy),
)


def task_of(name: str, tasks: tuple[Task, ...] = USE) -> Task:
    """The task of this name."""
    found = {task.name: task for task in tasks}
    if name not in found:
        raise InvalidInput(f"there is no task {name!r}; known are {', '.join(found)}")
    return found[name]


@lru_cache(maxsize=4)
def networks(device: str, fix: str | None = None) -> Molecules:
    """The networks, with the fragment fixed; on a GPU in large batches and in bfloat16."""
    kind = torch.device(device).type
    dtype = torch.bfloat16 if kind == "cuda" else None
    nets = load_molecules(device=device, batch=BATCHES.get(kind, BATCHES["cuda"]), dtype=dtype)
    return nets if fix is None else nets.fix(fix)
