"""The command `humanise`: designs of antibody chains from a FASTA file. Torch is imported when it runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .terminal import Device, Json, OneLineErrors, Seed, progress, show
from .terminal import device as found_device

_COLUMNS = ("chain", "kind", "open", "designs", "changes", "identity", "p(species)", "verdict")


class SchemeName(StrEnum):
    kabat = "kabat"
    imgt = "imgt"


class DtypeName(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"


def register(app: typer.Typer) -> None:
    """Add the command to those of the command line."""
    app.command("humanise")(humanise)


def humanise(
    fasta: Annotated[Path, typer.Argument(help="FASTA file of antibody chains, heavy or light, as amino acids.")],
    species: Annotated[str, typer.Option(help="Whose antibodies the designs should be like.")] = "human",
    alpha: Annotated[
        float | None, typer.Option(help="Exponent of p(species|x); 8 times the pull if not given.")
    ] = None,
    pull: Annotated[float, typer.Option(help="What each change of the parent costs, in nats; more keeps more.")] = 8.0,
    sharpness: Annotated[float, typer.Option(help="Exponent of AntiBERTy's law p0; more is more typical.")] = 3.0,
    cdrs: Annotated[SchemeName, typer.Option(help="Numbering that tells CDRs; they are kept.")] = SchemeName.kabat,
    unseen: Annotated[
        str, typer.Option(help="CDRs that p0 does not see, lest it draw a mouse's framework; or none.")
    ] = "1,2",
    designs: Annotated[int, typer.Option(help="Distinct designs of each chain, at most.", min=1)] = 8,
    particles: Annotated[int, typer.Option(help="Particles in each population.", min=1)] = 32,
    populations: Annotated[
        int, typer.Option(help="Independent populations; each settles on one framework.", min=1)
    ] = 4,
    sweeps: Annotated[int, typer.Option(help="Sweeps of annealing: nearer to the parent, slower; 0: none.", min=0)] = 1,
    steps: Annotated[
        int, typer.Option(help="Passes that reveal a chain; with as many as residues, one at a time.", min=1)
    ] = 20,
    readings: Annotated[
        int, typer.Option(help="Masked readings that p(species) is the mean of, a pass each; 0: one, unmasked.", min=0)
    ] = 4,
    seed: Seed = 0,
    device: Device = "cpu",
    dtype: Annotated[
        DtypeName, typer.Option(help="Precision of the passes; bfloat16 is faster on GPUs and on recent CPUs.")
    ] = DtypeName.float32,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; runs/humanise if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Redesign the framework of antibodies, CDRs kept: p0(x)^sharpness p(human|x)^alpha e^(-pull changes) by AntiBERTy.

    Needs `pip install 'truetilt\\[antibody]'`. Writes designs.fa in --out, with weights and changes.
    """
    folder = out or Path("runs/humanise")
    with OneLineErrors(f"stopped; the designs of chains that were finished are in {folder}"):
        from ..commands.humanise import FILE, HumaniseRequest
        from ..commands.humanise import humanise as work
        from ..core.storage import owned

        asked = HumaniseRequest(
            str(fasta), species, alpha, pull, sharpness, cdrs.value, unseen, designs, particles, populations, sweeps,
            steps, readings, seed, found_device(device), dtype.value,
        )  # fmt: skip
        bar = progress(0, "steps")
        with owned(folder), bar:
            summary = work(asked, folder, bar.reach, tell=lambda words: typer.echo(words, err=True))
        show(summary, _COLUMNS, folder, as_json, (FILE, "figure.png"))
