"""TF Bind 8: every sampler on a measured landscape, the binding strength of all 65,536 DNA 8-mers to a protein."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..api import run
from ..commands.costs import RoundCounter
from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..commands.samplers import HALF, in_order
from ..core.types import Model
from ..result import Result
from ..smc.rejuvenation import Rejuvenation
from ..targets.any_order import AnyOrder
from ..targets.moves import scan_gibbs
from ..targets.ramp_pilot import pilot
from . import toys
from .binding import FIGURES, PRIORS, BindingMeasure, lean_model, problem
from .dna_landscape import read_landscape
from .dna_landscape_files import LENGTH
from .table1 import hash_words

QUICK_PRIORS = ("uniform", "markov1")
ALPHAS = (2.0, 4.0)
PARTICLES, SWEEPS = 1000, 3
SEEDS, QUICK_SEEDS = 4, 1
METHODS = (
    *("guidance-rate", "guidance-posterior", "smc-tilted"),
    *("any-order", "any-order-systematic", "any-order-moves", "any-order-pilot"),
)
TICKS = (0.003, 0.01, 0.03, 0.1, 0.3)
PRIOR_WORDS = {"uniform": "p₀ uniform", "markov1": "p₀ Markov, order 1", "markov2": "p₀ Markov, order 2"}
TINT = {"iid": "#000000", "guidance": "#D55E00", "smc": "#0072B2", "any": "#009E73"}  # Okabe and Ito's


def jobs(settings: Settings) -> list[Job]:
    """One job for each prior, alpha and seed, named by a hash of the landscape: jobs are cached by name."""
    found = read_landscape(Path(settings.data or ""))
    priors, seeds = _sizes(settings)
    return [
        Job(f"{found.digest}-{prior}-{alpha:g}-{number}", one_cell, (prior, alpha, number, settings))
        for prior in priors
        for alpha in ALPHAS
        for number in range(seeds)
    ]


def _sizes(settings: Settings) -> tuple[tuple[str, ...], int]:
    return (QUICK_PRIORS, QUICK_SEEDS) if settings.quick else (tuple(PRIORS), SEEDS)


def one_cell(prior: str, alpha: float, number: int, settings: Settings) -> Answer:
    """Every method on one target with one seed."""
    found = read_landscape(Path(settings.data or ""))
    table = problem(found, prior, settings.device)
    scores, target = found.scores.to(settings.device), table.target(alpha)
    seed, model = hash_words(settings.seed, number), lean_model(table)
    exact = float(target.reshape(-1) @ scores)
    measure = BindingMeasure(target, scores)
    out = {"iid": measure.floor(seed, PARTICLES) | {"log_z_error": None, "evaluations": 0}}
    for name in METHODS:
        meter = RoundCounter()
        result = sample(meter.watch(model), alpha, name, seed)
        log_z = float(table.log_z_tilted(alpha) if "tilted" in name else table.log_z_tempered(alpha))
        error = None if name.startswith("guidance") else abs(result.log_z - log_z)
        weights = result.weights.reshape(-1)
        out[name] = measure.of(result.particles.flatten(0, 1), weights / weights.sum())
        out[name] |= {"log_z_error": error, "evaluations": meter.rounds}
    return {"prior": prior, "alpha": alpha, "exact_score": exact, "methods": out}


def sample(model: Model, alpha: float, name: str, seed: int) -> Result:
    """Run a method."""
    if name == "any-order-moves":
        fk = in_order(model, alpha)
        moves = Rejuvenation(scan_gibbs, at_end=SWEEPS * LENGTH)
        return run(fk, particles=PARTICLES, seed=seed, resample=HALF, moves=moves)
    if name == "any-order-pilot":
        fk = AnyOrder(model, alpha)
        fk = replace(fk, ramp=pilot(fk, fk.grid, particles=PARTICLES, seed=seed))
        return run(fk, particles=PARTICLES, seed=seed, resample=HALF)
    method = toys.METHODS[name]
    fk, grid = method.build(model, alpha), method.grid(model, toys.STEPS)
    return run(fk, grid, particles=PARTICLES, seed=seed, resample=method.resample, couple=method.couple)


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over the seeds."""
    found = read_landscape(Path(settings.data or ""))
    priors, seeds = _sizes(settings)
    rows = []
    for prior in priors:
        for alpha in ALPHAS:
            cells = [a for _, a in sorted(answers.items()) if (a["prior"], a["alpha"]) == (prior, alpha)]
            rows += [_row(cells, name) for name in ("iid", *METHODS)]
    source = {"files": found.files, "rows": found.rows, "filled": found.filled, "digest": found.digest}
    notes = [f"{found.filled:,} 8-mers have the score of their reverse complement, the strand that is listed"]
    return {
        "experiment": "tfbind8",
        "seeds": seeds,
        "particles": PARTICLES,
        "landscape": source | {"threshold": found.threshold, "temperature": found.temperature},
        "notes": notes if found.filled else [],
        "rows": rows,
    }


