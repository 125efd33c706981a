"""Measures of text samples: diversity, overlap with references (BLEU, GLEU), invented words, and given tokens kept.

A text is a sequence of tokens, words or numbers: `text.split()`, or a tokenizer's output. An n-gram is n consecutive
tokens. Values of two samples are comparable only if texts are tokenised alike, and for `distinct` and `self_bleu` only
if both samples have equally many texts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.types import Tokens

Words = Sequence[Hashable]
Grams = Counter[tuple[Hashable, ...]]
_ALMOST_NONE = 0.1  # matches assumed for an order that has none (Chen & Cherry 2014, smoothing 1)


def distinct(texts: Sequence[Words], n: int = 2) -> float:
    """Different n-grams over all n-grams of the texts together (Li et al. 2016): 1 if none is repeated."""
    seen: Grams = Counter()
    for text in _checked(texts, n):
        seen.update(_grams(text, n))
    if not seen:
        raise InvalidInput(f"no text has {n} tokens, so none has an n-gram; give longer texts or a smaller n")
    return len(seen) / seen.total()


def words_in(text: str) -> list[str]:
    """The words of a text in lower case: letters, with apostrophes and hyphens inside; no digits or punctuation."""
    return re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*", text.lower())


def invented_words(texts: Sequence[str], known: Collection[str]) -> float:
    """The share of the words of all texts that are not among the known ones, those of the training data (`words_in`).

    Real text that was not trained on has some too, names and misspellings: compare with it, as many texts.
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput("invented words are looked for in whole texts; give a list of strings")
    if isinstance(known, str) or not known:
        raise InvalidInput("no words are known; give those of the training data, a set of strings")
    found = [word for text in texts for word in words_in(text)]
    if not found:
        raise InvalidInput("the texts have no words, so none is invented; give texts with words")
    known = frozenset(known)
    return sum(word not in known for word in found) / len(found)


def self_bleu(texts: Sequence[Words], n: int = 4) -> float:
    """The mean BLEU of each text against all others (Zhu et al. 2018): 1 for copies, near 0 if no two are similar."""
    texts = _checked(texts, n)
    if len(texts) < 2:
        raise InvalidInput("one text has no others to be compared with; give at least two")
    grams = [[_grams(text, order) for order in range(1, n + 1)] for text in texts]
    most = _most_and_next(counts for orders in grams for counts in orders)
    lengths = Counter(len(text) for text in texts)
    total = 0.0
    for text, orders in zip(texts, grams, strict=True):
        matched = [_matched_elsewhere(counts, most) for counts in orders]
        others = [length for length, many in lengths.items() if many > (length == len(text))]
        total += _bleu(matched, len(text), others)
    return total / len(texts)


def bleu(text: Words, references: Sequence[Words], n: int = 4) -> float:
    """BLEU of one text (Papineni et al. 2002): clipped n-gram precision to order n, with the brevity penalty.

    An order without a match counts as a tenth of one; a text that shares no token with its references scores 0.
    """
    (text,), references = _checked([text], n), _checked(references, n)
    matched = []
    for order in range(1, n + 1):
        allowed: Grams = Counter()
        for reference in references:
            allowed |= _grams(reference, order)
        matched.append((_grams(text, order) & allowed).total())
    return _bleu(matched, len(text), [len(reference) for reference in references])


@dataclass(frozen=True)
class Gleu:
    """n-grams of all orders that each text shares with its reference, and the larger total of the two; float64 [n]."""

    matched: Tensor
    counted: Tensor

    @property
    def corpus(self) -> float:
        """GLEU of all texts together."""
        return float(self.matched.sum() / self.counted.sum())

    @property
    def each(self) -> Tensor:
        """GLEU of each text [n]."""
        return self.matched / self.counted


