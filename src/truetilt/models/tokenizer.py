"""Texts to tokens and back: a byte-level BPE of the `tokenizers` library, kept as tokenizer.json beside its net.

Every byte has a token, so every text can be encoded; one more token ends a text. The mask is not a token of the
tokenizer: a network of V tokens numbers it V.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.arguments import entries, has, path_of, shown, whole_number
from ..core.errors import InvalidInput
from ..core.storage import TEXT, check_plain, parse_json, read_text, write_text
from .pretrained import read_card

TOKENIZER = "tokenizer.json"
END = "<|endoftext|>"
_BYTES = 256


def _byte_of() -> dict[str, int]:
    """The byte for each letter of a byte-level BPE: printable bytes for themselves, others from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + k): byte for k, byte in enumerate(others)}


_BYTE_OF = _byte_of()


@dataclass(frozen=True)
class Tokenizer:
    """A trained BPE; `decode` stops at the end of the text."""

    inner: Any  # tokenizers.Tokenizer

    def __post_init__(self) -> None:
        has("inner", self.inner, ("token_to_id", "encode", "decode"), "give a Tokenizer of the package tokenizers")
        if self.inner.token_to_id(END) is None:
            raise InvalidInput(f"the tokenizer has no token {END}; a text model needs one to end a text")
        self.inner.encode_special_tokens = True  # the end token's name in a text is plain text

    @property
    def vocabulary(self) -> int:
        return self.inner.get_vocab_size()

    @property
    def end(self) -> int:
        """The token that ends a text."""
        return self.inner.token_to_id(END)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without an end."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"the text is {text!r}; give at least one character that is no space")
        check_characters(text)
        return self.inner.encode(text).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, faster than one by one."""
        for text in texts:
            check_characters(text)
        return [found.ids for found in self.inner.encode_batch(list(texts))]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of these tokens up to the end token; raises for the mask and any unknown token."""
        known, size = [int(token) for token in tokens], self.vocabulary
        bad = [token for token in known if not 0 <= token < size]
        if bad:
            raise InvalidInput(f"token {bad[0]} is not one of 0 to {size - 1}; the mask must be filled in before")
        kept = known[: known.index(self.end)] if self.end in known else known
        return self.inner.decode(kept).strip()

    def piece(self, token: int) -> str:
        """The text of one token; incomplete UTF-8 bytes become lone surrogates."""
        word = self.inner.id_to_token(token) or ""
        if type(self.inner.decoder).__name__ != "ByteLevel" or not word or not set(word) <= _BYTE_OF.keys():
            return self.inner.decode([token])
        return bytes(_BYTE_OF[letter] for letter in word).decode("utf-8", "surrogateescape")

    def fingerprint(self) -> str:
        """A hash of this tokenizer."""
        return _named(json.loads(self.inner.to_str()))

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, atomically."""
        text = self.inner.to_str(pretty=True)
        write_text(Path(folder) / TOKENIZER, text)

    def check_fits(self, vocabulary: int, fingerprint: str | None = None, where: str = "the net") -> None:
        """Raise for a network with another number of tokens, or whose card records another tokenizer."""
        if vocabulary != self.vocabulary:
            raise InvalidInput(
                f"{where} knows {vocabulary} tokens and the tokenizer {self.vocabulary}; use the {TOKENIZER} that came "
                "with the net"
            )
        if fingerprint not in (None, self.fingerprint()):
            raise InvalidInput(
                f"{where} was trained with the tokenizer {fingerprint} and this is {self.fingerprint()}: the same size "
                f"with other tokens; use the {TOKENIZER} that came with the net"
            )


def load_tokenizer(folder: str | Path, vocabulary: int | None = None) -> Tokenizer:
    """The tokenizer.json of a folder; it must match the network's card beside it.

    Args:
        folder: Folder with the file, as it lies beside a network.
        vocabulary: Number of tokens that it must have. None (the default): any.
    """
    path = path_of("folder", folder) / TOKENIZER
    if vocabulary is not None:
        vocabulary = whole_number("vocabulary", vocabulary, 1)
    if not path.is_file():
        raise InvalidInput(f"{folder} has no {TOKENIZER}; it lies beside the net it was made for")
    try:
        library = tokenizers_library()
        found = Tokenizer(library.Tokenizer.from_str(read_text(path, TEXT)))
    except (InvalidInput, KeyboardInterrupt):
        raise
    except BaseException as error:  # the library raises plain Exception for files it cannot read, or panics
        raise InvalidInput(f"{path} is no tokenizer ({error}); copy it again") from error
    recorded = read_card(Path(folder)).get("tokenizer")
    found.check_fits(found.vocabulary if vocabulary is None else vocabulary, recorded, str(folder))
    return found


def tokenizer_copier(source: str | Path, fingerprint: str) -> Callable[[Path], None]:
    """A function that copies a folder's tokenizer.json, if it has this fingerprint; needs no tokenizer library."""
    path = Path(source) / TOKENIZER
    try:
        text = read_text(path)
        found = _named(parse_json(text))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read ({error}); copy it again") from error
    if found != fingerprint:
        raise InvalidInput(
            f"{path} is the tokenizer {found}, and the texts were encoded by {fingerprint}: it is another"
        )
    return lambda target: write_text(target / TOKENIZER, text)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer of some texts; the same texts give the same tokenizer.

    Args:
        texts: The texts, a list or any iterable of strings.
        vocabulary: The most tokens it has, 257 or more: every byte and the end of a text need one.
    """
    if whole_number("vocabulary", vocabulary, 0, 2**24) <= _BYTES:
        raise InvalidInput(f"vocabulary is {vocabulary}; every byte and the end need a token, so give at least 257")
    texts = entries("texts", texts, "give a list of texts")
    library = tokenizers_library()
    inner = library.Tokenizer(library.models.BPE())
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)  # a word is one token anywhere
    inner.decoder = library.decoders.ByteLevel()
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(map(_text, texts), trainer)
    return Tokenizer(inner)


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"one of the texts is {shown(text)}; give a list of texts")
    return text


def gpt2_tokenizer(folder: str | Path) -> Tokenizer:
    """GPT-2's own tokenizer from its two files, encoder.json and vocab.bpe."""
    folder, library = path_of("folder", folder), tokenizers_library()
    for name in ("encoder.json", "vocab.bpe"):
        if not (folder / name).is_file():
            raise InvalidInput(f"{folder} has no {name}; GPT-2's tokenizer is encoder.json and vocab.bpe")
    try:
        files = (check_plain(folder / name, TEXT) for name in ("encoder.json", "vocab.bpe"))
        model = library.models.BPE.from_file(*map(str, files))
    except Exception as error:  # the library raises plain Exception, or panics
        raise InvalidInput(f"{folder} holds no tokenizer of GPT-2 ({error}); fetch the two files again") from error
    inner = library.Tokenizer(model)
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = library.decoders.ByteLevel()
    inner.add_special_tokens([END])
    return Tokenizer(inner)


def _named(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def tokenizers_library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise InvalidInput("texts need the package tokenizers: pip install tokenizers") from error
    return tokenizers


def check_characters(text: str) -> None:
    """Raise for a lone surrogate: half a character has no bytes, so no tokens."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the text {text[:80]!r} holds half a character (a lone surrogate); write UTF-8") from error
