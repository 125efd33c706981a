"""Whether the verdicts of `tt.steer` can be believed: families of problems with exact answers, many seeds each.

python proofs/steer_trust.py                                 every family, seeds 0-19, and what it replaces beside it
python proofs/steer_trust.py --families gc,runs-8 --seeds 0-1 --kinds steer --out runs/look.json
python proofs/steer_trust.py --workers 16                    on a larger machine

An interrupted run goes on: each finished job is a line under runs/steer_trust, in a file named by the code that made
it. The rules of `steer` were fixed on seeds 0-19; `steer_trust.json` is of seeds that none of them had seen. An answer
is *wrong* if log Z is off by more than 3 half-widths of its 95 % interval and by more than .05 nats, or if its
marginals are off by more than 3 times the floor: the error that as many independent draws of the target have as the
answer says it is worth.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import hashlib
import importlib
import json
import math
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
from steer_families import MAKERS, Family, count, dna, family, folding, forbidding
from torch import Tensor

import truetilt as tt
from truetilt.core.storage import write_json

HERE = Path(__file__).parent
WIDE, NEAR, FLOORS = 3.0, 0.05, 3.0  # half-widths, nats, and floors beyond which an answer is wrong
POPULATIONS = 16
DRAWN, MET, NEVER = "drawn", "met otherwise", "never met"
HEAVY = 0.01  # of the pooled Z-hat: draws that carry this much must be believed
NONE = 1e-9  # variance of a share that is 0 or 1
PER_CALL = 20  # draws per call at most, as in tt.steer
FAMILIES = tuple(MAKERS)
BLIND = ("rounding", "rounding-motif")
QUICK = ("rounding", "forgotten-3", "runs-8", "each-twice", "gc")
SECONDS = 900  # of a job, at most


# one run


def one(name: str, seed: int) -> dict[str, Any]:
    """One run of `tt.steer` on a family: its verdict, how far off it is, and how the missed set was met."""
    return steered(family(name), seed)


def random_forbidding(name: str, seed: int) -> dict[str, Any]:
    """One run of `tt.steer` on the random problem of this number, which forbids nearly everything."""
    problem = forbidding(seed)
    return steered(problem, seed) | {"p0": problem.missed_p0, "budget": problem.calls}


def steered(problem: Family, seed: int) -> dict[str, Any]:
    """One run of `tt.steer` on a problem, as plain data; an exception is part of the record."""
    start, cpu = time.perf_counter(), time.process_time()
    torch.manual_seed(seed)
    model, reward, strength = problem.make()
    asked: list[Tensor] = []
    object.__setattr__(reward, "function", _listening(reward.function, asked))
    found: dict[str, Any] = {"exception": None}
    try:
        with watched_pool() as pool:
            result = tt.steer(model, reward, strength, calls=problem.calls, populations=POPULATIONS, seed=seed)
        found |= judged(problem, result) | {"pooled_share": pooled_share(problem, pool)}
    except Exception as error:
        found["exception"] = f"{type(error).__name__}: {error}"[:400]
        found["where"] = traceback.format_exc()[-1500:]
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    states = torch.unique(torch.cat(asked), dim=0) if asked else torch.zeros(0, problem.length, dtype=torch.int64)
    met = int(problem.missed(states).sum())
    found |= {"met": met, "calls": reward.distinct, "states": len(states)}
    found |= {"seconds": round(seconds, 3), "cpu": round(cpu, 3)}
    if found["exception"] is None:
        found["how_met"] = how_met(found, met)
        found["covered"] = covered(problem, found) if found["how_met"] == NEVER else None
        found["ess_per_call"] = found["claimed"] / max(reward.distinct, 1)
    return found


def _listening(function: Callable[[Tensor], Tensor], asked: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """The function, which keeps the states that it is asked about."""

    def listened(x: Tensor) -> Tensor:
        asked.append(x.clone())
        return function(x)

    return listened


def judged(problem: Family, result: tt.Result) -> dict[str, Any]:
    """What a result says of itself, and what is true."""
    trust, told = result.trust(), result.settings.get("steer", {})
    said = {
        "verdict": trust.verdict.name, "log_z": result.log_z, "lines": trust.lines, "route": told.get("route"),
        "stages": [stage["what"] for stage in told.get("stages", ())],
        "evaluations": told.get("spent", {}).get("evaluations"), "evidence": evidence_of(result),
    }  # fmt: skip
    if result.log_z == -math.inf:  # nothing was met: right to say so, wrong to believe it
        nothing = {"half": None, "error": -math.inf, "squared": problem.variance, "claimed": 0.0, "answer_share": 0.0}
        return said | nothing | {"wrong": True, "right": False}
    return said | how_far_off(problem, result, trust)


def how_far_off(problem: Family, result: tt.Result, trust: tt.Trust) -> dict[str, Any]:
    """The errors of log Z and of the marginals, and whether they make the answer wrong."""
    figures, bar = trust.figures, result.log_z_interval()
    error = result.log_z - problem.log_z
    half = (bar.estimate - bar.low) if error > 0 else (bar.high - bar.estimate)
    claimed = min(figures.draws or math.inf, figures.union_ess)
    marginals = marginals_of(result, problem.vocabulary)
    squared = float((marginals - problem.marginals).square().sum())
    off = float(0.5 * (marginals - problem.marginals).abs().sum(-1).mean())
    floor = expected_distance(problem.marginals, claimed)
    away = abs(error) > max(WIDE * float(half), NEAR)
    return {
        "half": float(half), "error": error, "marginals": off, "floor": floor, "squared": squared, "claimed": claimed,
        "kish": figures.union_ess, "wrong": bool(away or off > FLOORS * floor), "wrong_log_z": bool(away),
        "right": bool(abs(error) <= NEAR), "answer_share": share_of(problem, result),
    }  # fmt: skip


def share_of(problem: Family, result: tt.Result) -> float:
    """The share of the missed set by a result."""
    return float(result.weights.reshape(-1)[problem.missed(result.particles.flatten(0, 1))].sum())


def marginals_of(result: tt.Result, size: int) -> Tensor:
    """The law of each site [D, V] by a result."""
    return result.expectation(lambda x: torch.nn.functional.one_hot(x, size).double())


def expected_distance(marginals: Tensor, draws: float) -> float:
    """The mean over sites of the expected total variation of this many independent draws: exact (De Moivre)."""
    n, p = max(float(math.floor(draws)), 1.0), marginals.double().clamp(1e-300, 1 - 1e-16)
    k = (n * p).floor() + 1
    log_binomial = math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    log_mean = math.log(2 / n) + k.log() + log_binomial + k * p.log() + (n - k + 1) * torch.log1p(-p)
    return float(0.5 * log_mean.exp().sum(-1).mean())


# the hooks into the evidence that `steer` keeps


def evidence_of(result: tt.Result) -> dict[str, Any]:
    """HOOK: what the report says of all it paid for; empty where `steer` does not keep it.

    Read here: `unmet_share` and `unmet_reward` (a set of up to this share of p0, with at least this reward, cannot be
    excluded), and `log_z` of the pool of all draws whose density is known.
    """
    found = result.settings.get("steer", {}).get("evidence") or {}
    return {name: value for name, value in found.items() if isinstance(value, (int, float, str, bool, type(None)))}


@contextmanager
def watched_pool() -> Iterator[list[Any]]:
    """HOOK: the last pool of draws of known density that `steer` weighed, with its `x` [K, D] and `log_w` [K].

    It is `truetilt.steering.evidence.pooled(samples)` that makes it; where there is none, the list stays empty.
    """
    kept: list[Any] = []
    try:
        module: Any = importlib.import_module("truetilt.steering.evidence")
        make = module.pooled
    except (ImportError, AttributeError):
        yield kept
        return

    def watched(*given: Any, **options: Any) -> Any:
        kept[:] = [make(*given, **options)]
        return kept[0]

    module.pooled = watched
    try:
        yield kept
    finally:
        module.pooled = make


def pooled_share(problem: Family, pool: Sequence[Any]) -> float | None:
    """The share of the pooled Z-hat that draws (not mutants, not moves) of the missed set carry; None: no pool."""
    if not pool or not bool((pool[0].log_w > -math.inf).any()):
        return None
    return float(pool[0].log_w.double().softmax(0)[problem.missed(pool[0].x.cpu())].sum())


def how_met(found: dict[str, Any], met: int) -> str:
    """How a run met the missed set; where the pool is unknown, by the share that the answer itself gives it."""
    share = found["answer_share"] if found["pooled_share"] is None else found["pooled_share"]
    return DRAWN if share >= HEAVY else MET if met else NEVER


def covered(problem: Family, found: dict[str, Any]) -> bool | None:
    """Whether the report's pair (share, reward) covers a set that was never met; None where it has none."""
    share, reward = (found["evidence"].get(name) for name in ("unmet_share", "unmet_reward"))
    if share is None or reward is None:
        return None
    return bool(problem.missed_p0 <= share and problem.strength * (problem.missed_reward - reward) >= 0)


