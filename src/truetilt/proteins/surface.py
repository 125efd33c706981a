"""Solvent exposure of each residue from the backbone alone, and the hydrophobic share of the exposed surface.

A side chain is modelled as one sphere at its average position. Points on it that no other residue covers are exposed,
as a probe of the size of water rolls over the surface (Shrake and Rupley 1973). It does not depend on letters, so that
sequences of one backbone are compared on the same surface.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .network import with_virtual
from .structure import Structure

HYDROPHOBIC = "AFILMVW"
WATER, SIDE, ATOM = 1.4, 2.4, 1.8  # Å: radii of water, of a side chain and of an atom of the backbone
REACH = 2.4  # Å from CA to the middle of a side chain
POINTS = 200


def exposure(structure: Structure) -> Tensor:
    """The share of each residue's side chain that is accessible to water, float64 [L]."""
    atoms = with_virtual(structure.backbone.double())
    out = atoms[:, 4] - atoms[:, 1]
    middle = atoms[:, 1] + REACH * out / out.norm(dim=-1, keepdim=True)
    centres = torch.cat([atoms[:, :4].reshape(-1, 3), middle])
    radii = torch.cat([torch.full((4 * len(atoms),), ATOM), torch.full((len(atoms),), SIDE)]).double() + WATER
    points = middle[:, None] + (SIDE + WATER) * _sphere()
    covered = torch.cdist(points, centres.expand(len(points), -1, -1)) < radii - 1e-9
    own = torch.arange(len(atoms))
    covered[own, :, 4 * len(atoms) + own] = False
    for atom in range(4):
        covered[own, :, 4 * own + atom] = False
    return 1 - covered.any(-1).double().mean(-1)


def _sphere() -> Tensor:
    """Points spread evenly over the unit sphere along a spiral [POINTS, 3]."""
    k = torch.arange(POINTS, dtype=torch.float64) + 0.5
    height, angle = 1 - 2 * k / POINTS, math.pi * (1 + math.sqrt(5)) * k
    wide = (1 - height**2).sqrt()
    return torch.stack([wide * angle.cos(), wide * angle.sin(), height], -1)


def hydrophobic_share(exposed: Tensor, sequence: str) -> float:
    """The share of the exposed surface that belongs to hydrophobic residues of a sequence (chains joined by "/")."""
    letters = [letter in HYDROPHOBIC for letter in sequence.replace("/", "")]
    return float((exposed * torch.tensor(letters, dtype=torch.float64)).sum() / exposed.sum())