def _row(cells: list[Answer], name: str) -> Answer:
    each = [cell["methods"][name] for cell in cells]
    errors = [one["log_z_error"] for one in each]
    means = {key: statistics.fmean(one[key] for one in each) for key in FIGURES}
    return {
        "prior": cells[0]["prior"],
        "alpha": cells[0]["alpha"],
        "method": name,
        **means,
        "exact_score": cells[0]["exact_score"],
        "log_z_error": None if None in errors else statistics.fmean(errors),
        "network_evaluations": each[0]["evaluations"],
    }


def draw(result: Answer) -> Any:
    """A row for each prior; for each alpha the marginal TV, and beside it the error of the mean score."""
    from matplotlib.figure import Figure

    priors, alphas = (list(dict.fromkeys(r[key] for r in result["rows"])) for key in ("prior", "alpha"))
    figure = Figure(figsize=(2.2 + 5.4 * len(alphas), 2.4 * len(priors) + 0.8), layout="constrained")
    seeds = f"mean of {result['seeds']} seeds" if result["seeds"] > 1 else "one seed"
    words = f"TF Bind 8: {result['particles']:,} particles, {seeds}; dotted: independent draws, dashed: exact"
    figure.suptitle(words, fontsize=11)
    columns = [(alpha, panel) for alpha in alphas for panel in (_errors, _scores)]
    axes = figure.subplots(len(priors), len(columns), sharey=True, squeeze=False)
    for line, prior in zip(axes, priors, strict=True):
        for ax, (alpha, panel) in zip(line, columns, strict=True):
            panel(ax, [r for r in result["rows"] if (r["prior"], r["alpha"]) == (prior, alpha)], result["rows"])
            ax.tick_params(labelsize=8)
            ax.grid(axis="y", color="#e5e5e5", lw=0.5)
        line[0].set_ylabel(PRIOR_WORDS[prior], fontsize=9)
    axes[0, 0].invert_yaxis()
    for ax, (alpha, panel) in zip(axes[0], columns, strict=True):
        ax.set_title(f"α = {alpha:g}: {panel.__doc__}", fontsize=9)
    return figure


def _dots(ax: Any, rows: list[Answer], values: list[float], start: float) -> None:
    """A dot for each method, on a line from its ideal value."""
    names = ["independent draws" if r["method"] == "iid" else r["method"] for r in rows]
    tints = [TINT[r["method"].split("-")[0]] for r in rows]
    ax.hlines(names, start, values, color=tints, lw=1.2)
    ax.scatter(values, names, color=tints, s=30, zorder=3)
    for name, value in zip(names, values, strict=True):
        side, aside = ("left", 6) if value >= start else ("right", -6)
        words = f"{round(value, 3) + 0:.3f}"  # + 0: no minus sign before a zero
        ax.annotate(words, (value, name), (aside, 0), textcoords="offset points", fontsize=7, ha=side, va="center")


def _errors(ax: Any, rows: list[Answer], every: list[Answer]) -> None:
    """marginal TV"""
    _dots(ax, rows, [r["tv_mean"] for r in rows], rows[0]["tv_mean"])
    ax.axvline(rows[0]["tv_mean"], color="black", ls=":", lw=0.9)
    ax.set_xscale("log")
    ax.set_xticks([], minor=True)
    ax.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.set_xlim(min(r["tv_mean"] for r in every) / 2, max(r["tv_mean"] for r in every) * 2)


def _scores(ax: Any, rows: list[Answer], every: list[Answer]) -> None:
    """mean score less the exact one"""
    _dots(ax, rows, [r["mean_score"] - r["exact_score"] for r in rows], 0.0)
    ax.axvline(0, color="black", ls="--", lw=0.9)
    off = [r["mean_score"] - r["exact_score"] for r in every]
    reach = max(off) - min(off)
    ax.set_xlim(min(off) - 0.35 * reach, max(off) + 0.35 * reach)
    ax.locator_params(axis="x", nbins=4)


COLUMNS = ("prior", "alpha", "method", "tv_mean", "pair_tv", "score_error", "log_z_error", "distinct")
EXPERIMENT = Experiment("tfbind8", "TF Bind 8: every sampler on a measured landscape", jobs, collect, draw, COLUMNS)
