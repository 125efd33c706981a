"""Text under a condition, as in the paper's figures: judge's score and perplexity against beta, one line per alpha.

50 particles x 5 runs against 250 guided samples, 100 and 1000 steps, partial resampling of half, two ways to guide; our
samplers beside them. With 64 sites most of 1000 steps are idle: a particle reveals a site in fewer than one step in
ten, so 1000 steps mean one site at a time, and 100 steps mean one or two. The claims compare independent draws, one per
population, at an alpha and a beta fixed beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..metrics.images import surviving_roots
from ..models.text_bundle import Reviews
from .annealing import told
from .chosen_jobs import Part, chosen, identity, in_order, joined, nets_of
from .text_grid import BASELINE, TextTask, cases
from .text_plots import draw_curves
from .text_rows import ScoredText, by_population, claims, distinct_2, mean_interval, write_lines
from .text_samplers import TEXT_SAMPLERS, Case, DrawnTexts, sample_texts, sample_together, together

COLUMNS = ("method", "condition", "alpha", "beta", "steps", "score", "perplexity", "distinct_2", "network_evaluations")


def jobs(task: TextTask, part: Part, settings: Settings) -> list[Job]:
    """One job for the cases that share a run; classes that the networks lack are reported before any job starts."""
    nets = nets_of(settings)
    for condition in task.conditions:
        nets.facts.rivals(nets.facts.number(condition))
    wanted = [case for case in cases(task, settings.quick) if TEXT_SAMPLERS[case.method].form in ("cfg", *nets.nets)]
    alone = chosen(part, [Job(case.name, one_case, (task, case, settings)) for case in wanted], settings)
    groups = together(nets, [job.arguments[1] for job in alone])
    return [
        Job(group[0].name if len(group) == 1 else f"{group[0].name}-and-{len(group) - 1}-more", some_cases,
            (task, group, settings))
        for group in groups
    ]  # fmt: skip


def one_case(task: TextTask, case: Case, settings: Settings) -> Answer:
    """Sample a case and judge it: a row for each class (perplexity is added later), and its texts."""
    nets = nets_of(settings)
    return judged(nets, task, case, sample_texts(nets, case, settings.seed, task.prompts.get(case.conditions[0])))


def some_cases(task: TextTask, group: Sequence[Case], settings: Settings) -> Answer:
    """The rows and texts of cases that share a run."""
    if len(group) == 1:
        return one_case(task, group[0], settings)
    nets = nets_of(settings)
    every = zip(group, sample_together(nets, group, settings.seed), strict=True)
    answers = [judged(nets, task, case, drawn) for case, drawn in every]
    return {name: [part for answer in answers for part in answer[name]] for name in ("rows", "lines")}


def judged(nets: Reviews, task: TextTask, case: Case, every: Sequence[DrawnTexts]) -> Answer:
    """The rows of a case, one for each class, and its texts, judged by the bundle."""
    rows, kept = [], []
    for condition, drawn in zip(case.conditions, every, strict=True):
        flat = [text for texts in drawn.texts for text in texts]
        log_p, right = nets.verdicts(flat, condition)
        populations = [number for number, texts in enumerate(drawn.texts) for _ in texts]
        parts = zip(populations, flat, right.tolist(), log_p.tolist(), strict=True)
        lines = [ScoredText(case.row(condition), number, text, bool(ok), value) for number, text, ok, value in parts]
        rows.append(_row(task, case, condition, lines, drawn))
        kept += [line.__dict__ for line in lines]
    return {"rows": rows, "lines": kept}


def _row(task: TextTask, case: Case, condition: str, lines: Sequence[ScoredText], drawn: DrawnTexts) -> Answer:
    found = mean_interval(by_population(lines, score_of(task, condition)))
    result, particles = drawn.result, case.shape[1]
    weighted = told(result) if TEXT_SAMPLERS[case.method].by_mass else {}
    return weighted | {
        "task": task.name,
        "name": case.row(condition),
        "method": case.method,
        "condition": condition,
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


def score_of(task: TextTask, condition: str) -> Callable[[ScoredText], float]:
    """The score of a text: whether the judge agrees, or the judge's probability of a class (of two)."""
    if task.chance_of is None:
        return lambda line: float(line.right)
    asked = task.chance_of == condition
    return lambda line: math.exp(line.log_p) if asked else -math.expm1(line.log_p)


def collect(task: TextTask, part: Part, settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Rows in the order of the grid, and claims (perplexity is added later); the texts go to a separate file."""
    every = cases(task, settings.quick)
    found = [answers[name] for name in sorted(answers)]
    new = [ScoredText(**line) for answer in found for line in answer["lines"]]
    rows, lines = joined(part, settings, [row for answer in found for row in answer["rows"]], new)
    rows = in_order([case.row(condition) for case in every for condition in case.conditions], rows)
    write_lines(part.folder, lines)
    notes = [f"perplexity: truetilt reproduce {task.name} --score {part.folder} --reference smollm2|tuned|FOLDER"]
    if not settings.quick:
        notes.append("with 64 sites a particle reveals in fewer than one step in ten of 1000: one site at a time")
    missing = {case.row(c) for case in every for c in case.conditions} - {row["name"] for row in rows}
    if missing:
        notes.append(f"{len(missing)} rows of the grid are not here (--only, or nets that the bundle has not)")
    out = {"experiment": task.name, "score": task.score_words, "identity": identity(settings), "rows": rows}
    out["seconds"] = sum(row["seconds"] for row in rows)  # of sampling, on the device
    apart = [] if task.chance_of is None else list(task.conditions)  # classes that must not be averaged over
    return out | {"apart": apart, "claims": all_claims(rows, lines), "notes": notes}


def all_claims(rows: Sequence[Answer], lines: Sequence[ScoredText]) -> dict[str, Answer]:
    """Each claimant against guidance, per condition and, if there are several, over all together."""
    own: dict[str, list[ScoredText]] = {row["name"]: [] for row in rows if row["claim"]}
    for line in lines:
        if line.row in own:
            own[line.row].append(line)
    methods: dict[str, dict[str, list[ScoredText]]] = {}
    for row in rows:
        if row["claim"]:
            methods.setdefault(row["method"], {})[row["condition"]] = own[row["name"]]
    guided, found = methods.pop(BASELINE, {}), {}
    for method, parts in methods.items():
        both = [condition for condition in parts if condition in guided]
        found |= {f"{method}, {condition}": claims(parts[condition], guided[condition]) for condition in both}
        if len(both) > 1:
            found[f"{method}, all"] = claims(*(_together([side[c] for c in both]) for side in (parts, guided)))
    return found


def _together(parts: Sequence[Sequence[ScoredText]]) -> list[ScoredText]:
    """The lines of several conditions, interleaved; populations are renumbered so that conditions share none."""
    apart = [
        [replace(line, population=len(parts) * line.population + k) for line in own] for k, own in enumerate(parts)
    ]
    return [line for lines in zip_longest(*apart) for line in lines if line is not None]


def experiment(task: TextTask, folder: Path, only: str | None = None) -> Experiment:
    """The task as an experiment that keeps its texts in a folder."""
    part = Part(folder, only)
    return Experiment(
        task.name, task.title, partial(jobs, task, part), partial(collect, task, part), draw_curves, COLUMNS
    )
