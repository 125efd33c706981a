"""`truetilt reproduce molecules` where neither typer nor matplotlib is: run the jobs there, collect the answers here.

    python proofs/molecule_jobs.py run --device cuda --processes 14 --seconds 540 --out runs/molecules
    python proofs/molecule_jobs.py pack --out runs/molecules --file $OUT/jobs.json.gz
    python proofs/molecule_jobs.py unpack --out runs/molecules --file jobs.json.gz
    python proofs/molecule_jobs.py collect --out runs/molecules --data moses/dataset/data [--write FILE]

`run` stops after so many seconds; what is done is kept, and the same command goes on from there, also on another
machine after `unpack`. `collect` takes what is done and says how much is missing; --quick and --draws are the
command's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FACTS = "machine.json"


class TimeIsUpError(Exception):
    """Raised when the seconds are over."""


def settings_of(asked: argparse.Namespace, data: str | None = None) -> Any:
    from truetilt.commands.job_runner import Settings

    more = () if asked.draws is None else (("draws", str(asked.draws)),)
    return Settings(quick=asked.quick, device=asked.device, data=data, more=more)


def run(asked: argparse.Namespace) -> None:
    """Run jobs that are not done, so many at a time, until the time is up."""
    from truetilt.commands.job_runner import answers, device_name
    from truetilt.core.storage import write_json
    from truetilt.paper.molecules import EXPERIMENT

    def stop(*_: object) -> None:
        raise TimeIsUpError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(asked.seconds)
    settings, begin, done = settings_of(asked), time.perf_counter(), 0
    total = len(EXPERIMENT.jobs(settings))
    import torch

    write_json(asked.out / FACTS, {"device": device_name(asked.device), "torch": torch.__version__})
    try:
        for name, answer in answers(EXPERIMENT, settings, asked.out):
            done += 1
            told = answer.get("failed", "")[:100]
            print(f"{time.perf_counter() - begin:7.1f} s  {done} of {total}  {name}  {told}", flush=True)
    except TimeIsUpError:
        print(f"time is up: {done} of {total} jobs are done and kept in {asked.out}", flush=True)


def pack(asked: argparse.Namespace) -> None:
    """All finished jobs in one file."""
    from truetilt.core.storage import read_json

    found = {path.name: read_json(path) for path in sorted((asked.out / "jobs").glob("*.json"))}
    facts = read_json(asked.out / FACTS) if (asked.out / FACTS).is_file() else {}
    with gzip.open(asked.file, "wt") as file:
        json.dump({"facts": facts, "jobs": found}, file)
    print(f"{len(found)} jobs in {asked.file}, {asked.file.stat().st_size:,} bytes", flush=True)


def unpack(asked: argparse.Namespace) -> None:
    """The jobs of such a file, beside those that are there."""
    from truetilt.core.storage import write_json

    with gzip.open(asked.file, "rt") as file:
        found = json.load(file)
    write_json(asked.out / FACTS, found["facts"])
    for name, job in found["jobs"].items():
        write_json(asked.out / "jobs" / Path(name).name, job)
    print(f"{len(found['jobs'])} jobs in {asked.out}", flush=True)


def collect(asked: argparse.Namespace) -> None:
    """result.json and figure.png of what is done; all answers must come from one version of the code."""
    from truetilt.commands.job_runner import command
    from truetilt.commands.outputs import write_outputs
    from truetilt.core.storage import read_json, write_json
    from truetilt.paper.molecules import EXPERIMENT, passed

    kept = {path.stem: read_json(path) for path in sorted((asked.out / "jobs").glob("*.json"))}
    marks = {job["fingerprint"] for job in kept.values()}
    if len(marks) != 1:
        sys.exit(f"{asked.out} has jobs of {len(marks)} versions or settings; run them again in an empty folder")
    settings = settings_of(asked, asked.data)
    found = EXPERIMENT.collect(settings, {name: job["answer"] for name, job in kept.items()})
    head: dict[str, Any] = {"command": command(EXPERIMENT, settings), "fingerprint": marks.pop()}
    head |= read_json(asked.out / FACTS) if (asked.out / FACTS).is_file() else {}
    result = head | found | {"passed": passed(found)}
    write_outputs(asked.out, result, EXPERIMENT.draw(result))
    if asked.write is not None:
        write_json(asked.write, result)
    for name, claim in found["claims"].items():
        print(f"{'holds' if claim['holds'] else 'FAILS'}  {name}: {claim['found']} (limit {claim['limit']})")
    print("\n".join(f"note: {note}" for note in found["notes"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "pack", "unpack", "collect"])
    parser.add_argument("--out", type=Path, default=Path("runs/molecules"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=14, help="jobs at a time on the device")
    parser.add_argument("--seconds", type=int, default=540)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draws", type=int)
    parser.add_argument("--data", help="folder moses/dataset/data of molsets, for novelty")
    parser.add_argument("--file", type=Path, default=Path("jobs.json.gz"))
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["TRUETILT_PROCESSES"] = str(asked.processes)  # read where truetilt is imported, also in its processes
    {"run": run, "pack": pack, "unpack": unpack, "collect": collect}[asked.what](asked)


if __name__ == "__main__":
    main()