# what it replaces


def baseline(name: str, seed: int) -> dict[str, Any]:
    """Plain importance with the whole budget, and a twist learned by half of the calls with a run by the rest."""
    found: dict[str, Any] = {}
    for label, method in BESIDE.items():
        problem, start = family(name), time.perf_counter()
        torch.manual_seed(seed)
        model, reward, strength = problem.make()
        try:
            result, first = method(problem, model, reward, strength, seed)
            squared = float((marginals_of(result, problem.vocabulary) - problem.marginals).square().sum())
            row = {"error": result.log_z - problem.log_z, "squared": squared}
            row["kish"] = float(result.weights.square().sum().reciprocal())
            row["answer_share"] = share_of(problem, result)
            row |= {"verdict": first.trust().verdict.name, "wrong": judged(problem, first)["wrong"]}
        except Exception as error:
            row = {"exception": f"{type(error).__name__}: {error}"[:200]}
        found[label] = row | {"calls": reward.distinct, "seconds": round(time.perf_counter() - start, 3)}
    return found


Spending = tuple[tt.Result, tt.Result]  # all that the budget bought, and the first run alone


def _importance(problem: Family, model: tt.Model, reward: tt.Reward, strength: float, seed: int) -> Spending:
    goal = tt.Composed(model, reward=reward, strength=strength, order=range(problem.length))
    return _spent(problem, reward, goal, seed, tt.never)


