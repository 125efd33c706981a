"""The data of figures and reports: curves, weights and genealogy of a run as plain lists, thinned to what a screen can
show.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..core.spent import Spent
from ..runtime.snapshots import Snapshots, evenly
from ..smc.resampling import log_mean_exp
from ..smc.trust import Trust
from ..smc.uncertainty import History, across_populations, interval, of_log_z
from .genealogy_layout import COLUMNS, Forest, forest

POINTS = 300  # of a curve over steps
BARS = 160  # of sorted weights
CURVES = 16  # populations drawn one by one


class ResultLike(Protocol):
    """The fields of a result that are read here."""

    @property
    def particles(self) -> Tensor: ...
    @property
    def log_weights(self) -> Tensor: ...
    @property
    def times(self) -> Tensor: ...
    @property
    def ess(self) -> Tensor: ...
    @property
    def log_z_path(self) -> Tensor: ...
    @property
    def ancestors(self) -> Tensor: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def snapshots(self) -> Snapshots: ...
    @property
    def weights(self) -> Tensor: ...
    @property
    def final_ess(self) -> Tensor: ...
    @property
    def roots(self) -> Tensor: ...
    @property
    def population_log_z(self) -> Tensor: ...
    @property
    def log_z(self) -> float: ...
    @property
    def log_z_words(self) -> str: ...
    @property
    def spent(self) -> Spent: ...
    def trust(self) -> Trust: ...


def plain(x: Tensor) -> Tensor:
    """States that numpy can hold: on the CPU, reals as float64."""
    return x.cpu().double() if x.is_floating_point() else x.cpu()


def told_steps(ess: np.ndarray, limit: int = POINTS) -> list[int]:
    """At most `limit` steps of a curve [steps + 1], both ends among them.

    Of each interval the lowest point is taken, so that no dip is hidden.
    """
    if len(ess) <= limit:
        return list(range(len(ess)))
    edges = np.linspace(1, len(ess) - 1, limit - 1).round().astype(int)
    lowest = [int(a + ess[a:b].argmin()) for a, b in pairwise(edges.tolist())]
    return sorted({0, *lowest, len(ess) - 1})


def shown_populations(run: ResultLike, limit: int = CURVES) -> list[int]:
    """The populations drawn one by one: all, or `limit` of them, evenly spaced."""
    return list(evenly(run.log_weights.shape[0], limit))


def courses(run: ResultLike) -> dict[str, Any]:
    """ESS as a share of the particles and log Z with its interval, at the steps that are drawn."""
    share = (run.ess / run.log_weights.shape[1]).cpu()
    living = share > 0
    mean = share.sum(1) / living.sum(1).clamp(min=1)
    steps, shown = told_steps(mean.numpy()), shown_populations(run)
    path = run.log_z_path.cpu().double()
    union = log_mean_exp(path[steps])
    low, high = _band(path[steps])
    return {
        "steps": steps,
        "times": _plain(run.times.cpu()[steps]),
        "populations": shown,
        "ess": _plain(mean[steps]),
        "ess_each": [_plain(share[steps, k]) for k in shown],
        "log_z": _plain(union),
        "low": low,
        "high": high,
        "log_z_each": [_plain(path[steps, k]) for k in shown],
    }


def _band(path: Tensor) -> tuple[list[float | None], list[float | None]]:
    """Lower and upper ends of the 95 % interval of log Z at each step, across populations; empty with a single one."""
    if path.shape[1] < 2:
        return [], []
    ends = []
    for row in path:
        if not bool((row > -torch.inf).any()):
            ends.append((None, None))
            continue
        log_w = row[:, None]
        history = History(log_w, torch.empty(0), torch.empty(0), None)
        estimate = of_log_z(log_w)
        found = interval(estimate, across_populations(estimate, history), 0.95)
        ends.append((_number(float(found.low)), _number(float(found.high))))
    return [low for low, _ in ends], [high for _, high in ends]


def weight_bars(run: ResultLike) -> dict[str, Any]:
    """Weights over the union from the heaviest down (1 is an equal share), and the mass that they add up to."""
    weights = run.weights.reshape(-1).cpu().double().sort(descending=True).values
    total = np.concatenate([[0.0], weights.cumsum(0).numpy()])
    ranks = list(evenly(len(weights), BARS))
    half = int(np.searchsorted(total, 0.5 * total[-1]))
    return {
        "count": len(weights),
        "ranks": ranks,
        "weights": _plain(weights[ranks] * len(weights)),
        "mass_ranks": (cuts := [0, *(rank + 1 for rank in ranks)]),
        "mass": _plain(torch.as_tensor(total[cuts])),
        "half": half,
        "heaviest": float(weights[0]),
    }


def population_rows(run: ResultLike) -> list[dict[str, Any]]:
    """log Z, mass, ESS and surviving roots of each population."""
    mass = run.weights.sum(1)
    return [
        {"number": k, "log_z": float(z), "mass": float(m), "ess": float(e), "roots": int(r)}
        for k, (z, m, e, r) in enumerate(zip(run.population_log_z, mass, run.final_ess, run.roots, strict=True))
    ]


def family_tree(run: ResultLike, population: int, column_limit: int = COLUMNS) -> tuple[Forest, list[float]]:
    """The genealogy of one population, and the weight within it of each line shown at the end."""
    found = forest(run.ancestors[:, population].cpu().long().numpy(), column_limit)
    log_w = run.log_weights[population].cpu()
    share = torch.softmax(log_w, 0) if bool((log_w > -torch.inf).any()) else torch.zeros_like(log_w)
    return found, [float(share[k]) for k in found.shown]


def _plain(values: Tensor) -> list[float | None]:
    return [_number(value) for value in values.tolist()]


def _number(value: float, digits: int = 6) -> float | None:
    """A value rounded to this many significant digits; None for NaN and infinity, which JSON cannot hold."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
