"""A protein's whole sequence as HTML: open residues are highlighted, and masked ones are squares."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np

from ..core.fasta import AMINO_ACIDS
from ..proteins.bundle import Protein
from ..viz.views import MASKED


class WholeChain(NamedTuple):
    """The letters of a structure and its open sites; maps a state [D] to its sequence as HTML. Holds no network."""

    letters: str
    chains: tuple[str, ...]  # chain of every residue
    sites: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, protein: Protein) -> WholeChain:
        """The whole chain of a protein."""
        residues = protein.structure.residues
        return cls(protein.structure.letters, tuple(one.chain for one in residues), protein.choice.sites)

    def __call__(self, x: np.ndarray) -> str:
        some = len(self.letters) > sum(map(len, self.sites))
        drawn = {place: int(token) for site, token in zip(self.sites, x, strict=True) for place in site}
        out = []
        for place, own in enumerate(self.letters):
            token = drawn.get(place)
            known = token is not None and 0 <= token < len(AMINO_ACIDS)
            letter = escape(own) if token is None else AMINO_ACIDS[token] if known else MASKED
            cut = "/" if place and self.chains[place] != self.chains[place - 1] else ""
            out.append(cut + (f"<b>{letter}</b>" if some and token is not None else letter))
        return f'<p class="chain">{"".join(out)}</p>'
