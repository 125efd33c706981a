"""`truetilt compare`: every method that steers a model by a reward, at equal cost, over several seeds.

A cell is one method with one seed, run until either budget is spent. Its metrics are the mean reward, naturalness (log
p0 per site, by the model itself in one order), diversity, and, if there is a target and the exact answer is known, log
Z and the error. Computing the metrics costs no budget.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .. import __version__
from ..baselines.budget_search import afresh, said_by_reward
from ..baselines.independent_draws import best_of_n
from ..baselines.methods import METHODS, TITLES, Contest, run_method
from ..baselines.record import Baseline
from ..core.arguments import number, whole_number
from ..core.budget import Budget, BudgetTooSmall
from ..core.errors import DegenerateWeights, InvalidInput, InvalidWeights
from ..core.spent import Spent
from ..core.storage import check_folder, owned, sha256_of, write_json, write_with
from ..core.types import Tokens
from ..exact.tables import flat_index
from ..metrics.states import mean_difference
from ..rewards.reward import Reward
from ..runtime.stopping import Stoppable
from ..smc.uncertainty import half_width
from ..steering.steer import steer
from .compare_figure import draw_comparison
from .comparison import Comparison, exact_law, judged
from .job_runner import Answer, Experiment, Job, Settings, answers, forget
from .outputs import command
from .python_file import is_named
from .steerable import Steerable, named_reward, steerable

OURS, BASE = "truetilt", "base"
NAMES = {OURS: "truetilt", **TITLES, BASE: "base draws"}
WITH_TARGET = {OURS, *(name for name, method in METHODS.items() if method.has_target)}
FILE, FIGURE = "compare.json", "compare.png"
MOST = 10_000  # seeds, and draws that are judged: more say nothing that fewer do not
DRAWN = 16  # populations of `tt.steer`, each of which needs at least one draw
_LEVEL = 0.95
_LONG, _STEPS = 256, 128  # sites beyond which several are revealed per step, and the steps then; as in `tt.steer`
_FIGURES = ("reward", "naturalness", "diversity", "distinct", "log_z", "error")
_COSTS = ("evaluations", "calls", "distinct_calls")


class Told(Protocol):
    """Callbacks for cells of a comparison as they begin and end; `why` is None, or the reason why one could not run."""

    def begun(self, title: str) -> None: ...
    def ended(self, title: str, why: str | None) -> None: ...


class Untold:
    """Callbacks that do nothing."""

    def begun(self, title: str) -> None: ...
    def ended(self, title: str, why: str | None) -> None: ...


UNTOLD = Untold()


def compare(asked: Comparison, folder: Path, told: Told = UNTOLD) -> Answer:
    """Run every cell, and write compare.json and compare.png; finished cells are cached until then, also on SIGTERM.

    `told` is called as cells begin and end. On a CPU each cell runs in a process of its own, which imports the model
    and the reward by name: call this function below `if __name__ == "__main__":`.
    """
    check_folder(folder)
    found: dict[str, Answer] = {}

    def stopped() -> str:
        return f"stopped; {len(found)} finished cells are kept in {folder}, and the same call goes on from there"

    with Stoppable(stopped), owned(folder):
        asked = checked(asked)
        titles = {name: f"{NAMES[method]}, seed {seed}" for name, method, seed in cells(asked)}
        work = answers(_experiment(asked), _settings(asked), folder, lambda name: told.begun(titles[name]))
        for name, answer in work:
            found[name] = answer
            told.ended(titles[name], answer.get("failed"))
        result = collect(asked, found)
        write_json(folder / FILE, result)
        write_with(folder / FIGURE, lambda path: draw_comparison(result).savefig(path, dpi=150))
        forget(folder, found)
        return result


def checked(asked: Comparison) -> Comparison:
    """The request with its methods filled in; raises if the request, its model or its reward is invalid."""
    given = tuple(NAMES) if asked.methods is None else asked.methods
    unknown = [name for name in given if name not in NAMES]
    if unknown or not given:
        raise InvalidInput(f"there is no method {', '.join(unknown)!r}; known are {', '.join(NAMES)}")
    whole_number("seeds", asked.seeds, 1, MOST)
    whole_number("judged", asked.judged, 1, MOST)
    whole_number("calls", asked.calls, 1)
    if asked.evaluations is not None:
        whole_number("evaluations", asked.evaluations, 1)
    if number("strength", asked.strength) == 0 or not math.isfinite(asked.strength):
        raise InvalidInput(f"the strength is {asked.strength}; it must be finite and not 0")
    length = _subject(asked.model, asked.reward, asked.device)[0].model.length
    steps = (
        (length if length <= _LONG else _STEPS)
        if asked.steps is None
        else whole_number("steps", asked.steps, 1, length)
    )
    asked = asked._replace(methods=tuple(dict.fromkeys(given)), steps=steps)
    poor = beyond(asked)
    if OURS in poor:
        least = f"{DRAWN} calls and {DRAWN * steps:,} network evaluations"
        raise InvalidInput(
            f"{_given(asked)} are too few to compare by: truetilt takes at least one draw for each of its {DRAWN} "
            f"populations, which is {least}; give more"
        )
    if len(poor) == len(asked.methods or ()):
        raise InvalidInput(f"{_given(asked)} are too few for all that is compared: {next(iter(poor.values()))}")
    return asked


def _given(asked: Comparison) -> str:
    """The budget, in words."""
    more = "" if asked.evaluations is None else f" and {asked.evaluations:,} network evaluations"
    return f"{asked.calls:,} calls{more}"


class _BegunError(Exception):
    """Raised when a method reaches its first network evaluation: its budget suffices to begin."""


def _begun(x: Tokens, t: float) -> Tensor:
    raise _BegunError


def beyond(asked: Comparison) -> dict[str, str]:
    """Methods whose smallest run exceeds the budget if all calls are of new states, and why; nothing is run."""
    subject, reward = _subject(asked.model, asked.reward, asked.device)
    probe = replace(subject.model, base=_begun)
    contest = Contest(probe, reward, asked.strength, asked.budget, asked.seed, asked.steps)
    found = {}
    for name in asked.methods or ():
        try:
            if name in METHODS:
                METHODS[name].run(contest, asked.budget, None)
            else:
                _run(name, contest)
        except BudgetTooSmall as error:
            found[name] = str(error)
        except _BegunError:
            continue
    return found


def cells(asked: Comparison) -> list[tuple[str, str, int]]:
    """The name of each cell, its method and its seed."""
    seeds = range(asked.seed, asked.seed + asked.seeds)
    return [(f"{name}-{seed}", name, seed) for name in asked.methods or () for seed in seeds]


def _experiment(asked: Comparison) -> Experiment:
    jobs = [Job(name, one_cell, (asked, method, seed)) for name, method, seed in cells(asked)]
    return Experiment("compare", "compare", lambda _: jobs, lambda _, found: found, draw_comparison, ())


def _settings(asked: Comparison) -> Settings:
    """The settings that a cached cell must share to be reused: all but the methods and the number of seeds."""
    named = asked._asdict() | {"methods": "", "seeds": "", "seed": ""}
    files = [Path(text.rpartition(":")[0] if is_named(text) else text) for text in (asked.model, asked.reward)]
    hashes = {f"file {n}": sha256_of(path) for n, path in enumerate(files) if path.is_file()}
    more = tuple((key, str(value)) for key, value in {**named, **hashes}.items())
    return Settings(device=asked.device, more=more)


def _subject(model: str, reward: str, device: str) -> tuple[Steerable, Reward]:
    """The model and the reward, read from their files: nothing is kept from one cell to the next."""
    made = steerable(model, device)
    return made, named_reward(reward, made.model, made.tokenizer)


def one_cell(asked: Comparison, method: str, seed: int) -> Answer:
    """The row of one method with one seed."""
    subject, reward = _subject(asked.model, asked.reward, asked.device)
    row: Answer = {"method": method, "title": NAMES[method], "has_target": method in WITH_TARGET, "seed": seed}
    contest = Contest(subject.model, reward, asked.strength, asked.budget, seed, asked.steps)
    try:
        found = _run(method, contest)
    except BudgetTooSmall as error:
        return row | {"failed": f"a budget of {_given(asked)} is too small for it: {error}"}
    except (DegenerateWeights, InvalidWeights) as error:
        return row | {"failed": str(error)}
    except InvalidInput as error:
        raise said_by_reward(error) from None
    spent = found.spent
    costs = {"evaluations": spent.evaluations, "calls": spent.calls, "distinct_calls": spent.distinct}
    return row | judged(subject, reward, asked, found) | costs


def _run(method: str, contest: Contest) -> Baseline:
    if method == OURS:
        return _ours(contest)
    if method == BASE:  # best of N with N = 1
        alone = best_of_n(contest.model, _nothing, budget=Budget(), each=1, walk=contest.walk, seed=contest.seed)
        return alone._replace(spent=Spent(alone.spent.rounds, alone.spent.evaluations))
    return run_method(method, contest)


def _nothing(x: Tokens) -> Tensor:
    return torch.zeros(len(x), dtype=torch.float64)


def _ours(contest: Contest) -> Baseline:
    evaluations, calls = contest.budget
    how: dict[str, Any] = {
        "evaluations": evaluations,
        "calls": calls,
        "num_inference_steps": contest.steps,
        "seed": contest.seed,
        "progress": False,
    }
    result = steer(contest.model, afresh(contest.reward), contest.strength, **how)
    states, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    return Baseline(states, (weights / weights.sum()).log(), result.log_z, result.spent)


def collect(asked: Comparison, found: dict[str, Answer]) -> Answer:
    """The contents of compare.json: every cell, a summary per method, the exact answer if it is known, and notes."""
    rows = [found[name] for name, _, _ in cells(asked)]
    words = asked._asdict() | {"methods": ",".join(asked.methods or ())}
    told = {key: value for key, value in words.items() if key != "model"}
    each = {name: [row for row in rows if row["method"] == name] for name in asked.methods or ()}
    failed = {NAMES[name]: row["failed"] for name, some in each.items() for row in some if "failed" in row}
    return {
        "version": __version__,
        "command": command(["compare", asked.model], told),
        "asked": asked._asdict(),
        "rows": rows,
        "summary": [summary(some) for some in each.values()],
        "exact": _exact(asked),
        "notes": [f"{title}: {why}" for title, why in failed.items()],
    }


def summary(rows: Sequence[Answer]) -> Answer:
    """Summary of a method over seeds: the mean of each figure, its 95 % half-width (Student t), and mean costs."""
    first = {key: rows[0][key] for key in ("method", "title", "has_target")}
    done = [row for row in rows if "failed" not in row]
    figures: Answer = {"seeds": len(done)}
    for name in _FIGURES:
        known = [row[name] for row in done if row[name] is not None]
        figures[name] = statistics.fmean(known) if known else None
        figures[f"{name}_half"] = half_width(known, _LEVEL)
    return first | figures | {name: _mean([row[name] for row in done]) for name in _COSTS}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _exact(asked: Comparison) -> Answer | None:
    """The figures of the exact target, for a table; else None."""
    subject, reward = _subject(asked.model, asked.reward, asked.device)
    if subject.table is None:
        return None
    states, law, log_z = exact_law(subject.table, reward, asked.strength)
    some = law > 0
    states, law, length = states[some], law[some], states.shape[-1]
    p0 = subject.table.p0.reshape(-1)[flat_index(states, subject.table.process.vocabulary)]
    return {
        "reward": float((law * reward(states)).sum()),
        "naturalness": float((law * p0.log()).sum()) / length,
        "diversity": mean_difference(states, law, subject.table.process.vocabulary),
        "log_z": log_z,
    }
