"""The command line. Heavy imports wait until a command runs: `--help` answers without torch.

Results go to stdout (`--json`) or are shown as a table; progress and messages go to stderr. Exit codes: 0 done, 1
failed, 2 wrong usage.
"""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from . import __version__

app = typer.Typer(
    help="Sample from the distribution that guidance only promises.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
reproduce = typer.Typer(help="Reproduce a figure or table of the paper.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")

Quick = Annotated[bool, typer.Option("--quick", help="Fewer targets and samples: at most a few minutes.")]
Seed = Annotated[int, typer.Option(help="Seed of the run; the same seed gives the same bits.", min=0)]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda or cuda:N.")]
Out = Annotated[Path | None, typer.Option(help="Folder for result.json and figure.png; runs/NAME if not given.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, everything else on stderr.")]
Idx = Annotated[Path | None, typer.Option("--data", help="Folder with the IDX files of MNIST; coverage needs it.")]


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
def demo(seed: Seed = 0, device: Device = "cpu", out: Out = None, as_json: Json = False) -> None:
    """Figures 1 and 2 of the paper in under a minute: target, guidance and truetilt side by side."""
    _experiment("demo", True, seed, device, out, as_json)


def _reproduces(name: str, words: str) -> None:
    """The command of an experiment that needs nothing of the user's."""

    def command(
        quick: Quick = False, seed: Seed = 0, device: Device = "cpu", out: Out = None, as_json: Json = False
    ) -> None:
        _experiment(name, quick, seed, device, out, as_json)

    reproduce.command(name, help=words)(command)


def _reproduces_digits(name: str, words: str) -> None:
    """The command of an experiment that can compare with real digits."""

    def command(
        data: Idx = None,
        quick: Quick = False,
        seed: Seed = 0,
        device: Device = "cpu",
        out: Out = None,
        as_json: Json = False,
    ) -> None:
        _experiment(name, quick, seed, device, out, as_json, data)

    reproduce.command(name, help=words)(command)


_reproduces("figure1", "Six states of one site: guidance misses the tempered target.")
_reproduces("figure2", "Nine states of two sites, at alpha = 2 and 4.")
_reproduces("table1", "KL between random targets and every sampler, for one and two sites, masking and uniform.")
_reproduces_digits("figure3", "Class-conditional digits from every sampler: pictures, accuracy, diversity, log-ratios.")
_reproduces_digits(
    "figure4", "Accuracy and diversity of digits against the number of particles, both ways of resampling."
)
_reproduces("chain", "Markov chains of up to 256 sites: every sampler's error against network evaluations.")
_reproduces("sde", "Diffusions of real vectors: every sampler against exact Gaussian mixtures, D = 2, 8, 32.")


@reproduce.command()
def tfbind8(
    data: Annotated[
        Path, typer.Option(help="Folder with the scores of all DNA 8-mers: .npy, .csv, .tsv or .txt, also .gz or .xz.")
    ],
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """All 65,536 DNA 8-mers with measured binding (TF Bind 8): every sampler against the exact answer."""
    _experiment("tfbind8", quick, seed, device, out, as_json, data)


@app.command()
def sample(
    model: Annotated[
        Path,
        typer.Argument(help='A table, JSON {"p0": [...], "likelihood": [...]} nested per site; or mnist, or its like.'),
    ],
    condition: Annotated[int | None, typer.Option(help="The class to sample; for nets, not for tables.")] = None,
    alpha: Annotated[float, typer.Option(help="Exponent of the condition in the target.")] = 1.0,
    beta: Annotated[
        float | None,
        typer.Option(help="Guide the proposal, weigh by edge ratios. Without it the conditional is tilted."),
    ] = None,
    process: Annotated[ProcessName, typer.Option(help="The noising process.")] = ProcessName.masking,
    sigma_eps: Annotated[float, typer.Option(help="What is kept of the data at t = 1 (log-linear schedule).")] = 1e-3,
    particles: Annotated[
        int | None, typer.Option(help="Particles in each population; 1000 of a table, 64 digits.")
    ] = None,
    populations: Annotated[int, typer.Option(help="Independent populations.")] = 1,
    steps: Annotated[int | None, typer.Option(help="Time steps; 100 for a table, 50 for digits.")] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for the result; runs/sample if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Sample p0(x) p(zeta|x)^alpha: a class of digits (mnist), or a table of your own beside its exact answer."""
    with _Plainly("stopped; nothing was written"):
        from .experiments.own_digits import Wish, sample_any, settled

        folder, asked = out or Path("runs/sample"), (particles, populations, steps, seed)
        wish = settled(model, Wish(condition, alpha, beta, *asked, _device(device)))
        with _progress(wish.steps or 0, "steps") as advance:
            summary = sample_any(model, wish, (process.value, sigma_eps), folder, advance)
        _show(summary, ("quantity", "value"), folder, as_json)


@app.command()
def train(
    task: Annotated[TaskName, typer.Argument(help="What to train; the configuration must be for it.")],
    config: Annotated[Path, typer.Option(help="YAML or JSON; see configs/mnist.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the IDX files, plain or gzipped.")] = None,
    base: Annotated[Path | None, typer.Option(help="deft: folder of the frozen network.")] = None,
    steps: Annotated[int | None, typer.Option(help="Instead of the configuration's.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/train/NAME if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Train a network, export the running mean of its weights, and measure it on the test digits."""
    with _Plainly("stopped; --resume goes on from the last checkpoint"):
        from .storage import write_json, write_with
        from .training.command import counted, read_plan, run_training
        from .training.journal import read_losses
        from .viz.losses import draw_losses

        changes = {"data": data and str(data), "base": base and str(base), "steps": steps}
        plan, folder = read_plan(config, changes, task.value), out or Path("runs/train") / config.stem
        with _progress(plan.steps, task.value) as advance:
            card = run_training(plan, folder, _device(device), resume, counted(advance))
        figure = draw_losses(read_losses(folder), f"{task.value}, {card['steps']} steps")
        write_json(folder / "result.json", card)
        write_with(folder / "figure.png", lambda path: figure.savefig(path, dpi=150))
        _show(card, ("quantity", "value"), folder, as_json)


def _experiment(
    name: str, quick: bool, seed: int, device: str, out: Path | None, as_json: bool, data: Path | None = None
) -> None:
    with _Plainly():
        from .experiments import chain, figure3, figure4, figures, sde, table1, tfbind8
        from .experiments.jobs import Settings, carry_out

        toys = (figures.DEMO, figures.FIGURE1, figures.FIGURE2, table1.EXPERIMENT)
        every = (*toys, chain.EXPERIMENT, sde.EXPERIMENT, tfbind8.EXPERIMENT, figure3.EXPERIMENT, figure4.EXPERIMENT)
        experiment = next(e for e in every if e.name == name)
        folder = out or Path("runs") / name
        settings = Settings(quick, seed, _device(device), None if data is None else str(data))
        with _progress(len(experiment.jobs(settings)), experiment.title) as advance:
            result = carry_out(experiment, settings, folder, advance)
        _show(result, experiment.columns, folder, as_json)


def _device(name: str) -> str:
    import torch

    try:
        if torch.device(name).type not in ("cpu", "cuda"):
            raise RuntimeError("only cpu and cuda are supported")
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as e:
        raise typer.BadParameter(f"cannot compute on {name!r} ({str(e).splitlines()[0]}); use --device cpu") from e
    return name


def _show(result: dict[str, Any], columns: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """The result as JSON on stdout, or as a table there; where it lies on stderr."""
    from rich.console import Console
    from rich.table import Table

    if as_json:
        typer.echo(json.dumps(result, allow_nan=False))
    table = Table(*columns)
    for row in result["rows"]:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    Console(stderr=as_json, width=None if sys.stdout.isatty() else 120).print(table)
    for note in result.get("notes", ()):
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"written: {folder / 'result.json'} and {folder / 'figure.png'}", err=True)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _progress:
    """A bar with the time left, on stderr; silent when that is no terminal."""

    def __init__(self, total: int, title: str) -> None:
        from tqdm import tqdm

        self.bar = tqdm(total=total, desc=title, file=sys.stderr, disable=None, leave=False)

    def __enter__(self) -> Any:
        return self.bar.update

    def __exit__(self, *_: object) -> None:
        self.bar.close()


class _Plainly:
    """Errors as one line and an exit code, never a traceback."""

    def __init__(
        self, stopped: str = "stopped; the finished jobs are kept, and the same command goes on from there"
    ) -> None:
        self.stopped = stopped

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        from .types import InvalidInput, TruetiltError

        if isinstance(error, InvalidInput):
            _fail(str(error), 2)
        if isinstance(error, TruetiltError):
            _fail(str(error), 1)
        if isinstance(error, OSError):
            _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 1)
        if isinstance(error, KeyboardInterrupt):
            _fail(self.stopped, 130)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """Entry point of `truetilt`."""
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning")
    app()
