"""Normalisation of texts: corpora and user input are brought to the form that the review networks read and write."""

from __future__ import annotations

import re

_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-"})
_FORMS = [  # applied in this order
    (re.compile(r"<br\s*/?>"), " "),
    (re.compile(r"``|''"), '"'),
    (re.compile(r"`"), "'"),
    (re.compile(r"-lrb-"), "("),
    (re.compile(r"-rrb-"), ")"),
    (re.compile(r"\\/"), "/"),
    (re.compile(r"\s+"), " "),
    (re.compile(r" (?=n't\b)"), ""),
    (re.compile(r" (?='(?:s|re|ve|ll|d|m)\b)"), ""),
    (re.compile(r" (?=[,.;:!?)%])"), ""),
    (re.compile(r"(?<=[(]) "), ""),
]


def normalise(text: str) -> str:
    """Lower case, plain quotes, single spaces, no HTML breaks, and the marks of tokenised text joined to their words.

    SST-2 comes as "it 's good , -lrb- i wo n't lie -rrb-" and IMDB as "It's good,<br />(I won't lie)".
    """
    text = text.lower().translate(_QUOTES)
    for pattern, by in _FORMS:
        text = pattern.sub(by, text)
    return text.strip()
