"""Black-box rewards: chains with neighbour terms, and measured landscapes with expensive calls.

Every method gets the same budget of network evaluations, including fits and pilots; baselines are run beside ours. The
error is the total variation of a site's marginal, averaged over sites, divided by that of equally many independent
draws from the target.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..core.errors import InvalidInput
from .reward_chains import ADDITIVE, ALPHA, CALLS, EVALUATIONS, METHODS, PARTICLES, one_chain
from .reward_tables import DISTINCT, one_binding, one_fitness
from .rewards_figure import draw

DIMENSIONS, QUICK_DIMENSIONS = (32, 64), (32,)
PROBLEMS = 8
BINDING, FITNESS = "tfbind8", "gb1"  # folders below --data
PRIORS, STRENGTHS = ("uniform", "markov1"), (4.0, 8.0)
SEEDS, QUICK_SEEDS = 8, 2
COLUMNS = (
    *("method", "dimension", "alpha", "network_evaluations", "reward_calls", "distinct_calls"),
    *("ratio_to_floor", "worst", "log_z_error"),
)


def jobs(settings: Settings) -> list[Job]:
    """One job for each chain and method, the long ones first; with --data one for each landscape, target and seed."""
    found = [
        Job(f"{d}-{seed}-{number}", one_chain, (d, seed, name, settings.seed, settings.device))
        for d in sorted(_dimensions(settings), reverse=True)
        for number, name in enumerate([*METHODS, ADDITIVE])
        for seed in range(PROBLEMS)
    ]
    for seed in range(_seeds(settings)):
        for alpha in STRENGTHS:
            where = _folder(settings, BINDING)
            cells = [(f"{BINDING}-{prior}-{alpha:g}-{seed}", (prior, alpha, seed, where)) for prior in PRIORS]
            found += [Job(name, one_binding, cell) for name, cell in cells if where]
            where = _folder(settings, FITNESS)
            found += [Job(f"{FITNESS}-{alpha:g}-{seed}", one_fitness, (alpha, seed, where))] if where else []
    return found


def _dimensions(settings: Settings) -> tuple[int, ...]:
    return QUICK_DIMENSIONS if settings.quick else DIMENSIONS


def _seeds(settings: Settings) -> int:
    return QUICK_SEEDS if settings.quick else SEEDS


def _folder(settings: Settings, name: str) -> str | None:
    """The folder of a landscape; None if it is missing; raises if both are missing."""
    if settings.data is None:
        return None
    folders = [Path(settings.data) / each for each in (BINDING, FITNESS)]
    if not any(folder.is_dir() for folder in folders):
        raise InvalidInput(f"{settings.data} has no folder {BINDING} and no folder {FITNESS}; --data must hold one")
    chosen = Path(settings.data) / name
    return str(chosen) if chosen.is_dir() else None


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over the problems and seeds."""
    rows = []
    for d in _dimensions(settings):
        for number, name in enumerate([*METHODS, ADDITIVE]):
            each = [answers[f"{d}-{seed}-{number}"] for seed in range(PROBLEMS)]
            rows.append({"problem": "chain", **_row(name, d, ALPHA, each)})
    for alpha in STRENGTHS:
        for prior in PRIORS:
            each = [answers.get(f"{BINDING}-{prior}-{alpha:g}-{seed}", {}) for seed in range(_seeds(settings))]
            rows += [{"problem": f"{BINDING}, {prior}", **row} for row in _rows(8, alpha, each)]
        each = [answers.get(f"{FITNESS}-{alpha:g}-{seed}", {}) for seed in range(_seeds(settings))]
        rows += [{"problem": FITNESS, **row} for row in _rows(4, alpha, each)]
    budget = {"evaluations_a_site_and_particle": EVALUATIONS, "calls_a_site": CALLS, "distinct_calls_tfbind8": DISTINCT}
    sizes = {"particles": PARTICLES, "problems": PROBLEMS, "seeds": _seeds(settings), "budget": budget}
    return {"experiment": "rewards", **sizes, "rows": rows}


def _rows(dimension: int, alpha: float, each: list[Answer]) -> list[Answer]:
    return [_row(name, dimension, alpha, [one[name] for one in each]) for name in each[0]]


def _row(name: str, dimension: int, alpha: float, each: list[Answer]) -> Answer:
    """The mean error over the mean floor, the worst problem, and the mean error of log Z."""
    floor = statistics.fmean(one["floor"] for one in each)
    off = [one["log_z_error"] for one in each]
    return {
        "method": name,
        "dimension": dimension,
        "alpha": alpha,
        "network_evaluations": round(statistics.fmean(one["evaluations"] for one in each)),
        "reward_calls": round(statistics.fmean(one["calls"] for one in each)),
        "ratio_to_floor": statistics.fmean(one["tv"] for one in each) / floor,
        "log_z_error": None if None in off else statistics.fmean(abs(one) for one in off),
        "distinct_calls": round(statistics.fmean(one["distinct"] for one in each)),
        "worst": max(one["tv"] / one["floor"] for one in each),
        "log_z_errors": off,
        "tv_mean": statistics.fmean(one["tv"] for one in each),
        "floor": floor,
        "ess": statistics.fmean(one["ess"] for one in each),
    }


EXPERIMENT = Experiment(
    "rewards", "Rewards as black boxes: twists and annealing beside what people use", jobs, collect, draw, COLUMNS
)
