"""`tt.steer` evaluated: on chains and TF Bind 8 against baselines, on tables against routes chosen in hindsight.

Every method may spend the same network evaluations and distinct calls of the reward. Baselines are run as large as the
budget affords by a search that they are not charged for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..baselines.methods import METHODS, TITLES, Contest, run_method
from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..core.budget import Budget
from ..core.errors import InvalidInput
from ..rewards.reward import Reward
from ..smc.uncertainty import student_quantile
from ..steering.steer import steer
from .reward_chains import VOCABULARY, chain_problem
from .reward_tables import FLOORS, binding_table
from .steer_figure import draw
from .steer_tables import FIXED, OURS, TABLES, one_table

DIMENSIONS, PROBLEMS, CALLS = (32, 64), 8, (2_000, 6_000, 18_000)
QUICK_DIMENSIONS, QUICK_CALLS = (32,), (2_000,)
PER_CALL = 20  # base draws' worth of evaluations for each call: the default of `tt.steer`
RIVALS = tuple(name for name, method in METHODS.items() if method.has_target)
BINDING, PRIORS, STRENGTHS, DISTINCT = "tfbind8", ("uniform", "markov1"), (4.0, 8.0), 2_000
SEEDS, QUICK_SEEDS, WORDS = 10, 2, 20
COLUMNS = ("problem", "method", "calls", "tv", "half_width", "log_z_error", "network_evaluations", "distinct_calls")
LEVEL, NEAR = 0.95, 1.5  # level of intervals; largest allowed error, in units of the best fixed route's on each table


def jobs(settings: Settings) -> list[Job]:
    """A job for each chain, budget and method, each word landscape, each table and method; long ones first."""
    dimensions, calls = (QUICK_DIMENSIONS, QUICK_CALLS) if settings.quick else (DIMENSIONS, CALLS)
    found = [
        Job(f"chain-{d}-{most}-{name}-{k}", one_chain, (d, k, most, name, settings.seed))
        for most in sorted(calls, reverse=True)
        for d in sorted(dimensions, reverse=True)
        for name in (OURS, *RIVALS)
        for k in range(PROBLEMS)
    ]
    if settings.data is not None:
        cells = [(prior, alpha, name) for prior in PRIORS for alpha in STRENGTHS for name in (OURS, "importance")]
        found += [
            Job(f"{BINDING}-{prior}-{alpha:g}-{name}-{k}", one_binding, (prior, alpha, name, k, str(_folder(settings))))
            for prior, alpha, name in cells
            for k in range(_words(settings))
        ]
    return found + [
        Job(f"table-{number}-{name}-{k}", one_table, (number, name, k))
        for number in range(TABLES)
        for name in (OURS, *FIXED)
        for k in range(_seeds(settings))
    ]


def _seeds(settings: Settings) -> int:
    return QUICK_SEEDS if settings.quick else SEEDS


def _words(settings: Settings) -> int:
    """Seeds on TF Bind 8: methods there are nearly equal, so that many are needed."""
    return QUICK_SEEDS if settings.quick else WORDS


def _folder(settings: Settings) -> Path:
    folder = Path(str(settings.data)) / BINDING
    if not folder.is_dir():
        raise InvalidInput(f"{settings.data} has no folder {BINDING}; --data must hold one")
    return folder


def one_chain(dimension: int, problem: int, calls: int, name: str, base_seed: int = 0) -> Answer:
    """A method on one chain with `calls` calls."""
    chain = chain_problem(dimension, problem)
    reward = Reward(chain.reward, vocabulary=VOCABULARY)
    budget, seed = Budget(PER_CALL * calls * dimension, calls), 1000 * base_seed + problem
    found = _run(name, chain.model, reward, 1.0, budget, seed)
    x, weights, log_z, spent, verdict = found
    floor, exact = chain.floor(problem), float(chain.target.log_z)
    row = {"tv": chain.miss(x, weights / weights.sum()), "floor": floor, "log_z_error": _off(log_z, exact)}
    return row | {"evaluations": spent.evaluations, "distinct": spent.distinct, "verdict": verdict}


def one_binding(prior: str, alpha: float, name: str, seed: int, folder: str) -> Answer:
    """A method on TF Bind 8 with 2,000 distinct calls."""
    table = binding_table(Path(folder), prior)
    model, (law, exact) = table.model(), table.target(alpha)
    budget = Budget(PER_CALL * DISTINCT * model.length, DISTINCT)
    x, weights, log_z, spent, verdict = _run(name, model, table.reward(), alpha, budget, seed)
    floor = table.floor(law, seed, FLOORS["tfbind8"])
    row = {"tv": table.miss(law, x, weights), "floor": floor, "log_z_error": _off(log_z, exact)}
    return row | {"evaluations": spent.evaluations, "distinct": spent.distinct, "verdict": verdict}


def _off(log_z: float | None, exact: float) -> float | None:
    """The error of log Z; None for a method that estimates none."""
    return None if log_z is None else log_z - exact


def _run(name: str, model: Any, reward: Reward, strength: float, budget: Budget, seed: int) -> tuple[Any, ...]:
    """States, weights, log Z, cost and verdict of a method."""
    if name == OURS:
        how: Any = {"evaluations": budget.evaluations, "calls": budget.calls, "seed": seed, "progress": False}
        result = steer(model, reward, strength, **how)
        states, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
        return states, weights, result.log_z, result.spent, str(result.trust().verdict)
    found = run_method(name, Contest(model, reward, strength, budget, seed))
    return found.states, found.weights, found.log_z, found.spent, None


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over problems and seeds, with intervals; and how reliable the verdicts on the tables were."""
    rows = []
    dimensions, calls = (QUICK_DIMENSIONS, QUICK_CALLS) if settings.quick else (DIMENSIONS, CALLS)
    for d in dimensions:
        for most in calls:
            for name in (OURS, *RIVALS):
                each = [answers[f"chain-{d}-{most}-{name}-{k}"] for k in range(PROBLEMS)]
                rows.append(_row(f"chain, {d} sites", name, most, each))
    for prior in PRIORS if settings.data is not None else ():
        for alpha in STRENGTHS:
            for name in (OURS, "importance"):
                keys = [f"{BINDING}-{prior}-{alpha:g}-{name}-{k}" for k in range(_words(settings))]
                rows.append(_row(f"{BINDING}, {prior}, {alpha:g}", name, DISTINCT, [answers[key] for key in keys]))
    for number in range(TABLES):
        for name in (OURS, *FIXED):
            each = [answers[f"table-{number}-{name}-{k}"] for k in range(_seeds(settings))]
            if all(each):
                rows.append(_row(f"table {number}", name, None, each))
    ours = [answers[f"table-{number}-{OURS}-{k}"] for number in range(TABLES) for k in range(_seeds(settings))]
    return {"experiment": "steer", "rows": rows, "verdicts": _verdicts(ours), "hindsight": _hindsight(rows)}


