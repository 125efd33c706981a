"""Molecules as tokens: pieces of a SMILES or SELFIES string, learned from data as a byte-pair encoding.

No piece cuts an atom: a symbol of several characters counts as one letter in the encoding. A piece such as `c1ccc(` or
`NC(=O)` is one decision of a sampler, where single characters would be seven, each of which may leave a ring or a
bracket open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..core.errors import InvalidInput
from ..models.tokenizer import END, Tokenizer, tokenizers_library

SMILES_SYMBOLS = ("[nH]", "Br", "Cl")  # symbols of several characters; all others have one
_PLAIN = re.compile(r"(?:\[nH\]|Cl|Br|[BCNOSPFIbcnosp()=#1-9-])+")
_FIRST = 0xE000  # first of the letters that stand for symbols: a private area of Unicode


def plain_smiles(smiles: str) -> bool:
    """Whether a SMILES has only atoms, bonds and rings that the pieces can be made of: no charges, isotopes or @."""
    return _PLAIN.fullmatch(smiles) is not None


def train_pieces(molecules: Iterable[str], vocabulary: int, symbols: Sequence[str]) -> Tokenizer:
    """A tokenizer with this many pieces, the end token included, that splits none of these symbols.

    The same molecules give the same tokenizer.
    """
    library = tokenizers_library()
    inner = library.Tokenizer(library.models.BPE())
    letters = {symbol: chr(_FIRST + number) for number, symbol in enumerate(symbols)}
    changes = [library.normalizers.Replace(symbol, letter) for symbol, letter in letters.items()]
    inner.normalizer = library.normalizers.Sequence(changes)
    back = [library.decoders.Replace(letter, symbol) for symbol, letter in letters.items()]
    inner.decoder = library.decoders.Sequence([*back, library.decoders.Fuse()])
    trainer = library.trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[END], show_progress=False)
    inner.train_from_iterator(molecules, trainer)
    made = Tokenizer(inner)
    if made.vocabulary != vocabulary:
        raise InvalidInput(f"the molecules have pieces for {made.vocabulary} tokens, not for {vocabulary}; lower it")
    return made
