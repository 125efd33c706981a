"""A protein to design: a backbone, the law of its open residues, and conversions between tokens and sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ..core.arguments import device_here, path_of, shown
from ..core.errors import InvalidInput
from ..core.fasta import AMINO_ACIDS, fasta_text
from ..core.storage import write_text
from ..core.types import Model, Tokens
from ..diffusion.processes import Masking
from ..viz.logo import SequenceLogo
from .law import OrderedLaw
from .open_sites import OpenSites, choose
from .score import GivenBefore, OrderedScore
from .structure import UNKNOWN, Structure, read_structure
from .weights import FOLDERS, find_weights, read_network

NAME = "proteinmpnn"


@dataclass(frozen=True, eq=False)
class Protein:
    """ProteinMPNN on one backbone; `model()` is what samplers take, `log_prob` the law of finished sequences.

    A state holds the letters of the open sites, tokens 0 to 19 of ACDEFGHIKLMNPQRSTVWY. The law is that of one decoding
    order, `order`: reveal sites in it.

    Args:
        law: The exact law of the letters of the open sites, in one decoding order.
        weights: Which weights the network has, "vanilla" (the default), "soluble" or a path.
        noise: Noise that it was trained with, in hundredths of Å: "002", "010", "020" (the default) or "030".
    """

    law: OrderedLaw
    weights: str = "vanilla"
    noise: str = "020"

    def __repr__(self) -> str:
        structure = self.structure
        size = f"{len(structure.residues)} residues, chains {', '.join(structure.chains)}"
        sites = f"{len(self.law)} open site{'' if len(self.law) == 1 else 's'}"
        return f"<Protein: {size}; {sites}; {self.weights} weights>"

    @property
    def structure(self) -> Structure:
        return self.law.structure

    @property
    def choice(self) -> OpenSites:
        return self.law.choice

    @property
    def length(self) -> int:
        """Number of open sites."""
        return len(self.law)

    @property
    def order(self) -> tuple[int, ...]:
        """The decoding order, in which samplers reveal sites."""
        return self.law.order

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the open sites in the file: A39, or A39=B39 if they are tied."""
        return self.choice.named(self.structure)

    @property
    def view(self) -> SequenceLogo:
        """The view of states for reports and figures."""
        return SequenceLogo(AMINO_ACIDS, self.sites)

    def model(self, condition: str | Path | None = None, log_p_condition: float | None = None) -> Model:
        """The model to sample; with a `condition` ("soluble", or a file of weights) those weights are its conditional.

        A target $p0(x) p(zeta|x)^alpha$ is then built from the ratio of the two networks.
        """
        if condition is not None and str(condition) == self.weights and self.weights in FOLDERS:
            raise InvalidInput(
                f"base and condition are both {condition}: nothing to lean to; give other weights to one"
            )
        given = None if condition is None else OrderedScore(self.under(condition))
        process = Masking(len(AMINO_ACIDS))
        return Model(
            process, self.length, OrderedScore(self.law), given, None, self.law.device, log_p_condition=log_p_condition
        )

    def under(self, weights: str | Path) -> OrderedLaw:
        """The law of the same sites in the same order under other weights."""
        net = read_network(find_weights(weights, self.noise)).to(self.law.device, self.law.net.W_out.weight.dtype)
        return OrderedLaw(net, self.structure, self.choice, self.law.batch)

    def log_prob(self, x: Tokens) -> Tensor:
        """$log p(x | order)$ of finished states [B, D], in one pass; for `tt.WholeSequence` and `tt.recycled`."""
        return self.law.log_prob(x)

    @property
    def proposal(self) -> GivenBefore:
        """The network's law of a site given those before it: a proposal for `tt.WholeSequence`."""
        return GivenBefore(self.law)

    @cached_property
    def native(self) -> Tokens:
        """The letters of the file at the open sites, int64 [D]; -1 if unknown."""
        letters = [self.structure.residues[site[0]].letter for site in self.choice.sites]
        return torch.tensor([AMINO_ACIDS.find(letter) for letter in letters])

    def recovery(self, x: Tokens) -> Tensor:
        """The share of open sites with the letter of the file, float64 [...]."""
        return (x.cpu() == self.native).double().mean(-1)

    def sequence(self, x: Tokens) -> str:
        """The whole sequence of one finished state [D], chains joined by "/"."""
        if not isinstance(x, Tensor) or tuple(x.shape) != (self.length,):
            raise InvalidInput(f"the state is {shown(x)}; give the tokens of one sequence [{self.length}]")
        letters = list(self.structure.letters)
        for site, token in zip(self.choice.sites, x.tolist(), strict=True):
            for place in site:
                letters[place] = AMINO_ACIDS[token] if 0 <= token < len(AMINO_ACIDS) else UNKNOWN
        chains = [residue.chain for residue in self.structure.residues]
        cut = ["/" if k and chain != chains[k - 1] else "" for k, chain in enumerate(chains)]
        return "".join(mark + letter for mark, letter in zip(cut, letters, strict=True))

    def tokens(self, sequence: str) -> Tokens:
        """The state [D] of a whole sequence, as `sequence` writes it; only its open sites are read."""
        letters = sequence.replace("/", "").upper() if isinstance(sequence, str) else ""
        if len(letters) != len(self.structure.residues):
            raise InvalidInput(
                f"the sequence has {len(letters)} letters and the structure {len(self.structure.residues)} residues"
            )
        found = [{letters[place] for place in site} for site in self.choice.sites]
        odd = [name for name, own in zip(self.sites, found, strict=True) if len(own) > 1 or not own <= set(AMINO_ACIDS)]
        if odd:
            raise InvalidInput(f"the sequence has no amino acid at {odd[0]}, or several where residues are tied")
        return torch.tensor([AMINO_ACIDS.index(own.pop()) for own in found])

    def fasta(self, x: Tokens, notes: Sequence[str] = ()) -> str:
        """Finished states [K, D] as FASTA, with a note in the heading of each."""
        told = [f" {note}" for note in notes] or [""] * len(x)
        return fasta_text((f"design_{k + 1}{told[k]}", self.sequence(state)) for k, state in enumerate(x))

    def write_fasta(self, path: str | Path, x: Tokens, notes: Sequence[str] = ()) -> Path:
        """Write `fasta` to a file."""
        path = path_of("path", path)
        write_text(path, self.fasta(x, notes))
        return path


