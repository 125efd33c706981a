"""The request of a comparison, and its metrics: reward, naturalness, diversity, and errors if the answer is known.

Network evaluations and reward calls for the metrics are not charged to any budget.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..baselines.record import Baseline
from ..core.budget import Budget
from ..core.types import Tokens
from ..exact.tables import Table, enumerate_states, flat_index
from ..metrics.states import evenly_drawn, log_p0, mean_difference, site_frequencies
from ..rewards.reward import Reward
from .job_runner import Answer
from .steerable import Steerable

LEAST_NATURAL = -30.0  # nats per site assigned to a state that the model cannot draw


class Comparison(NamedTuple):
    """A comparison: a model and a reward by name, the budget of every run, and the number of seeds."""

    model: str
    reward: str
    strength: float = 1.0
    calls: int = 4000
    evaluations: int | None = None
    seeds: int = 5
    methods: tuple[str, ...] | None = None  # None: all
    steps: int | None = None  # steps that reveal a draw; None: one site per step up to 256 sites, 128 steps beyond
    judged: int = 64  # number of draws whose naturalness is computed
    seed: int = 0
    device: str = "cpu"

    @property
    def budget(self) -> Budget:
        return Budget(self.evaluations, self.calls)


def judged(subject: Steerable, reward: Reward, asked: Comparison, found: Baseline) -> Answer:
    """The metrics of weighted states; what computing them costs is not charged."""
    draws, strength = asked.judged, asked.strength
    model, weights = subject.model, found.weights.to(found.states.device)
    value = reward(found.states)
    allowed = value.isfinite() & (weights > 0)
    share = float(weights[allowed].sum())
    drawn, often = evenly_drawn(found.states, weights, draws).unique(dim=0, return_counts=True)
    natural = (log_p0(model, drawn, steps=asked.steps) / model.length).clamp(min=LEAST_NATURAL)
    exact = subject.table if found.log_weights is not None else None  # errors are defined against the target only
    return {
        "reward": float((weights * value)[allowed].sum()) / share if share > 0 else None,
        "forbidden": max(1 - share, 0.0),
        "naturalness": float((natural * often).sum()) / draws,
        "diversity": mean_difference(found.states, weights, model.process.vocabulary),
        "distinct": len(drawn),
        "log_z": found.log_z,
        "error": None if exact is None else _error(exact, reward, strength, found.states, weights),
        "states": len(found.states),
    }


def _error(table: Table, reward: Reward, strength: float, x: Tokens, weights: Tensor) -> float:
    """Mean over sites of the total variation between weighted and exact marginals."""
    states, law, _ = exact_law(table, reward, strength)
    size = table.process.vocabulary
    return float(0.5 * (site_frequencies(x, weights, size) - site_frequencies(states, law, size)).abs().sum(-1).mean())


def exact_law(table: Table, reward: Reward, strength: float) -> tuple[Tokens, Tensor, float]:
    """All states of a table, their probabilities under p0 exp(strength r), and log Z."""
    size = table.process.vocabulary
    states = enumerate_states(size, table.p0.dim(), table.p0.device)
    p0 = table.p0.reshape(-1)[flat_index(states, size)]
    value = reward(states)
    log_mass = torch.where((p0 > 0) & value.isfinite(), p0.log() + strength * value, -math.inf)
    return states, log_mass.softmax(-1), float(log_mass.logsumexp(-1))
