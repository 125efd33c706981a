"""How good drawn molecules are: reward, share above the threshold, diversity, novelty, and the distance to the base.

The distance is a Fréchet distance as in FCD, between normal laws of nine RDKit descriptors, each divided by its
standard deviation over draws of the base; it is not ChemNet's.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..commands.job_runner import Answer
from ..core.chemistry import parsed
from ..core.errors import InvalidInput
from ..core.logits import draw_from
from ..core.types import Tokens
from ..molecules.bundle import Molecules
from .molecule_tasks import Task

SHOWN = 256  # draws by weight that diversity, novelty and the distance are measured on
TRAIN = "train.csv.gz"
DESCRIPTORS = (
    "CalcExactMolWt",
    "CalcCrippenDescriptors",
    "CalcTPSA",
    "CalcNumHBA",
    "CalcNumHBD",
    "CalcNumRotatableBonds",
    "CalcNumRings",
    "CalcNumAromaticRings",
    "CalcFractionCSP3",
)


def descriptors(mol: Any) -> list[float]:
    """The nine descriptors; of Crippen's two the logP."""
    from rdkit.Chem import rdMolDescriptors

    found = [getattr(rdMolDescriptors, name)(mol) for name in DESCRIPTORS]
    return [float(one[0] if isinstance(one, tuple) else one) for one in found]


class Moments(NamedTuple):
    """Count, sums and sums of products of descriptors; those of several samples add up."""

    count: int
    first: Tensor  # [9]
    second: Tensor  # [9, 9]

    @staticmethod
    def of(mols: Sequence[Any]) -> Moments:
        x = torch.tensor([descriptors(mol) for mol in mols], dtype=torch.float64).reshape(-1, len(DESCRIPTORS))
        return Moments(len(x), x.sum(0), x.T @ x)

    @staticmethod
    def read(told: Answer) -> Moments:
        first, second = (torch.tensor(told[key], dtype=torch.float64) for key in ("first", "second"))
        return Moments(told["count"], first, second)

    @staticmethod
    def total(each: Sequence[Moments]) -> Moments:
        zero = torch.zeros(len(DESCRIPTORS), dtype=torch.float64)
        first = sum((one.first for one in each), zero)
        return Moments(
            sum(one.count for one in each), first, sum((one.second for one in each), torch.outer(zero, zero))
        )

    def told(self) -> Answer:
        return {"count": self.count, "first": self.first.tolist(), "second": self.second.tolist()}

    @property
    def law(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance."""
        mean = self.first / self.count
        return mean, self.second / self.count - torch.outer(mean, mean)


def distance(one: Moments, base: Moments) -> float | None:
    """The squared Fréchet distance of two normal laws, in units of the base's standard deviations; None without
    draws."""
    if one.count < 2 or base.count < 2:
        return None
    (mean, cov), (mean0, cov0) = one.law, base.law
    scale = cov0.diagonal().clamp(min=1e-12).sqrt()
    gap, a, b = (mean - mean0) / scale, cov / torch.outer(scale, scale), cov0 / torch.outer(scale, scale)
    root = _root(b)
    cross = torch.linalg.eigvalsh(root @ a @ root).clamp(min=0).sqrt().sum()
    return float(gap @ gap + a.trace() + b.trace() - 2 * cross)


def _root(matrix: Tensor) -> Tensor:
    """The symmetric square root."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T


@lru_cache(maxsize=1)
def _fingerprints() -> Any:
    from rdkit.Chem import rdFingerprintGenerator

    return rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024)


def diversity(smiles: Sequence[str]) -> float | None:
    """One minus the mean Tanimoto similarity of two different draws, Morgan fingerprints; repeats count as 1."""
    from rdkit import DataStructs

    if len(smiles) < 2:
        return None
    bits = [_fingerprints().GetFingerprint(parsed(one)) for one in smiles]
    total = sum(sum(DataStructs.BulkTanimotoSimilarity(bits[k], bits[:k])) for k in range(1, len(bits)))
    return 1 - total / (len(bits) * (len(bits) - 1) / 2)


def by_weight(x: Tokens, weights: Tensor, count: int = SHOWN) -> Tokens:
    """At most `count` draws: an equally weighted sample that is no larger as it is, else evenly spaced by weight."""
    if len(x) <= count and bool((weights == weights[0]).all()):
        return x
    heights = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    chosen = draw_from(weights.cpu().cumsum(0) / weights.sum().cpu(), heights)
    return x[chosen.to(x.device)]


def judged(task: Task, nets: Molecules, reward: Any, x: Tokens, weights: Tensor) -> Answer:
    """The figures of weighted states; the mean reward is over those allowed (valid, with the fragment), whose share is
    told.

    Also the draws on which the rest is measured: their SMILES, and moments of their descriptors.
    """
    values, weights = reward(x).cpu().double(), weights.cpu()
    alive = values > -math.inf
    mass = float(weights[alive].sum())
    worth: dict[str, float] = {}
    for one, weight in zip(nets.decode(x[alive.to(x.device)]), weights[alive].tolist(), strict=True):
        worth[one] = worth.get(one, 0.0) + weight
    some = by_weight(x, weights)
    kept = (reward(some).cpu() > -math.inf).to(some.device)
    smiles = nets.decode(some[kept])
    return {
        "reward": float((weights[alive] * values[alive]).sum() / mass) if mass > 0 else None,
        "above": math.fsum(weight for one, weight in worth.items() if weight > 0 and task.rule(parsed(one))),
        "valid": mass,
        "distinct": len(worth),
        "returned": len(x),
        "diversity": diversity(smiles),
        "moments": Moments.of([parsed(one) for one in smiles]).told(),
        "smiles": smiles,
    }


def read_training_set(data: str | None) -> frozenset[str] | None:
    """The SMILES of MOSES' training set, from the folder moses/dataset/data of the package molsets; None without a
    folder."""
    if data is None:
        return None
    path = Path(data) / TRAIN
    if not path.is_file():
        raise InvalidInput(f"{data} has no {TRAIN}; --data is the folder moses/dataset/data of the package molsets")
    with gzip.open(path, "rt") as file:
        next(file)
        return frozenset(line.split(",")[0].strip() for line in file)


def novelty(smiles: Sequence[str], known: frozenset[str] | None) -> float | None:
    """The share of draws that are not in the training set; None without either."""
    if known is None or not smiles:
        return None
    return sum(one not in known for one in smiles) / len(smiles)
