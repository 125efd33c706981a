"""What steering did to the reward: its mean and spread among draws of the model and in the answer, as plain data.

All values are read from the reward's cache; the function is not called. A reward without a cache (noisy, or
`cached=False`) and a network have no such record.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..core.logits import draw_from
from ..core.types import Tokens
from ..result import Result
from ..rewards.reward import Reward
from ..runtime.snapshots import evenly
from ..smc.genealogy import LINES, shown_lines
from ..smc.uncertainty import student_quantile

VALUES = 256  # rewards recorded for each side
STATES, TOKENS = 16, 1 << 14  # draws of the model recorded for display, and their tokens in all, at most
LEVEL = 0.95


def gain(reward: object, look: Result, answer: Result) -> dict[str, Any] | None:
    """The reward before (draws of the model) and after (the weighted answer); None if a value is not cached."""
    if not isinstance(reward, Reward) or not reward.keeps:
        return None
    first, last = look.particles.flatten(0, 1), answer.particles.flatten(0, 1)
    found = _kept(reward, torch.cat([first, last.to(first.device)]))
    if found is None:
        return None
    before, after = found[: len(first)], found[len(first) :]
    lines = shown_lines(answer.ancestors, LINES).tolist()
    size = answer.log_weights.shape[1]
    return {
        "before": _before(first, before),
        "after": _after(answer, after),
        "lines": [[*divmod(line, size), _number(after[line])] for line in lines],
    }


def _kept(reward: Reward, x: Tokens) -> Tensor | None:
    """The cached values of states, float64 [n] on the CPU; None if one is missing."""
    states, values = reward.known()
    named = dict(zip(_rows(states), values.tolist(), strict=True))
    found = [named.get(row) for row in _rows(x)]
    return None if None in found else torch.tensor(found, dtype=torch.float64)


def _rows(x: Tokens) -> list[bytes]:
    return [row.tobytes() for row in x.long().cpu().numpy()]


def _before(x: Tokens, value: Tensor) -> dict[str, Any]:
    """Independent draws: the mean of the allowed ones with its Student interval, and the share of forbidden ones."""
    allowed = value[value.isfinite()]
    count, mean, half = len(allowed), None, None
    if count:
        mean = float(allowed.mean())
    if mean is not None and count > 1:
        half = student_quantile(LEVEL, count - 1) * float(allowed.std()) / math.sqrt(count)
    some = list(evenly(len(x), min(STATES, max(TOKENS // x.shape[1], 1))))
    return {
        "mean": mean,
        "low": None if mean is None or half is None else mean - half,
        "high": None if mean is None or half is None else mean + half,
        "forbidden": 1 - count / len(value),
        "values": [_number(value[k]) for k in evenly(len(value), VALUES)],
        "states": x[some].tolist(),
        "rewards": [_number(value[k]) for k in some],
    }


def _after(answer: Result, value: Tensor) -> dict[str, Any]:
    """The weighted mean with its interval across populations, and rewards drawn by weight."""
    weights = answer.weights.reshape(-1).cpu()
    value = torch.where(weights > 0, value, 0.0)  # a particle of weight 0 may be forbidden (-inf)
    found = answer.expectation_interval(lambda x: value.to(x.device), LEVEL)
    ends = (None, None) if found.reason else (_finite(found.low), _finite(found.high))
    heights = (torch.arange(VALUES, dtype=weights.dtype) + 0.5) / VALUES
    drawn = value[draw_from(weights.cumsum(0), heights)]
    return {"mean": float(found.estimate), "low": ends[0], "high": ends[1], "values": [_number(one) for one in drawn]}


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(float(value)) else None


def _number(value: Tensor) -> float | None:
    """The value to six digits; None for a forbidden state."""
    return float(f"{float(value):.6g}") if bool(value.isfinite()) else None
