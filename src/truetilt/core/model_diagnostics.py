"""Diagnostics of the model, taken at the end of a run: plain numbers, stored in the settings of its result.

They say whether the conditionals that moves use agree, how large the ratio of the two networks is, and how far the
target lies from the base. `Result.trust` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class ModelDiagnostics(NamedTuple):
    """Numbers in nats; None where a run has no such number, or did not need to measure it."""

    disagreement: float | None = None  # between the conditionals of two neighbouring sites that moves redraw, mean
    log_ratio: float | None = None  # log p(zeta|x) / p(zeta) of the networks, mean under the target, worst condition
    bound: float | None = None  # upper bound of the true log-ratio: -log p(zeta), where it is known
    beyond: float | None = None  # mean excess of the log-ratio over its bound
    retold: float | None = None  # mean change of the log-ratio when summed in another order, where no bound is known
    amplified: float | None = None  # factor by which an error of the log-ratio enters the target: alpha - 1
    divergence: float | None = None  # KL of the target from the base
    most: float | None = None  # log of the largest possible weight, where it is known
    rewarded: bool = False  # whether a reward is in the target
    residual: float | None = None  # largest strength * reward, less a learned twist, of a particle with weight
    flat: bool = False  # whether the reward was the same for every particle
    moving: bool = False  # whether the run was to make moves
    drift: float | None = None  # mean |log p0 as moves updated it - log p0 summed in the run's order|

    def as_settings(self) -> dict[str, Any]:
        """The measures that are known and finite, fit for JSON."""
        return {name: value for name, value in self._asdict().items() if value is not None and math.isfinite(value)}


NOT_MEASURED = ModelDiagnostics()
_TRUTHS = ("rewarded", "flat", "moving")


def worst(parts: Sequence[Mapping[str, Any]]) -> ModelDiagnostics:
    """The measures of several runs together: the largest of each number; a bound only if all runs have the same, and
    flat only if all are.
    """
    found: dict[str, Any] = {}
    for name in ModelDiagnostics._fields:
        values = [part[name] for part in parts if name in part]
        found |= {name: min(values) if name == "flat" else max(values)} if values else {}
    if len({part["bound"] for part in parts if "bound" in part}) > 1:
        found.pop("bound")
    return ModelDiagnostics(**found)


def as_numbers(told: Mapping[str, Any]) -> Tensor:
    """The measures as a tensor [fields], for exchange between ranks; NaN for None."""
    return torch.tensor([float(told.get(name, math.nan)) for name in ModelDiagnostics._fields], dtype=torch.float64)


def from_numbers(numbers: Tensor) -> dict[str, Any]:
    """The inverse of `as_numbers`."""
    pairs = zip(ModelDiagnostics._fields, numbers.tolist(), strict=True)
    return {name: bool(value) if name in _TRUTHS else value for name, value in pairs if not math.isnan(value)}


def is_measured(value: Any) -> bool:
    """Whether a value read from a file is what `told` returns."""
    return isinstance(value, dict) and all(_fits(name, part) for name, part in value.items())


def _fits(name: str, part: Any) -> bool:
    if name in _TRUTHS:
        return isinstance(part, bool)
    return name in ModelDiagnostics._fields and isinstance(part, int | float) and not isinstance(part, bool)
