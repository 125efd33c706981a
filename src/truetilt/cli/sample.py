"""The commands `sample` and `resume`. Torch is imported when they run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .shown_texts import ShowToxic, show_texts
from .terminal import (
    BackboneFile,
    BackboneWeights,
    DesignedChains,
    Device,
    Every,
    Fix,
    FixedResidues,
    ForbiddenLetters,
    Json,
    Length,
    OneLineErrors,
    OpenResidues,
    Prompt,
    Seed,
    TiedResidues,
    Trusted,
    progress,
    show,
)
from .terminal import device as found_device


class ProcessName(StrEnum):
    masking = "masking"
    uniform = "uniform"


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("sample")(sample)
    app.command("resume")(resume)


def sample(
    model: Annotated[
        Path,
        typer.Argument(
            help='A table, JSON {"p0": [...], "likelihood": [...]}; mnist, tiny-reviews, or their like; a folder of '
            "transformers; proteinmpnn; molecules; or file.py:name of a tt.Model."
        ),
    ],
    condition: Annotated[
        str | None,
        typer.Option(help="The class to sample, of nets. proteinmpnn: weights to lean to, soluble or vanilla."),
    ] = None,
    prompt: Prompt = None,
    length: Length = None,
    alpha: Annotated[float, typer.Option(help="Exponent of the condition in the target.")] = 1.0,
    beta: Annotated[
        float | None,
        typer.Option(help="Guide the proposal, weigh by edge ratios. Without it the proposal is not guided."),
    ] = None,
    sharpness: Annotated[
        float | None, typer.Option(help="Texts: exponent of the base, p0(x)^sharpness; weighted. 1.25, say.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Texts, a baseline without weights: every site sharpened by itself. 0.8, say.")
    ] = None,
    structure: BackboneFile = None,
    open_: OpenResidues = None,
    weights: BackboneWeights = None,
    chains: DesignedChains = None,
    fixed: FixedResidues = None,
    forbid: ForbiddenLetters = None,
    tied: TiedResidues = None,
    reward: Annotated[
        str | None,
        typer.Option(
            help="molecules: qed, qed>0.9, logp=3, sa, similar=SMILES, contains=SMARTS, lacks=SMARTS, several with "
            "' and '; or file.py:name of a function of an RDKit molecule."
        ),
    ] = None,
    strength: Annotated[float | None, typer.Option(help="molecules: factor of the reward; 1.")] = None,
    fix: Fix = None,
    process: Annotated[ProcessName, typer.Option(help="The noising process.")] = ProcessName.masking,
    sigma_eps: Annotated[float, typer.Option(help="What is kept of the data at t = 1 (log-linear schedule).")] = 1e-3,
    particles: Annotated[
        int | None,
        typer.Option(
            help="Particles in each population; 1000 of a table. Without --populations nets spread them: 64 digits, "
            "64 proteins, 16 texts in all; molecules 16 in each of 4."
        ),
    ] = None,
    populations: Annotated[
        int | None,
        typer.Option(help="Independent populations, for error bars: 16; of nets as many as have 4 particles each."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Time steps; 100 for a table, 50 for digits, 64 for texts.")] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    trust_remote_code: Trusted = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; runs/sample if not given.")] = None,
    checkpoint_every: Every = None,
    show_toxic: ShowToxic = False,
    as_json: Json = False,
) -> None:
    """Sample p0(x) p(zeta|x)^alpha: digits (mnist), texts (tiny-reviews), proteins, molecules, or a table exactly."""
    folder = out or Path("runs/sample")
    with OneLineErrors("stopped; nothing was written", folder if checkpoint_every else None):
        from ..core.storage import check_folder

        check_folder(folder)
        from ..commands.named_nets import MOLECULES
        from ..commands.request import Backbone, SampleRequest, TableNoise
        from ..commands.resume import SampleCommand
        from ..commands.sample import with_defaults
        from ..commands.sample_protein import check_other
        from ..commands.sharper_text import check_sharper

        request = SampleRequest(
            condition, alpha, beta, particles, populations, steps, seed, found_device(device), prompt, length,
            trust_remote_code, sharpness, temperature,
        )  # fmt: skip
        noise = TableNoise(process.value, sigma_eps)
        backbone = Backbone(structure, open_, weights, chains, fixed, forbid, tied)
        chemical = {"reward": reward, "strength": strength, "fix": fix}
        if str(model) == MOLECULES or any(value is not None for value in chemical.values()):
            check_other(model, backbone)
            check_sharper(model, request, texts=False)
            _sample_molecules(str(model), chemical, noise, request, checkpoint_every, folder, as_json)
            return
        request = with_defaults(model, request)
        _sample(SampleCommand(str(model), request, noise, checkpoint_every, backbone), folder, as_json, show_toxic)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of a stopped `sample`.")],
    show_toxic: ShowToxic = False,
    as_json: Json = False,
) -> None:
    """Go on with a run that was stopped or killed, from its last checkpoint and to the same bits."""
    with OneLineErrors(folder=folder):
        from ..commands.resume import read_command

        asked = read_command(folder)
        found_device(asked.request.device)
        _sample(asked, folder, as_json, show_toxic)


def _sample_molecules(
    model: str, chemical: Any, noise: Any, request: Any, every: int | None, folder: Path, as_json: bool
) -> None:
    from ..commands.sample_molecules import MoleculeRequest, check_not_molecules, sample_molecules
    from ..core.errors import InvalidInput
    from ..core.storage import owned

    asked = MoleculeRequest(**chemical)
    check_not_molecules(model, asked)
    if every is not None or request.prompt is not None or request.length is not None:
        raise InvalidInput("--checkpoint-every, --prompt and --length are not for molecules; see --reward and --fix")
    with owned(folder), progress(0, "sites") as advance:
        summary = sample_molecules(asked, noise, request, folder, lambda *_: advance(1))
    (folder / "report.html").unlink(missing_ok=True)  # left by an earlier run
    for one in () if as_json else summary["molecules"][:16]:
        worth = "" if one["reward"] is None else f"  ({one['reward']:.4g})"
        typer.echo(f"{one['smiles']}{worth}")
    show(summary, ("quantity", "value"), folder, as_json)


def _sample(asked: Any, folder: Path, as_json: bool, show_toxic: bool) -> None:
    from ..commands.job_runner import owned_by_first
    from ..commands.resume import sample_or_resume

    steps = asked.request.steps
    with owned_by_first(folder), progress(steps or 0, "sites" if steps is None else "steps") as advance:
        summary = sample_or_resume(asked, folder, advance)
    (folder / "report.html").unlink(missing_ok=True)  # left by an earlier run
    show_texts(summary, folder, as_json, show_toxic)