def _row(problem: str, name: str, calls: int | None, each: list[Answer]) -> Answer:
    """The mean error over problems or seeds with its 95 % interval, and the mean cost."""
    errors = [one["tv"] for one in each]
    n = len(errors)
    t = student_quantile(LEVEL, n - 1)
    off = [one["log_z_error"] for one in each]
    floors = [one["floor"] for one in each if "floor" in one]
    return {
        "problem": problem,
        "method": TITLES.get(name, name) if name != OURS else OURS,
        "calls": calls,
        "tv": statistics.fmean(errors),
        "half_width": t * statistics.stdev(errors) / math.sqrt(n),
        "floor": statistics.fmean(floors) if floors else None,
        "log_z_error": None if None in off else statistics.fmean(map(abs, off)),
        "network_evaluations": round(statistics.fmean(one["evaluations"] for one in each)),
        "distinct_calls": round(statistics.fmean(one["distinct"] for one in each)),
        "verdicts": [one["verdict"] for one in each] if each[0].get("verdict") else None,
        "errors": errors,
    }


def _verdicts(each: Iterable[Answer]) -> Answer:
    """The number of runs with each verdict, and their largest error, in half-widths of the stated intervals."""
    out: Answer = {}
    for one in each:
        kept = out.setdefault(one["verdict"], {"runs": 0, "most_off": 0.0, "beyond_3": 0})
        kept["runs"] += 1
        kept["most_off"] = max(kept["most_off"], one["off"])
        kept["beyond_3"] += one["off"] > 3
    return out


def _hindsight(rows: list[Answer]) -> list[Answer]:
    """For each table: our error over that of the fixed route that turned out best."""
    out = []
    for number in range(TABLES):
        errors = {row["method"]: row["tv"] for row in rows if row["problem"] == f"table {number}"}
        best = min((name for name in errors if name != OURS), key=errors.__getitem__)
        out.append({"table": number, "best": best, "ratio": errors[OURS] / errors[best]})
    return out


def passed(result: Answer) -> bool:
    """Whether all claims hold: see the docs, `truetilt reproduce steer`."""
    kept = {(row["problem"], row["calls"], row["method"]): row for row in result["rows"]}
    chains = [row for row in result["rows"] if row["problem"].startswith("chain") and row["method"] != OURS]
    ahead = all(_high(kept[row["problem"], row["calls"], OURS]) < row["tv"] - row["half_width"] for row in chains)
    words = {row["problem"] for row in result["rows"] if row["problem"].startswith(BINDING)}
    level = all(not _worse(kept[name, DISTINCT, OURS], kept[name, DISTINCT, "importance"]) for name in words)
    near = all(row["ratio"] <= NEAR for row in result["hindsight"])
    return ahead and level and near and result["verdicts"].get("trust", {}).get("beyond_3", 0) == 0


def _high(row: Answer) -> float:
    return row["tv"] + row["half_width"]


def _worse(ours: Answer, theirs: Answer) -> bool:
    """Whether the mean error is larger by more than its 95 % interval explains (runs are independent)."""
    return ours["tv"] - theirs["tv"] > math.hypot(ours["half_width"], theirs["half_width"])


EXPERIMENT = Experiment(
    "steer",
    "One call with a budget, beside what people use and what hindsight would choose",
    jobs,
    collect,
    draw,
    COLUMNS,
)
