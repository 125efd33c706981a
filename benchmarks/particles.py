"""Time and memory against the number of particles, 10 to 10^6, on a table; each size in a process of its own.

OMP_NUM_THREADS=1 python benchmarks/particles.py [--steps 10] [--rounds 10]

Seconds are those of the processor, the least of several runs, so that neighbours on the machine count little. The
exponent is the slope of log seconds on log particles, from 10^3 and from 10^4 on: a step has a cost that no particle
causes, some hundred small operations, which the small sizes show.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time

import torch
from machine import keep

import truetilt as tt
from truetilt.paper.table1 import random_table

SITES, TOKENS, ALPHA = 6, 2, 3.0
SIZES = [10**k for k in range(1, 7)]


def models() -> dict[str, tt.Tempered | tt.Tilted | tt.AnyOrder]:
    """Feynman-Kac values of one table."""
    model = random_table("masking", SITES, TOKENS, 0, 0, "cpu").model()
    return {
        "tempered": tt.Tempered(model, ALPHA),
        "tilted": tt.Tilted(model, ALPHA),
        "any order": tt.AnyOrder(model, ALPHA),
    }


def one(name: str, particles: int, steps: int, rounds: int) -> dict[str, float]:
    """Least processor seconds of a run and the most memory the process ever held, in GiB."""
    fk = models()[name]
    reveals = name == "any order"
    grid = tt.masked_fraction_grid(fk.model.process.schedule, SITES) if reveals else tt.uniform_grid(steps)
    least = math.inf
    for _ in range(rounds if particles < 10**5 else 2):
        begin = time.process_time()
        tt.run(fk, grid, particles=particles)
        least = min(least, time.process_time() - begin)
    return {
        "seconds a step": least / (len(grid) - 1),
        "peak GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def slope(rows: list[dict], least: int) -> float:
    """Of log seconds on log particles, by least squares."""
    points = [(math.log(r["particles"]), math.log(r["seconds a step"])) for r in rows if r["particles"] >= least]
    x, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*points, strict=True))
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--one", nargs=2, help="a model and a number of particles, in this process")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one[0], int(asked.one[1]), asked.steps, asked.rounds)))
        return
    facts = {"problem": f"masking, {SITES} sites of {TOKENS} tokens, alpha = {ALPHA}", "rows": [], "exponents": []}
    for name in models():
        rows = []
        for particles in SIZES:
            words = [sys.executable, __file__, "--one", name, str(particles)]
            words += ["--steps", str(asked.steps), "--rounds", str(asked.rounds)]
            found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
            rows.append({"model": name, "particles": particles} | found)
            print(f"{name:12} {particles:9,} particles {found['seconds a step']:9.5f} s a step", end="")
            print(f" {1e9 * found['seconds a step'] / particles:9.0f} ns a particle {found['peak GiB']:6.2f} GiB")
        facts["rows"] += rows
        fits = {"from 10^3": slope(rows, 10**3), "from 10^4": slope(rows, 10**4)}
        facts["exponents"].append({"model": name} | fits)
        print(f"{name:12} exponent {fits}")
    keep("particles", facts)


if __name__ == "__main__":
    main()
