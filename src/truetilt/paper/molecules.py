"""Molecules: four tasks on which every method has the same budget, and two whose answers draws of the base can check.

Jobs come in rounds, each with some draws of the base, a seed of the checks and a seed of the comparison, so that what
is done when time runs out can be read. A method that cannot run is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..core.budget import Budget
from ..core.chemistry import parsed
from ..core.errors import InvalidInput, TruetiltError
from .molecule_claims import claims, summaries, truth_of
from .molecule_samplers import (
    BASE,
    BY_POTENTIAL,
    LAST,
    NAMES,
    POPULATIONS,
    WITH_TARGET,
    cost_of,
    drawn,
    potential_run,
    problem_of,
)
from .molecule_scores import Moments, distance, judged, novelty, read_training_set
from .molecule_tasks import TRUTH, USE, task_of
from .molecule_truth import FUNCTIONS, reference_job
from .molecules_figure import draw

COLUMNS = (
    "part",
    "task",
    "method",
    "seed",
    "network_evaluations",
    "potential_evaluations",
    "reward_calls",
    "reward",
    "above",
    "diversity",
    "novelty",
    "distance",
    "distinct",
    "log_z",
    "verdict",
)


class MoleculeSizes(NamedTuple):
    """The budget of a run, and how many seeds, tasks and draws of the base there are."""

    evaluations: int = 200_000
    calls: int = 5_000
    seeds: int = 10
    truth_evaluations: int = 200_000  # of a run that is checked; its calls are not limited
    truth_seeds: int = 20
    draws: int = 1_000_000
    each: int = 5_000  # draws of the base in a job
    tasks: tuple[str, ...] = tuple(task.name for task in USE)
    truths: tuple[str, ...] = tuple(task.name for task in TRUTH)

    @property
    def blocks(self) -> int:
        return max(self.draws // self.each, 1)


FULL = MoleculeSizes()
QUICK = MoleculeSizes(2_000, 360, 1, 608, 2, 200, 50, ("scaffold",), ("qed",))


def sizes_of(settings: Settings) -> MoleculeSizes:
    """The sizes: full or quick, with another number of draws of the base if one is given."""
    found, given = QUICK if settings.quick else FULL, dict(settings.more).get("draws")
    if given is None:
        return found
    if not given.isdecimal() or int(given) < found.each:
        raise InvalidInput(f"--draws is {given}; give a whole number, at least {found.each:,}")
    return found._replace(draws=int(given))


def jobs(settings: Settings) -> list[Job]:
    """Draws of the base, our runs of the hard tasks, and every method on every task, round by round."""
    sizes, rounds = sizes_of(settings), []
    total = max(sizes.seeds, sizes.truth_seeds)
    for k in range(total):
        rounds += [
            Job(f"draws-{n}", reference_job, (sizes.each, settings.seed + n, settings.device))
            for n in range(sizes.blocks)[k::total]
        ]
        rounds += _truth_jobs(sizes, settings, k) if k < sizes.truth_seeds else []
        rounds += _use_jobs(sizes, settings, k) if k < sizes.seeds else []
    return rounds


def _truth_jobs(sizes: MoleculeSizes, settings: Settings, k: int) -> list[Job]:
    seed = settings.seed + k
    return [
        Job(
            f"truth-{task.name}-{way}-{seed}",
            one_truth,
            (task.name, way, seed, sizes.truth_evaluations, settings.device),
        )
        for task in TRUTH
        if task.name in sizes.truths
        for way in BY_POTENTIAL
    ]


def _use_jobs(sizes: MoleculeSizes, settings: Settings, k: int) -> list[Job]:
    seed, budget = settings.seed + k, (sizes.evaluations, sizes.calls)
    return [
        Job(f"use-{task}-{method}-{seed}", one_use, (task, method, seed, budget, settings.device))
        for task in sizes.tasks
        for method in NAMES
        if method != LAST or task_of(task).fix is None  # around a fragment the twist never calls the reward
    ]


def one_truth(name: str, way: str, seed: int, evaluations: int, device: str) -> Answer:
    """Our run of a hard task at so many evaluations, of the network or, charged, of both; calls are not limited."""
    task = task_of(name, TRUTH)
    on = problem_of(task, Budget(evaluations), seed, device)
    try:
        particles = on.budget.most(POPULATIONS * cost_of(way, on.nets.length), 0, "particles of each population")
        found = potential_run(way, on, particles * POPULATIONS)
    except TruetiltError as error:
        return {"failed": str(error), "log_z": None} | dict.fromkeys(FUNCTIONS)
    alive = found.weights > 0
    mols = [parsed(one) for one in on.nets.decode(found.x[alive.to(found.x.device)])]
    weights = found.weights[alive].tolist()
    means = {
        name: sum(w * function(mol) for w, mol in zip(weights, mols, strict=True))
        for name, function in FUNCTIONS.items()
    }
    costs = {"network_evaluations": found.spent.evaluations, "potential_evaluations": found.potential}
    return costs | {"reward_calls": found.spent.distinct, "log_z": found.log_z, "verdict": found.verdict} | means


def one_use(name: str, method: str, seed: int, budget: tuple[int, int], device: str) -> Answer:
    """One method on one task with one seed, and its figures; judging costs no budget."""
    on = problem_of(task_of(name), Budget(*budget), seed, device)
    try:
        found = drawn(method, on)
    except TruetiltError as error:
        return {"failed": str(error)}
    costs: Answer = {"network_evaluations": found.spent.evaluations, "potential_evaluations": found.potential}
    costs |= {"reward_calls": found.spent.distinct, "log_z": found.log_z, "verdict": found.verdict}
    return costs | judged(on.task, on.nets, on.reward, found.x, found.weights)


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """A row for every run that is done, the reference, summaries and claims; what failed or is missing is listed."""
    every = jobs(settings)
    done = [job for job in every if job.name in answers]
    base = [answers[job.name] for job in done if job.name.startswith("draws-")]
    rows = [_row(job, answers[job.name]) for job in done if not job.name.startswith("draws-")]
    use = [row for row in rows if row["part"] == "use" and "failed" not in row]
    _finish(use, base, read_training_set(settings.data))
    truth = truth_of(rows, base, sizes_of(settings).truth_evaluations)
    found = {"rows": rows, "truth": truth, "summary": summaries(use)}
    failures = sorted({f"{row['task']}, {row['method']}: {row['failed']}" for row in rows if "failed" in row})
    missing = len(every) - len(done)
    notes = [*failures, *([f"{missing} of {len(every)} jobs were not run"] if missing else [])]
    budget = sizes_of(settings)[:2]
    return {"experiment": "molecules", **found, "claims": claims(found, budget), "notes": notes}


def _row(job: Job, answer: Answer) -> Answer:
    part, (task, method, seed) = job.name.split("-")[0], job.arguments[:3]
    head = {"part": part, "task": task, "method": NAMES[method], "key": method, "seed": seed}
    return head | {"has_target": method in WITH_TARGET} | answer


def _finish(rows: Sequence[Answer], base: Sequence[Answer], known: frozenset[str] | None) -> None:
    """Add novelty and the distance to the base, and take out the draws that they are computed from."""
    own = {name: _base_of(name, rows, base) for name in {row["task"] for row in rows}}
    for row in rows:
        smiles, moments = row.pop("smiles"), Moments.read(row.pop("moments"))
        law = None if _is_own_base(row) else own[row["task"]]
        row |= {"novelty": novelty(smiles, known), "examples": smiles[:4]}
        row["distance"] = None if law is None else distance(moments, law)


def _is_own_base(row: Answer) -> bool:
    """Whether the row is the sample that distances are measured from."""
    return row["key"] == BASE and task_of(row["task"]).fix is not None


def _base_of(name: str, rows: Sequence[Answer], base: Sequence[Answer]) -> Moments | None:
    """Moments of base draws: of all jobs, or, where a fragment is fixed, of the rows of the base itself."""
    if task_of(name).fix is None:
        found = [answer["moments"] for answer in base]
    else:
        found = [row["moments"] for row in rows if row["task"] == name and _is_own_base(row)]
    return Moments.total([Moments.read(one) for one in found]) if found else None


def passed(result: Answer) -> bool:
    """Whether all claims hold."""
    return all(claim["holds"] for claim in result["claims"].values())


EXPERIMENT = Experiment(
    "molecules", "Molecules: four tasks at equal cost, and two answers checked by draws", jobs, collect, draw, COLUMNS
)
