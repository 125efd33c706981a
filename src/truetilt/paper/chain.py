"""Markov chains of 16, 64 and 256 sites: every sampler against exact marginals and log Z, beyond enumeration.

p0 is a chain with transition rows softmax(2 z), the initial law and each factor of p(zeta|x) are softmax(z), z standard
normal; 8 tokens, alpha = 3, 500 particles. The error is the total variation of a site's marginal, averaged over sites;
its floor is what 500 independent draws from the target give.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..commands.costs import RoundCounter
from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..commands.samplers import SAMPLERS, in_order
from ..core.types import Model
from ..diffusion.processes import Masking
from ..exact.chain import Chain
from ..result import Result
from ..smc.rejuvenation import Rejuvenation
from ..smc.resampling import adaptive, never, systematic
from ..smc.sampler import OUTPUT, Stream
from ..targets.moves import Gibbs, scan_gibbs
from ..targets.scans import systematic_scan

VOCABULARY, ALPHA, PARTICLES = 8, 3.0, 500
DIMENSIONS, QUICK_DIMENSIONS = (16, 64, 256), (16, 64)
PROBLEMS = 8
REPLICATES = 10  # of the i.i.d. floor
_OFTEN = adaptive(systematic, 0.8)  # Gibbs moves restore the diversity that frequent resampling costs


def problem(dimension: int, seed: int, device: str = "cpu") -> Chain:
    """Chain problem number `seed`."""
    generator = torch.Generator().manual_seed(seed)
    initial, steps, factors = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((VOCABULARY,), (VOCABULARY, VOCABULARY), (dimension, VOCABULARY))
    )
    laws = (initial.softmax(-1), (2 * steps).softmax(-1), factors.softmax(-1))
    return Chain(Masking(VOCABULARY), *(law.to(device) for law in laws))


class ChainSampler(NamedTuple):
    """How a method is run, and whether it has weights and so estimates log Z."""

    run: Callable[[Model, int], Result]
    weighted: bool


def _clock(name: str, steps: int) -> ChainSampler:
    chosen = SAMPLERS[name]

    def go(model: Model, seed: int) -> Result:
        fk, grid = chosen.build(model, ALPHA), chosen.grid(model, steps)
        return run(fk, grid, particles=PARTICLES, seed=seed, resample=chosen.resample)

    return ChainSampler(go, chosen.resample is not never)


def _one_by_one(name: str, sweeps: int = 0) -> ChainSampler:
    """One site per step, then `sweeps` sweeps of Gibbs moves over all sites."""
    chosen = SAMPLERS[name]

    def go(model: Model, seed: int) -> Result:
        fk = chosen.build(model, ALPHA)
        moves = Rejuvenation(scan_gibbs, at_end=sweeps * model.length) if sweeps else None
        resample = _OFTEN if sweeps else chosen.resample
        return run(fk, particles=PARTICLES, seed=seed, resample=resample, moves=moves)

    return ChainSampler(go, True)


def _gibbs(sweeps: int) -> ChainSampler:
    """Samples of the conditional model (alpha = 1 has weight 1), then Gibbs moves for the target."""

    def go(model: Model, seed: int) -> Result:
        moves = Rejuvenation(Gibbs(in_order(model, ALPHA), systematic_scan), at_end=sweeps * model.length)
        return run(in_order(model, 1.0), particles=PARTICLES, seed=seed, resample=never, moves=moves)

    return ChainSampler(go, False)


QUICK_EFFORTS = {
    "guidance-rate": [_clock("guidance-rate", 100)],
    "guidance-posterior": [_clock("guidance-posterior", 100)],
    "smc-clock": [_clock("tempered-euler", 100)],
    "smc-clock-tilted": [_clock("tilted-euler", 100)],
    "any-order": [_one_by_one("any-order")],
    "any-order-in-order": [_one_by_one("in-order")],
    "any-order-moves": [_one_by_one("in-order", 3)],
    "gibbs": [_gibbs(3)],
}
EFFORTS = QUICK_EFFORTS | {
    "guidance-rate": [_clock("guidance-rate", steps) for steps in (25, 100, 400)],
    "smc-clock": [_clock("tempered-euler", steps) for steps in (25, 100, 400)],
    "smc-clock-tilted": [_clock("tilted-euler", steps) for steps in (25, 100, 400)],
    "any-order-moves": [_one_by_one("in-order", sweeps) for sweeps in (1, 2, 3)],
    "gibbs": [_gibbs(sweeps) for sweeps in (1, 2, 3)],
}


def jobs(settings: Settings) -> list[Job]:
    """One job for each dimension, problem and sampler; the long ones first."""
    dimensions = _dimensions(settings)
    return [
        Job(f"{d}-{seed}-{name}", one_sampler, (d, seed, name, settings))
        for d in sorted(dimensions, reverse=True)
        for name in ("iid", *reversed(_samplers(d, settings)))
        for seed in range(PROBLEMS)
    ]


def _dimensions(settings: Settings) -> tuple[int, ...]:
    return QUICK_DIMENSIONS if settings.quick else DIMENSIONS


def _samplers(dimension: int, settings: Settings) -> dict[str, list[ChainSampler]]:
    """Samplers at several efforts each; one effort for long chains, which cost more."""
    return QUICK_EFFORTS if settings.quick or dimension > 64 else EFFORTS


def one_sampler(dimension: int, seed: int, name: str, settings: Settings) -> Answer:
    """A sampler's points on one problem: error and network evaluations at each effort."""
    chain = problem(dimension, seed, settings.device)
    if name == "iid":
        return {"points": [{"tv": _floor(chain, settings.seed), "log_z_error": None, "evaluations": 0}]}
    points = []
    for sampler in _samplers(dimension, settings)[name]:
        meter = RoundCounter()
        result = sampler.run(meter.watch(chain.model()), settings.seed * 1000 + seed)
        exact = float(chain.log_z_tilted(ALPHA) if "tilted" in name else chain.log_z_tempered(ALPHA))
        error = abs(result.log_z - exact) if sampler.weighted else None
        tv = _marginal_tv(chain, result.particles.flatten(0, 1), result.weights.reshape(-1))
        points.append({"tv": tv, "log_z_error": error, "evaluations": meter.rounds})
    return {"points": points}


