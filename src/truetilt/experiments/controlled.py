"""Text under a condition, as the paper's figures have it: judge's score and perplexity against beta, a line an alpha.

50 particles x 5 runs against 250 guided samples, 100 and 1000 steps, partial resampling of half, two ways to guide; our
samplers beside them. Nets of 64 sites have nothing to do in most of 1000 steps: fewer than one step in ten reveals a
site, so 1000 steps mean one site at a time, and 100 steps mean one or two. The claims compare independent draws, one of
each population, at an alpha and a beta fixed beforehand.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..metrics.images import surviving_roots
from ..storage import write_json, write_with
from ..types import InvalidInput
from .jobs import Answer, Experiment, Job, Settings
from .text_rows import (
    TEXTS,
    Line,
    by_population,
    claims,
    distinct_2,
    mean_interval,
    perplexity_of,
    read_lines,
    reference,
    scored,
    write_lines,
)
from .text_samplers import FEW, PARTICLES, SAMPLERS, Case, Drawn, bundle, sample_texts

ALPHAS, BETAS = (1.0, 2.0, 4.0, 8.0), tuple(round(0.2 * k, 1) for k in range(11))
STEPS, RUNS = (100, 1000), 5
ALPHA, BETA, DRAWS = 2.0, 1.0, 1024  # of the claims, fixed beforehand
BASELINE = "guidance-posterior"
CLAIMANTS = ("smc-populations", "tilted-populations", "any-order-populations", "guidance-gibbs")
CURVES = ("smc-partial", "smc-deft-partial")
OURS = ("smc", "smc-posterior", "smc-populations", "tilted", "tilted-populations", "any-order", "guidance-gibbs")
QUICK_ALPHAS, QUICK_BETAS = (2.0, 4.0), (0.0, 1.0, 2.0)
QUICK_STEPS, QUICK_SHAPE = 24, (2, 12)
COLUMNS = ("method", "condition", "alpha", "beta", "steps", "score", "perplexity", "distinct_2", "network_evaluations")
MODEL, REFERENCE = "model", "reference"  # options of the command


@dataclass(frozen=True)
class Task:
    """What is asked for: classes, a prompt for each, and what the score is: accuracy, or the chance of a class."""

    name: str
    title: str
    conditions: tuple[str, ...]
    prompts: dict[str, str]
    chance_of: str | None = None  # None: the share the judge takes to be of the class asked for
    shown: bool = True  # whether a few texts may be shown

    @property
    def score_words(self) -> str:
        return "judge accuracy" if self.chance_of is None else f"judged chance of {self.chance_of}"


def option(settings: Settings, name: str, default: str) -> str:
    return dict(settings.more).get(name, default)


def cases(task: Task, quick: bool) -> list[Case]:
    """Every row of the task."""
    if quick:
        return _quick_cases(task.conditions[-1])
    out = []
    for condition in task.conditions:
        plain = partial(_case, condition=condition)
        for steps in STEPS:
            out += [plain(m, None, b, steps) for m in ("guidance-rate", BASELINE, "guidance-deft") for b in BETAS]
            out += [plain(m, a, b, steps) for m in CURVES for a in ALPHAS for b in BETAS]
        out += [plain(m, a, _beta(m), STEPS[0]) for m in OURS for a in ALPHAS[1:]]
        out.append(plain("prompting", None, None, STEPS[0]))
        pairs = [(BASELINE, None, BETA, 1)] + [(m, ALPHA, _beta(m), SAMPLERS[m].particles) for m in CLAIMANTS]
        for method, alpha, beta, particles in pairs:
            particles = 1 if SAMPLERS[method].moves else particles
            out.append(Case(method, condition, alpha, beta, STEPS[0], (DRAWS, particles), claim=True))
    return out


def _case(method: str, alpha: float | None, beta: float | None, steps: int, condition: str) -> Case:
    particles = SAMPLERS[method].particles
    return Case(method, condition, alpha, beta, steps, (RUNS * PARTICLES // particles, particles))


def _beta(method: str) -> float | None:
    return BETA if method.startswith("smc") else None


def _quick_cases(condition: str) -> list[Case]:
    steps, shape, small = QUICK_STEPS, QUICK_SHAPE, (QUICK_SHAPE[0] * QUICK_SHAPE[1] // FEW, FEW)
    out = [Case("smc-partial", condition, a, b, steps, shape) for a in QUICK_ALPHAS for b in QUICK_BETAS]
    out += [Case(BASELINE, condition, None, b, steps, shape) for b in QUICK_BETAS]
    out += [Case("prompting", condition, None, None, steps, shape), Case("tilted", condition, 4.0, None, steps, shape)]
    out += [Case(m, condition, 4.0, _beta(m), steps, small) for m in ("smc-populations", "tilted-populations")]
    return [*out, Case("any-order-populations", condition, 4.0, None, steps, small)]


def jobs(task: Task, settings: Settings) -> list[Job]:
    """One job a case, the longest first; what is missing is missed before any begins."""
    nets = bundle(option(settings, MODEL, "tiny-reviews"), settings.device)
    for condition in task.conditions:
        nets.facts.rivals(nets.facts.number(condition))
    wanted = [case for case in cases(task, settings.quick) if SAMPLERS[case.method].form in ("cfg", *nets.nets)]
    return [Job(case.name, one_case, (task, case, settings)) for case in wanted]


def one_case(task: Task, case: Case, settings: Settings) -> Answer:
    """Sample and judge: a row without perplexity, and its texts."""
    nets = bundle(option(settings, MODEL, "tiny-reviews"), settings.device)
    drawn = sample_texts(nets, case, settings.seed, task.prompts.get(case.condition))
    flat = [text for texts in drawn.texts for text in texts]
    log_p, right = nets.verdicts(flat, case.condition)
    populations = [number for number, texts in enumerate(drawn.texts) for _ in texts]
    parts = zip(populations, flat, right.tolist(), log_p.tolist(), strict=True)
    lines = [Line(case.name, number, text, bool(ok), value) for number, text, ok, value in parts]
    return {"row": _row(task, case, lines, drawn), "lines": [line.__dict__ for line in lines]}


def _row(task: Task, case: Case, lines: Sequence[Line], drawn: Drawn) -> Answer:
    found = mean_interval(by_population(lines, score_of(task, case.condition)))
    result, particles = drawn.result, case.shape[1]
    return {
        "task": task.name,
        "name": case.name,
        "method": case.method,
        "condition": case.condition,
        "alpha": case.alpha,
        "beta": case.beta,
        "steps": len(result.times) - 1,
        "score": found["value"],
        "score_low": found["low"],
        "score_high": found["high"],
        "perplexity": None,
        "distinct_2": distinct_2(lines),
        "network_evaluations": drawn.cost.networks,
        "potential_evaluations": drawn.cost.potentials,
        "runs": case.shape[0],
        "particles": particles,
        "claim": case.claim,
        "empty": sum(not line.words for line in lines),
        "roots": surviving_roots(result.ancestors) / result.log_weights.shape[0],
        "ess": float((result.final_ess / particles).mean()),
        "seconds": drawn.cost.seconds,
    }


def score_of(task: Task, condition: str) -> Callable[[Line], float]:
    """What is averaged of each text. A group has two classes, so the chance of one is that of the other's absence."""
    if task.chance_of is None:
        return lambda line: float(line.right)
    asked = task.chance_of == condition
    return lambda line: math.exp(line.log_p) if asked else -math.expm1(line.log_p)


