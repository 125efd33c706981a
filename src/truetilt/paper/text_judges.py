"""Models that score texts and were not used in sampling them: a classifier on MiniLM vectors, a tuned language model.

Both are fitted once to a prepared corpus (the classifier to the half that guidance was not trained on) and saved in
folders beside those of the tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..commands.job_runner import Answer
from ..core.errors import InvalidInput
from ..core.storage import write_json
from ..metrics.encoders import minilm
from ..metrics.judges import LinearJudge, calibrated, fitted
from ..metrics.perplexity import CausalLM
from ..metrics.reference_models import adapted, save_adapter, smollm2, tuned
from ..metrics.toxicity import Scored, agreement, read_scored
from ..models.pretrained import CONFIG, read_json
from ..models.text_normalisation import normalise
from ..training.corpus import Corpus
from .text_grid import TextTask

OWN, MINILM = "own", "minilm"
FITTED, TESTED = 16_000, 2_000  # largest number of texts to fit to, and to test on
TUNED_ON, TUNING_STEPS = 4_000, 48
CARD = "card.json"


@dataclass(frozen=True)
class Verdicts:
    """A judge of a task's classes, and its card."""

    judge: LinearJudge
    card: Answer

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Log-probabilities of the classes, a list for each text."""
        return self.judge(texts).tolist()

    def of(self, log_probs: list[float] | None, condition: str) -> tuple[float, bool]:
        """log p(condition | text) and whether no other class is likelier; an empty text belongs to no class."""
        if log_probs is None:
            return -math.log(len(self.judge.classes)), False
        log_p = log_probs[self.judge.classes.index(condition)]
        return log_p, log_p >= max(log_probs)


def second_judge(name: str, task: TextTask, data: str | None, perspective: str | None, beside: Path) -> Verdicts:
    """A judge saved in a folder; for "minilm" the one beside the task's folder, fitted if there is none."""
    encoder = minilm()
    folder = _folder(task, beside) if name == MINILM else Path(name)
    if not (folder / CONFIG).is_file():
        if name != MINILM:
            raise InvalidInput(f"the judge is {name!r}; give own, minilm, or a folder with a saved judge")
        if data is None:
            raise InvalidInput("a judge is fitted to a prepared corpus; give --data, such as runs/reviews")
        judge, card = fit_judge(encoder, task, data, perspective)
        judge.save(folder)
        write_json(folder / CARD, card)
    judge = LinearJudge.load(folder, encoder)
    if not set(task.conditions) <= set(judge.classes):
        raise InvalidInput(f"{folder} judges {judge.classes} and the task asks for {task.conditions}; give another")
    return Verdicts(judge, read_json(folder / CARD) if (folder / CARD).is_file() else {})


def kept_judge(task: TextTask, beside: Path) -> bool:
    """Whether a fitted judge of the task is saved."""
    return (_folder(task, beside) / CONFIG).is_file()


def _folder(task: TextTask, beside: Path) -> Path:
    return beside / f"judge-{task.name}"


def fit_judge(encode: Any, task: TextTask, data: str, perspective: str | None) -> tuple[LinearJudge, Answer]:
    """A judge fitted to the judge's half of a corpus, and its figures on test texts; calibrated if scores are given."""
    corpus = Corpus.read(data)
    texts, labels, classes = labelled(corpus, task, "judge", FITTED)
    judge = fitted(encode, texts, labels, classes)
    card: Answer = {"task": task.name, "classes": classes, "texts": len(texts), "encoder": judge.named.encoder}
    held, truth, _ = labelled(corpus, task, "test", TESTED)
    right = judge(held).argmax(-1) == torch.tensor(truth)
    card |= {"test_texts": len(held), "test_accuracy": float(right.double().mean())}
    if perspective is None:
        return judge, card
    found = read_scored(perspective)
    seen = {normalise(text) for text in found.texts} & set(texts)
    pairs = [(normalise(t), s) for t, s in zip(found.texts, found.scores.tolist(), strict=True)]
    pairs = [(t, s) for t, s in pairs if t.strip() and t not in seen]
    first, second = (
        Scored([t for t, _ in pairs[k::2]], torch.tensor([s for _, s in pairs[k::2]], dtype=torch.float64))
        for k in (0, 1)
    )
    judge = calibrated(judge, *first)
    return judge, card | {"calibrated_on": len(first.texts), "perspective": asdict(agreement(judge, second))}


def labelled(corpus: Corpus, task: TextTask, part: str, most: int) -> tuple[list[str], list[int], tuple[str, ...]]:
    """Texts of the task's group of classes from one part of a corpus, evenly spaced, and their class indices."""
    group = next((own for own in corpus.groups.values() if set(task.conditions) <= set(own)), None)
    if group is None:
        raise InvalidInput(f"{corpus.folder} has the groups {dict(corpus.groups)} and none with {task.conditions}")
    found = corpus.texts((part,), labelled=True)
    numbers = torch.tensor([corpus.classes.index(name) for name in group])
    rows = torch.isin(found.labels, numbers).nonzero().squeeze(-1)
    rows = rows[(torch.arange(min(most, len(rows))) * len(rows)) // min(most, len(rows))] if len(rows) else rows
    tokenizer, texts, labels = corpus.tokenizer, [], []
    for row in rows.tolist():
        text = tokenizer.decode(found.tokens[row].tolist())
        if text.strip():
            texts.append(text)
            labels.append(group.index(corpus.classes[int(found.labels[row])]))
    if len(set(labels)) < len(group):
        raise InvalidInput(f"{corpus.folder} has not a text of each of {group} for {part}; prepare another corpus")
    return texts, labels, tuple(group)


def tuned_reference(task: TextTask | None, data: str | None, beside: Path) -> CausalLM:
    """SmolLM2 tuned to the texts that guidance was trained on; its adapter is saved beside the task's folder."""
    folder = beside / f"smollm2-{'infill' if task is None else task.name}"
    if (folder / CARD).is_file():
        return adapted(smollm2(), folder)
    if data is None:
        raise InvalidInput("a reference is tuned to a prepared corpus; give --data, such as runs/reviews")
    corpus = Corpus.read(data)
    texts = _guidance_texts(corpus) if task is None else labelled(corpus, task, "guidance", TUNED_ON)[0]
    lm = tuned(smollm2(), texts, steps=TUNING_STEPS)
    save_adapter(lm, folder)
    write_json(folder / CARD, {"texts": len(texts), "steps": TUNING_STEPS, "tokenizer": corpus.tokenizer.fingerprint()})
    return lm


def _guidance_texts(corpus: Corpus) -> list[str]:
    """Labelled texts of every kind."""
    found = corpus.texts(("guidance",), labelled=True)
    rows = found.tokens[:: max(1, found.count // TUNED_ON)].tolist()
    return [text for text in map(corpus.tokenizer.decode, rows) if text.strip()]
