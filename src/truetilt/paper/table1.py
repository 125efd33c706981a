"""Table 1: KL(pi || sampler) on random targets of one and two sites, for both processes.

Sampled KL at large vocabularies counts empty cells, not bias; `kl_exact` is the bias alone, from `flow`. On one masked
site rate guidance is exact: a single reveal has nothing to disagree with. Independent draws and the any-order samplers
are cheap, so `--quick` runs them at full size; each ratio is to independent draws of the same size. `--quick` computes
the exact bias on the first three targets of a row, one for each alpha.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import torch

from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..diffusion.processes import Masking, Uniform
from ..exact.tables import Table
from . import toys

SIZES = ((1, 50), (2, 3), (2, 10), (2, 100), (2, 200))
ALPHAS = (2.0, 4.0, 8.0)
PROCESSES = {"masking": Masking, "uniform": Uniform}
TARGETS, QUICK_TARGETS = 30, 6
SAMPLES, QUICK_SAMPLES = 50_000, 10_000
METHOD_ORDER = ("iid", *toys.METHODS, "smc-clock-resampled")
MARKS = (("black", "_"), ("#c8322b", "v"), ("#e07b5a", "^"), ("#2e8b57", "o"), ("#7fbf7b", "s"), ("#1f5fa8", "P"),
         ("#7b4fa8", "X"), ("#c9a2e0", "x"), ("#b07fd0", "*"), ("#4b2f78", "p"), ("#a6c96a", "D"))  # fmt: skip
REPLICATES = 10  # of the i.i.d. floor
LIMITS = {"smc-clock-multinomial": "smc-clock", "any-order-systematic": "any-order"}  # methods with the same limit
LARGEST_FLOW = 10_000  # states of a uniform space, at most; masking spaces are sparse, and all fit


def random_table(process: str, dimension: int, vocabulary: int, number: int, seed: int, device: str) -> Table:
    """Target `number` of a row: entries uniform on (0, 1). Both processes get the same tables."""
    generator = torch.Generator().manual_seed(hash_words(seed, dimension, vocabulary, number))
    shape = (vocabulary,) * dimension
    p0 = torch.rand(shape, generator=generator, dtype=torch.float64)
    likelihood = torch.rand(shape, generator=generator, dtype=torch.float64)
    return Table(PROCESSES[process](vocabulary), p0.to(device), likelihood.to(device))


def hash_words(*words: int) -> int:
    """One seed from several numbers, the same on every machine."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


def jobs(settings: Settings) -> list[Job]:
    """One job per target; the long ones first."""
    every = [
        Job(f"{process}-{d}-{v}-{number}", one_target, (process, d, v, number, settings))
        for d, v in sorted(SIZES, key=lambda size: abs(size[1] - 100))
        for process in PROCESSES
        for number in range(TARGETS)
    ]
    return sorted(every, key=lambda job: (job.arguments[3] >= QUICK_TARGETS, job.arguments[0] == "masking"))


def one_target(process: str, d: int, v: int, number: int, settings: Settings) -> Answer:
    """Every method on one target; with --quick, only the cheap ones on targets after the first six."""
    table = random_table(process, d, v, number, settings.seed, settings.device)
    alpha = ALPHAS[number % len(ALPHAS)]
    seed = hash_words(settings.seed, d, v, number, 1)
    target = table.target(alpha)
    floors = {n: _iid(target, n, seed) for n in {SAMPLES, QUICK_SAMPLES if settings.quick else SAMPLES}}
    out = {"iid": _entry(floors[SAMPLES], 0.0, floors[SAMPLES])}
    for method in toys.METHODS:
        cheap = method.startswith("any-order")
        if (cheap or method == "guidance-posterior") and process != "masking":
            continue
        if not cheap and settings.quick and number >= QUICK_TARGETS:
            continue
        n = SAMPLES if cheap or not settings.quick else QUICK_SAMPLES
        twin = LIMITS.get(method, method)
        known = twin in out or (settings.quick and number >= len(ALPHAS))
        exact = out.get(twin, {}).get("kl_exact") if known else _exact(table, alpha, method)
        run = toys.sample_toy(table, alpha, method, n, seed)
        laws = {method: toys.weighted_law(table, run.result)}
        if method == "smc-clock":
            laws["smc-clock-resampled"] = toys.drawn_law(table, run.result.draw(n, seed))
        out |= {name: _entry(toys.miss(target, law), exact, floors[n], run) for name, law in laws.items()}
    return out


def _exact(table: Table, alpha: float, method: str) -> float | None:
    """KL of the method's exact limit; None if the space is too large to enumerate."""
    target = table.target(alpha)
    if not isinstance(table.process, Masking) and target.numel() > LARGEST_FLOW:
        return None
    return toys.miss(target, toys.exact_law(table, alpha, method), 0.0)


