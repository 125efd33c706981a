"""Tokens as strings, for rewards that read strings."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..core.arguments import function, shown, whole_number
from ..core.errors import InvalidInput

_SHOWN = 400  # characters of a sequence that an error message quotes


@dataclass(frozen=True, eq=False)
class Spelling:
    """Tokens [D] to a string: by the letters of an alphabet, by an object with `decode`, or by a function."""

    tokenizer: Any
    mark: str = ""  # tells apart tokenizers of the same type

    @property
    def size(self) -> int | None:
        """The vocabulary size, if the tokenizer has one; else None."""
        found = len(self.tokenizer) if isinstance(self.tokenizer, str) else getattr(self.tokenizer, "vocabulary", None)
        return found if isinstance(found, int) else None

    def __call__(self, tokens: Tensor) -> str:
        if isinstance(self.tokenizer, str):
            return "".join(self.tokenizer[token] for token in tokens.tolist())
        decode = getattr(self.tokenizer, "decode", None)
        found = self.tokenizer(tokens) if decode is None else decode(tokens.tolist())
        if not isinstance(found, str):
            raise InvalidInput(f"the tokenizer made {shown(found)} of tokens, where a string is due")
        return found


def spelling_of(tokenizer: Any) -> Spelling | None:
    if tokenizer is None:
        return None
    need = 'give letters such as "ACGT", something with decode, or a function of tokens [D] that returns a string'
    if isinstance(tokenizer, str):
        if len(tokenizer) < 2 or len(set(tokenizer)) < len(tokenizer):
            raise InvalidInput(f"the letters of tokenizer are {shown(tokenizer)}; give two or more, each once")
        return Spelling(tokenizer)
    decode = getattr(tokenizer, "decode", None)
    if isinstance(tokenizer, type | bytes) or not callable(tokenizer if decode is None else decode):
        raise InvalidInput(f"tokenizer is {shown(tokenizer)}; {need}")
    if decode is None:
        function("tokenizer", tokenizer, "(tokens)", need)
    mark = getattr(tokenizer, "fingerprint", None)
    return Spelling(tokenizer, str(mark()) if callable(mark) else "")


def check_vocabulary(vocabulary: int | None, spelling: Spelling | None) -> int | None:
    """The vocabulary size: as given, or the tokenizer's; None if neither is known."""
    size = None if spelling is None else spelling.size
    if vocabulary is None:
        return size
    given = whole_number("vocabulary", vocabulary, 1, 2**31)
    if size is not None and given > size:
        raise InvalidInput(f"vocabulary is {given} and the tokenizer has {size} tokens; give one that has all")
    return given


def quoted(tokens: Tensor, spelling: Spelling | None) -> str:
    """A sequence as an error message shows it: its text if there is one, else its tokens."""
    found = f"the tokens {tokens.tolist()}"
    if spelling is not None:
        with contextlib.suppress(Exception):  # the tokenizer itself may be what failed
            found = repr(spelling(tokens))
    return found if len(found) <= _SHOWN else f"{found[:_SHOWN]}..."
