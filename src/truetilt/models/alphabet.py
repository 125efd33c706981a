"""The drawable tokens of a public network, numbered from 0, and the tokenizer that spells them.

Tokens that are never drawn (masks, frames, padding, reserved tokens, letters that stand for no amino acid) get no
number here: no sampler, move or enumeration can reach them. Text around the open sites is encoded in the network's own
ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core.arguments import listed, shown, whole_number
from ..core.errors import InvalidInput
from ..core.fasta import AMINO_ACIDS
from .families import PROTEIN, TEXT, Family, first_of
from .tokenizer import check_characters

_NOTHING = re.compile(r"\[unused\d+\]|<\|?reserved.*>|<unused\d+>")  # tokens that occur in no text
_PLACE = re.compile(r"[\w.~/ -]+")  # a path or hub id; an alphabet of SMILES has other characters beside its slash
_NAME = re.compile(r"[a-z]+[0-9]+")  # such as gpt2
_SPACE = ("Ġ", "▁")  # characters that stand for the space before a word


@dataclass(frozen=True)
class Letters:
    """A tokenizer of single letters, for networks that come without one: token k is letter k."""

    letters: str

    def __post_init__(self) -> None:
        if len(self.letters) < 2 or len(set(self.letters)) < len(self.letters):
            raise InvalidInput(
                f"the tokenizer is {shown(self.letters)}, read as the letters of tokens 0, 1, ...; give two or more, "
                "each once, or where a tokenizer lies: a folder that exists, or a hub id owner/name"
            )

    def __len__(self) -> int:
        return len(self.letters)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.letters[k] for k in ids]

    def get_vocab(self) -> dict[str, int]:
        return {letter: k for k, letter in enumerate(self.letters)}


@dataclass(frozen=True, eq=False)
class Alphabet:
    """The drawable tokens: `ids[v]` is the network's own id of our token v."""

    tokenizer: Any
    form: str
    ids: tuple[int, ...]
    ends: frozenset[int] = frozenset()  # the network's ids that end a text

    def __post_init__(self) -> None:
        if len(self.ids) < 2:
            raise InvalidInput(f"{len(self.ids)} tokens may be drawn; give two or more as draw=")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def spelled(self) -> bool:
        """Whether a string is the concatenation of its tokens; else the tokenizer joins them."""
        return self.form != TEXT or isinstance(self.tokenizer, Letters)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The text of each of our tokens."""
        return tuple(map(self.piece, self.tokenizer.convert_ids_to_tokens(list(self.ids))))

    @cached_property
    def number(self) -> dict[int, int]:
        """Our token number for each drawable id of the network."""
        return {own: v for v, own in enumerate(self.ids)}

    @cached_property
    def _by_words(self) -> bool:
        """Whether pieces are words, with ## marking continuations (WordPiece)."""
        return any(token.startswith("##") for token in self.tokenizer.get_vocab())

    def piece(self, token: str) -> str:
        """The text of one token of the tokenizer."""
        if self.spelled:
            return token
        if self._by_words:
            return token[2:] if token.startswith("##") else f" {token}"
        if token.startswith(_SPACE):
            return f" {token[1:]}"
        return self.tokenizer.convert_tokens_to_string([token])

    def encode(self, text: str) -> list[int]:
        """The network's own ids of a text, without special tokens around it."""
        if not isinstance(text, str):
            raise InvalidInput(f"the text is {shown(text)}; give a string")
        check_characters(text)
        if not self.spelled:
            found = self._asked(text)
            if self._has_unknown(found):
                odd = next((word for word in text.split() if self._has_unknown(self._asked(word))), text)
                raise InvalidInput(f"the text holds {shown(odd)}, which the tokenizer has no token for; leave it out")
            return found
        return [self.known[piece] for piece in self._letters(text)]

    def _asked(self, text: str) -> list[int]:
        """The tokenizer's ids of a text, without special tokens around it."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []

    def _has_unknown(self, ids: list[int]) -> bool:
        """Whether some of a text has no token."""
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        return unknown is not None and unknown in ids and unknown not in self.ids

    @cached_property
    def known(self) -> dict[str, int]:
        """The tokenizer's vocabulary: tokens and their ids."""
        return self.tokenizer.get_vocab()

    def _letters(self, text: str) -> list[str]:
        """A sequence split into tokens: single letters, or for a molecule by the tokenizer."""
        if self.form != PROTEIN and hasattr(self.tokenizer, "tokenize"):
            pieces = self.tokenizer.tokenize(text)
        else:
            pieces = list("".join(text.split()))
        odd = [piece for piece in pieces if piece not in self.known]
        if odd:
            raise InvalidInput(f"{shown(text)} holds {odd[0]!r}, which this net has no token for; leave it out")
        return pieces

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the network's own ids, up to the first end token."""
        return self.spell(self.read(ids))

    def read(self, ids: Sequence[int]) -> list[int]:
        """The drawn ids before the first end token."""
        return list(ids[: next((k for k, own in enumerate(ids) if own in self.ends), len(ids))])

    def spell(self, ids: Sequence[int]) -> str:
        """The text of all of these ids."""
        if not self.spelled:
            return self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return "".join(self.tokenizer.convert_ids_to_tokens(list(ids)))


