"""GB1: ProteinMPNN on four sites of protein G, fitness measured in a laboratory, and both laws known exactly.

The base is a public network; its 8,421 conditionals determine the whole table of 160,000 states, so that only calls of
the reward are scarce. r = log max(fitness / 8.76, 1e-3), with 1e-3 where nothing was measured. Every sampler and
baseline has the same calls and evaluations. `tt.steer`, the kriged twist and importance are also run on two other
bases: the soluble weights, and the fixed law of `reproduce rewards`. A second part has the vanilla weights as base and
the soluble ones as condition.
"""

from __future__ import annotations

import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..api import run
from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..core.errors import InvalidInput
from ..proteins.bundle import Protein, load_protein
from ..rewards.recycled import recycled
from ..smc.resampling import never
from ..targets.any_order import AnyOrder
from .gb1_figure import draw
from .gb1_samplers import OURS, RIVALS, SampledStates, bounded_reward, knowing, rival
from .reward_tables import FLOORS, RewardTable, fitness_table

FOLDER, BACKBONE, OPEN = "gb1", "backbone.pdb", "39-41,54"
STRENGTHS, CALLS, SEEDS, JUDGED = (4.0, 8.0), (250, 500, 1_000, 2_000, 4_000), 5, 20
QUICK_CALLS, QUICK_SEEDS = (500,), 1
BASES = {"fitness": "vanilla", "soluble": "soluble", "fixed": "fixed"}  # the base of p0, by kind of job
PROBLEMS = {"fitness": "fitness", "soluble": "fitness, soluble base", "fixed": "fitness, fixed base"}
PROBLEMS |= {"knowing": "fitness, all known", "guided": "soluble / vanilla"}
RIVALRY = ("tt.steer", "kriged twist", "importance")  # run on every base, at the largest number of calls
BETTER = 1.15  # largest error of tt.steer, in units of the better of the other two
REVEALED = {"tt.reveal, 1 × 2048": (1, 2048), "tt.reveal, 8 × 256": (8, 256)}
GUIDED, BOUND = (1.0, 2.0, 4.0), (1.0, 2.0)  # exponents of soluble over vanilla; those that must be right
WAYS = {"any order, 16 × 128": (16, 128), "any order, 1 × 2048": (1, 2048), "guidance": (1, 2048)}
COLUMNS = (
    "problem",
    "method",
    "alpha",
    "calls",
    "reward_calls",
    "network_evaluations",
    "tv",
    "log_z_error",
    "recycled",
)
LIMITS = {4.0: (0.10, 0.05), 8.0: (0.12, 0.05)}  # largest TV by strength: of the particles alone, and recycled
NEAR, WITHIN, WRONG = 1.5, 0.4, 0.15  # factor of the floor; nats of log Z, in four of five; TV that must not be trusted


def jobs(settings: Settings) -> list[Job]:
    """A job for each sampler or baseline, strength, number of calls and seed; and for each exponent of the guide."""
    folder, calls, seeds = _folder(settings), *((QUICK_CALLS, QUICK_SEEDS) if settings.quick else (CALLS, SEEDS))
    cells = [
        (name, alpha, most, seed)
        for most in sorted(calls, reverse=True)
        for name in (*OURS, *RIVALS)
        for alpha in STRENGTHS
        for seed in range(_seeds(settings, name, most, seeds))
    ]
    found = [Job(f"fitness-{n}-{a:g}-{c}-{s}", one_fitness, (n, a, c, s, folder)) for n, a, c, s in cells]
    judged = seeds if settings.quick else JUDGED
    found += [
        Job(f"{kind}-{n}-{a:g}-{seed}", one_fitness, (n, a, calls[-1], seed, folder, base))
        for kind, base in BASES.items()
        for n in RIVALRY
        for a in STRENGTHS
        for seed in range(judged)
        if kind != "fitness"
    ]
    for seed in range(judged):
        found += [
            Job(f"knowing-{sizes[0]}-{a:g}-{seed}", one_knowing, (name, a, seed, folder))
            for name, sizes in REVEALED.items()
            for a in STRENGTHS
        ]
        found += [
            Job(f"guided-{number}-{a:g}-{seed}", one_guided, (name, a, seed, folder))
            for number, name in enumerate(WAYS)
            for a in GUIDED
        ]
    return found


