"""The commands of texts: `infill`, and `reproduce sentiment`, `toxicity` and `infill`. Torch waits until one runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .terminal import Device, Json, Out, Plainly, Quick, Seed, progress, show
from .terminal import device as found_device

Bundle = Annotated[
    str, typer.Option("--model", help="The nets: tiny-reviews, or a folder with sedd, deft, potential, judge.")
]
Reference = Annotated[
    str,
    typer.Option(help="Whose perplexity: smollm2, tuned (to --data), a folder with a causal model, or none."),
]
Judge = Annotated[
    str, typer.Option(help="Whose verdicts: own (the bundle's), minilm (fitted to --data), or a saved judge's folder.")
]
Perspective = Annotated[
    Path | None, typer.Option(help="CSV of comments with Perspective scores; calibrates minilm.", metavar="FILE")
]
Only = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Run the jobs whose names fit; their rows join those already in --out."),
]
Score = Annotated[
    Path | None, typer.Option("--score", metavar="DIR", help="Sample nothing: score the texts kept in DIR.")
]
Data = Annotated[Path | None, typer.Option(help="A prepared corpus, for a judge or a reference fitted to it.")]


class TaskOptions(NamedTuple):
    """What the commands of tasks have in common."""

    model: str
    reference: str
    judge: str
    data: Path | None
    perspective: Path | None
    only: str | None
    score: Path | None
    quick: bool
    seed: int
    device: str


def register(app: typer.Typer, reproduce: typer.Typer) -> None:
    """Add the commands of texts to those of the command line."""
    app.command("infill")(infill)
    for name, words in (
        ("sentiment", "Reviews of an asked sentiment from every sampler: judge, perplexity, diversity against beta."),
        ("toxicity", "Comments asked to be toxic and not to be, from every sampler; no text is shown."),
    ):
        reproduce.command(name, help=words)(_reproduces(name))
    reproduce.command(
        "infill", help="A range of held-out sentences is open, the rest given: GLEU against what stood there."
    )(_reproduce_infill)


def infill(
    text: Annotated[str, typer.Argument(help='A text with gaps: "The film was [MASK:8] and I left early."')],
    model: Bundle = "tiny-reviews",
    condition: Annotated[str | None, typer.Option(help="A class the whole should be of; else the text around.")] = None,
    alpha: Annotated[float, typer.Option(help="Exponent of the condition in the target.")] = 1.0,
    beta: Annotated[float | None, typer.Option(help="Guide the proposal, weigh by edge ratios.")] = None,
    particles: Annotated[int, typer.Option(help="Particles in each population.")] = 16,
    populations: Annotated[int, typer.Option(help="Independent populations.")] = 1,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for the result; runs/infill-text if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Fill the gaps of a text. Without a class, the text around the gaps is the condition that alpha tempers."""
    with Plainly("stopped; nothing was written"):
        from ..commands.sample_text import Gaps, infill

        folder = out or Path("runs/infill-text")
        asked = Gaps(text, condition, alpha, beta, particles, populations, seed, found_device(device))
        summary = infill(model, asked, folder)
        (folder / "report.html").unlink(missing_ok=True)  # of the run before
        show(summary, ("quantity", "value"), folder, as_json)


def _reproduces(name: str) -> Callable[..., None]:
    """The command of a task of classes."""

    def command(
        model: Bundle = "tiny-reviews",
        reference: Reference = "none",
        judge: Judge = "own",
        data: Data = None,
        perspective: Perspective = None,
        only: Only = None,
        score: Score = None,
        quick: Quick = False,
        seed: Seed = 0,
        device: Device = "cpu",
        out: Out = None,
        as_json: Json = False,
    ) -> None:
        asked = TaskOptions(model, reference, judge, data, perspective, only, score, quick, seed, device)
        _task(name, asked, out, as_json)

    return command


def _reproduce_infill(
    data: Annotated[
        Path | None, typer.Option(help="A prepared corpus, for its test sentences; else eight of ours.")
    ] = None,
    model: Bundle = "tiny-reviews",
    reference: Reference = "none",
    only: Only = None,
    score: Score = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Out = None,
    as_json: Json = False,
) -> None:
    _task("infill", TaskOptions(model, reference, "own", data, None, only, score, quick, seed, device), out, as_json)


def _task(name: str, asked: TaskOptions, out: Path | None, as_json: bool) -> None:
    """Sample, then ask who was named; with `score` the second part alone."""
    with Plainly():
        from ..paper import controlled, infill, sentiment, text_scoring, toxicity

        folder = asked.score or out or Path("runs") / name
        task = {task.name: task for task in (sentiment.TASK, toxicity.TASK)}.get(name)
        if task is None:
            experiment = infill.experiment(folder, asked.only)
        else:
            experiment = controlled.experiment(task, folder, asked.only)
        data, perspective = (None if path is None else str(path) for path in (asked.data, asked.perspective))
        how = text_scoring.Scoring(asked.reference, asked.judge, data, perspective)
        later = (asked.reference, asked.judge) != (text_scoring.NONE, text_scoring.OWN)
        result: dict[str, Any] = {}
        if asked.score is None:
            if later:
                text_scoring.check(how, task, folder)  # missing, it is missed before hours of sampling
            result = _sampled(experiment, asked, data if task is None else None, folder)
        if asked.score is not None or (result and later):
            result = text_scoring.score_folder(folder, task, how, experiment.draw, progress)
        show(result, experiment.columns, folder, as_json)


def _sampled(experiment: Any, asked: TaskOptions, data: str | None, folder: Path) -> dict[str, Any]:
    from ..commands.jobs import Settings, run_experiment

    more = (("model", asked.model), ("reference", asked.reference))
    settings = Settings(asked.quick, asked.seed, found_device(asked.device), data, more)
    with progress(len(experiment.jobs(settings)), experiment.title) as advance:
        return run_experiment(experiment, settings, folder, advance)
