"""The networks of molecules in one folder: net (p0 of rows of pieces), potential (bins of QED and logP), tokenizer.

A row is the pieces of a molecule's string, an end token, and more end tokens: behind an end p0 has nothing but ends, by
definition, and the network is not asked. Not every row is a molecule: strings with
an open ring, or one that cannot be aromatic, are drawn too. Rewards made here forbid those, so that steering starts
from p0 restricted to molecules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..core.arguments import device_here, function, listed, path_of, set_fields, shown, whole_number
from ..core.chemistry import SELFIES, SMILES, canonical, in_notation, parsed, rdkit, selfies_library, smiles_of
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, ask
from ..core.types import Model, Tokens
from ..diffusion.processes import Masking
from ..models.end_tokens import Ended
from ..models.hub import embedded
from ..models.infilling import Around, Infill
from ..models.layers import placed
from ..models.net_facts import TokenNet
from ..models.pretrained import read_card
from ..models.text_classifier import TextClassifier
from ..models.text_score import TextScore
from ..models.tokenizer import TOKENIZER, Tokenizer, load_tokenizer
from ..models.transformer import SEDD
from ..rewards.reward import Reward
from ..viz.molecules import MoleculeView, distinct_molecules
from .fragments import GivenRow, likeliest, placed_rows, read_fragment
from .rewards import Contains, MoleculeFunction, property_values
from .twist import EndedExactly, PropertyBins

NAME = "molecules"
NET, POTENTIAL = "net", "potential"
BATCH = 64  # rows per network evaluation
_ANY_TIME = 1.0  # the network does not take the time


@dataclass(frozen=True, eq=False)
class Molecules:
    """A network of drug-like molecules; `model()` is what samplers take, `reward(score)` a reward of RDKit molecules.

    `fix(fragment)` keeps a fragment and leaves the rest open.

    Args:
        net: The network of molecules written as text.
        tokenizer: The `tt.Tokenizer` of that notation.
        notation: How molecules are written, "smiles" (the default) or "selfies".
        potential: Network of a property's law given a partly masked molecule. None (the default): there is none.
        bins: Bins of the properties that the potential knows; none by default.
        batch: Rows evaluated at a time, 1 or more; 64 by default.
        dtype: Number type in which the networks are evaluated. None (the default): that of their weights.
        given: Tokens of the row that are kept, None at open sites; set by `fix`. None (the default): all sites are
            open.
        fragment: The fragment that they spell; set by `fix`. None by default.
    """

    net: nn.Module
    tokenizer: Tokenizer
    notation: str = SMILES
    potential: nn.Module | None = None
    bins: PropertyBins = field(default_factory=lambda: PropertyBins({}))
    batch: int = BATCH
    dtype: torch.dtype | None = None
    given: GivenRow | None = None  # tokens that are kept, None at open sites
    fragment: str | None = None  # the fragment that they spell
    process: Masking = field(init=False)

    def __post_init__(self) -> None:
        if self.notation not in (SMILES, SELFIES):
            raise InvalidInput(f"the notation is {shown(self.notation)}; molecules are written in smiles or selfies")
        config: Any = self.net.config
        self.tokenizer.check_fits(config.vocabulary, None, NET)
        set_fields(self, batch=whole_number("batch", self.batch, 1), process=Masking(config.vocabulary))
        own: Any = None if self.potential is None else self.potential.config
        if own is not None and (own.vocabulary, own.length) != (config.vocabulary, config.length):
            raise InvalidInput(
                f"the net has {config.vocabulary} tokens and {config.length} sites, the potential {own.vocabulary} and "
                f"{own.length}; networks of one bundle must agree"
            )

    def __repr__(self) -> str:
        kept = "" if self.fragment is None else f"; keeps {self.fragment}"
        return f"<Molecules: {self.length} sites, {self.vocabulary} pieces of {self.notation}{kept}; on {self.device}>"

    @property
    def length(self) -> int:
        """Number of open sites."""
        return self._sites if self.given is None else sum(token is None for token in self.given)

    @property
    def _sites(self) -> int:
        config: Any = self.net.config
        return config.length

    @property
    def vocabulary(self) -> int:
        """Number of pieces, including the end token."""
        return self.process.vocabulary

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    @cached_property
    def view(self) -> MoleculeView:
        """The view of states for reports and figures: drawn structures."""
        pieces = tuple(self.tokenizer.piece(token) for token in range(self.vocabulary))
        return MoleculeView(pieces, self.tokenizer.end, self.process.mask, self.notation, self.given)

    def fingerprint(self) -> str:
        """A hash of the tokens' texts."""
        return f"{self.tokenizer.fingerprint()}-{self.notation}-{self.given}"

    # ------------------------------------------------------------------------------------------------ models

    def model(self) -> Model:
        """The model to sample: rows of pieces, or the open sites around a kept fragment."""
        score = self._score if self.given is None else Infill(self._score, self.given)
        return Model(self.process, self.length, score, None, None, self.device)

    @property
    def _score(self) -> Ended:
        """The Score of whole rows; behind an end token all is end, without the network."""
        return Ended(self._whole_rows, self.tokenizer.end)

    @property
    def _whole_rows(self) -> TextScore:
        return TextScore(cast("TokenNet", self.net), self.process, None, self.batch, self.dtype)

    def fix(self, fragment: str) -> Molecules:
        """These networks with a fragment kept, a SMILES; a star marks an open end, `*c1ccc(*)cc1`; without stars both
        are open.

        Free is the length of what follows the last kept piece: there the network writes its end. Before a kept piece
        the number of pieces is fixed: the fragment stands at the one place that the network finds likeliest. Rewards
        forbid molecules that do not contain it (a ring opened before it may close in it).
        """
        if self.given is not None:
            raise InvalidInput(f"{self.fragment} is kept already; call fix on what tt.load returned")
        found = read_fragment(fragment)
        if self.notation == SELFIES and found.parts[0]:
            raise InvalidInput(
                "in SELFIES an open end inside a fragment would change what follows; use a SMILES network"
            )
        parts = [self._pieces(part) for part in found.parts]
        rows = placed_rows(parts, self._sites, self.tokenizer.end, fragment)
        row = likeliest(rows, self._log_posterior, self.process.mask, self.tokenizer.end)
        return replace(self, given=row, fragment=fragment)

    def _pieces(self, part: str) -> list[int]:
        return self.tokenizer.encode(in_notation(part, self.notation)) if part else []

    @torch.no_grad()
    def _log_posterior(self, x: Tensor) -> Tensor:
        """log p(token | the row) of rows with masks [B, D, S], on the CPU."""
        x = x.to(self.device)
        law = self.process.posterior(ask(self._score, Batch(x), _ANY_TIME), x, _ANY_TIME)
        return law.dense().double().log_softmax(-1).cpu()

    # ------------------------------------------------------------------------------------------------ rewards

    def reward(self, score: Any = None, **options: Any) -> Reward:
        """A `tt.Reward` of a function of one RDKit molecule, such as those of `truetilt.molecules.rewards`.

        Invalid molecules are forbidden (-inf), and those without the kept fragment; without a score all others have
        reward 0. The options are those of `tt.Reward`: `workers`, `timeout`, `cache_file`, ...
        """
        rdkit()
        if score is not None:
            function("score", score, "(mol)", "give a function of one RDKit molecule that returns a number")
        odd = options.keys() & {"tokenizer", "one_at_a_time", "vocabulary"}
        if odd:
            raise InvalidInput(f"{min(odd)} is known here; leave it out")
        kept = None if self.fragment is None else Contains(read_fragment(self.fragment).smarts)
        return Reward(MoleculeFunction(score, kept), tokenizer=self, one_at_a_time=True, **options)

    def twist(self, score: Any, strength: float = 1.0, reward: Reward | None = None) -> Any:
        """The value of partly masked molecules for a reward of QED or logP, by the potential: $log E[exp(r) | x_t]$.

        For `tt.Composed(..., twist=...)`. With the `reward` made from the score, the value of a row that has ended is
        that reward. None if the potential predicts no part of the score.
        """
        found = None
        if self.potential is not None:
            found = self.bins.twist(self.potential, score, strength, self.batch, self.dtype)
        if found is None:
            return None
        if self.given is not None:
            base: Any = self.model().base
            return Around(found, base)
        return found if reward is None else EndedExactly(found, reward, self.tokenizer.end, self.process.mask)

    # ------------------------------------------------------------------------------------------------ strings

    def decode(self, x: Tokens | Sequence[int]) -> Any:
        """The SMILES of rows [..., D] as a list; the SMILES of a single row, a list of numbers or [D].

        Molecules are written in RDKit's form, invalid strings as they were drawn.
        """
        rows = x if isinstance(x, Tensor) else torch.tensor([listed("the row", x, "give tokens")])
        if rows.is_floating_point() or rows.dim() < 1 or rows.shape[-1] not in (self.length, self._sites):
            raise InvalidInput(f"rows are {shown(x)}; give tokens, int64 [..., {self.length}]")
        found = [self._spelled(row) for row in self.whole(rows.reshape(-1, rows.shape[-1])).tolist()]
        return found[0] if not isinstance(x, Tensor) or x.dim() == 1 else found

    def whole(self, x: Tokens) -> Tokens:
        """Rows with the kept fragment inserted [B, D]."""
        base = self.model().base
        return base.whole(x) if isinstance(base, Infill) and x.shape[-1] == self.length else x

    def _spelled(self, row: list[int]) -> str:
        text = smiles_of(self.tokenizer.decode(row), self.notation)
        return canonical(text) or text

    def rows(self, smiles: Sequence[str]) -> Tokens:
        """Rows of tokens [n, D] of molecules: their pieces, then end tokens up to the length."""
        if isinstance(smiles, str):
            raise InvalidInput("one SMILES came where a list of them is read; put it in a list")
        found = []
        for one in listed("smiles", smiles, "give a list of SMILES"):
            mol = parsed(one) if isinstance(one, str) else None
            if mol is None:
                raise InvalidInput(f"{shown(one)} is no molecule to RDKit; check its brackets, rings and valences")
            pieces = self._pieces(rdkit().MolToSmiles(mol))
            if canonical(smiles_of(self.tokenizer.decode(pieces), self.notation)) != canonical(one):
                raise InvalidInput(f"{one!r} has atoms or marks that the network has no pieces for (charges, stereo)")
            if len(pieces) > self._sites:
                raise InvalidInput(
                    f"{one!r} has {len(pieces)} pieces and a row {self._sites} sites; give a smaller one"
                )
            found.append((pieces + [self.tokenizer.end] * self._sites)[: self._sites])
        return torch.tensor(found, dtype=torch.int64, device=self.device).reshape(-1, self._sites)

    def table(self, result: Any, reward: Reward | None = None) -> list[dict[str, Any]]:
        """The distinct molecules of a `tt.Result`, the heaviest first, a row each.

        smiles, weight (its share), count (its number of particles), valid (whether it is a molecule), reward (None
        without one), qed and logp (None if invalid).
        """
        x, weights = result.particles.flatten(0, -2), result.weights.reshape(-1).tolist()
        smiles = self.decode(x)
        values = [None] * len(smiles) if reward is None else reward(x).tolist()
        worth = dict(zip(smiles, values, strict=True))
        return [
            one._asdict() | {"reward": worth[one.smiles]} | property_values(one.smiles)
            for one in distinct_molecules(smiles, weights)
        ]

    def written(self, strings: Sequence[str]) -> tuple[str, str]:
        """A file of SMILES: its ending and its text."""
        return "smi", "".join(f"{string}\n" for string in strings)


