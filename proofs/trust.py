"""Runs that say *trust* and are wrong, and good runs that do not: short runs on random tables whose answers are known.

Every sampler runs on many tables, easy ones and ones with rare events, in 16 populations. The truth is that of the
exact flow on the run's own grid; where the grid itself is off by .1 in log Z, which no run can see, the table is left
out. A run is off if its log Z, or the probability of a token at a site, is further from the truth than three times the
half-width of its 95 % interval and what states that no particle met may add, as its trust report states both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

import truetilt as tt
from truetilt.smc.model_findings import unmet_share

TABLES, REPEATS = 20, 8  # of each kind; runs of each sampler on each table
POPULATIONS, GRID = 16, tt.uniform_grid(12)
SIZES = (16, 64)  # particles of a population
WIDE = 3.0  # half-widths
BLIND = "importance, nothing known of the reward"
OFF_BY = 0.1  # of log Z: a run without a fault, by its own standard, has an error below this


class Problem(NamedTuple):
    """A table, its vocabulary and length, and how strongly it is tilted."""

    kind: str
    table: tt.Table
    alpha: float


def problems(count: int) -> Iterator[Problem]:
    """Tables of two or three sites: even ones, peaked ones, and ones whose target is a rare event of the base."""
    for number in range(count):
        generator = torch.Generator().manual_seed(1000 + number)
        vocabulary, length = ((3, 2), (5, 2), (3, 3))[number % 3]
        shape = (vocabulary,) * length
        p0, likelihood = (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        yield Problem("easy", tt.Table(tt.Masking(vocabulary), p0, likelihood), 2.0)
        yield Problem("peaked", tt.Table(tt.Masking(vocabulary), p0**4, likelihood**4), 4.0)
        rare = torch.full(shape, 0.02, dtype=torch.float64)
        at = int(torch.randint(rare.numel(), (1,), generator=generator))
        rare.view(-1)[at], p0.view(-1)[at] = 1.0, 10.0 ** (-1.5 - 2.5 * float(torch.rand((), generator=generator)))
        yield Problem("rare", tt.Table(tt.Masking(vocabulary), p0, rare), 3.0)


class Setting(NamedTuple):
    """A sampler of a problem's target with how it is run."""

    fk: Any
    options: dict[str, Any]


def samplers(problem: Problem) -> dict[str, Setting]:
    """Every sampler of a table's target, with and without what makes it better."""
    model, alpha = problem.table.model(), problem.alpha
    reward = Lookup(problem.table)
    goal = tt.Composed(model, reward=reward, strength=alpha)
    conditions = tt.Composed(model, conditions=[(model.conditional, alpha)])
    any_order = tt.AnyOrder(model, alpha)
    moves = tt.Rejuvenation(tt.Gibbs(any_order), each_step=1)
    return {
        "tempered": Setting(tt.Tempered(model, alpha), {"grid": GRID}),
        "tilted": Setting(tt.Tilted(model, alpha), {"grid": GRID}),
        "steered": Setting(tt.Steered(model, model.potential, alpha), {"grid": GRID}),
        "steered at the end": Setting(tt.Steered(model, reward, alpha, tt.at_end), {"grid": GRID}),
        "any order": Setting(any_order, {}),
        "any order with moves": Setting(any_order, {"moves": moves}),
        "importance": Setting(goal, {"resample": tt.never}),
        "twisted": Setting(replace(goal, twist=model.potential), {}),
        "twisted wrongly": Setting(replace(goal, twist=Wrong(problem.table)), {}),
        "annealed": Setting(tt.Annealed(goal, 6), {}),
        "annealed conditions": Setting(tt.Annealed(conditions, 6), {}),
        BLIND: Setting(replace(goal, reward=Lookup(problem.table, None)), {"resample": tt.never}),
    }


class Lookup(NamedTuple):
    """The log of a table's likelihood as a reward of finished states; a probability is at most 1."""

    table: tt.Table
    highest: float | None = 0.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.table.potential(x, 0.0)


class Wrong(NamedTuple):
    """A twist that leads away from half of the table."""

    table: tt.Table

    def __call__(self, x: torch.Tensor, t: float) -> torch.Tensor:
        return torch.where((x == 0).any(-1), 0.7, 0.0).double()