def _by_hand(problem: Family, model: tt.Model, reward: tt.Reward, strength: float, seed: int) -> Spending:
    order = range(problem.length)
    twist = tt.learn_twist(model, reward, strength, calls=problem.calls // 2, order=order, seed=seed)
    goal = tt.Composed(model, reward=reward, strength=strength, twist=twist, order=order)
    return _spent(problem, reward, goal, seed, None)


def _spent(problem: Family, reward: tt.Reward, goal: tt.Composed, seed: int, resample: Any) -> Spending:
    """Runs until the distinct calls are spent; where states repeat, up to twenty draws a call."""
    runs: list[tt.Result] = []
    first, dead, most = 0, 0, problem.calls
    while (size := (problem.calls - reward.distinct) // POPULATIONS) and reward.calls < PER_CALL * problem.calls:
        if size < most and first and resample is None:
            break  # smaller populations are no part of the same run
        most = min(size, most)
        options = {"particles": most, "populations": POPULATIONS, "seed": seed, "first_population": first}
        first += POPULATIONS
        try:
            runs.append(tt.run(goal, resample=resample, **options))
        except tt.DegenerateWeights:
            dead += most * POPULATIONS  # they count as mass 0
    if not runs:
        raise tt.DegenerateWeights("nothing was met")
    return _joined(runs, dead), runs[0]


def _joined(runs: list[tt.Result], dead: int) -> tt.Result:
    """All particles of several runs as one population, dead ones among them: weights count as they are."""
    x, log_w = (torch.cat([getattr(run, name).flatten(0, 1) for run in runs]) for name in ("particles", "log_weights"))
    x, log_w = torch.cat([x, x[:1].expand(dead, -1)]), torch.cat([log_w, log_w.new_full((dead,), -torch.inf)])
    one = runs[0]
    return tt.Result(x[None], log_w[None], one.times, one.ess[:, :1], one.log_z_path[:, :1], one.ancestors[:, :1])


BESIDE: dict[str, Callable[..., Spending]] = {"importance": _importance, "by hand": _by_hand}


# functions that write into their input


def _gc(x: Tensor, t: float = 0.0) -> Tensor:
    return count(x, 1, 2).double()


def _writes(x: Tensor, t: float = 0.0) -> Tensor:
    """D of the issue: a reward that leaves its input as zeros."""
    value = _gc(x)
    x.fill_(0)
    return value


def _plain(model: tt.Model, f: Any) -> tt.Result:
    return tt.run(tt.Composed(model, reward=f), particles=16, populations=POPULATIONS)


def _potential(model: tt.Model, f: Any) -> tt.Result:
    law = model.base.law
    given = tt.ChainLaw(law.initial, law.transitions, torch.tensor([0.0, 1, 1, 0]).expand(model.length, 4))
    own = tt.Model(model.process, model.length, model.base, tt.ChainScore(model.process, given), lambda x, t: f(x) - 12)
    return tt.run(tt.Tilted(own, 2.0), tt.uniform_grid(12), particles=16, populations=POPULATIONS)


def _learned(model: tt.Model, f: Any) -> tt.Result:
    twist = tt.learn_twist(model, f, calls=200, draws=50, order=range(model.length))
    return tt.run(tt.Composed(model, reward=_gc, twist=twist, order=range(model.length)), particles=16, populations=16)


CALLERS: dict[str, Callable[[tt.Model, Any], tt.Result]] = {
    "steer": lambda model, f: tt.steer(model, f, calls=300),
    "steer, a Reward": lambda model, f: tt.steer(model, tt.Reward(f, cached=False), calls=300),
    "steer, a twist": lambda model, f: tt.steer(model, _gc, twist=f, calls=300),
    "composed": _plain,
    "composed, a Reward": lambda model, f: _plain(model, tt.Reward(f)),
    "composed, a twist": lambda model, f: tt.run(tt.Composed(model, reward=_gc, twist=f), particles=16, populations=16),
    "annealed": lambda model, f: tt.run(
        tt.Annealed(tt.Composed(model, reward=f), 4), particles=16, populations=POPULATIONS
    ),
    "steered": lambda model, f: tt.run(
        tt.Steered(model, f), tt.uniform_grid(12), particles=16, populations=POPULATIONS
    ),
    "potential": _potential,
    "learn_twist": _learned,
}


def written(name: str, seed: int) -> dict[str, Any]:
    """A function that writes into its input must be refused, or must not matter: the same bits as one that does not."""
    model = tt.Model(tt.Masking(4), 6, tt.ChainScore(tt.Masking(4), dna(6)))
    clean, found = CALLERS[name](model, _gc), {"exception": None, "refused": False}
    try:
        result = CALLERS[name](model, _writes)
    except tt.InvalidInput as error:
        return found | {"refused": True, "said": str(error)[:300], "passed": True}
    same = torch.equal(result.particles, clean.particles) and torch.equal(result.log_weights, clean.log_weights)
    found |= {"log_z": result.log_z, "clean": clean.log_z, "verdict": result.trust().verdict.name}
    return found | {"same": same, "passed": same}


KINDS: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "steer": one, "baseline": baseline, "forbids": random_forbidding, "writes": written
}  # fmt: skip
STEERED = ("steer", "forbids", "writes")  # kinds that call tt.steer
APART = {"cli", "commands", "studio", "paper", "viz", "training", "testing", "continuous", "distributed"}


# the jobs


Job = tuple[str, str, int]  # kind, family, seed


def listed(
    kinds: Sequence[str], names: Sequence[str], seeds: Sequence[int], beside: Sequence[int], forbids: int
) -> list[Job]:
    """All jobs: families by seeds (what `steer` replaces by those `beside`), the random problems that forbid, and the
    functions that write."""
    jobs: list[Job] = []
    for kind in kinds:
        if kind == "writes":
            jobs += [(kind, name, 0) for name in CALLERS]
        elif kind == "forbids":
            jobs += [(kind, "random", number) for number in range(forbids)]
        else:
            jobs += [(kind, name, seed) for seed in (beside if kind == "baseline" else seeds) for name in names]
    return jobs


def scratch_of(kind: str) -> Path:
    """Where finished jobs of a kind are kept, named by the code that makes them: none go on from those of another.

    What is done without `tt.steer` does not depend on it.
    """
    mark, source = hashlib.sha256(), Path(tt.__file__).parent
    alien = set() if kind in STEERED else {"steering"}
    for path in sorted([*source.rglob("*.py"), HERE / "steer_families.py", HERE / "steer_trust.py"]):
        if not {path.parent.name} & (alien | APART):
            mark.update(path.read_bytes())
    return Path("runs/steer_trust") / f"{kind}-{mark.hexdigest()[:12]}.jsonl"


def carried_out(jobs: Sequence[Job], scratch: Callable[[str], Path], workers: int) -> dict[Job, dict[str, Any]]:
    """Every job in a process of its own; those that the scratch file holds are read."""
    files = {kind: scratch(kind) for kind in {job[0] for job in jobs}}
    done = {job: found for file in files.values() for job, found in _read(file).items()}
    left = [job for job in jobs if job not in done]
    context, running = multiprocessing.get_context("fork"), {}
    total, start = len(left), time.perf_counter()
    while left or running:
        while left and len(running) < workers:
            job = left.pop(0)
            if job[1] in MAKERS:
                family(job[1])  # the exact answer, once for all processes
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(job, theirs), daemon=True)
            process.start()
            theirs.close()
            running[ours] = (job, process, time.perf_counter())
        for ours in wait(list(running), timeout=1.0):
            job, process, _ = running.pop(ours)
            done[job] = _answer(ours)
            process.join()
            _append(files[job[0]], job, done[job])
            _say(f"{len(done)} done, {len(left) + len(running)} of {total} left, {time.perf_counter() - start:.0f} s")
        for _, process, begun in list(running.values()):
            if time.perf_counter() - begun > SECONDS:
                process.kill()  # its end of the pipe closes, and the job counts as an exception
    return {job: done[job] for job in jobs}


