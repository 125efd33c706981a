"""The choices for steering: models, and rewards from the examples or given when the studio was started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..commands.python_file import load_named
from ..rewards import examples
from .folders import DIGITS, REVIEWS, STRINGS, TABLE

POPULATIONS = 16
KINDS = (TABLE, DIGITS, REVIEWS, STRINGS)  # kinds that can be steered here


class SteerChoice(NamedTuple):
    """A model that can be steered, with suitable evaluations, calls, and steps of a draw (None: one per site)."""

    label: str
    words: str
    kind: str  # kind of its rewards; empty: found from the path
    evaluations: int
    calls: int
    steps: int | None = None
    length: int | None = None  # number of sites, if known
    condition: str | None = None  # name of the condition, if there is one
    asked: str | None = None  # the initial condition
    offered: tuple[str, ...] = ()


SUBJECTS: Mapping[str, SteerChoice] = {
    "letters": SteerChoice(
        "Six letters", "4,096 words of A, C, G, T, by a Markov chain: the answer is known exactly.",
        TABLE, 24_000, 2_000, length=6,
    ),
    "nine": SteerChoice(
        "Nine states, two masked sites", "The paper’s figure 2. Nine states are soon all called.",
        TABLE, 4_000, 500, length=2,
    ),
    "mnist": SteerChoice(
        "Digits", "Embedded networks of 28 × 28 pixels, drawn in few steps: a minute or two on a CPU.",
        DIGITS, 1_024, 400, 16, 784, "Of which digit; empty: any", None, tuple("0123456789"),
    ),
    "tiny-reviews": SteerChoice(
        "Short reviews and comments", "Embedded text networks of 64 tokens, small: a minute or two on a CPU.",
        REVIEWS, 1_536, 400, 24, 64, "Of which class; empty: any", "positive",
        ("negative", "positive", "non-toxic", "toxic"),
    ),
    "own": SteerChoice(
        "My own table or networks",
        "A JSON table with p0 and likelihood, or a folder: as `truetilt train` writes it, or of transformers.",
        "", 4_000, 500, 32, None, "Of which class, or after which prompt; empty: any",
    ),
}  # fmt: skip


class RewardChoice(NamedTuple):
    """A reward that can be chosen, with a strength that suits it."""

    label: str
    words: str
    kind: str  # kind of models it is for; empty: all
    strength: float
    function: Callable[..., Any]
    python: tuple[str, str]  # the import, and the name
    named: str = ""  # as file.py:name, if given so

    @property
    def of_texts(self) -> bool:
        """Whether its function takes one text."""
        return self.kind == REVIEWS


def _example(function: Callable[..., Any], label: str, kind: str, strength: float) -> tuple[str, RewardChoice]:
    name = str(getattr(function, "__name__", ""))
    words = (function.__doc__ or "").strip()
    of = ("from truetilt.rewards.examples import " + name, name)
    return name, RewardChoice(label, words, kind, strength, function, of)


EXAMPLES: Mapping[str, RewardChoice] = dict(
    [
        _example(examples.ones, "Count of a token", TABLE, 1.5),
        _example(examples.apart, "Distance of two sites", TABLE, 2.0),
        _example(examples.palindrome, "A rare pattern: palindromes", TABLE, 6.0),
        _example(examples.ink, "Ink", DIGITS, 0.06),
        _example(examples.symmetry, "Left-right symmetry", DIGITS, 0.08),
        _example(examples.height, "Height of the digit", DIGITS, 0.5),
        _example(examples.long_words, "Length of words", REVIEWS, 1.0),
        _example(examples.exclamations, "Exclamation marks", REVIEWS, 1.0),
        _example(examples.says_great, "Contains a word: great", REVIEWS, 2.0),
        _example(examples.no_repeats, "No repeated words", REVIEWS, 0.4),
    ]
)


def named_rewards(named: Sequence[str]) -> dict[str, RewardChoice]:
    """The rewards of `file.py:name`, loaded at once, so that errors show before the server starts."""
    out = {}
    for text in named:
        found = load_named(text, "a reward: a function of tokens [B, D], or a tt.Reward")
        file, name = text.rsplit(":", 1)
        python = ("from truetilt.commands.python_file import load_named", f"load_named({text!r})")
        words = f"{name} of {file}, as it was when the studio was started."
        out[text] = RewardChoice(f"{name} ({Path(file).name})", words, "", 1.0, found, python, text)
    return out


def rewards_for(kind: str, known: Mapping[str, RewardChoice]) -> dict[str, RewardChoice]:
    """Rewards for a kind of model; those given at the start come first."""
    fits = {"", kind} | ({REVIEWS} if kind == STRINGS else set())  # a function of one text takes any string
    fitting = {key: one for key, one in known.items() if one.kind in fits}
    return dict(sorted(fitting.items(), key=lambda item: item[1].kind != ""))
