"""The command line. Heavy imports wait until a command runs: `--help` answers without torch.

Results go to stdout (`--json`) or are shown as a table; progress and messages go to stderr. Exit codes: 0 done, 1
failed, 2 wrong usage.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from . import compare as cli_compare
from . import humanise as cli_humanise
from . import reproduce as cli_reproduce
from . import steer as cli_steer
from . import text as cli_text
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
    Out,
    Prompt,
    Seed,
    TiedResidues,
    Trusted,
    warn_in_a_line,
)
from .terminal import device as _device
from .terminal import progress as _progress
from .terminal import show as _show

app = typer.Typer(
    help="Sample from the distribution that guidance only promises.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
reproduce = typer.Typer(help="Reproduce a figure or table of the paper.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
cli_text.register(app, reproduce)
cli_reproduce.register(reproduce)
cli_compare.register(app)
cli_steer.register(app)
cli_humanise.register(app)


class ProcessName(StrEnum):
    masking = "masking"
    uniform = "uniform"


class TaskName(StrEnum):
    unconditional = "unconditional"
    conditional = "conditional"
    deft = "deft"
    potential = "potential"
    classifier = "classifier"


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit()


@app.command()
def demo(
    digits: Annotated[int, typer.Option(help="Digits drawn by guidance and by truetilt, of each.", min=2)] = 16,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Figures 1 and 2 of the paper and digits, guidance beside truetilt, on one page; a minute or two on a CPU."""
    folder = out or Path("runs/demo")
    with OneLineErrors():
        from ..commands.demo import draw_digits, misses, write_page
        from ..commands.jobs import Settings, run_experiment
        from ..paper import figures

        settings = Settings(True, seed, _device(device))
        with _progress(len(figures.DEMO.jobs(settings)) + 2, "demo") as advance:
            result = run_experiment(figures.DEMO, settings, folder, advance)
            figures.keep_run(device, seed, folder)
            advance()
            drawn = draw_digits(digits, seed, device, folder / "digits")
            advance()
        page = write_page(folder, result, drawn).resolve()
        told = {"notes": [f"tv compares what was drawn with the exact target: {misses(result)}"], "page": str(page)}
        _show(result | told, figures.DEMO.columns, folder, as_json)


