"""Figure 4: accuracy and diversity against the number of particles, for alpha = 1, 2, 3 and both ways of resampling.

By DEFT, which is the paper's form, and by one net with and without the label; and, at one size, by how low the
effective sample size must be before particles are resampled.

The paper's SMC proposes with the conditional rates (strength 1); at alpha = 1 its weights are all equal, so both ways
are plain conditional sampling. Beside it are the same SMC as populations of five, and the conditional network tilted by
a bounded potential. 50 runs of each point, 5 per class, computed as one run; the bars are standard errors over the
runs.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any, NamedTuple

from ..commands.costs import Cost
from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..smc.resampling import Adaptive
from . import digit_rows
from .digit_rows import conditions
from .digit_samplers import DIGIT_SAMPLERS, QUICK_STEPS, STEPS, DigitRun, DigitSampler, sample_digits
from .populations import part_of

PARTICLES, QUICK_PARTICLES = (5, 10, 20, 50, 100), (5, 10)
ALPHAS, QUICK_ALPHAS = (1.0, 2.0, 3.0), (1.0, 3.0)
REPEATS, QUICK_REPEATS = 5, 1  # runs of each class
METHODS = ("smc", "smc-partial", "smc-populations", "tilted", "smc-deft", "smc-deft-partial")
HALF, THRESHOLDS, SWEPT = 0.5, (0.125, 0.25, 0.5, 0.75, 1.0), 50  # shares of the particles; 1 resamples at every step
FEW = 5  # particles of a population, for methods with several
_STYLES = {"smc": ("-", "o"), "smc-partial": ("--", "s"), "smc-populations": (":", "D"), "tilted": ("-.", "^")}
_COLOURS, _OURS = {1.0: "#888888", 2.0: "#e0a030", 3.0: "#c8322b"}, {2.0: "#8fc9a3", 3.0: "#2e8b57"}


class Point(NamedTuple):
    """A method, alpha, the particles of a run, and the share of them below which the ESS is low."""

    method: str
    alpha: float
    particles: int
    threshold: float = HALF

    @property
    def name(self) -> str:
        words = f"{self.method}-{self.alpha:g}-{self.particles}"
        return words if self.threshold == HALF else f"{words}-{self.threshold:g}"


def points(settings: Settings) -> list[Point]:
    """At alpha = 1 there are no weights, so one method of each form represents all."""
    sizes = QUICK_PARTICLES if settings.quick else PARTICLES
    alphas = QUICK_ALPHAS if settings.quick else ALPHAS
    methods = METHODS[:4] if settings.quick else METHODS
    weighed = [Point(m, a, n) for m in methods for a in alphas if a != 1 for n in sizes]
    plain = [Point("guidance", 1.0, n) for n in sizes]
    if settings.quick:
        return plain + weighed
    both = [method for method in METHODS if method.startswith("smc") and "populations" not in method]
    swept = [Point(m, a, SWEPT, level) for m in both for a in alphas if a != 1 for level in THRESHOLDS if level != HALF]
    return [*plain, *(Point("guidance-deft", 1.0, n) for n in sizes), *weighed, *swept]


def jobs(settings: Settings) -> list[Job]:
    """One job per point with all its runs, the long ones first."""
    digit_rows.check_data(settings)
    return [
        Job(point.name, one_point, (point, settings))
        for point in sorted(points(settings), key=lambda point: -point.particles)
    ]


def one_point(point: Point, settings: Settings) -> Answer:
    """Every run of one point: the figures of each, and the coverage of a class by all its runs together."""
    method, alpha, particles, threshold = point
    nets, repeats = digit_rows.bundle(settings.device), QUICK_REPEATS if settings.quick else REPEATS
    classes, steps = conditions(settings), QUICK_STEPS if settings.quick else STEPS
    several, few = shape(method, particles)
    plan = DigitRun(classes, (repeats * several, few), steps, settings.seed)
    result, cost = sample_digits(nets, resampled_below(DIGIT_SAMPLERS[method], threshold), alpha, plan)
    runs = []
    for number, condition in enumerate(classes):
        own = part_of(result, number * repeats * several, repeats * several)
        covered = digit_rows.covered_by(nets, condition, own, settings)
        for run in range(repeats):
            part = part_of(own, run * several, several)
            figures = digit_rows.figures_of(nets, condition, part, None, settings.seed)
            runs.append(figures | {"coverage": covered})
    return {"runs": runs, "cost": list(cost)}


def resampled_below(sampler: DigitSampler, threshold: float) -> DigitSampler:
    """The sampler with another threshold of its effective sample size."""
    scheme = sampler.sampler.resample
    if not isinstance(scheme, Adaptive) or threshold == scheme.threshold:
        return sampler
    return replace(sampler, sampler=sampler.sampler._replace(resample=replace(scheme, threshold=threshold)))


def shape(method: str, particles: int) -> tuple[int, int]:
    """A run's particles as populations and particles of each."""
    several = max(1, particles // FEW) if DIGIT_SAMPLERS[method].populations > 1 else 1
    return several, particles // several


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over the runs of each point."""
    rows = []
    for point in points(settings):
        answer = answers[point.name]
        rows.append(_row(point, answer["runs"], Cost(*answer["cost"])))
    return {
        "experiment": "figure4",
        "steps": QUICK_STEPS if settings.quick else STEPS,
        "runs": len(conditions(settings)) * (QUICK_REPEATS if settings.quick else REPEATS),
        "classes": list(conditions(settings)),
        "findings": findings(rows),
        "rows": rows,
        "notes": ["accuracy_std is over the runs; at alpha = 1 no weight differs, and guidance stands for all"],
    }


def _row(point: Point, runs: list[Answer], cost: Cost) -> Answer:
    method, alpha, n, threshold = point
    names = ("accuracy", "diversity_ratio", "coverage", "roots", "ess", "ess_least")
    values = {name: [run[name] for run in runs] for name in names}
    figures: Answer = {name: None if None in own else statistics.fmean(own) for name, own in values.items()}
    figures |= {"condition": "all", "accuracy_std": statistics.stdev(values["accuracy"])}
    seconds = cost.seconds * len({run["condition"] for run in runs})  # of all runs together
    row = digit_rows.row(method, alpha, shape(method, n), figures, cost._replace(seconds=seconds))
    return row | {
        "runs": len(runs),
        "threshold": threshold,
        "diversity_std": statistics.stdev(values["diversity_ratio"]),
    }


def total(row: Answer) -> int:
    """Particles of a run, in all its populations."""
    return row["populations"] * row["particles"]


def findings(rows: list[Answer]) -> Answer:
    """The paper's two findings, each as the number of points at which it holds."""
    at = {(r["method"], r["alpha"], total(r)): r for r in rows if r["threshold"] == HALF}
    sizes, alphas = sorted({n for _, _, n in at}), sorted({alpha for _, alpha, _ in at})

    def accuracy(method: str, alpha: float, n: int) -> float:
        return at[_plain(method) if alpha == 1 else method, alpha, n]["accuracy"]

    out: Answer = {}
    for method in dict.fromkeys(method for method, _, _ in at if not method.startswith("guidance")):
        rises = [accuracy(method, alphas[-1], n) >= accuracy(method, alphas[0], n) for n in sizes]
        out[f"accuracy_rises_with_alpha_{method}"] = f"{sum(rises)} of {len(rises)}"
    for form in ("", "-deft"):
        pairs = [
            (r, q) for r in rows for q in rows
            if r["method"] == f"smc{form}-partial" and q["method"] == f"smc{form}"
            and all(r[name] == q[name] for name in ("alpha", "particles", "threshold"))
        ]  # fmt: skip
        for level in sorted({r["threshold"] for r, _ in pairs}):
            here = [pair for pair in pairs if pair[0]["threshold"] == level]
            out |= _partial(form if level == HALF else f"{form}_below_{level:g}", here)
    return out


def _plain(method: str) -> str:
    """The method without weights of the same form."""
    return "guidance-deft" if "deft" in method else "guidance"


def _partial(which: str, pairs: list[tuple[Answer, Answer]]) -> Answer:
    """Partial resampling against full, at as many points."""
    out: Answer = {}
    for name in ("diversity_ratio", "accuracy"):
        higher = [part[name] > full[name] for part, full in pairs]
        out[f"partial_raises_{name}{which}"] = f"{sum(higher)} of {len(higher)}"
        out[f"partial_minus_full_{name}{which}"] = statistics.fmean(part[name] - full[name] for part, full in pairs)
    calmer = [part["accuracy_std"] <= full["accuracy_std"] for part, full in pairs]
    return out | {f"partial_lowers_accuracy_std{which}": f"{sum(calmer)} of {len(calmer)}"}


PANELS = (
    ("accuracy", "accuracy of the judge", "accuracy_std"),
    ("diversity_ratio", "diversity (1: real digits)", "diversity_std"),
)


def draw(result: Answer) -> Any:
    """Accuracy and diversity against N, for each form, and against the threshold; colour: alpha, line: the method."""
    from matplotlib.figure import Figure

    levels = {r["threshold"] for r in result["rows"]} - {HALF}
    forms = [f for f in ("deft", "label") if any(_form(r) == f for r in result["rows"])]
    panels = [(form, "total") for form in forms] + [(form, "threshold") for form in forms if levels]
    figure = Figure(figsize=(11, 4.2 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 2, squeeze=False)
    for row, (form, along) in zip(axes, panels, strict=True):
        own = [r | {"total": total(r)} for r in result["rows"] if _form(r) == form]
        own = [r for r in own if (r["threshold"] == HALF if along == "total" else _swept(r))]
        for ax, (name, words, spread) in zip(row, PANELS, strict=True):
            _curves(ax, own, along, name, spread)
            places = sorted({r[along] for r in own})
            ax.set(xscale="log" if along == "total" else "linear", ylabel=words)
            ax.set_xlabel("particles of a run" if along == "total" else "resampled where the ESS is below this share")
            ax.set_xticks(places, [f"{place:g}" for place in places])
            ax.minorticks_off()
            ax.grid(color="#e5e5e5", lw=0.5)
        how = "DEFT" if form == "deft" else "one net with and without the label"
        row[0].set_title(f"{how}; {result['runs']} runs, {result['steps']} steps; bars: standard error", fontsize=9)
        row[1].set_title("diversity within a run", fontsize=9)
        row[1].legend(fontsize=7, loc="best")
    return figure


def _form(row: Answer) -> str:
    return "deft" if "deft" in row["method"] else "label"


def _swept(row: Answer) -> bool:
    """Whether a row is a point of the sweep of thresholds."""
    plain = row["method"].removesuffix("-partial").removesuffix("-deft")
    return plain == "smc" and row["alpha"] != 1 and total(row) == SWEPT


def _curves(ax: Any, rows: list[Answer], along: str, name: str, spread: str) -> None:
    for number, (method, alpha) in enumerate(dict.fromkeys((r["method"], r["alpha"]) for r in rows)):
        own = sorted((r for r in rows if (r["method"], r["alpha"]) == (method, alpha)), key=lambda r: r[along])
        at = [r[along] * 1.02 ** (number - 3) for r in own]
        bars = [r[spread] / math.sqrt(r["runs"]) for r in own]
        line, marker = _STYLES.get(method.replace("-deft", ""), (":", "_"))
        label = "α = 1: no weights" if method.startswith("guidance") else f"{method}, α = {alpha:g}"
        colour = (_OURS if method == "tilted" else _COLOURS)[alpha]
        ax.errorbar(at, [r[name] for r in own], bars, ls=line, marker=marker, ms=5, lw=1.2, color=colour, label=label)


COLUMNS = ("method", "alpha", "particles", "accuracy", "accuracy_std", "diversity_ratio", "roots", "ess", "seconds")
EXPERIMENT = Experiment("figure4", "Accuracy against the number of particles", jobs, collect, draw, COLUMNS)
