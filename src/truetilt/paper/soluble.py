"""Whole chains redesigned: vanilla ProteinMPNN tempered towards the soluble weights, vanilla (soluble / vanilla)^alpha.

Metrics that do not steer: how hydrophobic the surface of the designs is, and how many residues of the native sequence
are recovered. A learned ratio breaks at a high exponent; the same ratio summed in another decoding order shows how much
of it is error, and the trust report says so.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..core.errors import InvalidInput
from ..proteins.bundle import Protein, load_protein
from ..proteins.surface import exposure, hydrophobic_share
from .soluble_figure import draw
from .soluble_samplers import BASELINES, CONDITION, GUIDANCE, TRUETILT, drawn, titled

ALPHAS = (0.0, 1.0, 2.0, 4.0)  # exponents
COMPARED = 2.0  # exponent of the baselines: at 1 our method draws from the other network, and at 4 the ratio is broken
SIZES, QUICK_SIZES = (16, 8), (4, 8)  # populations, particles of each
SEEDS = 2
COLUMNS = (
    "backbone",
    "method",
    "alpha",
    "surface",
    "native_surface",
    "recovery",
    "log_ratio",
    "log_ratio_retold",
    "network_evaluations",
    "reward_calls",
    "verdict",
)


def jobs(settings: Settings) -> list[Job]:
    """A job for each backbone, method, exponent and seed; the longest chains first."""
    seeds = 1 if settings.quick else SEEDS
    paths = sorted(_paths(settings), key=lambda path: -path.stat().st_size)
    ways = [(TRUETILT, alpha) for alpha in ALPHAS] + [(GUIDANCE, alpha) for alpha in ALPHAS if alpha > 1]
    ways += [(name, COMPARED) for name in BASELINES]
    sizes = QUICK_SIZES if settings.quick else SIZES
    return [
        Job(f"{path.stem}-{name}-{alpha:g}-{seed}", one, (str(path), name, alpha, sizes, seed, settings.device))
        for path in paths
        for name, alpha in ways
        for seed in range(seeds)
    ]


def _paths(settings: Settings) -> list[Path]:
    folder = Path(settings.data or ".")
    found = [path for ending in ("*.pdb", "*.cif") for path in folder.glob(ending)]
    if settings.data is None or not found:
        raise InvalidInput(f"{folder} has no structures, .pdb or .cif; --data must hold the backbones to redesign")
    return found


@lru_cache(maxsize=2)
def protein(path: str, device: str, batch: int) -> Protein:
    return load_protein(structure=path, device=device, batch=batch)


def one(path: str, name: str, alpha: float, sizes: tuple[int, int], seed: int, device: str) -> Answer:
    """Designs of one backbone by one method, and their metrics."""
    design = protein(path, device, 16 if device == "cpu" else sizes[0] * sizes[1])
    x, weights, spent, log_z, verdict, reasons = drawn(name, design, alpha, sizes, seed)
    soluble: Any = design.model(CONDITION).conditional
    log_p, given = design.log_prob(x).cpu(), soluble.law.log_prob(x).cpu()
    again = (soluble.in_another_order(x) - design.law.reversed.log_prob(x)).cpu()
    exposed, letters = exposure(design.structure), [design.sequence(state) for state in x.cpu()]
    surface = torch.tensor([hydrophobic_share(exposed, sequence) for sequence in letters], dtype=torch.float64)
    return {
        "sites": design.length,
        "surface": float((weights * surface).sum()),
        "surface_of_draws": surface.std().item(),
        "native_surface": hydrophobic_share(exposed, design.structure.letters),
        "recovery": float((weights * design.recovery(x)).sum()),
        "log_p0": float((weights * log_p).sum()),
        "log_ratio": float((weights * (given - log_p)).sum()),
        "log_ratio_retold": float((weights * again).sum()),
        "log_z": log_z,
        "distinct": len(set(letters)),
        "effective": float(1 / (weights**2).sum()),
        "network_evaluations": spent.evaluations,
        "reward_calls": spent.distinct,
        "verdict": verdict,
        "reasons": list(reasons),
        "best": letters[int(weights.argmax())],
    }


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """A row for every run, and the means over seeds."""
    rows = []
    for job in jobs(settings):
        path, method, alpha, _, seed, _ = job.arguments
        head = {"backbone": Path(path).stem, "method": titled(method), "alpha": alpha, "seed": seed}
        rows.append(head | answers[job.name])
    return {"experiment": "soluble", "rows": rows, "claims": claims(rows)}


def claims(rows: list[Answer]) -> Answer:
    """Findings for our method, means over backbones and seeds: surface, recovery, verdicts, ratio in another order."""
    ours = [row for row in rows if row["method"] == TRUETILT]
    out: Answer = {}
    for alpha in ALPHAS:
        each = [row for row in ours if row["alpha"] == alpha]
        taken_back = _mean(ours, alpha, "log_ratio") - _mean(ours, alpha, "log_ratio_retold")
        out[f"alpha {alpha:g}"] = {
            "surface": _mean(ours, alpha, "surface"),
            "recovery": _mean(ours, alpha, "recovery"),
            "called_trust": sum(row["verdict"] == "trust" for row in each),
            "runs": len(each),
            "nats_that_another_order_takes_back": taken_back,
        }
    return out


def _mean(rows: list[Answer], alpha: float, key: str) -> float:
    values = [row[key] for row in rows if row["alpha"] == alpha]
    return math.fsum(values) / len(values)


def passed(result: Answer) -> bool:
    """Whether the break shows: at the highest exponent natives are lost, and no run there is called trusted."""
    first, last = (result["claims"][f"alpha {alpha:g}"] for alpha in (ALPHAS[0], ALPHAS[-1]))
    return last["called_trust"] == 0 and last["recovery"] < first["recovery"]


EXPERIMENT = Experiment(
    "soluble",
    "Whole chains leaning to the soluble weights: surface, recovery, and where it breaks",
    jobs,
    collect,
    draw,
    COLUMNS,
)