@app.command()
def sample(
    model: Annotated[
        Path,
        typer.Argument(
            help='A table, JSON {"p0": [...], "likelihood": [...]}; mnist, tiny-reviews, or their like; a folder of '
            "transformers; proteinmpnn; or molecules."
        ),
    ],
    condition: Annotated[
        str | None,
        typer.Option(help="The class to sample; for nets, not for tables. proteinmpnn: soluble, or nothing."),
    ] = None,
    prompt: Prompt = None,
    length: Length = None,
    alpha: Annotated[float, typer.Option(help="Exponent of the condition in the target.")] = 1.0,
    beta: Annotated[
        float | None,
        typer.Option(help="Guide the proposal, weigh by edge ratios. Without it the conditional is tilted."),
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

        request = SampleRequest(
            condition, alpha, beta, particles, populations, steps, seed, _device(device), prompt, length,
            trust_remote_code,
        )  # fmt: skip
        noise = TableNoise(process.value, sigma_eps)
        backbone = Backbone(structure, open_, weights, chains, fixed, forbid, tied)
        chemical = {"reward": reward, "strength": strength, "fix": fix}
        if str(model) == MOLECULES or any(value is not None for value in chemical.values()):
            check_other(model, backbone)
            _sample_molecules(str(model), chemical, noise, request, checkpoint_every, folder, as_json)
            return
        request = with_defaults(model, request)
        _sample(SampleCommand(str(model), request, noise, checkpoint_every, backbone), folder, as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of a stopped `sample`.")],
    as_json: Json = False,
) -> None:
    """Go on with a run that was stopped or killed, from its last checkpoint and to the same bits."""
    with OneLineErrors(folder=folder):
        from ..commands.resume import read_command

        asked = read_command(folder)
        _device(asked.request.device)
        _sample(asked, folder, as_json)


def _sample_molecules(
    model: str, chemical: Any, noise: Any, request: Any, every: int | None, folder: Path, as_json: bool
) -> None:
    from ..commands.sample_molecules import MoleculeRequest, check_not_molecules, sample_molecules
    from ..core.types import InvalidInput

    asked = MoleculeRequest(**chemical)
    check_not_molecules(model, asked)
    if every is not None or request.prompt is not None or request.length is not None:
        raise InvalidInput("--checkpoint-every, --prompt and --length are not for molecules; see --reward and --fix")
    with _progress(0, "sites") as advance:
        summary = sample_molecules(asked, noise, request, folder, lambda *_: advance(1))
    (folder / "report.html").unlink(missing_ok=True)  # that of an earlier run
    for one in () if as_json else summary["molecules"][:16]:
        worth = "" if one["reward"] is None else f"  ({one['reward']:.4g})"
        typer.echo(f"{one['smiles']}{worth}")
    _show(summary, ("quantity", "value"), folder, as_json)


def _sample(asked: Any, folder: Path, as_json: bool) -> None:
    from ..commands.resume import sample_or_resume

    steps = asked.request.steps
    with _progress(steps or 0, "sites" if steps is None else "steps") as advance:
        summary = sample_or_resume(asked, folder, advance)
    (folder / "report.html").unlink(missing_ok=True)  # that of an earlier run
    _show(summary, ("quantity", "value"), folder, as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that sample, demo or Result.save wrote.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; DIR/report.html if not given.")] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
) -> None:
    """Write a run as one HTML file: what was asked, what came out, how far to trust it. Prints where it lies."""
    with OneLineErrors():
        from ..core.storage import check_writable
        from ..result import Result
        from ..viz.kinds import saved_view

        path = out or folder / "report.html"
        check_writable(path)
        typer.echo(Result.load(folder).report(path, saved_view(folder), title))


@app.command()
def studio(
    host: Annotated[str, typer.Option(help="Where to listen; another than this machine lets others in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port.", min=1, max=65535)] = 7860,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    reward: Annotated[
        list[str] | None,
        typer.Option(help="A reward to steer by, file.py:name; again for more. The file is run at the start."),
    ] = None,
) -> None:
    """Choose, run and watch in a browser: `pip install 'truetilt\\[ui]'`. On this machine only, and offline."""
    with OneLineErrors("stopped"):
        from ..studio.server import serve

        serve(host, port, lambda words: typer.echo(words, err=True), not no_browser, reward or [])


@app.command()
def train(
    task: Annotated[TaskName, typer.Argument(help="What to train; the configuration must be for it.")],
    config: Annotated[Path, typer.Option(help="YAML or JSON; see configs/mnist.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the IDX files, or of prepared texts.")] = None,
    base: Annotated[Path | None, typer.Option(help="deft: the frozen network; text: the one to start from.")] = None,
    steps: Annotated[int | None, typer.Option(help="Instead of the configuration's.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/train/NAME if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Train a network, export the running mean of its weights, and measure it on the test digits."""
    with OneLineErrors("stopped; --resume goes on from the last checkpoint"):
        from ..commands.outputs import write_outputs
        from ..training.command import counted, read_plan, run_training
        from ..training.journal import read_losses
        from ..viz.plots import draw_losses

        changes = {"data": data and str(data), "base": base and str(base), "steps": steps}
        plan, folder = read_plan(config, changes, task.value), out or Path("runs/train") / config.stem
        with _progress(plan.steps, task.value) as advance:
            card = run_training(plan, folder, _device(device), resume, counted(advance))
        figure = draw_losses(read_losses(folder), f"{task.value}, {card['steps']} steps")
        write_outputs(folder, card, figure)
        _show(card, ("quantity", "value"), folder, as_json)


def main() -> None:
    """Entry point of `truetilt`."""
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning")
    warn_in_a_line()
    app()
