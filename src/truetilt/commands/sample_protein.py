"""Sampling the residues of a protein that the user opens: designs as FASTA, with a sequence logo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..api import run
from ..core.storage import write_text
from ..core.types import FeynmanKac, InvalidInput
from ..proteins.bundle import NAME, Protein, load_protein
from ..result import Result
from ..runtime.memory import check_run
from ..targets.any_order import AnyOrder
from ..targets.composed import Composed
from .outputs import SNAPSHOTS, command, noted, rows_of, summary_of, write_outputs
from .request import SampleRequest, TableNoise
from .sample import spread

PARTICLES = 64  # default, in all
FASTA = "designs.fasta"
WIDEST = 60  # sites of a logo in one row


class Backbone(NamedTuple):
    """What is designed: a structure, its open residues and what they may be; None stands for a default."""

    structure: str | None = None
    open: str | None = None
    weights: str | None = None
    chains: str | None = None
    fixed: str | None = None
    forbid: str | None = None
    tied: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """The options that were given."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def check_other(name: str | Path, asked: Backbone) -> None:
    """Refuse options of proteins for anything else."""
    if asked.given and str(name) != NAME:
        raise InvalidInput(f"--{next(iter(asked.given))} is an option of {NAME}; leave it out for {name}")


def sample_protein(
    asked: Backbone, noise: TableNoise, request: SampleRequest, folder: Path, tick: Callable[..., Any]
) -> dict[str, Any]:
    """Designs of the open residues, weighted; writes the particles, designs.fasta, result.json and figure.png."""
    if noise != TableNoise() or request.steps is not None:
        raise InvalidInput(f"{NAME} decodes its sites one by one; leave out --process, --sigma-eps and --steps")
    if request.condition is None and (request.alpha != 1.0 or request.beta is not None):
        raise InvalidInput("--alpha and --beta are for a condition, and none is given; add --condition soluble")
    options: dict[str, Any] = {**asked.given}
    protein = load_protein(**options, device=request.device)
    particles, populations = _sizes(request)
    check_run((particles, populations, protein.length), protein.length, SNAPSHOTS, request.device)
    fk = _target(protein, request)
    result = run(
        fk,
        particles=particles,
        populations=populations,
        seed=request.seed,
        snapshots=SNAPSHOTS,
        callback_on_step_end=tick,
    )
    options |= {"condition": request.condition}
    options |= {"alpha": request.alpha, "beta": request.beta} if request.condition is not None else {}
    options |= {"particles": particles, "populations": populations, "seed": request.seed}
    told = command(["sample", NAME], options)
    result = noted(result, bundle=NAME, condition=request.condition, sites=list(protein.sites), command=told)
    return _written(protein, result, folder)


def _sizes(request: SampleRequest) -> tuple[int, int]:
    """Particles of each population, and populations."""
    particles = PARTICLES if request.particles is None else request.particles
    return spread(particles) if request.populations is None else (particles, request.populations)


def _target(protein: Protein, request: SampleRequest) -> FeynmanKac:
    """p0 itself, or leaning to other weights."""
    if request.condition is None:
        return Composed(protein.model(), order=protein.order)
    return AnyOrder(protein.model(str(request.condition)), request.alpha, request.beta, protein.order)


def _written(protein: Protein, result: Result, folder: Path) -> dict[str, Any]:
    drawn = result.draw(result.log_weights.numel(), result.settings["seed"])
    log_p, back = protein.log_prob(drawn), protein.recovery(drawn)
    notes = [f"log_p={p:.3f} native={r:.3f}" for p, r in zip(log_p.tolist(), back.tolist(), strict=True)]
    weights = result.weights.reshape(-1)
    mean = float((weights.cpu() * protein.recovery(result.particles.flatten(0, 1))).sum())
    rows = {"open sites": protein.length, "native residues that come back": mean} | rows_of(result)
    result.save(folder, protein.view)
    write_text(folder / FASTA, protein.fasta(drawn, notes))
    designs = [{"sequence": protein.sequence(state), "note": n} for state, n in zip(drawn, notes, strict=True)]
    summary = summary_of(result, rows) | {"designs": designs, "fasta": FASTA}
    write_outputs(folder, summary, _drawn(protein, result))
    return summary


def _drawn(protein: Protein, result: Result) -> Any:
    """The logo of the weighted particles, in rows of sites under the names that the file gives them."""
    from matplotlib.figure import Figure

    x, weights = result.particles.flatten(0, 1).cpu().numpy(), result.weights.reshape(-1).cpu().numpy()
    starts = range(0, protein.length, WIDEST)
    wide = min(protein.length, WIDEST)
    figure = Figure(figsize=(max(3.5, 0.28 * wide + 0.8), 2.3 * len(starts)), layout="constrained")
    for ax, start in zip(figure.subplots(len(starts), 1, squeeze=False)[:, 0], starts, strict=True):
        part = slice(start, start + WIDEST)
        protein.view.draw(ax, x[:, part], weights)
        names = protein.sites[part]
        ax.set_xticks(range(1, len(names) + 1), names, rotation=90, fontsize=6)
        ax.set(xlabel="", xlim=(0.4, wide + 0.6))
    return figure
