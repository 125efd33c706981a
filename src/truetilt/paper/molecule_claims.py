"""What is claimed of molecules and whether it holds: agreement with base draws, half the error, nothing dominates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from ..commands.job_runner import Answer
from ..smc.uncertainty import half_width, student_quantile
from .molecule_samplers import BY_POTENTIAL, CHARGED, OURS
from .molecule_tasks import TRUTH
from .molecule_truth import FUNCTIONS, agreement, error_ratios, ours_of, reference_of

FIGURES = ("reward", "above", "valid", "diversity", "novelty", "distance", "distinct", "log_z")
COSTS = ("network_evaluations", "potential_evaluations", "reward_calls", "returned")
FRONTS = {"diversity": 1.0, "distance": -1.0}  # the second axis of a front, and the sign that makes more better
HALF, LEVEL = 0.5, 0.95


def truth_of(rows: Sequence[Answer], base: Sequence[Answer], evaluations: int) -> list[Answer]:
    """For each hard task: the reference, and for each way of counting the potential agreement and ratios of errors.

    Rejection sampling has as many draws as the evaluations buy at the measured cost of a draw.
    """
    each = sum(one["network_evaluations"] for one in base) / max(sum(one["draws"] for one in base), 1)
    tasks = [task for task in TRUTH if any((row["part"], row["task"]) == ("truth", task.name) for row in rows)]
    comparisons, out = len(tasks) * len(BY_POTENTIAL) * (1 + len(FUNCTIONS)), []
    for task in tasks:
        reference = reference_of(base, task.name)
        found: Answer = {"task": task.name, "title": task.title, "draws": sum(one["draws"] for one in base)}
        found["hits"] = sum(one["hits"][task.name]["count"] for one in base)
        for way in BY_POTENTIAL:
            mine = [row for row in rows if (row["part"], row["task"], row["key"]) == ("truth", task.name, way)]
            if reference is None or len(mine) < 2 or all(row["log_z"] is None for row in mine):
                continue
            ours = ours_of(mine, reference)
            found[way] = {
                "seeds": len(mine),
                "log_z_reference": math.log(float(reference.estimates[0])),
                "log_z_ours": math.log(float(reference.estimates[0])) + math.log(float(ours.ratios.mean())),
                "agreement": agreement(ours, reference, comparisons),
                "errors": error_ratios(ours, reference, evaluations / each),
            }
        out.append(found)
    return out


def summaries(rows: Sequence[Answer]) -> list[Answer]:
    """The mean over seeds of each figure with its 95 % half-width, and mean costs, for every task and method."""
    out = []
    for task, key in dict.fromkeys((row["task"], row["key"]) for row in rows):
        each = [row for row in rows if (row["task"], row["key"]) == (task, key)]
        first = {name: each[0][name] for name in ("task", "method", "key", "has_target")} | {"seeds": len(each)}
        for name in FIGURES:
            values = [row[name] for row in each if row.get(name) is not None]
            first[name] = statistics.fmean(values) if values else None
            first[f"{name}_half"] = half_width(values, LEVEL)
        verdicts = [row["verdict"] for row in each if row["verdict"]]
        first |= {name: statistics.fmean(row[name] for row in each) for name in COSTS}
        out.append(first | {"most_calls": max(row["reward_calls"] for row in each), "verdicts": verdicts})
    return out


def claims(found: Answer, budget: tuple[int, int]) -> Answer:
    """Every claim with the figures behind it."""
    out: Answer = {}
    for one in found["truth"]:
        out |= _truth_claims(one)
    use = [row for row in found["rows"] if row["part"] == "use" and "failed" not in row]
    for task in dict.fromkeys(row["task"] for row in use):
        mine = [row for row in use if row["task"] == task]
        for key, title in OURS.items():
            ours = [row for row in mine if row["key"] == key]
            for axis, sign in FRONTS.items() if ours else ():
                above = list(_dominating(ours, [row for row in mine if row["key"] not in OURS], axis, sign))
                out[f"{task}, {title}: no baseline has more reward and better {axis}"] = _none(above)
    over = [
        f"{row['task']}, {row['method']}"
        for row in use
        if row["network_evaluations"] + (row["key"] == CHARGED) * row["potential_evaluations"] > budget[0]
        or row["reward_calls"] > budget[1]
    ]
    return out | {"no method exceeds its budget": _none(sorted(set(over)))}


def _none(found: list[str]) -> Answer:
    return {"found": found, "limit": 0, "holds": not found}


def _truth_claims(one: Answer) -> Answer:
    out: Answer = {}
    for way in BY_POTENTIAL:
        head = f"{one['title']}, {OURS[way]}"
        if way not in one:
            out[f"{head}: measured"] = {"found": one["hits"], "limit": 2, "holds": False}
            continue
        for row in one[way]["agreement"]:
            words = {"found": abs(row["z"]), "limit": row["limit"], "holds": row["holds"]}
            out[f"{head}: {row['quantity']} agrees with {one['draws']:,} draws"] = words
        for row in one[way]["errors"]:
            span = {"low": row["low"], "high": row["high"]}
            words = {"found": row["ratio"], **span, "limit": HALF, "holds": row["ratio"] <= HALF}
            out[f"{head}: error of {row['quantity']} over that of rejection"] = words
    return out


def _dominating(ours: Sequence[Answer], others: Sequence[Answer], axis: str, sign: float) -> Iterator[str]:
    """Baselines better in both means, in at least one by more than chance (95 % interval of the difference)."""
    for key in dict.fromkeys(row["key"] for row in others):
        theirs = [row for row in others if row["key"] == key]
        gaps = [_gap(theirs, ours, "reward", 1.0), _gap(theirs, ours, axis, sign)]
        known = [gap for gap in gaps if gap is not None]
        if len(known) == 2 and all(mean > 0 for mean, _ in known) and any(mean > half for mean, half in known):
            yield theirs[0]["method"]


def _gap(theirs: Sequence[Answer], ours: Sequence[Answer], name: str, sign: float) -> tuple[float, float] | None:
    """The difference of two means, theirs less ours, and the half-width of its interval; 0 with a single seed."""
    a, b = ([sign * row[name] for row in rows if row.get(name) is not None] for rows in (theirs, ours))
    if not a or not b:
        return None
    variances = [statistics.variance(part) / len(part) if len(part) > 1 else 0.0 for part in (a, b)]
    freedom = max(min(len(a), len(b)) - 1, 1)
    half = student_quantile(LEVEL, freedom) * math.sqrt(sum(variances))
    return statistics.fmean(a) - statistics.fmean(b), half
