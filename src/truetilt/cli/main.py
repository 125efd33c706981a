"""The command line. Heavy imports are deferred until a command runs: `--help` answers without torch.

Results go to stdout (`--json`) or are shown as a table; progress and messages go to stderr. Exit codes: 0 done, 1
failed, 2 wrong usage.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from . import compare as cli_compare
from . import humanise as cli_humanise
from . import reproduce as cli_reproduce
from . import sample as cli_sample
from . import steer as cli_steer
from . import text as cli_text
from .terminal import (
    Device,
    Json,
    OneLineErrors,
    Out,
    Seed,
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
cli_sample.register(app)
cli_compare.register(app)
cli_steer.register(app)
cli_humanise.register(app)


class TaskName(StrEnum):
    unconditional = "unconditional"
    conditional = "conditional"
    deft = "deft"
    potential = "potential"
    classifier = "classifier"


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit()
    if {"RANK", "WORLD_SIZE"} & os.environ.keys():
        with OneLineErrors():
            _check_ranks(context.invoked_subcommand or "")


def _check_ranks(name: str) -> None:
    """Refuse a command of several ranks that does not share out its work; and what no launcher would say of ranks."""
    from ..core.errors import InvalidInput
    from ..distributed.world import told_ranks

    rank, ranks = told_ranks()
    if ranks == 1 or name in _ON_RANKS:
        return
    if rank > 0:
        raise typer.Exit(2)  # the first says why
    raise InvalidInput(f"{name} runs in one process, and {ranks} ranks were started; start it without torchrun")


_ON_RANKS = ("sample", "resume", "reproduce")


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
        from ..commands.job_runner import Settings, run_experiment
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
def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A folder that sample, steer, demo or Result.save wrote, or chain-1, ... of humanise."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="The file to write; DIR/report.html if not given.")] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
) -> None:
    """Write a run as one HTML file: what was asked, what came out, how far to trust it. Prints where it lies."""
    with OneLineErrors():
        from ..core.storage import check_writable
        from ..result import Result
        from ..viz.view_choice import saved_view

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