def _work(job: Job, pipe: Any) -> None:
    torch.set_num_threads(1)
    kind, name, seed = job
    try:
        pipe.send(finite(KINDS[kind](name, seed)))
    except Exception as error:
        pipe.send({"exception": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-1500:]})


def finite(value: Any) -> Any:
    """Plain data for JSON: None for what is no finite number."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _answer(pipe: Any) -> dict[str, Any]:
    try:
        return pipe.recv()
    except EOFError:
        return {"exception": "the process ended without an answer"}


def _read(scratch: Path) -> dict[Job, dict[str, Any]]:
    if not scratch.exists():
        return {}
    found = {}
    for line in scratch.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut short by an interruption
        found[tuple(row["job"])] = row["found"]
    return found


def _append(scratch: Path, job: Job, found: dict[str, Any]) -> None:
    """One line more, after a line that an interruption may have cut short."""
    scratch.parent.mkdir(parents=True, exist_ok=True)
    with scratch.open("a+b") as file:
        whole = file.tell() == 0 or (file.seek(-1, os.SEEK_END), file.read(1))[1] == b"\n"
        file.write(("" if whole else "\n").encode() + json.dumps({"job": job, "found": found}).encode() + b"\n")


def _say(words: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{words}   ", end="", file=sys.stderr, flush=True)


# the tables


def described(name: str) -> dict[str, Any]:
    """A family as a line of the table."""
    f = family(name)
    return {
        "family": name, "hard": f.hard, "D": f.length, "V": f.vocabulary, "strength": f.strength, "calls": f.calls,
        "log_z": f.log_z, "missed": f.hides, "missed_share": f.missed_share, "missed_p0": f.missed_p0,
        "missed_reward": f.missed_reward, "forbids": f.forbids,
    }  # fmt: skip


def by_family(found: dict[Job, dict[str, Any]], names: Iterable[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Verdicts by right and wrong, errors and effective draws of each family."""
    rows = []
    for name in names:
        runs = [found[job] for seed in seeds if (job := ("steer", name, seed)) in found]
        good = [run for run in runs if run["exception"] is None]
        row: dict[str, Any] = described(name) | {"runs": len(runs), "exceptions": len(runs) - len(good)}
        row |= dict(Counter(f"{run['verdict']} {'wrong' if run['wrong'] else 'right'}" for run in good))
        row |= dict(Counter(run["how_met"] for run in good))
        for what in ("error", "claimed", "seconds", "cpu", "calls"):
            values = [abs(run[what]) if what == "error" else run[what] for run in good if run[what] is not None]
            row[f"mean_{what}" if what != "calls" else "mean_distinct"] = mean(values)
        row |= effective(found, name, seeds)
        rows.append(row)
    return rows


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def draws_of(problem: Family, runs: Sequence[dict[str, Any]]) -> tuple[float | None, float]:
    """How many independent draws of pi have the mean squared error of these runs, and the relative error of that.

    By the marginals or by the share of the missed set, whichever are fewer: who never meets a mode has steady
    marginals. A run that came to nothing counts as one draw.
    """
    share, found = problem.missed_share, []
    errors = [[run.get("squared", problem.variance) for run in runs]]
    errors.append([(run["answer_share"] - share) ** 2 if "squared" in run else share * (1 - share) for run in runs])
    for variance, squared in zip((problem.variance, share * (1 - share)), map(_doubles, errors), strict=True):
        if variance > NONE and len(squared) and float(squared.mean()) > 0:
            unsure = float(squared.std() / squared.mean()) / math.sqrt(len(squared)) if len(squared) > 1 else 0.0
            found.append((variance / float(squared.mean()), unsure))
    return min(found, default=(None, 0.0))