def load_molecules(
    *,
    folder: str | Path | None = None,
    device: torch.device | str = "cpu",
    batch: int | None = None,
    dtype: torch.dtype | None = None,
) -> Molecules:
    """The networks of molecules: what `tt.load("molecules")` returns. They need RDKit, which writes the SMILES.

    Args:
        folder: Networks of your own: tokenizer.json, net and potential as training writes them. None (the default): the
            embedded ones.
        device: Where the networks run.
        batch: Rows per pass; 64 if None.
        dtype: Floating-point type the networks compute in; float32 if None.
    """
    device_here(device)
    rdkit()
    home = embedded(NAME) if folder is None else path_of("folder", folder)
    if not (home / NET).is_dir():
        raise InvalidInput(
            f"{home} has no folder {NET!r}; networks of molecules are {NET}, {POTENTIAL} and {TOKENIZER}"
        )
    card = read_card(home / NET)
    notation = str(card.get("notation", SMILES))
    if notation == SELFIES:
        selfies_library()
    net, tokenizer = placed(SEDD.from_pretrained(home / NET), device), load_tokenizer(home)
    tokenizer.check_fits(net.config.vocabulary, card.get("tokenizer"), str(home / NET))
    potential, bins = None, {}
    if (home / POTENTIAL).is_dir():
        potential = placed(TextClassifier.from_pretrained(home / POTENTIAL), device)
        bins = read_card(home / POTENTIAL).get("bins", {})
    return Molecules(net, tokenizer, notation, potential, PropertyBins(bins), BATCH if batch is None else batch, dtype)