def load_protein(
    *,
    structure: str | Path | Structure | None = None,
    open: str | None = None,
    weights: str | Path = "vanilla",
    noise: str = "020",
    chains: str | Sequence[str] | None = None,
    fixed: str | None = None,
    forbid: str = "",
    tied: str | None = None,
    order: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    batch: int | None = None,
    dtype: torch.dtype | None = None,
) -> Protein:
    """ProteinMPNN on a backbone: what `tt.load("proteinmpnn", structure=...)` returns.

    Args:
        structure: A PDB or mmCIF file.
        open: Residues to design, by their numbers in the file: "39-41,54", "A10-20,B7", "A". None (the default): all
            of the designed chains.
        weights: "vanilla" (the default) or "soluble", from the package proteinmpnn 0.1.3; or a .pt file of that format.
        noise: Hundredths of Å of noise that the weights were trained with: "002", "010", "020" (the default), "030".
        chains: Chains to design, "A" or "A,B"; the others are kept as context. None (the default): all.
        fixed: Residues that keep their letters, in the format of `open`.
        forbid: Letters that no open residue gets unless the file has it there: "C" for no new cysteines.
        tied: Residues that share one letter: chains "A=B" (a homodimer), or residues "A10=B10", "A10-20=B10-20".
        order: Decoding order of the open sites, a permutation of 0 .. D - 1. None (the default): that of the file.
        device: Where the network runs.
        batch: States in a pass; 16 if None.
        dtype: float32 (None) or float64.
    """
    device_here(device)
    if structure is None:
        raise InvalidInput('proteinmpnn designs a backbone; give it, tt.load("proteinmpnn", structure="x.pdb")')
    if dtype not in (None, torch.float32, torch.float64):
        raise InvalidInput(f"dtype is {shown(dtype)}; ProteinMPNN runs in torch.float32 or torch.float64")
    backbone = structure if isinstance(structure, Structure) else read_structure(structure)
    choice = choose(backbone, open, chains=chains, fixed=fixed, forbid=forbid, tied=tied, order=order)
    net = read_network(find_weights(weights, noise)).to(device, dtype or torch.float32)
    law = OrderedLaw(net, backbone, choice, 16 if batch is None else batch)
    return Protein(law, str(weights) if str(weights) in FOLDERS else Path(weights).name, noise)
