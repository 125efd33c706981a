"""What share of small faults the tests notice: mutants of the sampler, its targets and its moves, run one by one.

python proofs/mutants.py --sample 200 --label before    the tests as they are; goes on where it stopped
python proofs/mutants.py --sample 200 --label after     the same mutants, with the tests as they are now
python proofs/mutants.py --sample 200 --label after --again before    where tests were only added: survivors alone
python proofs/mutants.py --only smc/resampling.py       every mutant of one module

Each test is first run once on the code as it is, noting which lines it passes and how long it takes; one that fails is
left out. A mutant is then given the tests that pass its line, the fastest first, until one fails; a hang counts as
noticed. Everything runs in temporary copies of src and tests. Figures and survivors go to proofs/mutants.json, where
`equivalent` says by hand of a survivor why no test could tell it from the original.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from mutations import Mutant, Task, mutations
from nursery import NOTES, SOURCE, TESTS, note, read, work

OUTPUT = Path(__file__).parent / "mutants.json"
TARGETS = {"smc/*": 1775, "targets/*": 2948, "targets/jumps/*": 485}  # where faults are put, and how many are possible
_LOST = 0.1  # share of these mutants that may go with code that is deleted; if more go, files have moved
OUTER = ("cli", "commands", "paper", "studio", "training")  # tests of these are slow, and of something else


def all_mutants(only: str | None) -> list[Mutant]:
    """Every mutant of the targets, or of one module; raises if many fewer are left than `TARGETS` says."""
    found = {
        pattern: [m for path in sorted(SOURCE.glob(f"{pattern}.py")) for m in _mutants(path)] for pattern in TARGETS
    }
    for pattern, mutants in found.items():
        if len(mutants) < (1 - _LOST) * TARGETS[pattern]:
            raise SystemExit(
                f"{pattern} has {len(mutants)} mutants left of {TARGETS[pattern]}: if its files moved, name in TARGETS "
                "where they are; if code was deleted, set the number there anew, in the same commit"
            )
    every = [mutant for mutants in found.values() for mutant in mutants if only in (None, mutant.module)]
    return sorted(every, key=lambda mutant: Path(mutant.module))  # the order that samples are drawn from


def _mutants(path: Path) -> list[Mutant]:
    name = str(path.relative_to(SOURCE))
    found = mutations(ast.parse(path.read_text()))
    return [Mutant(name, one.line, k, f"{one.before} -> {one.after}") for k, one in enumerate(found)]


def test_files() -> list[str]:
    """Test files of the layers below the command line, and those that import a mutated module by name."""
    modules = {pattern.removesuffix("/*").replace("/", ".") for pattern in TARGETS}
    found = []
    for path in sorted(TESTS.glob("test_*.py")):
        text = path.read_text()
        inner = any(f"truetilt.{name}" in text for name in modules)
        if "truetilt" in text and (inner or not any(f"truetilt.{name}" in text for name in OUTER)):
            found.append(path.name)
    return found


def task_of(mutant: Mutant, tests: dict, budget: float) -> Task:
    """The tests that pass the mutant's line, the fastest first, as many as fit; of a line run on import, all."""
    there = [t for t, note in tests.items() if f"{mutant.module}:{mutant.line}" in note["lines"]]
    there = there or [t for t, note in tests.items() if any(p.startswith(f"{mutant.module}:") for p in note["lines"])]
    chosen, spent = [], 0.0
    for test in sorted(there, key=lambda t: (tests[t]["seconds"], t)):
        spent += tests[test]["seconds"]
        if chosen and spent > budget:
            break
        chosen.append(test)
    return Task(mutant, chosen, sum(tests[test]["seconds"] for test in chosen))


def spread(pool: Callable[..., Future], task: str, arguments: dict) -> Iterator[tuple]:
    """(key, answer) of each job, as they are finished."""
    jobs = {pool(task, argument): key for key, argument in arguments.items()}
    for job in as_completed(jobs):
        yield jobs[job], job.result()


def summary(outcomes: dict[str, str], equivalent: dict[str, str]) -> dict:
    survivors = sorted(name for name, outcome in outcomes.items() if outcome == "survived")
    noticed = len(outcomes) - len(survivors)
    return {
        "number": len(outcomes),
        "noticed": noticed,
        "share": round(noticed / max(1, len(outcomes)), 4),
        "equivalent": sum(name in equivalent for name in survivors),
        "survivors": survivors,
    }


def record(options: argparse.Namespace, outcomes: dict[str, str]) -> dict:
    """Write the figures of this run beside those of the others."""
    from truetilt.core.storage import write_json

    kept = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    equivalent = kept.get("equivalent", {})
    run = {"command": shlex.join(["python", "proofs/mutants.py", *sys.argv[1:]]), "seed": options.seed}
    run |= {"seconds of tests a mutant": options.budget} | summary(outcomes, equivalent)
    runs = kept.get("runs", {}) | {options.label: run}
    for one in runs.values():
        one["equivalent"] = sum(name in equivalent for name in one["survivors"])
    write_json(OUTPUT, {"runs": runs, "equivalent": equivalent})
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="how many mutants, drawn by the seed (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", help="one module, such as smc/resampling.py")
    parser.add_argument("--label", default="after", help="the name of this run in mutants.json")
    parser.add_argument(
        "--again", help="the name of an earlier run: what it noticed still is, only its survivors are run"
    )
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of tests that a mutant is given")
    options = parser.parse_args()
    torch.set_num_threads(1)
    NOTES.mkdir(parents=True, exist_ok=True)
    mutants = all_mutants(options.only)
    random.Random(options.seed).shuffle(mutants)
    mutants = mutants[: options.sample]
    modules = sorted({m.module for m in all_mutants(None)})
    workers = ProcessPoolExecutor(options.jobs, mp_context=get_context("fork"))
    with tempfile.TemporaryDirectory() as street, workers:
        pool = partial(workers.submit, work, street)
        tests = {}
        for file, found in spread(pool, "cover", {f: (f, modules) for f in test_files()}):
            tests |= found
            print(f"{file}: {len(found)} tests, {sum(t['seconds'] for t in found.values()):.1f} s", flush=True)
        notes = NOTES / f"{options.label}-{options.seed}.jsonl"
        done = {k for k, v in read(notes).items() if v != "unborn"}
        if options.again:
            earlier = read(NOTES / f"{options.again}-{options.seed}.jsonl")
            for mutant in mutants:
                if mutant.name not in done and earlier.get(mutant.name) in ("noticed", "hung"):
                    note(notes, mutant, earlier[mutant.name])
                    done.add(mutant.name)
        tasks = [task_of(m, tests, options.budget) for m in mutants if m.name not in done]
        for _ in spread(pool, "try", {k: (tasks[k :: options.jobs], notes) for k in range(options.jobs)}):
            pass
    outcomes = read(notes)
    run = record(options, {m.name: outcomes[m.name] for m in mutants})
    print(f"{run['noticed']} of {run['number']} mutants noticed, {100 * run['share']:.1f} %")


if __name__ == "__main__":
    main()