def truth_of(problem: Problem, setting: Setting) -> tuple[float, torch.Tensor]:
    """log Z and the probability of every token at every site [D, S], of the flow on the run's grid."""
    grid, size = setting.options.get("grid", getattr(setting.fk, "grid", None)), problem.table.process.states
    limit = tt.flow(setting.fk, grid, size, problem.table.length, setting.options.get("moves"))
    tokens = torch.nn.functional.one_hot(limit.states, size)[..., : size - 1].double()
    return float(limit.log_z), torch.einsum("k,kdv->dv", limit.law, tokens)


def part_of(whole: tt.Result, part: slice) -> tt.Result:
    """Some populations of a run, as a run."""
    by_step = {n: getattr(whole, n)[:, part] for n in ("ess", "log_z_path", "ancestors", "moved", "accepted")}
    return replace(whole, particles=whole.particles[part], log_weights=whole.log_weights[part], **by_step)


def miss(run: tt.Result, truth: tuple[float, torch.Tensor]) -> tuple[float, float]:
    """The error of log Z, and the worst of a token's probability, in half-widths of what is stated."""
    size, unmet = truth[1].shape[-1], unmet_share(run.trust().figures) or 0.0
    site = run.expectation_interval(lambda x: torch.nn.functional.one_hot(x, size).double())
    return _widths(run.log_z_interval(), torch.tensor(truth[0]), unmet), _widths(site, truth[1], unmet)


def _widths(bar: tt.Interval, truth: torch.Tensor, unmet: float) -> float:
    """Over the half-width of the side on which the truth lies."""
    middle, low, high = (torch.as_tensor(end) for end in (bar.estimate, bar.low, bar.high))
    half = torch.where(truth > middle, high - middle, middle - low) + unmet
    error = (middle - truth).abs()
    return float(torch.where((error > 1e-9) & ((truth < low) | (truth > high)), error / half, 0.0).max())


def judged(problem: Problem, setting: Setting, particles: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Runs of one sampler on one table: the verdict, and how far off each is."""
    truth, options = truth_of(problem, setting), dict(setting.options)
    if abs(truth[0] - exact_log_z(problem, setting)) > OFF_BY:
        return
    sizes = {"particles": particles, "populations": POPULATIONS * repeats, "seed": 17}
    whole = tt.run(setting.fk, options.pop("grid", None), **sizes, **options)
    for k in range(repeats):
        run = part_of(whole, slice(POPULATIONS * k, POPULATIONS * (k + 1)))
        if run.log_z > -torch.inf:
            log_z, site = miss(run, truth)
            off = max(log_z, site) > WIDE
            good = abs(run.log_z - truth[0]) < OFF_BY and not off
            yield {"verdict": run.trust().verdict.name, "log_z": log_z > WIDE, "off": off, "good": good}


def exact_log_z(problem: Problem, setting: Setting) -> float:
    """What the target's own constant is, for the convention that the sampler has."""
    share = setting.fk.target.constant.share or 0.0
    return float(problem.table.log_z(problem.alpha) - share * problem.table.evidence.log())


COUNTS = ("runs", "trust", "care", "doubt", "off", "off_log_z", "good", "lost")


def tally(found: Iterator[dict[str, Any]], row: dict[str, int]) -> None:
    """Count runs: those called *trust* that are off, and those that are right and were not called so."""
    for one in found:
        trusted = one["verdict"] == "trust"
        row["runs"] += 1
        row[one["verdict"]] += 1
        row["off"] += trusted and one["off"]
        row["off_log_z"] += trusted and one["log_z"]
        row["good"] += one["good"]
        row["lost"] += one["good"] and not trusted


def trust(device: str, tables: int = TABLES, repeats: int = REPEATS) -> dict[str, Any]:
    """Of runs called *trust*, how many are off (none in log Z, and in all at most 3 of 1,000); rewards say their most.

    The last row of each kind is of a reward that does not say it: an event that no draw met cannot be noticed there.
    """
    rows: dict[tuple[str, str, int], dict[str, int]] = {}
    for problem in tqdm(list(problems(tables)), desc="trust", disable=None):
        for name, setting in samplers(problem).items():
            for particles in SIZES:
                row = rows.setdefault((problem.kind, name, particles), dict.fromkeys(COUNTS, 0))
                tally(judged(problem, setting, particles, repeats), row)
    named = [dict(zip(("problem", "sampler", "particles"), at, strict=True)) | row for at, row in rows.items()]
    seen = [row for row in named if row["sampler"] != BLIND]
    total = {name: sum(row[name] for row in seen) for name in COUNTS}
    passed = total["off_log_z"] == 0 and total["off"] <= 0.003 * total["trust"]
    return {"half_widths": WIDE, "populations": POPULATIONS, **total, "rows": named, "passed": passed}
