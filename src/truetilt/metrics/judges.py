"""Judges of text: classifiers that took no part in training or guiding the sampler.

A linear judge is logistic regression on a frozen encoder's vectors: a convex fit with a unique solution. Train it on
data that guidance has not seen. Calibrated to another judge's scores, it estimates that judge's answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import one_hot

from ..core.errors import InvalidInput
from ..core.storage import write_json, write_with
from ..models.pretrained import CONFIG, WEIGHTS, config_of, find_folder, read_config, read_weights
from .images import accuracy
from .regression import least_cross_entropy

ARCHITECTURE = "LinearJudge"
Encode = Callable[[Sequence[str]], Tensor]  # texts to vectors [n, C]


class Judge(Protocol):
    """Texts to log-probabilities [n, classes]."""

    def __call__(self, texts: Sequence[str]) -> Tensor: ...


def judged(judge: Judge, texts: Sequence[str], label: int, weights: Tensor | None = None) -> float:
    """Classifier accuracy: the weighted share of texts that the judge assigns to class `label`.

    Classes must be mutually exclusive. A bundle's judge has several groups of classes: use `Reviews.verdicts` for it.
    """
    log_p = judge(texts)
    total = float(log_p.double().logsumexp(-1).exp().mean()) if len(log_p) else 1.0
    if not abs(total - 1) < 1e-3:
        raise InvalidInput(
            f"the judge's probabilities sum to {total:.3g}; give the columns of one group of classes, log_softmax of a "
            "net's logits, or ask Reviews.verdicts(texts, condition)"
        )
    return accuracy(log_p, label, weights)


@dataclass(frozen=True)
class Named:
    """The config of a saved judge; `encoder` names the encoder it was fitted on, if that has a name."""

    classes: tuple[str, ...]
    width: int
    encoder: str | None = None

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise InvalidInput(f"classes are {self.classes}; give at least two different names")


@dataclass(frozen=True)
class LinearJudge:
    """Logistic regression on an encoder's vectors; weight float64 [classes, C], bias [classes]."""

    encode: Encode
    classes: tuple[str, ...]
    weight: Tensor
    bias: Tensor

    def __post_init__(self) -> None:
        if len(self.weight) != len(self.classes) or self.bias.shape != (len(self.classes),):
            raise InvalidInput(
                f"weights {tuple(self.weight.shape)} and bias {tuple(self.bias.shape)} for {len(self.classes)} classes"
            )
        _ = self.named

    @property
    def named(self) -> Named:
        return Named(self.classes, self.weight.shape[1], getattr(self.encode, "name", None))

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Log-probabilities float64 [n, classes]."""
        return self.logits(texts).log_softmax(-1)

    def logits(self, texts: Sequence[str]) -> Tensor:
        return _vectors(self.encode, texts, self.weight.shape[1]) @ self.weight.T + self.bias

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors; the encoder is named, not stored."""
        folder, named = Path(folder), self.named
        tensors = {"weight": self.weight.contiguous(), "bias": self.bias.contiguous()}
        (folder / CONFIG).unlink(missing_ok=True)
        write_with(folder / WEIGHTS, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
        values = {"classes": list(named.classes), "width": named.width, "encoder": named.encoder}
        write_json(folder / CONFIG, {"architecture": ARCHITECTURE, **values})

    @classmethod
    def load(cls, folder: str | Path, encode: Encode) -> Self:
        """A saved judge on its encoder, which must be the one it was fitted on."""
        folder = find_folder(folder, (CONFIG, WEIGHTS))
        named: Named = config_of(Named, read_config(folder, ARCHITECTURE), str(folder / CONFIG))
        if named.encoder != getattr(encode, "name", None):
            raise InvalidInput(
                f"{folder} was fitted on the encoder {named.encoder!r} and is given {getattr(encode, 'name', None)!r}; "
                "give the same"
            )
        zeros = torch.zeros(len(named.classes), named.width, dtype=torch.float64)
        tensors = read_weights(folder, {"weight": zeros, "bias": zeros[:, 0]})
        return cls(encode, named.classes, tensors["weight"].double(), tensors["bias"].double())


def fitted(
    encode: Encode, texts: Sequence[str], labels: Sequence[int] | Tensor, classes: Sequence[str], penalty: float = 1e-4
) -> LinearJudge:
    """The judge of least mean cross-entropy + penalty/2 |weight|^2; labels are classes [n], or shares [n, classes]."""
    if not penalty > 0:
        raise InvalidInput(f"penalty is {penalty}; it must be positive, or separable texts have no best judge")
    target = _shares(labels, len(texts), len(classes))
    x = _vectors(encode, texts)
    weight, bias = least_cross_entropy(x, target, penalty)
    return LinearJudge(encode, tuple(classes), weight, bias)


def calibrated(judge: LinearJudge, texts: Sequence[str], scores: Tensor) -> LinearJudge:
    """A judge of two classes with its log-odds scaled and shifted to fit another's scores [n] of the second class.

    Logistic calibration (Platt 1999) with scores for labels. The ranking of texts does not change.
    """
    if len(judge.classes) != 2:
        raise InvalidInput(f"the judge has {len(judge.classes)} classes; scores calibrate a judge of two")
    if scores.shape != (len(texts),) or not bool(((scores >= 0) & (scores <= 1)).all()):
        raise InvalidInput(f"scores {tuple(scores.shape)} for {len(texts)} texts; give one each, from 0 to 1")
    logits = judge.logits(texts)
    odds, target = logits[:, 1:] - logits[:, :1], torch.stack([1 - scores.double(), scores.double()], -1)
    weight, bias = least_cross_entropy(odds, target, 0.0)
    slope, shift = float(weight[1] - weight[0]), float(bias[1] - bias[0])
    if not slope > 0:
        raise InvalidInput(f"the judge's log-odds fall as the scores rise (slope {slope:.3g}); they judge other things")
    moved = slope * judge.bias + torch.tensor([-0.5, 0.5], dtype=torch.float64) * shift
    return replace(judge, weight=slope * judge.weight, bias=moved)


def _shares(labels: Sequence[int] | Tensor, count: int, classes: int) -> Tensor:
    labels = torch.as_tensor(labels)
    if labels.shape == (count,) and not labels.is_floating_point():
        if count == 0 or int(labels.min()) < 0 or int(labels.max()) >= classes:
            raise InvalidInput(f"labels of {count} texts must be 0 to {classes - 1}, the classes that are named")
        return one_hot(labels.long(), classes).double()
    rows = labels.double()
    if rows.shape != (count, classes) or not bool((rows >= 0).all()) or bool(((rows.sum(-1) - 1).abs() > 1e-6).any()):
        raise InvalidInput(
            f"labels of shape {tuple(labels.shape)} for {count} texts; give whole numbers [{count}], or shares "
            f"[{count}, {classes}] that sum to one"
        )
    return rows


def _vectors(encode: Encode, texts: Sequence[str], width: int | None = None) -> Tensor:
    found = encode(texts).double()
    if found.dim() != 2 or len(found) != len(texts) or found.shape[1] != (width or found.shape[1]):
        raise InvalidInput(
            f"the encoder returned {tuple(found.shape)} for {len(texts)} texts; it must return "
            f"[{len(texts)}, {width or 'C'}]"
        )
    if not bool(found.isfinite().all()):
        raise InvalidInput("the encoder returned NaN or infinity; look at its weights and at the texts")
    return found
