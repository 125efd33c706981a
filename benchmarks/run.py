"""Step cost on tables, each figure a ratio to a baseline measured in the same run. Absolute times mean little here.

python benchmarks/run.py [--device cuda] [--particles 20000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch

import truetilt as tt
from truetilt.commands.job_runner import device_name
from truetilt.core.logits import SiteLogits
from truetilt.core.storage import write_json
from truetilt.core.types import Model
from truetilt.paper.table1 import random_table
from truetilt.smc.resampling import SCHEMES

STEPS, ROUNDS = 20, 5


def cost(work: Callable[[], object], device: str) -> float:
    """The fastest of several runs, in seconds: the least disturbed by neighbours."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best


def dense(model: Model) -> Model:
    """The same model with a row a site, as a network would answer: what a lookup saves."""

    def spread(score: Callable) -> Callable:
        return lambda x, t: SiteLogits.of(score(x, t).dense())

    return Model(
        model.process, model.length, spread(model.base), spread(model.conditional), model.potential, model.device
    )


def reveals(particles: int, device: str) -> dict[str, Callable[[], object]]:
    """Steps that reveal a site each, on 4 sites of 10 tokens; the baseline is a clock step of the conditional alone."""
    model = random_table("masking", 4, 10, 0, 0, device).model()
    grid = tt.masked_fraction_grid(model.process.schedule, model.length)
    conditional = tt.Unweighted(model, model.conditional)
    guided = tt.Unweighted(model, tt.Guided(model.process, model.base, model.conditional, 3.0))

    def go(fk, resample=None, repeats: int = STEPS // model.length) -> Callable[[], object]:
        return lambda: [tt.run(fk, grid, particles=particles, resample=resample) for _ in range(repeats)]

    return {
        "unweighted": go(conditional, tt.never),
        "unweighted, guided": go(guided, tt.never),
        "any order": go(tt.AnyOrder(model, 3.0)),
        "any order, in order": go(tt.AnyOrder(model, 3.0, order=tuple(range(model.length)))),
        "any order, adapted sites": go(tt.AnyOrder(model, 3.0, choose=tt.adapted_sites)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--particles", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("runs/bench/result.json"))
    given = parser.parse_args()
    rows = []

    def measure(name: str, baseline: str, works: dict[str, Callable[[], object]]) -> None:
        seconds = {key: cost(work, given.device) for key, work in works.items()}
        for key, value in seconds.items():
            rows.append({"benchmark": name, "case": key, "baseline": baseline, "ratio": value / seconds[baseline]})
            print(f"{name:24} {key:28} {value / seconds[baseline]:8.2f} x {baseline}", flush=True)

    for process in ("masking", "uniform"):
        table = random_table(process, 2, 50, 0, 0, given.device)
        model = table.model()

        def go(fk, n=given.particles, **options) -> Callable[[], object]:
            return lambda: tt.run(fk, tt.uniform_grid(STEPS), particles=n, **options)

        guidance = tt.Unweighted(model, model.conditional)
        measure(
            f"step, {process}",
            "unweighted",
            {
                "unweighted": go(guidance, resample=tt.never),
                "tilted": go(tt.Tilted(model, 4.0)),
                "tempered, beta = 1": go(tt.Tempered(model, 2.0)),
                "tempered, beta = 2": go(tt.Tempered(model, 2.0, 2.0)),
            },
        )
        if process == "masking":
            measure("reveal a site, masking", "unweighted", reveals(given.particles, given.device))
        measure(
            f"rows, {process}",
            "lookup",
            {"lookup": go(tt.Tempered(model, 2.0)), "dense rows": go(tt.Tempered(dense(model), 2.0))},
        )
        chunked = {f"chunks of {c}": go(guidance, chunk=c) for c in (given.particles // 4, given.particles // 16)}
        measure(f"chunks, {process}", "whole", {"whole": go(guidance), **chunked})
    log_w = torch.randn(1, given.particles, dtype=torch.float64, device=given.device)
    u = torch.rand(1, given.particles, dtype=torch.float64, device=given.device)
    measure("resampling", "multinomial", {name: lambda f=f: f(log_w, u) for name, f in SCHEMES.items()})
    write_json(given.out, {"device": device_name(given.device), "torch": torch.__version__, "rows": rows})


if __name__ == "__main__":
    main()
