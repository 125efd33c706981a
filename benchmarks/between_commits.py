"""How much slower or faster a step became since another commit: the same runs with both packages, in turn.

PYTHONPATH=src python benchmarks/between_commits.py --against REVISION [--rounds 6] [--out FILE]

The cases are those of step_trace.py, with more particles. Each round starts a process for either package in turn; a
figure is the least processor time from the end of a run's first step to the end of its last, and `now over before`
their ratio. What a run does before and after its steps (checks of its arguments, diagnostics of its networks) shows
in the figure `run`, that of the whole call with ten particles. `noise` is what a ratio is by itself: the largest
ratio between the least times of two halves of the rounds of one package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from revisions import source_of
from step_trace import cases

import truetilt as tt

HERE = Path(__file__).resolve()
PARTICLES = {"table": 20_000, "text": 64}  # by the last word of a case's name
REPEATS = 10
Times = dict[str, list[float]]


def timed(fk: Any, grid: tuple[float, ...], particles: int) -> tuple[float, float]:
    """Processor seconds of the steps of a run after its first one, and of the whole call."""
    ends: list[float] = []

    def note(done: int, steps: int, info: Any) -> None:
        ends.append(time.process_time())

    begin = time.process_time()
    tt.run(fk, grid, particles=particles, seed=1, resample=tt.systematic, callback_on_step_end=note)
    return ends[-1] - ends[0], time.process_time() - begin


@torch.no_grad()
def measured() -> dict[str, float]:
    """Least processor seconds of the steps of each case, and of a run of few particles, with the imported package."""
    torch.set_num_threads(1)
    least: dict[str, float] = {}
    for name, (fk, grid) in cases().items():
        particles = PARTICLES[name.split()[-1]]
        steps = [timed(fk, grid, particles)[0] for _ in range(REPEATS)]
        runs = [timed(fk, grid, 10)[1] for _ in range(REPEATS)]
        least |= {name: min(steps), f"{name}, run": min(runs)}
    return least


def measured_with(source: Path) -> dict[str, float]:
    """The same in a process of its own, with the package in this folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(HERE.parent)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE)]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def in_turn(sources: dict[str, Path], rounds: int) -> dict[str, Times]:
    """Seconds of every case in every round, by package."""
    found: dict[str, Times] = {label: {} for label in sources}
    for turn in range(rounds):
        for label, source in sources.items():
            for name, seconds in measured_with(source).items():
                found[label].setdefault(name, []).append(seconds)
        print(f"round {turn + 1} of {rounds}", file=sys.stderr)
    return found


def compared(found: dict[str, Times]) -> dict[str, dict[str, float]]:
    """For each case, how long a run takes now over before, and how far two halves of one package's rounds differ."""
    rows = {}
    for name, now in found["now"].items():
        before = found["before"][name]
        halves = [min(times[0::2]) / min(times[1::2]) for times in (before, now)]
        noise = max(max(ratio, 1 / ratio) for ratio in halves)
        rows[name] = {"now over before": min(now) / min(before), "noise": noise, "seconds now": min(now)}
    return rows


def main(given: Any) -> None:
    with source_of(given.against) as before, source_of(None) as now:
        rows = compared(in_turn({"before": before, "now": now}, given.rounds))
    for name, row in rows.items():
        print(f"{name:24} {row['now over before']:.3f} x before; noise {row['noise']:.3f}")
    if given.out is not None:
        facts = {"against": given.against, "rounds": given.rounds, "torch": str(torch.__version__), "rows": rows}
        given.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.against is None:
        print(json.dumps(measured()))
    else:
        main(given)
