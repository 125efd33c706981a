"""Families of public networks: how each is called and what its tokens spell, in one table.

An entry states only what a network's config and tokenizer do not. A network of no listed family is called like a masked
language model of transformers, with everything else taken from its tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.arguments import LONGEST, listed, set_fields, shown, truth, whole_number
from ..core.errors import InvalidInput
from ..core.fasta import AMINO_ACIDS

TEXT, PROTEIN, MOLECULE = "text", "protein", "molecule"


@dataclass(frozen=True)
class Family:
    """How the networks of one family are called, and what is known of their tokens.

    Args:
        name: Its usual name.
        known_by: Model types of configs and names of classes by which a network is recognised; none by default.
        form: What its tokens spell: "text" (the default), "protein" (letters of amino acids) or "molecule" (SMILES
            or SAFE).
        noise: The argument that takes the total noise sigma, else the second argument. None (the default): it takes no
            noise.
        attention: The argument that takes an attention mask, "attention_mask" by default. None: it takes none, and rows
            cannot be padded.
        pairwise: Whether that mask is over pairs [B, 1, L, L] rather than tokens [B, L]; False by default.
        masked: Whether noise is a mask, True by default; False: noise is a uniform token.
        shift: Whether the logits of a site are returned at the site before it; False by default.
        left: Whether short rows are padded on their left; False by default.
        reserved: Entries of its position table that no token can use; 0 by default.
        mask: The mask where neither tokenizer nor config names it: a token, or an id (-1: the last). None by
            default.
        frame: Special tokens put before ("bos") or after ("eos") a row where the tokenizer itself puts none;
            none by default.
        ends: Tokens that end a text; they are drawn like others; none by default.
        letters: What tokens 0, 1, ... spell, for a family that comes without a tokenizer; none by default.
    """

    name: str
    known_by: tuple[str, ...] = ()
    form: str = TEXT
    noise: str | None = None
    attention: str | None = "attention_mask"
    pairwise: bool = False
    masked: bool = True
    shift: bool = False
    left: bool = False
    reserved: int = 0
    mask: str | int | None = None
    frame: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    letters: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.form, str) or self.form not in (TEXT, PROTEIN, MOLECULE):
            raise InvalidInput(f"form is {shown(self.form)}; give {TEXT}, {PROTEIN} or {MOLECULE}")
        for name in ("noise", "attention"):
            if not isinstance(getattr(self, name), str | None):
                raise InvalidInput(f"{name} is {shown(getattr(self, name))}; give the name of an argument, or None")
        for name in ("known_by", "frame", "ends"):
            words = listed(name, getattr(self, name), "give a tuple of strings")
            if not all(isinstance(word, str) for word in words):
                raise InvalidInput(f"{name} is {shown(words)}; give a tuple of strings")
            set_fields(self, **{name: tuple(words)})
        if not isinstance(self.mask, str | int | None):
            raise InvalidInput(f"mask is {shown(self.mask)}; give a token, an id, or None")
        if not isinstance(self.name, str) or not isinstance(self.letters, str):
            raise InvalidInput(f"name and letters are {shown(self.name)} and {shown(self.letters)}; give strings")
        for name in ("pairwise", "masked", "shift", "left"):
            set_fields(self, **{name: truth(name, getattr(self, name))})
        set_fields(self, reserved=whole_number("reserved", self.reserved, 0, LONGEST))


PLAIN = Family("masked language model")
FAMILIES = (
    Family("DPLM", ("EsmForDPLM", "dplm"), PROTEIN, reserved=2),
    Family("ESM2", ("esm",), PROTEIN, reserved=2),
    Family("ESM-C", ("esmc", "ESMC"), PROTEIN, mask="<mask>"),
    Family("EvoDiff", ("ByteNetLMTime", "evodiff"), PROTEIN, "timestep", None, mask=28, letters=AMINO_ACIDS),
    Family("GenMol", ("genmol",), MOLECULE, frame=("bos", "eos")),
    Family("RoBERTa", ("roberta", "xlm-roberta", "camembert"), reserved=2),
    Family("LLaDA", ("llada", "LLaDAModelLM"), left=True, mask="<|mdm_mask|>", ends=("<|endoftext|>", "<|eot_id|>")),
    Family(
        "Dream",
        ("Dream", "DreamModel"),
        pairwise=True,
        shift=True,
        left=True,
        mask="<|mask|>",
        frame=("bos",),
        ends=("<|endoftext|>", "<|im_end|>"),
    ),
    Family("MDLM", ("mdlm", "MDLM"), noise="timesteps", attention=None, mask=-1),
    Family("UDLM", ("udlm", "UDLM"), noise="timesteps", attention=None, masked=False),
    Family("BERT", ("bert",)),
    Family("ModernBERT", ("modernbert",)),
)
_GENMOL = ("bert", 1880)  # its model type and number of tokens


def family_of(net: Any, named: str | Family | None = None) -> Family:
    """The family of a network: as named, as its config or class tells, or a plain masked language model."""
    if isinstance(named, Family):
        return named
    if named is not None:
        return _by_name(named)
    config = getattr(net, "config", None)
    kind = getattr(config, "model_type", None)
    if (kind, getattr(config, "vocab_size", None)) == _GENMOL:
        return _by_name("GenMol")
    told = {kind, type(net).__name__, *(getattr(config, "architectures", None) or ())}
    return next((family for family in FAMILIES if told & set(family.known_by)), PLAIN)


def _by_name(name: object) -> Family:
    names = [family.name for family in FAMILIES]
    found = [family for family in FAMILIES if isinstance(name, str) and family.name.lower() == name.lower()]
    if not found:
        raise InvalidInput(f"family is {shown(name)}; give one of {', '.join(names)}, or a Family of your own")
    return found[0]


def longest_row(config: Any, family: Family) -> int | None:
    """The most tokens that a network reads, under any name that configs use; None if the config does not say."""
    names = ("max_position_embeddings", "max_sequence_length", "model_length", "length")
    found = first_of(config, names)
    return None if found is None else found - family.reserved


def first_of(config: Any, names: Sequence[str]) -> int | None:
    """The first of these config values that is a whole number above 0; None if there is none."""
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), None)
