"""Humanising 25 mouse antibodies that became drugs: humanness of the heavy chains against identity to the parent.

Designs of p0(x)^sharpness p(human|x)^alpha exp(-pull * changes) beside the published outputs of five methods and the
marketed forms. AntiBERTy's p(human) steers; the metric is the share of 9-mers that people have (OASis), which steers
nothing here. Network and metric come from one database, the Observed Antibody Space.
"""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from pathlib import Path

from ..commands.jobs import Answer, Experiment, Job, Settings
from ..core.types import InvalidInput
from ..metrics.oasis import human_peptides, identity, oasis_content, peptide_file
from ..smc.uncertainty import student_quantile
from .humanise_designs import (
    CELLS,
    FOLDER,
    METHODS,
    PARENT,
    QUICK_CELLS,
    QUICK_SIZE,
    SIZE,
    DesignSetting,
    cell_named,
    heavy_chains,
    network,
    one_chain,
    parents,
    ready_designs,
)
from .humanise_figure import draw

QUICK_CHAINS, LEVEL = 3, 0.95
OURS, DESIGNS = "truetilt", "designs"
BATCH, GPU_BATCH = 16, 512
COLUMNS = ("method", "unseen", "pull", "sweeps", "chains", "oasis", "half_width", "identity", "above", "distinct")


def cells_of(settings: Settings) -> tuple[DesignSetting, ...]:
    """The cells of a run; for designs that were drawn elsewhere, the cells in their file."""
    ready = dict(settings.more).get(DESIGNS)
    if ready is not None:
        return tuple(map(cell_named, dict.fromkeys(cell for _, cell in ready_designs(ready))))
    return QUICK_CELLS if settings.quick else CELLS


def jobs(settings: Settings) -> list[Job]:
    """A job for each chain and cell."""
    folder, ready = _folder(settings), dict(settings.more).get(DESIGNS)
    names = list(heavy_chains(folder, PARENT))[: QUICK_CHAINS if settings.quick and ready is None else None]
    shared = (settings.quick, settings.seed, settings.device, str(folder), ready)
    return [Job(f"{name}-{cell.name}", one_job, (name, cell, *shared)) for cell in cells_of(settings) for name in names]


def _folder(settings: Settings) -> Path:
    if settings.data is None:
        raise InvalidInput("humanise reads the publication's sequences; name the folder that holds them with --data")
    given = Path(settings.data)
    folder = given / FOLDER if (given / FOLDER).is_dir() else given
    missing = [name for name in (PARENT, *METHODS) if not (folder / f"{name}.fa").is_file()]
    if missing:
        raise InvalidInput(f"{folder} has no {missing[0]}.fa; --data must hold the seven files of the publication")
    return folder


def one_job(
    name: str, cell: DesignSetting, quick: bool, seed: int, device: str, folder: str, ready: str | None
) -> Answer:
    """The designs of one chain in one cell: drawn now, or read from a file."""
    if ready is not None:
        return ready_designs(ready).get((name, cell.name), {})
    chain = next(one for one in parents(Path(folder)) if one.name == name)
    nets = network(device, BATCH if device == "cpu" else GPU_BATCH)
    return one_chain(chain, cell, QUICK_SIZE if quick else SIZE, seed, nets)


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over chains with intervals; how far each cell lies above the published methods on the same chains."""
    folder, peptides = _folder(settings), human_peptides(peptide_file())
    parent = heavy_chains(folder, PARENT)
    published = {name: _published(heavy_chains(folder, name), parent, peptides) for name in METHODS}
    published = {PARENT: _published(parent, parent, peptides)} | published
    rows = [_row(name, list(found.values())) for name, found in published.items()]
    front = _front(rows)
    for cell in cells_of(settings):
        mine = {name: answers.get(f"{name}-{cell.name}", {}) for name in parent}
        judged = [_judged(answer, parent[name], peptides) for name, answer in mine.items() if answer]
        if judged:
            told = [answer for answer in mine.values() if answer]
            same = {one["chain"] for one in told}
            beside = [[point for name, point in found.items() if name in same] for found in published.values()]
            theirs = _front([_row("", points) for points in beside if points])
            rows.append(_row(OURS, judged) | _facts(cell, told, theirs, judged))
    return {"experiment": "humanise", "rows": rows, "front": front}


def _published(found: dict[str, str], parent: dict[str, str], peptides: frozenset[str]) -> dict[str, Answer]:
    """The published chains of the parent's length; others cannot be compared residue by residue."""
    return {
        name: {"oasis": oasis_content(letters, peptides), "identity": identity(letters, parent[name])}
        for name, letters in found.items()
        if name in parent and len(letters) == len(parent[name])
    }


def _judged(answer: Answer, parent: str, peptides: frozenset[str]) -> Answer:
    """Weighted means over a chain's designs."""
    designs = answer["designs"]
    total = sum(one["weight"] for one in designs)
    mean = {
        "oasis": sum(one["weight"] * oasis_content(one["sequence"], peptides) for one in designs) / total,
        "identity": sum(one["weight"] * identity(one["sequence"], parent) for one in designs) / total,
    }
    best = max(designs, key=lambda one: oasis_content(one["sequence"], peptides))["sequence"]
    return mean | {"best": oasis_content(best, peptides), "best_identity": identity(best, parent)}


def _row(method: str, each: list[Answer]) -> Answer:
    """Means over chains, with the 95 % interval of OASis over them."""
    values = [one["oasis"] for one in each]
    half = None
    if len(values) > 1:
        half = student_quantile(LEVEL, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    means = {name: statistics.fmean(one[name] for one in each) for name in ("oasis", "identity")}
    return {"method": method, "chains": len(each), **means, "half_width": half}


def _front(rows: list[Answer]) -> list[tuple[float, float]]:
    """The Pareto front of identity and OASis among the published methods and the parent."""
    points = [(row["identity"], row["oasis"]) for row in rows]
    best = [p for p in points if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)]
    return sorted(best)


def above(front: list[tuple[float, float]], kept: float, oasis: float) -> float | None:
    """How far a point lies above the front (linearly interpolated) at its identity; None outside its range."""
    for (a, low), (b, high) in pairwise(front):
        if a <= kept <= b:
            share = (kept - a) / (b - a) if b > a else 0.0
            return oasis - (low + share * (high - low))
    return oasis - front[0][1] if kept < front[0][0] else None


def _facts(
    cell: DesignSetting, answers: list[Answer], front: list[tuple[float, float]], judged: list[Answer]
) -> Answer:
    """The diagnostics of a cell's runs, and the position of its mean relative to the front."""
    names = ("log_z", "ess", "p_human", "disagreement", "seconds")
    mean: dict[str, float | None] = {name: statistics.fmean(one[name] for one in answers) for name in names}
    if cell.sweeps:  # moves drift, so log Z belongs to no law
        mean["log_z"] = None
    kept, oasis = (statistics.fmean(one[name] for one in judged) for name in ("identity", "oasis"))
    return mean | {
        **cell._asdict(),
        "unseen": "".join(map(str, cell.unseen)) or "none",
        "above": above(front, kept, oasis),
        "distinct": min(len(one["designs"]) for one in answers),
        "size": answers[0].get("size"),
        "network_evaluations": round(statistics.fmean(one["network_evaluations"] for one in answers)),
        "verdicts": [one["verdict"] for one in answers],
        "each": [{"chain": a["chain"], **j} for a, j in zip(answers, judged, strict=True)],
    }


EXPERIMENT = Experiment(
    "humanise", "Humanising 25 antibodies: OASis content against identity", jobs, collect, draw, COLUMNS
)