def _iid(target: torch.Tensor, n: int, seed: int) -> float:
    """The floor: mean KL of histograms of n independent draws."""
    p = target.reshape(-1).cpu().numpy()
    counts = np.random.default_rng(seed).multinomial(n, p / p.sum(), REPLICATES)
    return statistics.fmean(toys.miss(target.cpu(), torch.from_numpy(c / n)) for c in counts)


def _entry(kl: float, exact: float | None, floor: float, run: toys.SampledToy | None = None) -> Answer:
    cost = (run.meter.rounds, run.meter.passes, run.seconds) if run else (0, 0, 0.0)
    return {"kl": kl, "kl_exact": exact, "floor": floor, "evaluations": cost[0], "passes": cost[1], "seconds": cost[2]}


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over the targets of each row."""
    rows = []
    for process in PROCESSES:
        for d, v in SIZES:
            targets = [a for name, a in sorted(answers.items()) if name.startswith(f"{process}-{d}-{v}-")]
            methods = max(targets, key=len)
            rows += [_row(process, d, v, m, [a[m] for a in targets if m in a]) for m in methods]
    return {
        "experiment": "table1",
        "targets": QUICK_TARGETS if settings.quick else TARGETS,
        "samples": QUICK_SAMPLES if settings.quick else SAMPLES,
        "rows": rows,
    }


def _row(process: str, dimension: int, vocabulary: int, method: str, entries: list[Answer]) -> dict[str, Any]:
    kls, exact, floors = ([e[name] for e in entries if e[name] is not None] for name in ("kl", "kl_exact", "floor"))
    return {
        "process": process,
        "dimension": dimension,
        "vocabulary": vocabulary,
        "method": method,
        "kl_mean": statistics.fmean(kls),
        "kl_std": statistics.stdev(kls),
        "kl_exact": statistics.fmean(exact) if exact else None,
        "ratio_to_floor": statistics.fmean(kls) / statistics.fmean(floors),
        "ratio_median": statistics.median(kl / floor for kl, floor in zip(kls, floors, strict=True)),
        "targets": len(entries),
        "network_evaluations": entries[0]["evaluations"],
        "network_passes": entries[0]["passes"],
        "seconds": statistics.fmean(e["seconds"] for e in entries),
    }


def draw(result: Answer) -> Any:
    """Sampled KL (filled) and exact KL (hollow) of every method, one panel per process."""
    from matplotlib.figure import Figure

    styles = dict(zip(METHOD_ORDER, MARKS, strict=True))
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    for ax, process in zip(figure.subplots(1, 2, sharey=True), PROCESSES, strict=True):
        for shift, (method, (colour, marker)) in enumerate(styles.items()):
            rows = [r for r in result["rows"] if r["process"] == process and r["method"] == method]
            at = [SIZES.index((r["dimension"], r["vocabulary"])) + (shift - 5) * 0.08 for r in rows]
            means = [r["kl_mean"] for r in rows]
            low = [m - max(m - r["kl_std"], m / 4) for m, r in zip(means, rows, strict=True)]
            ax.errorbar(at, means, [low, [r["kl_std"] for r in rows]], fmt=marker, color=colour, ms=6, lw=0.8,
                        label=method if rows else None)  # fmt: skip
            exact = [r["kl_exact"] if r["kl_exact"] else math.nan for r in rows]
            ax.plot(at, exact, marker, mfc="none", mec=colour, ms=6, ls="none")
        ax.axvspan(2.5, 4.5, color="#f4f4f4", zorder=0)
        ax.text(
            3.5, 2e-6, "sampled KL counts empty cells here,\nnot bias: read the hollow marks", fontsize=7, ha="center"
        )
        ax.set_yscale("log")
        ax.set_ylim(1e-7, 1e5)
        ax.set_xticks(range(len(SIZES)), [f"D = {d}\nV = {v}" for d, v in SIZES])
        ax.set_title(
            f"{process}: KL(π ‖ sampler), {result['samples']:,} samples, {result['targets']} targets", fontsize=10
        )
        ax.grid(axis="y", color="#e5e5e5", lw=0.6)
        place = "upper left"
        note = "filled: sampled ± sd; hollow: exact bias"
        ax.legend(fontsize=7, ncols=3, loc=place, title=note, title_fontsize=7)
    return figure


COLUMNS = ("process", "dimension", "vocabulary", "method", "kl_mean", "kl_std", "kl_exact", "ratio_to_floor")
EXPERIMENT = Experiment("table1", "KL between the tempered target and each sampler", jobs, collect, draw, COLUMNS)
