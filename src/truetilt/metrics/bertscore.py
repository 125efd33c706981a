"""BERTScore: similarity of a text to a reference, each token compared with the nearest on the other side.

Zhang et al. 2020, with any encoder: each token is matched to the most similar one on the other side, by the cosine of
their vectors. The paper's figures use a DeBERTa; those of other encoders stand on another scale.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..core.errors import InvalidInput


class Embedded(NamedTuple):
    """A text as tokens and a vector for each, [tokens, C]."""

    tokens: Sequence[Hashable]
    vectors: Tensor


Embed = Callable[[Sequence[str]], Sequence[Embedded]]
Weight = Callable[[Hashable], float]


@dataclass(frozen=True)
class BertScore:
    """float64 [n]: precision over the text's tokens, recall over the reference's, and their harmonic mean."""

    precision: Tensor
    recall: Tensor

    @property
    def f1(self) -> Tensor:
        """0 where precision or recall is not positive."""
        p, r = self.precision, self.recall
        both = (p > 0) & (r > 0)
        return torch.where(both, 2 * p * r / torch.where(both, p + r, 1.0), 0.0)


def bertscore(embed: Embed, texts: Sequence[str], references: Sequence[str], weight: Weight | None = None) -> BertScore:
    """The score of each text against its own reference; `weight` is the weight of a token, 1 by default."""
    if len(texts) != len(references):
        raise InvalidInput(f"{len(texts)} texts for {len(references)} references; give one reference a text")
    ours, theirs = (_checked(embed(list(side)), len(texts)) for side in (texts, references))
    pairs = [
        _matched(number, a, b, weight or (lambda token: 1.0))
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]
    precision, recall = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2).T
    return BertScore(precision, recall)


def idf(embed: Embed, references: Sequence[str]) -> Weight:
    """Rare tokens count more: log((M + 1) / (m + 1)) for one that m of the M references have."""
    every = _checked(embed(list(references)), len(references))
    having = Counter(token for text in every for token in set(text.tokens))
    return lambda token: math.log((len(every) + 1) / (having[token] + 1))


def _matched(number: int, text: Embedded, reference: Embedded, weight: Weight) -> tuple[float, float]:
    cosine = normalize(text.vectors.double(), dim=-1) @ normalize(reference.vectors.double(), dim=-1).T
    sides = ((text, cosine.amax(1)), (reference, cosine.amax(0)))
    precision, recall = (_mean(number, best, [weight(token) for token in side.tokens]) for side, best in sides)
    return precision, recall


def _mean(number: int, values: Tensor, weights: list[float]) -> float:
    w = torch.tensor(weights, dtype=torch.float64, device=values.device)
    if not bool((w >= 0).all()) or not 0 < float(w.sum()) < math.inf:
        raise InvalidInput(
            f"text {number} or its reference has only tokens of weight 0, or odd weights; leave `weight` out, or take "
            "idf over more references"
        )
    return float((w * values).sum() / w.sum())


def _checked(embedded: Sequence[Embedded], count: int) -> Sequence[Embedded]:
    if len(embedded) != count:
        raise InvalidInput(f"the encoder returned {len(embedded)} texts for {count}; it must return as many")
    for number, text in enumerate(embedded):
        if not len(text.tokens):
            raise InvalidInput(f"text {number} is empty to the encoder; leave it out, and say so")
        if text.vectors.dim() != 2 or len(text.vectors) != len(text.tokens):
            raise InvalidInput(f"text {number}: {tuple(text.vectors.shape)} vectors for {len(text.tokens)} tokens")
        if not bool(text.vectors.isfinite().all() & (text.vectors != 0).any(-1).all()):
            raise InvalidInput(
                f"text {number}: the encoder returned NaN, infinity or a zero vector, which has no angle"
            )
    return embedded