def collect(task: Task, folder: Path, settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Rows in the order of the cases, claims without perplexity as yet; the texts go to a file of their own."""
    names = [case.name for case in cases(task, settings.quick) if case.name in answers]
    lines = [Line(**line) for name in names for line in answers[name]["lines"]]
    write_lines(folder, lines)
    notes = [f"perplexity: truetilt reproduce {task.name} --score {folder} --reference smollm2|FOLDER"]
    if not settings.quick:
        notes.append("with 64 sites fewer than one step in ten of 1000 reveals anything: it means one site at a time")
    out = {"experiment": task.name, "score": task.score_words, "rows": [answers[name]["row"] for name in names]}
    return out | {"claims": all_claims(out["rows"], lines), "notes": notes}


def all_claims(rows: Sequence[Answer], lines: Sequence[Line]) -> dict[str, Answer]:
    """Each claimant against guidance, by condition."""
    own = {row["name"]: [line for line in lines if line.row == row["name"]] for row in rows if row["claim"]}
    found = {}
    for row in rows:
        if row["claim"] and row["method"] != BASELINE:
            other = next(
                r for r in rows if r["claim"] and (r["method"], r["condition"]) == (BASELINE, row["condition"])
            )
            found[f"{row['method']}, {row['condition']}"] = claims(own[row["name"]], own[other["name"]])
    return found


def score_folder(folder: Path, name: str, draw: Callable[[Answer], Any]) -> Answer:
    """The second stage: perplexity of kept texts into result.json, the claims and the figure."""
    path = folder / "result.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} has no result.json; give the folder that a text task wrote (with {TEXTS})")
    result, lines = json.loads(path.read_text(encoding="utf-8")), read_lines(folder)
    lm = reference(name)
    if lm is None:
        raise InvalidInput("scoring needs a reference; give --reference smollm2 or a folder with a causal model")
    lines = scored(lines, lm)
    write_lines(folder, lines)
    for row in result["rows"]:
        row["perplexity"] = perplexity_of([line for line in lines if line.row == row["name"]])
    result |= {"reference": name, "notes": [f"perplexity by {name}"]}
    if "claims" in result:
        result["claims"] = all_claims(result["rows"], lines)
    figure = draw(result)
    write_json(path, result)
    write_with(folder / "figure.png", lambda out: figure.savefig(out, dpi=150))
    return result


def draw_curves(result: Answer) -> Any:
    """Score, perplexity and distinct-2 against beta: a line for each alpha, guidance dashed, our samplers as marks."""
    from matplotlib.figure import Figure

    rows = [row for row in result["rows"] if not row["claim"]]
    lines = sorted({(row["method"], row["steps"]) for row in rows if row["method"] in CURVES})
    quantities = {"score": result["score"], "perplexity": "perplexity", "distinct_2": "distinct-2"}
    figure = Figure(figsize=(11.5, 3.3 * max(1, len(lines)) + 0.3), layout="constrained")
    axes = figure.subplots(max(1, len(lines)), 3, squeeze=False)
    for line, (method, steps) in zip(axes, lines, strict=False):
        for ax, (name, words) in zip(line, quantities.items(), strict=True):
            _curves(ax, [row for row in rows if row["steps"] == steps or row["beta"] is None], method, name)
            ax.set(xlabel="β", ylabel=words)
            if all(row[name] is None for row in rows):
                ax.text(0.5, 0.5, "no reference asked", transform=ax.transAxes, ha="center", fontsize=8)
                ax.set(xticks=[], yticks=[])
            ax.set_title(f"{method}, {steps} steps", fontsize=9)
        line[0].legend(fontsize=6.5)
    return figure


def _curves(ax: Any, rows: Sequence[Answer], method: str, name: str) -> None:
    guidance = "guidance-deft" if "deft" in method else BASELINE
    alphas = sorted({row["alpha"] for row in rows if row["method"] == method})
    for number, alpha in enumerate(alphas):
        found = _by_beta([r for r in rows if (r["method"], r["alpha"]) == (method, alpha)], name)
        ax.plot(*found, "o-", ms=3, lw=1.2, color=f"C{number}", label=f"SMC, α = {alpha:g}")
    ax.plot(*_by_beta([r for r in rows if r["method"] == guidance], name), "k--", lw=1.2, label=guidance)
    others = sorted({(r["method"], r["alpha"] or 0.0) for r in rows if r["method"] in (*OURS, *CLAIMANTS, "prompting")})
    for number, (other, alpha) in enumerate(others):
        values = [r[name] for r in rows if (r["method"], r["alpha"] or 0.0) == (other, alpha) and r[name] is not None]
        if values and (alpha in (0.0, 4.0)):
            word = f"{other}, α = {alpha:g}" if alpha else other
            ax.plot(
                [2.15],
                [statistics.fmean(values)],
                "xs^vD*P<>"[number % 9],
                ms=5,
                color=f"C{4 + number % 6}",
                label=word,
            )


def _by_beta(rows: Sequence[Answer], name: str) -> tuple[list[float], list[float]]:
    """The mean over the conditions at each beta."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if row[name] is not None:
            found.setdefault(row["beta"], []).append(row[name])
    betas = sorted(found)
    return betas, [statistics.fmean(found[beta]) for beta in betas]


def experiment(task: Task, folder: Path) -> Experiment:
    """The task as an experiment that keeps its texts in a folder."""
    return Experiment(task.name, task.title, partial(jobs, task), partial(collect, task, folder), draw_curves, COLUMNS)