def _seeds(settings: Settings, name: str, calls: int, seeds: int) -> int:
    """Five seeds for everything; twenty for our methods and importance at the largest number of calls."""
    many = name in OURS and calls == CALLS[-1]
    return JUDGED if many and not settings.quick else seeds


def _folder(settings: Settings) -> str:
    folder = Path(settings.data or ".") / FOLDER
    needed = [folder / name for name in (BACKBONE, "fitness.tsv.xz")]
    if settings.data is None or not all(path.is_file() for path in needed):
        raise InvalidInput(
            f"{folder} has no {BACKBONE} and fitness.tsv.xz; --data must hold a folder {FOLDER} with both"
        )
    return str(folder)


@lru_cache(maxsize=2)
def protein(folder: str) -> Protein:
    return load_protein(structure=Path(folder) / BACKBONE, open=OPEN)


@lru_cache(maxsize=3)
def base_table(folder: str, base: str = "vanilla") -> RewardTable:
    """p0 of ProteinMPNN by its vanilla or soluble weights, or a fixed law; and the measured log-fitness."""
    fixed = fitness_table(Path(folder))
    if base == "fixed":
        return fixed
    law = protein(folder).law if base == "vanilla" else protein(folder).under(base)
    return RewardTable(law.table(), fixed.values)


@lru_cache(maxsize=2)
def ratio_table(folder: str) -> RewardTable:
    """p0 of the vanilla weights, and log p_soluble / p_vanilla of every state."""
    base = base_table(folder).p0
    return RewardTable(base, (protein(folder).under("soluble").table().log() - base.log()).reshape(-1))


def one_fitness(name: str, alpha: float, calls: int, seed: int, folder: str, base: str = "vanilla") -> Answer:
    """A sampler or a baseline with `calls` calls; ours also recycled: p0 exp(alpha r) over all states called."""
    table = base_table(folder, base)
    reward = bounded_reward(table)
    if name in RIVALS:
        return _answer(table, alpha, rival(RIVALS[name], table, reward, alpha, calls, seed), None)
    found = OURS[name](table, reward, alpha, calls, seed)
    law, log_z = table.target(alpha)
    again = recycled(reward, table.log_prob, alpha)
    told = {"recycled_log_z_error": again.log_z - log_z}
    return _answer(table, alpha, found, table.miss(law, again.states, again.weights)) | told


def one_knowing(name: str, alpha: float, seed: int, folder: str) -> Answer:
    """A sampler that knows the likelihood of every partial state, to test its verdicts."""
    table = base_table(folder)
    return _answer(table, alpha, knowing(table, alpha, REVEALED[name], seed), None)


def one_guided(name: str, alpha: float, seed: int, folder: str) -> Answer:
    """vanilla (soluble / vanilla)^alpha by the networks themselves, site by site in their order."""
    design, table = protein(folder), ratio_table(folder)
    populations, particles = WAYS[name]
    fk = AnyOrder(design.model("soluble"), alpha, alpha if name == "guidance" else None, design.order)
    how: dict[str, Any] = {"resample": never} if name == "guidance" else {}
    result = run(fk, particles=particles, populations=populations, seed=seed, **how)
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    trust = result.trust()
    found = SampledStates(x, weights, result.log_z, result.spent, str(trust.verdict))
    if name == "guidance":  # the draws without their weights
        found = found._replace(weights=weights.new_ones(len(x)), log_z=None, verdict=None)
    draws = FLOORS["gb1"]
    floor = table.floor(table.target(alpha)[0], seed, draws)
    heaviest = table.target(alpha)[0].max()
    told = {"floor": floor, "heaviest": float(heaviest), "reasons": list(trust.reasons)}
    return _answer(table, alpha, found, None) | told


def _answer(table: RewardTable, alpha: float, found: SampledStates, again: float | None) -> Answer:
    law, log_z = table.target(alpha)
    return {
        "reward_calls": found.spent.distinct,
        "network_evaluations": found.spent.evaluations,
        "tv": table.miss(law, found.x, found.weights),
        "log_z_error": None if found.log_z is None else found.log_z - log_z,
        "recycled": again,
        "verdict": found.verdict,
    }


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """A row for every run."""
    rows = []
    for job in jobs(settings):
        method, alpha = job.arguments[:2]
        kind = job.name.split("-")[0]
        calls, seed = (job.arguments[2], job.arguments[3]) if kind in BASES else (None, job.arguments[2])
        head = {"problem": PROBLEMS[kind], "method": method, "alpha": alpha, "seed": seed, "calls": calls}
        rows.append(head | answers[job.name])
    out = {"experiment": "gb1", "rows": rows, "means": means(rows)}
    return out | {"claims": claims(rows)}


