"""A tiny language whose entropy is known, as a prepared corpus, and the settings of runs that learn it in seconds.

A saying is x or y, then its mood, low or high, then perhaps a dot: 3 log 2 nats, 2 log 2 for those who know the mood.
A note is the same after an n, with a tone, calm or rude, in place of the mood. Every text is there equally often.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from truetilt.core.storage import write_json
from truetilt.models.tokenizer import END, TOKENIZER, Tokenizer
from truetilt.training.config import TrainConfig, config_of
from truetilt.training.corpus import CORPUS, PARTS, ROWS, TOKENS, array_hash

WORDS = (END, "x", "y", "low", "high", "n", "calm", "rude", ".")
CLASSES = ("low", "high", "calm", "rude", "note")
V, LENGTH, NOTE, NONE, COPIES = len(WORDS), 5, 4, 5, 25
NET = {"vocabulary": V, "length": LENGTH, "hidden": 32, "blocks": 1, "heads": 2, "condition": 16}
PLACED = NET | {"positions": True}
SIZES = {
    "unconditional": PLACED,
    "conditional": PLACED | {"classes": 5},
    "deft": PLACED | {"classes": 5, "scale_by_sigma": False},
    "potential": NET | {"groups": [2, 2]},
    "classifier": NET | {"groups": [2, 2]},
}


def tokenizer() -> Tokenizer:
    """A word is a token."""
    import tokenizers

    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token=".")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return Tokenizer(inner)


def texts() -> list[tuple[list[str], int]]:
    """Every saying and every note with the number of its class."""
    found = []
    for first, label, dot in product("xy", range(4), ([], ["."])):
        found.append(([*(["n"] if label > 1 else []), first, CLASSES[label], *dot], label))
    return found


def write_corpus(folder: Path) -> Path:
    """Each text once in the parts to learn from, and COPIES times in the test."""
    flat, rows = [], []
    for part, (words, label) in product(("guidance", "judge", "test"), texts()):
        flat += [WORDS.index(word) for word in words]
        rows.append((len(words), 1, label, PARTS.index(part), label // 2))
    flat += (COPIES - 1) * flat[-len(flat) // 3 :]
    rows += (COPIES - 1) * rows[-len(texts()) :]
    arrays = {TOKENS: np.array(flat, np.uint16), ROWS: np.array(rows, np.int16)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in arrays.items():
        np.save(folder / name, values)
    made = tokenizer()
    made.save(folder)
    marks = {TOKENIZER: made.fingerprint()} | {name: array_hash(values) for name, values in arrays.items()}
    facts = {"length": LENGTH, "vocabulary": V, "end": 0, "classes": CLASSES, "sources": ["sayings", "notes"]}
    facts |= {"groups": {"mood": CLASSES[:2], "tone": CLASSES[2:4]}, "withheld": [NONE, NONE, NOTE, NOTE, NOTE, NONE]}
    write_json(folder / CORPUS, facts | {"fingerprints": marks})
    return folder


def settings(data: Path | str, base: Path | str = "", **changes: object) -> TrainConfig:
    """A run of eight steps."""
    task = changes.get("task", "conditional")
    values = {"task": task, "modality": "text", "net": SIZES[str(task)], "steps": 8, "batch": 16, "warmup": 2}
    values |= {"checkpoint_every": 2, "data": str(data), "base": str(base), "ema": 0.9, "lr": 0.01, "log_every": 3}
    return config_of({**values, **changes})


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))
