"""Humanising 25 mouse antibodies that became drugs: humanness of the heavy chains against identity to the parent.

Designs of p0(x)^sharpness p(human|x)^alpha exp(-pull * changes) beside the published outputs of five methods and the
marketed forms. AntiBERTy's p(human) steers; the metric is the share of 9-mers that people have (OASis), which steers
nothing here. Network and metric come from one database, the Observed Antibody Space.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..core.errors import InvalidInput
from ..metrics.oasis import human_peptides, identity, oasis_content, peptide_file
from ..smc.uncertainty import half_width
from .humanise_designs import (
    CELLS,
    FOLDER,
    METHODS,
    OURS,
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
from .humanise_front import LEVEL, beside_front, front_of, means
from .humanise_samplers import BASELINES, one_baseline

QUICK_CHAINS, ALL_CHAINS, FEWEST = 3, 25, 5  # of a quick run; of a whole one; distinct designs of each
DESIGNS = "designs"
COLUMNS = (
    "method", "readings", "pull", "sweeps", "chains", "oasis", "half_width", "identity", "paired", "paired_half_width",
    "paired_median", "distinct", "network_evaluations", "reward_calls", "incomplete",
)  # fmt: skip


def cells_of(settings: Settings) -> tuple[DesignSetting, ...]:
    """The cells of a run, the first with every baseline; of designs that were drawn elsewhere those in their file."""
    ready = dict(settings.more).get(DESIGNS)
    if ready is not None:
        return tuple(map(cell_named, dict.fromkeys(cell for _, cell in ready_designs(ready))))
    ours = QUICK_CELLS if settings.quick else CELLS
    return (*ours, *(ours[0]._replace(method=method) for method in BASELINES))


def jobs(settings: Settings) -> list[Job]:
    """A job for each chain and target: ours, then the baselines, which may spend what ours did."""
    folder, ready = _folder(settings), dict(settings.more).get(DESIGNS)
    names = list(heavy_chains(folder, PARENT))[: QUICK_CHAINS if settings.quick and ready is None else None]
    shared = (settings.quick, settings.seed, settings.device, str(folder), ready)
    targets: dict[DesignSetting, list[DesignSetting]] = {}
    for cell in cells_of(settings):
        targets.setdefault(cell._replace(method=OURS), []).append(cell)
    return [
        Job(f"{name}-{target.name}", one_job, (name, tuple(cells), *shared))
        for target, cells in targets.items()
        for name in names
    ]


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
    name: str, cells: tuple[DesignSetting, ...], quick: bool, seed: int, device: str, folder: str, ready: str | None
) -> Answer:
    """The designs of one chain for one target by each method, by cell: drawn now, or read from a file."""
    if ready is not None:
        return {cell.name: ready_designs(ready).get((name, cell.name), {}) for cell in cells}
    chain = next(one for one in parents(Path(folder)) if one.name == name)
    size, nets = QUICK_SIZE if quick else SIZE, network(device)
    ours, *others = cells
    found = {ours.name: one_chain(chain, ours, size, seed, nets)}
    spent = found[ours.name]["network_evaluations"]
    return found | {cell.name: one_baseline(chain, cell, size, seed, nets, spent) for cell in others}


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over chains with intervals; how far each cell lies above the published methods on the same chains."""
    folder, peptides = _folder(settings), human_peptides(peptide_file())
    parent = heavy_chains(folder, PARENT)
    drawn = {(one["chain"], cell): one for found in answers.values() for cell, one in found.items() if one}
    published = {name: _published(heavy_chains(folder, name), parent, peptides) for name in METHODS}
    published = {PARENT: _published(parent, parent, peptides)} | published
    rows = [_row(name, list(found.values())) for name, found in published.items()]
    for cell in cells_of(settings):
        answers_of = {name: drawn.get((name, cell.name), {}) for name in parent}
        refused = [one for one in answers_of.values() if one.get("reason")]
        told = {name: answer for name, answer in answers_of.items() if answer.get("designs")}
        if told:
            mine = {name: _judged(answer, parent[name], peptides) for name, answer in told.items()}
            row = _row(cell.method, list(mine.values())) | _facts(cell, list(told.values()), list(mine.values()))
            rows.append(row | beside_front(published, mine) | _refusals(refused))
        elif refused:
            rows.append({"method": cell.method, "chains": 0, **_cell_facts(cell), **_refusals(refused)})
    return {"experiment": "humanise", "rows": rows, "front": [point[:2] for point in front_of(means(published))]}


def _refusals(refused: list[Answer]) -> Answer:
    """Why a method could not run, where it could not."""
    return {"cannot_run": len(refused), "reason": refused[0]["reason"]} if refused else {}


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
    half = half_width([one["oasis"] for one in each], LEVEL)
    mean = {name: statistics.fmean(one[name] for one in each) for name in ("oasis", "identity")}
    return {"method": method, "chains": len(each), **mean, "half_width": half}


def _facts(cell: DesignSetting, answers: list[Answer], judged: list[Answer]) -> Answer:
    """The diagnostics of a cell's runs."""
    names = ("log_z", "ess", "p_human", "disagreement", "seconds", "log_pi", "network_evaluations", "reward_calls")
    mean: dict[str, float | None] = {name: _mean(answers, name) for name in names}
    if cell.sweeps and cell.method == OURS:  # moves drift, so log Z belongs to no law
        mean["log_z"] = None
    distinct = min(len(one["designs"]) for one in answers)
    return mean | {
        **_cell_facts(cell),
        "distinct": distinct,
        "incomplete": distinct < FEWEST or len(answers) < ALL_CHAINS,
        "size": answers[0].get("size"),
        "budget": [round(value) for value in _mean_budget(answers)],
        "verdicts": [one.get("verdict") for one in answers],
        "each": [{"chain": a["chain"], **j} for a, j in zip(answers, judged, strict=True)],
    }


def _cell_facts(cell: DesignSetting) -> Answer:
    return {**cell._asdict(), "unseen": "".join(map(str, cell.unseen)) or "none"}


def _mean(answers: list[Answer], name: str) -> float | None:
    """The mean over the chains that have this figure; None where one has not."""
    values = [one.get(name) for one in answers]
    return None if None in values else statistics.fmean(value for value in values if value is not None)


def _mean_budget(answers: list[Answer]) -> list[float]:
    """What a baseline was given, passes that draw and calls, on the mean; empty for ours."""
    given = [one["budget"] for one in answers if one.get("budget")]
    return [statistics.fmean(values) for values in zip(*given, strict=True)]


EXPERIMENT = Experiment(
    "humanise", "Humanising 25 antibodies: OASis content against identity", jobs, collect, draw, COLUMNS
)