def gleu(texts: Sequence[Words], references: Sequence[Words], n: int = 4) -> Gleu:
    """GLEU (Wu et al. 2016): the smaller of precision and recall of all n-grams up to n, each text with its own."""
    texts, references = _checked(texts, n), _checked(references, n)
    if len(texts) != len(references):
        raise InvalidInput(f"{len(texts)} texts for {len(references)} references; give one reference a text")
    matched, counted = [], []
    for text, reference in zip(texts, references, strict=True):
        ours, theirs = ([_grams(t, order) for order in range(1, n + 1)] for t in (text, reference))
        matched.append(sum((a & b).total() for a, b in zip(ours, theirs, strict=True)))
        counted.append(max(sum(a.total() for a in ours), sum(b.total() for b in theirs)))
    return Gleu(torch.tensor(matched, dtype=torch.float64), torch.tensor(counted, dtype=torch.float64))


def kept(x: Tokens, given: Sequence[int | None]) -> Tensor:
    """Infilling accuracy: the share of given tokens that each text [n, L] kept, float64 [n]; None marks open sites.

    For a sampler that holds given tokens fixed it is always 1; use it on texts as they were drawn.
    """
    sites, tokens = _given(x, given)
    return (x[:, sites] == tokens).double().mean(-1)


def _given(x: Tokens, given: Sequence[int | None]) -> tuple[Tensor, Tensor]:
    """The given sites and their tokens."""
    if x.dim() != 2 or x.is_floating_point() or x.shape[1] != len(given):
        raise InvalidInput(
            f"texts of {x.dtype} and shape {tuple(x.shape)} for {len(given)} sites; give whole texts, tokens "
            f"[n, {len(given)}] (Infill.whole makes them)"
        )
    pairs = [(site, token) for site, token in enumerate(given) if token is not None]
    if not pairs:
        raise InvalidInput("every site is open; with no token given there is none to keep")
    sites, tokens = torch.tensor(pairs, device=x.device).T
    return sites, tokens.to(x.dtype)


def _checked(texts: Sequence[Words], n: int) -> Sequence[Words]:
    if n < 1:
        raise InvalidInput(f"n is {n}; an n-gram has at least one token")
    if isinstance(texts, str) or any(isinstance(text, str) for text in texts):
        raise InvalidInput("a text came as a string, which would be read letter by letter; give text.split() or tokens")
    if isinstance(texts, Tensor) or any(isinstance(text, Tensor) for text in texts):
        raise InvalidInput("texts came as a tensor, whose numbers do not compare as tokens; give texts.tolist()")
    if not len(texts):
        raise InvalidInput("there are no texts; give at least one")
    for number, text in enumerate(texts):
        if not len(text):
            raise InvalidInput(f"text {number} is empty; leave it out, and say so, or look at what drew it")
    return texts


def _grams(text: Words, n: int) -> Grams:
    return Counter(zip(*(text[k:] for k in range(n)), strict=False))


def _bleu(matched: Sequence[int], length: int, lengths: Iterable[int]) -> float:
    """BLEU from the clipped matches of each order, the text's length and those of its references."""
    if not matched[0]:
        return 0.0
    possible = (max(1, length - order) for order in range(len(matched)))
    logs = [math.log((hit or _ALMOST_NONE) / all_) for hit, all_ in zip(matched, possible, strict=True)]
    closest = min(lengths, key=lambda other: (abs(other - length), other))
    return math.exp(min(0.0, 1 - closest / length) + sum(logs) / len(logs))


def _most_and_next(every: Iterable[Grams]) -> dict[tuple[Hashable, ...], tuple[int, int]]:
    """For each n-gram its largest count in any text, and the largest count in any other text."""
    found: dict[tuple[Hashable, ...], tuple[int, int]] = {}
    for counts in every:
        for gram, count in counts.items():
            first, second = found.get(gram, (0, 0))
            found[gram] = (count, first) if count > first else (first, max(second, count))
    return found


def _matched_elsewhere(counts: Grams, most: dict[tuple[Hashable, ...], tuple[int, int]]) -> int:
    """n-grams of a text that others have, clipped at the largest count in another text."""
    return sum(min(count, most[gram][count == most[gram][0]]) for gram, count in counts.items())