def means(rows: list[Answer]) -> list[Answer]:
    """The mean over seeds for every method, strength and number of calls."""
    out = []
    for key in dict.fromkeys((r["problem"], r["method"], r["alpha"], r["calls"]) for r in rows):
        each = [r for r in rows if (r["problem"], r["method"], r["alpha"], r["calls"]) == key]
        off = [r["log_z_error"] for r in each]
        again = [r["recycled"] for r in each]
        out.append(
            dict(zip(("problem", "method", "alpha", "calls"), key, strict=True))
            | {
                "seeds": len(each),
                "tv": statistics.fmean(r["tv"] for r in each),
                "worst": max(r["tv"] for r in each),
                "log_z_error": None if None in off else statistics.fmean(map(abs, off)),
                "recycled": None if None in again else statistics.fmean(again),
                "reward_calls": round(statistics.fmean(r["reward_calls"] for r in each)),
                "network_evaluations": round(statistics.fmean(r["network_evaluations"] for r in each)),
                "floor": statistics.fmean(r["floor"] for r in each) if "floor" in each[0] else None,
            }
        )
    return out


def claims(rows: list[Answer], method: str = "kriged twist", seeds: int = SEEDS) -> Answer:
    """The claims with the figures behind them: see the docs, `truetilt reproduce gb1`."""
    most = max(r["calls"] or 0 for r in rows)
    ours = [
        r for r in rows
        if r["problem"] == "fitness" and r["method"] == method and r["calls"] == most and r["seed"] < seeds
    ]  # fmt: skip
    out: Answer = {}
    for kind, base in BASES.items():
        for alpha in STRENGTHS:
            one, *others = (_mean_tv(rows, PROBLEMS[kind], name, alpha, most) for name in RIVALRY)
            out[f"tt.steer over the better, {base} base, alpha {alpha:g}"] = _claim(one / min(others), BETTER)
    for alpha, (alone, again) in LIMITS.items():
        each = [r for r in ours if r["alpha"] == alpha]
        out[f"particles, alpha {alpha:g}"] = _claim(statistics.fmean(r["tv"] for r in each), alone)
        out[f"recycled, alpha {alpha:g}"] = _claim(statistics.fmean(r["recycled"] for r in each), again)
        near = sum(abs(r["log_z_error"]) <= WITHIN for r in each)
        out[f"log Z within {WITHIN:g}, alpha {alpha:g}"] = {
            "found": near,
            "limit": len(each) - 1,
            "holds": near >= len(each) - 1,
        }
        out[f"most calls, alpha {alpha:g}"] = _claim(max(r["reward_calls"] for r in each), CALLS[-1])
    for alpha in BOUND:
        each = [r for r in rows if r["method"] == "any order, 16 × 128" and r["alpha"] == alpha and r["seed"] < seeds]
        found = statistics.fmean(r["tv"] for r in each) / statistics.fmean(r["floor"] for r in each)
        out[f"soluble / vanilla over the floor, alpha {alpha:g}"] = _claim(found, NEAR)
    wrong = [r for r in rows if r["verdict"] == "trust" and r["tv"] > WRONG]
    out[f"runs with TV > {WRONG:g} called trust"] = _claim(len(wrong), 0)
    return out


def _mean_tv(rows: list[Answer], problem: str, method: str, alpha: float, calls: int) -> float:
    key = (problem, method, alpha, calls)
    return statistics.fmean(r["tv"] for r in rows if (r["problem"], r["method"], r["alpha"], r["calls"]) == key)


def _claim(found: float, limit: float) -> Answer:
    return {"found": found, "limit": limit, "holds": found <= limit}


def passed(result: Answer) -> bool:
    """Whether all claims hold."""
    return all(claim["holds"] for claim in result["claims"].values())


EXPERIMENT = Experiment(
    "gb1", "GB1: ProteinMPNN, a measured landscape, and both laws exactly", jobs, collect, draw, COLUMNS
)
