"""How often a nominal 95 % interval holds the truth: 1,000 runs on each of two problems, whose truth is the flow's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from tqdm import tqdm

import truetilt as tt
from truetilt.paper.table1 import random_table

RUNS, BATCH, STEPS = 1000, 50, 10
ACROSS = (16, 50)  # populations and particles of a run
ALONE = (1, 1000)


def first_token(x: torch.Tensor) -> torch.Tensor:
    return (x[..., 0] == 0).double()


def last_is_first(x: torch.Tensor) -> torch.Tensor:
    return (x[..., 0] == x[..., -1]).double()


def coverage(device: str) -> dict:
    """Of 1,000 runs the share that gave no interval, and of the intervals given the share that holds the truth."""
    masking, uniform = (random_table(name, 2, 5, 3, 0, device) for name in ("masking", "uniform"))
    problems = {
        "tempered, masking, alpha = 2": (tt.Tempered(masking.model(), 2.0), masking),
        "tilted, uniform, alpha = 4": (tt.Tilted(uniform.model(), 4.0), uniform),
    }
    ways: dict[str, tuple[tuple[int, int], Callable | None, Callable]] = {
        "across 16 populations": (ACROSS, None, tt.across_populations),
        "genealogy, adaptive": (ALONE, tt.adaptive(tt.multinomial), tt.genealogy()),
        "genealogy, every step": (ALONE, tt.multinomial, tt.genealogy()),
        "genealogy, every step, lag 4": (ALONE, tt.multinomial, tt.genealogy(4)),
    }
    rows = [
        row | {"problem": name, "interval": way}
        for name, (fk, table) in problems.items()
        for way, settings in ways.items()
        for row in _rows(fk, table, way, settings)
    ]
    default = [r["coverage"] for r in rows if r["interval"] == "across 16 populations"]
    return {"level": 0.95, "runs": RUNS, "rows": rows, "passed": all(0.92 <= c <= 0.98 for c in default)}


def _rows(fk, table: tt.Table, way: str, settings: tuple) -> list[dict]:
    (populations, particles), resample, by = settings
    grid = tt.uniform_grid(STEPS)
    exact = tt.flow(fk, grid, table.process.states, table.length)
    wanted = {"log Z": None, "P(first token is 0)": first_token, "P(first = last)": last_is_first}
    if "lag" in way:  # a lag forgets what earlier steps added to log Z, and is refused for it
        del wanted["log Z"]
    truth = {
        name: float(exact.log_z if h is None else (exact.law * h(exact.states)).sum()) for name, h in wanted.items()
    }
    held, none = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0)
    for batch in tqdm(range(RUNS // BATCH), desc=type(fk).__name__, disable=None):
        # populations are keyed apart, so that each group of them is as good as a seed of its own
        whole = tt.run(
            fk, grid, particles=particles, populations=populations * BATCH, seed=21, resample=resample,
            first_population=batch * BATCH * populations,
        )  # fmt: skip
        for k in range(0, populations * BATCH, populations):
            run = _populations(whole, slice(k, k + populations))
            for name, h in wanted.items():
                bar = run.log_z_interval(by=by) if h is None else run.expectation_interval(h, by=by)
                held[name] += not bar.reason and bar.low <= truth[name] <= bar.high
                none[name] += bool(bar.reason)
    return [
        {"of": name, "coverage": round(held[name] / max(1, RUNS - none[name]), 4), "no_interval": none[name] / RUNS}
        for name in wanted
    ]


def _populations(whole: tt.Result, part: slice) -> tt.Result:
    """Some populations of a run, as a run of their own."""
    return replace(
        whole, particles=whole.particles[part], log_weights=whole.log_weights[part], ess=whole.ess[:, part],
        log_z_path=whole.log_z_path[:, part], ancestors=whole.ancestors[:, part], moved=whole.moved[:, part],
        accepted=whole.accepted[:, part],
    )  # fmt: skip