def tokenizer_of(given: Any, net: Any, family: Family) -> Any:
    """The tokenizer to use: the one given (letters will do), the network's own, or the letters of its family."""
    given = getattr(net, "tokenizer", None) if given is None else given
    if given is None and family.letters:
        return Letters(family.letters)
    if isinstance(given, str):
        return _letters_of(given, net)
    if given is None:
        raise InvalidInput(f"{type(net).__name__} came without a tokenizer; give the one it was trained with")
    if not all(callable(getattr(given, name, None)) for name in ("get_vocab", "convert_ids_to_tokens")):
        raise InvalidInput(
            f"the tokenizer is {shown(given)}; give one of transformers, or the letters of tokens 0, 1, ... as a string"
        )
    return given


def is_place(given: Any) -> bool:
    """Whether the `tokenizer` argument is a location: a path, an existing folder, or a string with a slash."""
    if not isinstance(given, str):
        return isinstance(given, Path)
    return ("/" in given and _PLACE.fullmatch(given) is not None) or (given != "" and Path(given).is_dir())


def _letters_of(given: str, net: Any) -> Letters:
    """A string as an alphabet of letters; raises if it looks like a model's name and is too short an alphabet."""
    letters, known = Letters(given), first_of(getattr(net, "config", None), ("vocab_size",)) or 0
    if _NAME.fullmatch(given) and 2 * len(given) < known:
        raise InvalidInput(
            f"the tokenizer is {given!r}, which looks like a model's name; give its folder or its hub id owner/name "
            f"(as letters it would be {len(given)} of the {known:,} tokens of {type(net).__name__})"
        )
    return letters


def drawable(
    tokenizer: Any, family: Family, vocabulary: int, given: Any, ends: Sequence[str] | None, never: set[int]
) -> Alphabet:
    """The drawable tokens of a network: as given, else the amino acids, else all that are not special or unused."""
    known = tokenizer.get_vocab()
    named = family.ends if ends is None else listed("ends", ends, "give a list of tokens")
    last = [known[name] for name in named if isinstance(name, str) and name in known]
    if ends is not None and len(last) < len(named):
        raise InvalidInput(f"ends is {shown(ends)}; the tokenizer has not all of these tokens")
    if given is not None:
        given = list(given) if isinstance(given, str) else listed("draw", given, "give a list of tokens or ids")
        found = [_own(token, known) for token in given]
    elif family.form == PROTEIN:
        missing = [letter for letter in AMINO_ACIDS if letter not in known]
        if missing:
            raise InvalidInput(f"the tokenizer has no token for the amino acid {missing[0]}; is it this net's?")
        found = [known[letter] for letter in AMINO_ACIDS]
    else:
        empty = {own for token, own in known.items() if _NOTHING.fullmatch(token)}
        found = [own for own in known.values() if own not in empty | special_ids(tokenizer) | never]
    ids = sorted({*found, *last})
    wrong = [own for own in ids if own in never or not 0 <= own < vocabulary]
    if wrong:
        raise InvalidInput(
            f"token {wrong[0]} cannot be drawn: the net's tokens are 0 to {vocabulary - 1} and its mask and frame are "
            "put in by us; was the tokenizer made for this net?"
        )
    return Alphabet(tokenizer, family.form, tuple(ids), frozenset(last))


def special_ids(tokenizer: Any) -> set[int]:
    """The ids of a tokenizer's special tokens, named or added."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {*getattr(tokenizer, "all_special_ids", ()), *(own for own, token in added.items() if token.special)}


def _own(token: object, known: dict[str, int]) -> int:
    """The network's id of a token given by name or id."""
    if isinstance(token, str):
        if token not in known:
            raise InvalidInput(f"draw holds {token!r}, which the tokenizer does not have; give tokens it has")
        return known[token]
    return whole_number("a token of draw", token, 0)
