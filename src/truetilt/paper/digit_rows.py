"""Rows and pictures of the digit experiments: the embedded networks, and how good the samples of a class are."""

from __future__ import annotations

import base64
import statistics
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ..commands.costs import Cost
from ..commands.job_runner import Answer, Settings
from ..commands.real_digits import CLASSES, reference
from ..core.types import Tokens
from ..metrics.images import accuracy, coverage, diversity_ratio, surviving_roots
from ..models.hub import Digits, load
from ..models.net_score import FORMS
from ..result import Result
from .populations import counted_equally

QUICK_CLASSES = (4, 8, 9)  # the classes that a judge confuses most
BATCH, QUICK_BATCH = 512, 16  # states in a network's batch, on a GPU and on the CPU
SHOWN = 16  # draws of each class on a contact sheet


@lru_cache(maxsize=1)
def bundle(device: str) -> Digits:
    """The embedded networks, loaded once a process (cached).

    On a GPU they run in float16: bfloat16 has 8 bits, and rounding the logits of 784 sites by it would add about a nat
    to the spread of the log-ratio that the experiments measure.
    """
    if torch.device(device).type == "cpu":
        return in_full_precision(device, QUICK_BATCH)
    return warmed(load("mnist", device, batch=BATCH, dtype=torch.float16, compile=True))


def warmed(nets: Digits) -> Digits:
    """The networks, each evaluated once in every form, so that compilation does not count in a run's time."""
    for form in FORMS:
        model = nets.model(0, form)
        x = torch.full((1, model.length), model.process.states - 1, device=model.device)
        for net in (model.base, model.conditional, model.potential):
            _ = net and net(x, 1.0)
    nets.judge(torch.zeros_like(x))
    return nets


def in_full_precision(device: str, batch: int = BATCH) -> Digits:
    """The embedded networks in float32."""
    return load("mnist", device, batch=batch)


def figures_of(nets: Digits, condition: int, result: Result, real: Tokens | None, seed: int) -> Answer:
    """The quality of the samples of one condition; populations count equally, particles by weight."""
    result = counted_equally(result)
    x, weights, levels = result.particles.flatten(0, 1), result.weights.reshape(-1), nets.process.vocabulary
    drawn = result.draw(len(x), seed)
    return {
        "condition": condition,
        "accuracy": accuracy(nets.judge(x), condition, weights),
        "diversity_ratio": diversity_ratio(x, reference()[condition]["test"]["distance"], weights, levels),
        "coverage": None if real is None else coverage(real.to(x.device), drawn, levels=levels),
        "roots": surviving_roots(result.ancestors),
        "ess": float((result.final_ess / result.particles.shape[1]).mean()),
        "ess_least": float((result.ess.amin(0) / result.particles.shape[1]).mean()),
    }


def covered_by(nets: Digits, condition: int, result: Result, settings: Settings) -> float | None:
    """The share of the real digits of a class that the draws of all populations together cover."""
    real = real_digits(settings, condition)
    if real is None:
        return None
    drawn = counted_equally(result).draw(result.log_weights.numel(), settings.seed)
    return coverage(real.to(drawn.device), drawn, levels=nets.process.vocabulary)


def row(method: str, alpha: float, shape: tuple[int, int], figures: Answer, cost: Cost) -> Answer:
    """The row of a method and a condition, with the same keys in every digit experiment."""
    return {
        "method": method,
        "condition": figures["condition"],
        "alpha": alpha,
        "particles": shape[1],
        "populations": shape[0],
        "accuracy": figures["accuracy"],
        "accuracy_std": figures.get("accuracy_std"),
        **{name: figures[name] for name in ("diversity_ratio", "coverage", "roots", "ess", "ess_least")},
        "network_evaluations": cost.networks,
        "potential_evaluations": cost.potentials,
        "seconds": cost.seconds,
    }


def mean_row(rows: Sequence[Answer]) -> Answer:
    """The mean over the conditions of one method, with the spread of accuracy between them."""
    out = dict(rows[0]) | {"condition": "all"}
    for name in ("accuracy", "diversity_ratio", "coverage", "roots", "ess", "ess_least"):
        values = [r[name] for r in rows]
        out[name] = None if None in values else statistics.fmean(values)
    out["accuracy_std"] = statistics.stdev(r["accuracy"] for r in rows) if len(rows) > 1 else None
    return out | {"seconds": sum(r["seconds"] for r in rows)}


def picture(nets: Digits, condition: int, result: Result, seed: int) -> Answer:
    """A few draws for a contact sheet, compressed, and which of them the judge assigns to another class."""
    x = counted_equally(result).draw(SHOWN, seed)
    wrong = (nets.judge(x).argmax(-1) != condition).tolist()
    return {"condition": condition, "levels": nets.process.vocabulary, "wrong": wrong, "images": packed(x)}


def packed(x: Tokens) -> str:
    """Tokens below 256, compressed by zlib, as base64 text."""
    return base64.b64encode(zlib.compress(x.to(torch.uint8).cpu().numpy().tobytes(), 9)).decode("ascii")


def unpacked(shown: Answer) -> np.ndarray:
    """Grey levels 0..1 [n, D] of a packed picture."""
    flat = np.frombuffer(zlib.decompress(base64.b64decode(shown["images"])), dtype=np.uint8)
    return flat.reshape(len(shown["wrong"]), -1) / (shown["levels"] - 1)


def conditions(settings: Settings) -> tuple[int, ...]:
    return QUICK_CLASSES if settings.quick else CLASSES


@lru_cache(maxsize=1)
def _test_set(folder: str) -> Any:
    from ..training.data import load_digits

    return load_digits(folder, "test")


def real_digits(settings: Settings, condition: int) -> Tokens | None:
    """The real test digits of a class, if the user named a folder; else None."""
    if settings.data is None:
        return None
    digits = _test_set(settings.data)
    return digits.images[digits.labels == condition].long()


def check_data(settings: Settings) -> None:
    """Raise for a data folder without digits, before any job starts."""
    real_digits(settings, 0)
