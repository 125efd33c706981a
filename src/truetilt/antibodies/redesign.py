"""A redesign of an antibody chain: its open residues, its target, and the spelling of results.

p0 is the law that the network draws in a fixed order of the open residues, given the others. Its masked conditionals
disagree with one another, so another order is another law. Under one order log p0 of a sequence is a sum over passes,
and the weights are exact for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from ..core.arguments import device_here, listed, number, set_fields, shown, whole_number
from ..core.errors import InvalidInput
from ..core.fasta import AMINO_ACIDS, check_protein, letters_of, tokens_of
from ..core.types import Model, Tokens
from ..diffusion.processes import Masking
from ..models.infilling import Around, Infill
from ..models.net_score import NetPotential, NetScore, class_log_probs
from ..models.text_score import Padded
from ..targets.annealed import Annealed
from ..targets.moves import Metropolis
from ..targets.scans import systematic_scan
from ..viz.logo import SequenceLogo
from .hidden_loops import UnseeingPotential, UnseeingScore
from .masked_readings import MOST_READINGS, MaskedReadings, hidden_sites
from .network import SPECIES, AntibodyNet, HeadOf, package_folder, read_network
from .numbering import VariableDomain, number_domains
from .redesign_target import PulledTarget
from .rewards import Likeness, Promise, Pull, PullGuide

MASK = len(AMINO_ACIDS)
_GOLDEN = (math.sqrt(5) - 1) / 2
BATCH, GPU_BATCH = 64, 2048  # sequences per network evaluation, on the CPU and on a GPU


@dataclass(frozen=True)
class Antibodies:
    """AntiBERTy with its heads, as a bundle; `tt.load("antiberty")` makes it.

    Args:
        net: The network with its tokenizer.
        batch: Sequences evaluated at a time, 1 or more; 64 by default.
        dtype: Number type in which it is evaluated. None (the default): that of its weights.
    """

    net: AntibodyNet
    batch: int = BATCH
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        set_fields(self, batch=whole_number("batch", self.batch, 1))

    def __repr__(self) -> str:
        return f"<Antibodies: AntiBERTy, up to {self.longest} residues; on {self.device}>"

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    @property
    def longest(self) -> int:
        """The longest sequence that the network reads."""
        return self.net.config.length

    def log_species(self, sequences: Sequence[str]) -> Tensor:
        """$log p(species | sequence)$, float64 [B, 6], in the order of `SPECIES`: camel, human, mouse, rabbit, ..."""
        need = "give a list of sequences in one-letter code"
        rows = [self._tokens(one) for one in listed("sequences", sequences, need)]
        asked = Padded(HeadOf(self.net, "species"), self.batch, self.dtype)
        return torch.cat([class_log_probs(asked, row[None]) for row in rows])

    def _tokens(self, letters: str) -> Tensor:
        check_protein(letters, "a sequence")
        if len(letters) > self.longest:
            raise InvalidInput(f"a sequence of {len(letters)} residues, and the network reads {self.longest}")
        return tokens_of(letters).to(self.device)

    def redesign(
        self,
        parent: str,
        open_sites: Sequence[int] | None = None,
        *,
        cdrs: str = "kabat",
        unseen_cdrs: Sequence[int] = (),
        domain: VariableDomain | None = None,
    ) -> Redesign:
        """A chain whose framework is open and whose CDRs are kept.

        Args:
            parent: The chain, its amino acids in one-letter code.
            open_sites: Residues that may change, counted from 0. None (the default): the framework without the
                residues that all variable domains share (cysteines, tryptophan, ...).
            cdrs: Scheme that defines the CDRs, "kabat" (the default) or "imgt".
            unseen_cdrs: CDRs, such as (1, 2), hidden from p0. None by default. A mouse's loops make the network
                draw a mouse's framework. `target` sets what the species head sees of a finished chain.
            domain: The numbered domain, if known already. None (the default): it is numbered by anarcii.

        Returns:
            The redesign, whose `target(...)` is what `tt.run` takes.
        """
        tokens = self._tokens(parent)
        loops = [
            whole_number("a CDR", number, 1, 3) for number in listed("unseen_cdrs", unseen_cdrs, "give some of 1, 2, 3")
        ]
        if domain is None and (open_sites is None or loops):
            domain = number_domains({"the sequence": parent}, cdrs)["the sequence"]
        open_sites = domain.open_framework if open_sites is None and domain is not None else open_sites
        need = f"give different residues of 0 to {len(parent) - 1}"
        sites = tuple(
            whole_number("an open site", site, 0, len(parent) - 1) for site in listed("open_sites", open_sites, need)
        )
        if not sites or len(set(sites)) < len(sites):
            raise InvalidInput(f"open_sites has {len(sites)} residues, {len(set(sites))} of them different; {need}")
        cdrs_of = domain.cdrs if domain is not None else ()
        unseen = {site for number in loops for site in cdrs_of[number - 1]} - set(sites)
        kept = {site for loop in cdrs_of for site in loop} - set(sites)
        return Redesign(self, tokens, tuple(sorted(sites)), tuple(sorted(unseen)), tuple(sorted(kept)))


@dataclass(frozen=True, eq=False)
class Redesign:
    """A chain with open residues under a network; a state fills these residues, from the first to the last.

    Args:
        nets: The networks, a `tt.Antibodies`.
        parent: Tokens of the whole chain, int64 [L].
        open_sites: Sites of the chain that are sampled, counted from 0, rising.
        unseen: Sites hidden from the base model p0; none by default.
        loops: Sites of all CDRs, if the chain was numbered; none by default.
    """

    nets: Antibodies
    parent: Tensor  # tokens of the whole chain
    open_sites: tuple[int, ...]
    unseen: tuple[int, ...] = ()  # sites hidden from p0
    loops: tuple[int, ...] = ()  # sites of all CDRs, if the chain was numbered

    @property
    def given(self) -> tuple[int | None, ...]:
        """The chain's tokens, None at open sites."""
        free = set(self.open_sites)
        return tuple(None if site in free else token for site, token in enumerate(self.parent.tolist()))

    @property
    def own(self) -> Tensor:
        """The parent's tokens at the open sites [D]."""
        return self.parent[list(self.open_sites)]

    @property
    def parent_letters(self) -> str:
        """The parent in one-letter code."""
        return letters_of(self.parent[None])[0]

    @property
    def infill(self) -> Infill:
        """The score of the open residues given the others."""
        nets = self.nets
        score = NetScore(nets.net, Masking(MASK), None, nets.batch, nets.dtype)
        return Infill(UnseeingScore(score, self.unseen, MASK) if self.unseen else score, self.given)

    def log_species(self, species: str = "human", readings: int = 0) -> Around:
        """$log p(species | x)$ as a function of the open residues.

        Args:
            species: As in `target`.
            readings: 0 (the default): the head reads the chain once, as it is. M: the mean over M fixed readings, in
                each of which the CDRs and half of the open residues are masked; a pass each.
        """
        head, count = self._head(species), whole_number("readings", readings, 0, MOST_READINGS)
        if count:
            head = MaskedReadings(head, hidden_sites(self.open_sites, self.loops, count), MASK)
        return Around(head, self.infill)

    def log_species_on_the_way(self, species: str = "human") -> Around:
        """The same with the residues hidden from p0 masked, so that the base's own pass computes it."""
        return Around(UnseeingPotential(self._head(species), self.unseen, MASK), self.infill)

    def _head(self, species: str) -> NetPotential:
        nets = self.nets
        return NetPotential(HeadOf(nets.net, "species"), check_species(species), nets.batch, nets.dtype)

    def model(self, species: str = "human") -> Model:
        """The open residues given the others, with $log p(species | x)$ as the potential."""
        infill = self.infill
        process = cast("Masking", infill.process)
        return Model(process, infill.length, infill, None, self.log_species(species), self.nets.device)

    def order(self) -> tuple[int, ...]:
        """The default order of the open sites, part of the definition of p0: each is far from those just before it."""
        return tuple(sorted(range(len(self.open_sites)), key=lambda number: number * _GOLDEN % 1))

    def target(
        self,
        species: str = "human",
        *,
        alpha: float = 1.0,
        pull: float = 0.0,
        sharpness: float = 1.0,
        order: tuple[int, ...] | None = None,
        costs: Tensor | None = None,
        readings: int = 0,
    ) -> PulledTarget:
        """$pi ~ p0(x)^sharpness p(species|x)^alpha exp(-pull * distance to the parent)$, as a Feynman-Kac model for
        `tt.run`.

        Args:
            species: "human" (the default), "mouse", "camel", "rabbit", "rat" or "rhesus".
            alpha: Exponent of $p(species|x)$, 0 or more; 1 by default.
            pull: Cost of each change, in nats; 0 by default.
            sharpness: Exponent of p0, above 0; 1 by default.
            order: The order that defines p0. None (the default): `order()`.
            costs: Costs of changes, as in `Pull`. None (the default): each counts 1.
            readings: How many masked readings of the finished chain $log p(species|x)$ is the mean of, as in
                `log_species`. 0 (the default): the head reads it once, as it is. On the way it is asked once anyhow.
        """
        likeness = self._likeness(self.log_species(species, readings), alpha, pull, costs)
        return self._pulled(self.model(species), species, likeness, sharpness, 1.0, order)

    def annealed(
        self,
        species: str = "human",
        *,
        alpha: float = 1.0,
        pull: float = 0.0,
        sharpness: float = 1.0,
        start: float = 0.15,
        sweeps: int = 2,
        order: tuple[int, ...] | None = None,
        costs: Tensor | None = None,
        readings: int = 0,
        reveal_steps: int | None = None,
    ) -> Annealed:
        """Designs for the same target by annealing: chains are drawn from an easier target, and moved while it
        sharpens.

        The first draws use exponents $alpha * start$ and $pull * start$ and a sharpness of at most 1; moves then redraw
        one residue after another, `sweeps` times each. The network's conditionals disagree with one another: moves keep
        another law than the order's, and the log p0 in the weights drifts away from it. The run measures by how much,
        and `trust()` reports it: use these as designs; weights and log Z are those of `target` only if there is no
        drift.

        Args:
            species: As in `target`, like the next six.
            alpha: Exponent of $p(species|x)$.
            pull: Cost of each change, in nats.
            sharpness: Exponent of p0.
            order: The order that defines p0.
            costs: Costs of changes.
            readings: Masked readings of a finished chain; a move costs a pass, and one more a reading.
            start: Share of alpha and pull in the first draws, above 0, at most 1; 0.15 by default.
            sweeps: Number of times each residue is redrawn, 1 or more; 2 by default.
            reveal_steps: Steps in which chains are drawn. None (the default): one residue per step.
        """
        need = "give a share of the exponents, above 0 and at most 1"
        start = number("start", start, need)
        if not 0 < start <= 1:
            raise InvalidInput(f"start is {start}; {need}")
        model = self.model(species)
        likeness = self._likeness(self.log_species(species, readings), alpha, pull, costs)
        kernel = partial(Metropolis, scan=systematic_scan, surrogate=likeness.pull)
        return Annealed(
            self._pulled(model, species, likeness, sharpness, 1.0, order),
            len(self.open_sites) * whole_number("sweeps", sweeps, 1, 1000),
            self._pulled(model, species, likeness, min(sharpness, 1.0), start, order),
            kernel,
            reveal_steps,
        )

    def _likeness(self, log_species: Around, alpha: float, pull: float, costs: Tensor | None) -> Likeness:
        need = "give an exponent of 0 or more"
        alpha = number("alpha", alpha, need)
        if not 0 <= alpha < float("inf"):
            raise InvalidInput(f"alpha is {alpha}; {need}")
        return Likeness(log_species, alpha, Pull(self.own, pull, costs))

    def _pulled(
        self,
        model: Model,
        species: str,
        likeness: Likeness,
        sharpness: float,
        strength: float,
        order: tuple[int, ...] | None,
    ) -> PulledTarget:
        on_the_way = replace(likeness, species=self.log_species_on_the_way(species))
        promise = Promise(on_the_way, model.base, cast("Masking", self.infill.process), sharpness, strength)
        return PulledTarget(
            model, reward=likeness, twist=promise, guide_values=PullGuide(promise, likeness.pull), sharpness=sharpness,
            strength=strength, order=self.order() if order is None else order,
        )  # fmt: skip

    def spell(self, x: Tokens) -> list[str]:
        """The whole chains of finished states [B, D]."""
        return letters_of(self.infill.whole(x))

    def changes(self, x: Tokens) -> Tensor:
        """Number of residues that differ from the parent's, int64 [B]."""
        return (x != self.own.to(x.device)).sum(-1)

    @property
    def view(self) -> SequenceLogo:
        """The view of states for reports."""
        return SequenceLogo(AMINO_ACIDS)


def check_species(species: object) -> int:
    """The index of a species that the head knows; raises for others."""
    name = species.lower() if isinstance(species, str) else species
    if name not in SPECIES:
        raise InvalidInput(f"species is {shown(species)}; AntiBERTy knows {', '.join(SPECIES)}")
    return SPECIES.index(name)


def load_antiberty(
    device: torch.device | str = "cpu",
    batch: int | None = None,
    dtype: torch.dtype | None = None,
    folder: Path | None = None,
) -> Antibodies:
    """AntiBERTy of the installed package, or of a folder in its format.

    Args:
        device: Where it runs; "cpu" by default.
        batch: Sequences per network evaluation. None (the default): 64 on the CPU, 2,048 on a GPU.
        dtype: `torch.bfloat16` for passes in half precision, the heads excepted. None (the default): float32.
        folder: A folder with config.json and pytorch_model.bin. None (the default): that of the package.
    """
    device_here(device)
    net = read_network(package_folder() if folder is None else Path(folder))
    fitting = BATCH if torch.device(device).type == "cpu" else GPU_BATCH
    return Antibodies(net.to(device), fitting if batch is None else batch, dtype)
