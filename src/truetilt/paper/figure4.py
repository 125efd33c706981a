"""Figure 4: accuracy and diversity against the number of particles, for alpha = 1, 2, 3 and both ways of resampling.

The paper's SMC proposes with the conditional rates (strength 1); at alpha = 1 its weights are all equal, so both ways
are plain conditional sampling. Beside it are the same SMC as populations of five, and the conditional network tilted by
a bounded potential. 50 runs of each point, 5 per class, computed as one run; the bars are standard errors over the
runs.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from ..commands.costs import Cost
from ..commands.job_runner import Answer, Experiment, Job, Settings
from . import digit_rows
from .digit_rows import conditions
from .digit_samplers import DIGIT_SAMPLERS, QUICK_STEPS, STEPS, DigitRun, sample_digits
from .populations import part_of

PARTICLES, QUICK_PARTICLES = (5, 10, 20, 50, 100), (5, 10)
ALPHAS, QUICK_ALPHAS = (1.0, 2.0, 3.0), (1.0, 3.0)
REPEATS, QUICK_REPEATS = 5, 1  # runs of each class
METHODS = ("smc", "smc-partial", "smc-populations", "tilted")
FEW = 5  # particles of a population, for methods with several
_STYLES = {"smc": ("-", "o"), "smc-partial": ("--", "s"), "smc-populations": (":", "D"), "tilted": ("-.", "^")}
_COLOURS, _OURS = {1.0: "#888888", 2.0: "#e0a030", 3.0: "#c8322b"}, {2.0: "#8fc9a3", 3.0: "#2e8b57"}


def points(settings: Settings) -> list[tuple[str, float, int]]:
    """Method, alpha and number of particles. At alpha = 1 there are no weights, so one method represents all."""
    sizes = QUICK_PARTICLES if settings.quick else PARTICLES
    alphas = QUICK_ALPHAS if settings.quick else ALPHAS
    weighed = [(m, a, n) for m in METHODS for a in alphas if a != 1 for n in sizes]
    return [("guidance", 1.0, n) for n in sizes] + weighed


def jobs(settings: Settings) -> list[Job]:
    """One job per point with all its runs, the long ones first."""
    digit_rows.check_data(settings)
    return [
        Job(f"{method}-{alpha:g}-{n}", one_point, (method, alpha, n, settings))
        for method, alpha, n in sorted(points(settings), key=lambda point: -point[2])
    ]


def one_point(method: str, alpha: float, particles: int, settings: Settings) -> Answer:
    """Every run of one point: the figures of each, and the coverage of a class by all its runs together."""
    nets, repeats = digit_rows.bundle(settings.device), QUICK_REPEATS if settings.quick else REPEATS
    classes, steps = conditions(settings), QUICK_STEPS if settings.quick else STEPS
    several, few = shape(method, particles)
    plan = DigitRun(classes, (repeats * several, few), steps, settings.seed)
    result, cost = sample_digits(nets, DIGIT_SAMPLERS[method], alpha, plan)
    runs = []
    for number, condition in enumerate(classes):
        own = part_of(result, number * repeats * several, repeats * several)
        covered = digit_rows.covered_by(nets, condition, own, settings)
        for run in range(repeats):
            part = part_of(own, run * several, several)
            figures = digit_rows.figures_of(nets, condition, part, None, settings.seed)
            runs.append(figures | {"coverage": covered})
    return {"runs": runs, "cost": list(cost)}


def shape(method: str, particles: int) -> tuple[int, int]:
    """A run's particles as populations and particles of each."""
    several = max(1, particles // FEW) if DIGIT_SAMPLERS[method].populations > 1 else 1
    return several, particles // several


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over the runs of each point."""
    rows = []
    for method, alpha, n in points(settings):
        answer = answers[f"{method}-{alpha:g}-{n}"]
        rows.append(_row(method, alpha, n, answer["runs"], Cost(*answer["cost"])))
    return {
        "experiment": "figure4",
        "steps": QUICK_STEPS if settings.quick else STEPS,
        "runs": len(conditions(settings)) * (QUICK_REPEATS if settings.quick else REPEATS),
        "classes": list(conditions(settings)),
        "findings": findings(rows),
        "rows": rows,
        "notes": ["accuracy_std is over the runs; at alpha = 1 no weight differs, and guidance stands for all"],
    }


def _row(method: str, alpha: float, n: int, runs: list[Answer], cost: Cost) -> Answer:
    names = ("accuracy", "diversity_ratio", "coverage", "roots", "ess", "ess_least")
    values = {name: [run[name] for run in runs] for name in names}
    figures: Answer = {name: None if None in own else statistics.fmean(own) for name, own in values.items()}
    figures |= {"condition": "all", "accuracy_std": statistics.stdev(values["accuracy"])}
    seconds = cost.seconds * len({run["condition"] for run in runs})  # of all runs together
    row = digit_rows.row(method, alpha, shape(method, n), figures, cost._replace(seconds=seconds))
    return row | {"runs": len(runs), "diversity_std": statistics.stdev(values["diversity_ratio"])}


def total(row: Answer) -> int:
    """Particles of a run, in all its populations."""
    return row["populations"] * row["particles"]


def findings(rows: list[Answer]) -> Answer:
    """The paper's two findings, each as the number of points at which it holds."""
    at = {(r["method"], r["alpha"], total(r)): r for r in rows}
    sizes, alphas = sorted({n for _, _, n in at}), sorted({alpha for _, alpha, _ in at})

    def accuracy(method: str, alpha: float, n: int) -> float:
        return at["guidance" if alpha == 1 else method, alpha, n]["accuracy"]

    out: Answer = {}
    for method in METHODS:
        rises = [accuracy(method, alphas[-1], n) >= accuracy(method, alphas[0], n) for n in sizes]
        out[f"accuracy_rises_with_alpha_{method}"] = f"{sum(rises)} of {len(rises)}"
    pairs = [(at["smc-partial", a, n], at["smc", a, n]) for a in alphas if a != 1 for n in sizes]
    for name in ("diversity_ratio", "accuracy"):
        higher = [part[name] > full[name] for part, full in pairs]
        out[f"partial_raises_{name}"] = f"{sum(higher)} of {len(higher)}"
        out[f"partial_minus_full_{name}"] = statistics.fmean(part[name] - full[name] for part, full in pairs)
    calmer = [part["accuracy_std"] <= full["accuracy_std"] for part, full in pairs]
    return out | {"partial_lowers_accuracy_std": f"{sum(calmer)} of {len(calmer)}"}


def draw(result: Answer) -> Any:
    """Accuracy and diversity against N: colour is alpha, the line is the method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    axes = figure.subplots(1, 2)
    panels = (("accuracy", "accuracy of the judge"), ("diversity_ratio", "diversity (1: real digits)"))
    for ax, (name, words) in zip(axes, panels, strict=True):
        _curves(ax, result, name)
        sizes = sorted({total(r) for r in result["rows"]})
        ax.set(xscale="log", xlabel="particles of a run", ylabel=words)
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.minorticks_off()
        ax.grid(color="#e5e5e5", lw=0.5)
    axes[0].set_title(f"{result['runs']} runs, {result['steps']} steps; bars: standard error", fontsize=9)
    axes[1].set_title("diversity within a run", fontsize=9)
    axes[1].legend(fontsize=7, loc="best")
    return figure


def _curves(ax: Any, result: Answer, name: str) -> None:
    spread = {"accuracy": "accuracy_std", "diversity_ratio": "diversity_std"}[name]
    for number, (method, alpha) in enumerate(dict.fromkeys((r["method"], r["alpha"]) for r in result["rows"])):
        own = [r for r in result["rows"] if (r["method"], r["alpha"]) == (method, alpha)]
        own.sort(key=total)
        at = [total(r) * 1.02 ** (number - 3) for r in own]
        bars = [r[spread] / math.sqrt(r["runs"]) for r in own]
        line, marker = _STYLES.get(method, (":", "_"))
        label = "α = 1: no weights" if method == "guidance" else f"{method}, α = {alpha:g}"
        colour = (_OURS if method == "tilted" else _COLOURS)[alpha]
        ax.errorbar(at, [r[name] for r in own], bars, ls=line, marker=marker, ms=5, lw=1.2, color=colour, label=label)


COLUMNS = ("method", "alpha", "particles", "accuracy", "accuracy_std", "diversity_ratio", "roots", "ess", "seconds")
EXPERIMENT = Experiment("figure4", "Accuracy against the number of particles", jobs, collect, draw, COLUMNS)
