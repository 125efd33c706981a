"""Sampling the open residues of a protein backbone: designs as FASTA, with a sequence logo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..api import run
from ..core.errors import InvalidInput
from ..core.fasta import fasta_text
from ..core.storage import write_text
from ..core.types import Tokens
from ..proteins.bundle import NAME, Protein, load_protein
from ..result import Result
from ..runtime.checkpoints import check_states
from ..runtime.memory import RunSizes, check_run
from .outputs import SNAPSHOTS, command, noted, rows_of, summary_of, write_outputs
from .request import Backbone, SampleRequest
from .samplers import in_order
from .steerable import Steerable

PARTICLES = 64  # default, in all
FASTA = "designs.fasta"
WIDEST = 60  # sites in one row of a logo


def check_other(name: str | Path, asked: Backbone) -> None:
    """Raise if options of proteins were given for another model."""
    if asked.given and str(name) != NAME:
        raise InvalidInput(f"--{next(iter(asked.given))} is an option of {NAME}; leave it out for {name}")


def protein_defaults(request: SampleRequest) -> SampleRequest:
    """The request with its defaults; raises for options that proteins do not take."""
    if request.steps is not None:
        raise InvalidInput(f"{NAME} decodes its sites one by one; leave out --steps")
    if request.prompt is not None or request.length is not None:
        raise InvalidInput(f"{NAME} takes no prompt and no length; --structure and --open say what is designed")
    if request.condition is None and (request.alpha != 1.0 or request.beta is not None):
        raise InvalidInput(
            "--alpha and --beta are for a condition, and none is given; add --condition soluble (vanilla, for "
            "soluble weights)"
        )
    return request._replace(particles=PARTICLES if request.particles is None else request.particles)


def sample_protein(asked: Backbone, request: SampleRequest, folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Designs of the open residues, weighted; writes the particles, designs.fasta, result.json and figure.png.

    `options` are passed to `run`.
    """
    given: dict[str, Any] = {**asked.given}
    protein = load_protein(**given, device=request.device)
    condition = None if request.condition is None else str(request.condition)
    particles, populations = request.particles or 0, request.populations or 0
    check_run(RunSizes(particles, populations, protein.length), protein.length, SNAPSHOTS, request.device)
    check_states(options.get("checkpoint"), protein.length, protein.model().process.states)
    result = run(
        in_order(protein.model(condition), request.alpha, request.beta, protein.order),
        particles=particles,
        populations=populations,
        seed=request.seed,
        snapshots=SNAPSHOTS,
        **options,
    )
    facts = {"bundle": NAME, "backbone": asked.given, "sites": list(protein.sites), "condition": request.condition}
    given |= {"condition": request.condition}
    given |= {"alpha": request.alpha, "beta": request.beta} if request.condition is not None else {}
    given |= {"particles": particles, "populations": populations, "seed": request.seed}
    result = noted(result, **facts, command=command(["sample", NAME], given))
    return _written(protein, result, folder)


def steered_protein(asked: Backbone, device: str, condition: str | None) -> Steerable:
    """The open residues as a model to steer, by a function of whole sequences or towards other weights."""
    given: dict[str, Any] = {**asked.given}
    protein = load_protein(**given, device=device)

    def spell(x: Tokens) -> list[str]:
        return [protein.sequence(state) for state in x]

    def written(sequences: list[str]) -> tuple[str, str]:
        return FASTA.partition(".")[2], fasta_text((f"design_{k}", one) for k, one in enumerate(sequences, start=1))

    return Steerable(
        protein.model(condition), None, protein.view, spell, protein.sequence, written, FASTA.partition(".")[0]
    )


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
    summary = summary_of(result, rows) | {"designs": designs, "fasta": FASTA, "files": [FASTA]}
    write_outputs(folder, summary, _drawn(protein, result))
    return summary


def _drawn(protein: Protein, result: Result) -> Any:
    """The logo of the weighted particles, in rows of sites labelled as in the structure file."""
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