def _floor(chain: Chain, seed: int) -> float:
    """Mean error of equally many independent draws."""
    stream, target = Stream(seed, device=chain.p0.initial.device), chain.target(ALPHA)
    u = stream.uniforms(0, OUTPUT, REPLICATES, PARTICLES * chain.length)
    equal = torch.full((PARTICLES,), 1 / PARTICLES, dtype=torch.float64, device=u.device)
    return statistics.fmean(_marginal_tv(chain, target.draw(row.reshape(PARTICLES, chain.length)), equal) for row in u)


def _marginal_tv(chain: Chain, x: Tensor, weights: Tensor) -> float:
    """Mean over sites of the TV between weighted and exact marginals."""
    seen = torch.zeros(chain.length, VOCABULARY, dtype=torch.float64, device=x.device)
    seen = seen.scatter_add(1, x.T, weights.expand(chain.length, -1))
    return float(0.5 * (seen - chain.target(ALPHA).marginals()).abs().sum(-1).mean())


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over the problems."""
    dimensions = _dimensions(settings)
    rows = []
    for d in dimensions:
        floor = statistics.fmean(answers[f"{d}-{seed}-iid"]["points"][0]["tv"] for seed in range(PROBLEMS))
        for name in ("iid", *_samplers(d, settings)):
            each = zip(*(answers[f"{d}-{seed}-{name}"]["points"] for seed in range(PROBLEMS)), strict=True)
            rows += [_row(d, name, list(points), floor) for points in each]
    return {"experiment": "chain", "problems": PROBLEMS, "rows": rows}


def _row(dimension: int, name: str, points: list[Answer], floor: float) -> Answer:
    tvs, errors = [p["tv"] for p in points], [p["log_z_error"] for p in points]
    return {
        "dimension": dimension,
        "method": name,
        "tv_mean": statistics.fmean(tvs),
        "tv_std": statistics.stdev(tvs),
        "ratio_to_floor": statistics.fmean(tvs) / floor,
        "log_z_error": None if None in errors else statistics.fmean(errors),
        "network_evaluations": points[0]["evaluations"],
    }


def draw(result: Answer) -> Any:
    """Error against network evaluations, a panel for each length and a curve for each sampler."""
    from matplotlib.figure import Figure

    dimensions = sorted({r["dimension"] for r in result["rows"]})
    figure = Figure(figsize=(4.6 * len(dimensions), 4.4), layout="constrained")
    for ax, d in zip(figure.subplots(1, len(dimensions), squeeze=False)[0], dimensions, strict=True):
        rows = [r for r in result["rows"] if r["dimension"] == d]
        for number, name in enumerate(dict.fromkeys(r["method"] for r in rows if r["method"] != "iid")):
            points = [r for r in rows if r["method"] == name]
            marker = "ovs^DPX*"[number % 8]
            ax.errorbar(
                [r["network_evaluations"] for r in points], [r["tv_mean"] for r in points],
                [r["tv_std"] for r in points], fmt=f"-{marker}", lw=1, ms=6, label=name,
            )  # fmt: skip
        floor = next(r["tv_mean"] for r in rows if r["method"] == "iid")
        ax.axhline(floor, color="black", ls="--", lw=1, label="500 independent draws")
        ax.axhline(2 * floor, color="black", ls=":", lw=0.8)
        ax.set(xscale="log", yscale="log", xlabel="rounds of network evaluation", title=f"chain of {d} sites")
        every = {r["network_evaluations"] for r in rows} - {0}
        rounds = sorted(r for r in every if not any(1 < r / other < 1.2 for other in every))
        ax.set_xticks(rounds, [str(r) for r in rounds], fontsize=8)
        ax.set_xticks([], minor=True)
        ax.grid(color="#e5e5e5", lw=0.5)
    figure.axes[0].set_ylabel("mean marginal TV (dotted: twice the floor)")
    figure.axes[-1].legend(fontsize=7, loc="upper right")
    return figure


COLUMNS = ("dimension", "method", "tv_mean", "tv_std", "ratio_to_floor", "log_z_error", "network_evaluations")
EXPERIMENT = Experiment("chain", "Markov chains: every sampler against exact marginals", jobs, collect, draw, COLUMNS)