def _doubles(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def effective(found: dict[Job, dict[str, Any]], name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Effective draws of steer, and of what it replaces, by the same yardstick."""
    runs = [found[job] for seed in seeds if (job := ("steer", name, seed)) in found]
    beside = [run for job, run in found.items() if job[:2] == ("baseline", name)]
    rows = {"steer": runs} | {label: [one.get(label, {}) for one in beside] for label in BESIDE}
    draws: dict[str, Any] = {}
    unsure: dict[str, float] = {}
    for label, some in rows.items():
        draws[f"draws_{label}"], unsure[label] = draws_of(family(name), some)
        draws[f"kish_{label}"] = mean([one["kish"] for one in some if one.get("kish") is not None])
    best = max(BESIDE, key=lambda label: draws[f"draws_{label}"] or 0)
    known = draws["draws_steer"] is not None and draws[f"draws_{best}"] is not None
    draws["best"] = best if known else None
    draws["draws_ratio"] = draws["draws_steer"] / draws[f"draws_{best}"] if known else None
    draws["draws_ratio_log_stderr"] = math.hypot(unsure["steer"], unsure[best]) if known else None
    return draws


def summary(found: dict[Job, dict[str, Any]], names: Iterable[str], seeds: Sequence[int]) -> dict[str, Any]:
    """The acceptance criteria, on the runs with these seeds."""
    runs = [(family(name), found[job]) for name in names for seed in seeds if (job := ("steer", name, seed)) in found]
    good = [(f, run) for f, run in runs if run["exception"] is None]
    false = [(f, run) for f, run in good if run["verdict"] == "trust" and run["wrong"]]
    met = [(f, run) for f, run in good if run["how_met"] == MET]
    never = [(f, run) for f, run in good if run["how_met"] == NEVER]
    right = [run for _, run in good if run["right"]]
    easy = [run for f, run in runs if not f.hard]
    kinds = Counter(run["how_met"] for _, run in false)
    refused = [run for run in right if run["verdict"] == "doubt"]
    trusted = [run for run in easy if run.get("verdict") == "trust"]
    said = [run["covered"] for _, run in never if run["verdict"] == "trust" or run["covered"] is not None]
    return {
        "seeds": list(seeds), "runs": len(runs), "exceptions": len(runs) - len(good),
        "verdicts": dict(Counter(run["verdict"] for _, run in good)),
        "trusted_wrong": len(false), "trusted_wrong_drawn": kinds[DRAWN], "trusted_wrong_met": kinds[MET],
        "trusted_wrong_never": kinds[NEVER], "trusted_wrong_of": sorted({f.name for f, _ in false}),
        "runs_met": len(met), "wrong_met": sum(run["wrong"] for _, run in met),
        "share_met": kinds[MET] / max(sum(run["wrong"] for _, run in met), 1),
        "runs_never": len(never), "pairs_never": len(said), "covered": sum(one is True for one in said),
        "right": len(right), "right_refused": len(refused), "share_refused": len(refused) / max(len(right), 1),
        "easy": len(easy), "easy_trusted": len(trusted), "share_easy": len(trusted) / max(len(easy), 1),
        "pool_known": sum(run["pooled_share"] is not None for _, run in good),
    }  # fmt: skip


def extras(found: dict[Job, dict[str, Any]]) -> dict[str, Any]:
    """The random problems that forbid, the functions that write, and runs of `tt.Composed` by hand."""
    random = {job[2]: run for job, run in found.items() if job[0] == "forbids"}
    writers = {job[1]: run for job, run in found.items() if job[0] == "writes"}
    plain = [(job[1], run.get("importance", {})) for job, run in found.items() if job[0] == "baseline"]
    held = sum(run.get("met", 0) > 0 for run in random.values() if run["exception"] is not None)  # and lost it
    raised = {number: run["exception"] for number, run in random.items() if run["exception"] is not None}
    false = [number for number, run in random.items() if run.get("verdict") == "trust" and run["wrong"]]
    return {
        "forbids": len(random), "forbids_raised": len(raised), "forbids_lost": held,
        "forbids_exceptions": dict(list(raised.items())[:10]),
        "forbids_verdicts": dict(Counter(run["verdict"] for run in random.values() if run["exception"] is None)),
        "forbids_trusted_wrong": false, "forbids_seconds": mean([run["seconds"] for run in random.values()]),
        "writers": {name: _of_writer(run) for name, run in writers.items()},
        "plain": len(plain),
        "plain_trusted_wrong": dict(Counter(n for n, run in plain if run.get("verdict") == "trust" and run["wrong"])),
    }  # fmt: skip


def _of_writer(run: dict[str, Any]) -> str:
    if run["exception"] is not None:
        return f"raised {run['exception']}"
    if run["refused"]:
        return "refused"
    return "the same bits" if run["same"] else f"{run['verdict']}, log Z {run['log_z']:.3f} for {run['clean']:.3f}"


def passed(total: dict[str, Any], rows: Sequence[dict[str, Any]], more: dict[str, Any]) -> dict[str, bool]:
    """Each of the criteria of the issue, whether it is met; what was not run is left out."""
    ratios = [row["draws_ratio"] for row in rows if row["draws_ratio"] is not None]
    more["fewer_draws"] = [row["family"] for row in rows if _fewer(row)]
    checks = _of_runs(total) if total["runs"] else {}
    if more["forbids"]:
        checks["no exceptions where rewards forbid"] = more["forbids_raised"] == 0
        checks["no trust on a wrong answer where rewards forbid"] = not more["forbids_trusted_wrong"]
    if more["writers"]:
        fine = all(how in ("refused", "the same bits") for how in more["writers"].values())
        checks["functions that write are refused or do not matter"] = fine
    if ratios:
        checks["effective draws at least .75 of the better baseline"] = not more["fewer_draws"]
    if more["plain"]:
        checks["no trust by tt.run where the reward said nothing"] = not set(BLIND) & set(more["plain_trusted_wrong"])
    return checks


def _fewer(row: dict[str, Any]) -> bool:
    """Whether draws are fewer than .75 of the better baseline's by more than chance explains (95 %)."""
    ratio, error = row["draws_ratio"], row["draws_ratio_log_stderr"]
    return ratio is not None and ratio * math.exp(1.645 * error) < 0.75


def _of_runs(total: dict[str, Any]) -> dict[str, bool]:
    return {
        "no trust on a wrong answer whose missed set was drawn": total["trusted_wrong_drawn"] == 0,
        "trust on at most 5 % where it was met otherwise": total["share_met"] <= 0.05,
        "the pair covers what was never met": total["covered"] == total["pairs_never"],
        "at most 5 % of right answers refused": total["share_refused"] <= 0.05,
        "at least 90 % of easy ones trusted": total["share_easy"] >= 0.9,
        "no exceptions": total["exceptions"] == 0,
    }


SHOWN = (
    "verdict", "wrong", "error", "half", "marginals", "floor", "claimed", "squared", "met", "how_met", "pooled_share",
    "covered", "route", "calls", "seconds", "cpu",
)  # fmt: skip


def in_lines(found: dict[Job, dict[str, Any]]) -> dict[str, Any]:
    """Each run of a family as a line, and in full those that are trusted and wrong; all stay in runs/steer_trust."""
    runs = [(job, run) for job, run in found.items() if job[0] == "steer"]
    lines = [[job[1], job[2], *(run.get(name) for name in SHOWN)] for job, run in runs]
    false = [{"family": job[1], "seed": job[2]} | run for job, run in runs if run.get("wrong") and _trusted(run)]
    text = [",".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in line) for line in lines]
    return {"columns": ",".join(("family", "seed", *SHOWN)), "runs": text, "false": false}


def _trusted(run: dict[str, Any]) -> bool:
    return run.get("verdict") == "trust"


COLUMNS = ("trust right", "trust wrong", "care right", "care wrong", "doubt right", "doubt wrong")


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A table: verdicts by right and wrong, exceptions, mean error, effective draws and seconds."""
    head = f"{'family':16} {'':4} {'D':>3} {'V':>2} {'λ':>4} {'calls':>5} {'log Z':>8} {'p0(A)':>7} {'pi(A)':>6} "
    print(head + "  T+  T-  C+  C-  D+  D-   ! |error|  drawn/met/never   draws (ratio)  seconds")
    for row in rows:
        line = f"{row['family']:16} {'hard' if row['hard'] else 'easy'} {row['D']:3} {row['V']:2} {row['strength']:4g} "
        line += f"{row['calls']:5} {row['log_z']:8.3f} {row['missed_p0']:7.1e} {row['missed_share']:6.3f} "
        line += "".join(f"{row.get(name, 0) or '.':>4}" for name in COLUMNS) + f"{row['exceptions'] or '.':>4}"
        line += f" {_short(row['mean_error']):>7}  {'/'.join(str(row.get(how, 0)) for how in (DRAWN, MET, NEVER)):>10}"
        line += f"  {_short(row['draws_steer']):>12} ({_short(row['draws_ratio'])})  {_short(row['mean_seconds'])}"
        print(line)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def numbers(text: str) -> range:
    """The numbers of a range such as 0-9, or a single one."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES), help="names, with commas between")
    parser.add_argument("--seeds", default="0-19", help="such as 0-9")
    parser.add_argument("--beside", help="seeds of what steer replaces, by default the same")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--forbids", type=int, default=500, help="random problems with rewards of -inf")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "steer_trust.json")
    parser.add_argument("--quick", action="store_true", help="a few families, two seeds, and no file")
    given = parser.parse_args()
    names = list(QUICK) if given.quick else given.families.split(",")
    seeds = numbers("0-1" if given.quick else given.seeds)
    beside = seeds if given.beside is None else numbers(given.beside)
    if unknown := set(names) - set(FAMILIES):
        parser.error(f"no such family: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    torch.set_num_threads(1)
    start = time.perf_counter()
    if folding() is None:
        print("rna is left out: ViennaRNA is not installed (pip install ViennaRNA)")
    jobs = listed(given.kinds.split(","), names, seeds, beside, 10 if given.quick else given.forbids)
    found = carried_out(jobs, scratch_of, given.workers)
    rows, more = by_family(found, names, seeds), extras(found)
    show(rows)
    judging = [seed for seed in seeds if seed >= 10] or list(seeds)
    total = summary(found, names, judging)
    checks = passed(total, rows, more)
    print(json.dumps({"judged": total, **more, "checks": checks}, indent=1))
    if not given.quick:
        head = {"proof": "steer_trust", "command": "python " + " ".join(sys.argv), "torch": torch.__version__}
        fixed = summary(found, names, [seed for seed in seeds if seed < 10])
        body = {"rows": rows, "judged": total, "fixed": fixed, **more, "checks": checks, **in_lines(found)}
        seconds = round(time.perf_counter() - start, 1)
        write_json(given.out, head | body | {"passed": all(checks.values()), "seconds": seconds})
    sys.exit(
        f"failed: {', '.join(name for name, fine in checks.items() if not fine)}" if not all(checks.values()) else 0
    )


if __name__ == "__main__":
    main()
