"""The commands of texts: `infill`, `reproduce sentiment`, `toxicity` and `infill`. Torch is imported when one runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .shown_texts import ShowToxic, show_texts
from .terminal import Device, ExperimentOptions, Json, OneLineErrors, Seed, Trusted, command_of, progress, show
from .terminal import device as found_device

Bundle = Annotated[
    str,
    typer.Option(
        "--model", help="The nets: tiny-reviews, a folder with sedd, deft, potential, judge, or of transformers."
    ),
]


@dataclass(frozen=True, kw_only=True)
class TaskOptions(ExperimentOptions):
    """The options that the experiments on texts have in common."""

    model: Bundle = "tiny-reviews"
    reference: Annotated[
        str, typer.Option(help="Whose perplexity: smollm2, tuned (to --data), a folder with a causal model, or none.")
    ] = "none"
    data: Annotated[
        Path | None, typer.Option(help="A prepared corpus, for a judge, a reference, or held-out sentences.")
    ] = None
    only: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Run the jobs whose names fit; their rows join those already in --out."),
    ] = None
    score: Annotated[
        Path | None, typer.Option("--score", metavar="DIR", help="Sample nothing: score the texts kept in DIR.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassTaskOptions(TaskOptions):
    """The options of a task whose texts a judge assigns to classes."""

    judge: Annotated[
        str,
        typer.Option(help="Whose verdicts: own (the bundle's), minilm (fitted to --data), or a saved judge's folder."),
    ] = "own"
    perspective: Annotated[
        Path | None, typer.Option(help="CSV of comments with Perspective scores; calibrates minilm.", metavar="FILE")
    ] = None


def register(app: typer.Typer, reproduce: typer.Typer) -> None:
    """Add the commands of texts to those of the command line."""
    app.command("infill")(infill)
    for name, options, words in (
        ("sentiment", ClassTaskOptions, "Reviews of a sentiment from every sampler: judge, perplexity, diversity."),
        ("toxicity", ClassTaskOptions, "Comments asked to be toxic and not to be, from every sampler; none is shown."),
        ("infill", TaskOptions, "A range of held-out sentences is open, the rest given: GLEU to what stood there."),
    ):
        reproduce.command(name, help=words)(command_of(options, partial(_task, name)))


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
    trust_remote_code: Trusted = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; runs/infill-text if not given.")] = None,
    show_toxic: ShowToxic = False,
    as_json: Json = False,
) -> None:
    """Fill the gaps of a text. Without a class, the text around the gaps is the condition that alpha tempers."""
    with OneLineErrors("stopped; nothing was written"):
        from ..commands.infill import infill
        from ..commands.sample_text import Gaps

        folder = out or Path("runs/infill-text")
        asked = Gaps(
            text, condition, alpha, beta, particles, populations, seed, found_device(device), trust_remote_code
        )
        summary = infill(model, asked, folder)
        (folder / "report.html").unlink(missing_ok=True)  # left by an earlier run
        show_texts(summary, folder, as_json, show_toxic)


def _task(name: str, asked: TaskOptions) -> None:
    """Sample, then score with the given reference and judge; with `score` only the second part."""
    with OneLineErrors():
        from ..paper import infill, text_conditions, text_scoring
        from ..paper.text_grid import TASKS

        folder, task = asked.score or asked.out or Path("runs") / name, TASKS.get(name)
        if task is None:
            experiment = infill.experiment(folder, asked.only)
        else:
            experiment = text_conditions.experiment(task, folder, asked.only)
        judge, perspective = getattr(asked, "judge", text_scoring.OWN), getattr(asked, "perspective", None)
        data, perspective = (None if path is None else str(path) for path in (asked.data, perspective))
        how = text_scoring.Scoring(asked.reference, judge, data, perspective)
        later = (how.reference, how.judge) != (text_scoring.NONE, text_scoring.OWN)
        result: dict[str, Any] = {}
        if asked.score is None:
            if later:
                text_scoring.check(how, task, folder)  # report missing files before hours of sampling
            result = _sampled(experiment, asked, data if task is None else None, folder)
        if asked.score is not None or (result and later):
            result = text_scoring.score_folder(folder, task, how, experiment.draw, progress)
        show(result, experiment.columns, folder, asked.as_json)


def _sampled(experiment: Any, asked: TaskOptions, data: str | None, folder: Path) -> dict[str, Any]:
    from ..commands.job_runner import Settings, run_experiment

    more = (("model", asked.model), ("reference", asked.reference))
    settings = Settings(asked.quick, asked.seed, found_device(asked.device), data, more)
    with progress(len(experiment.jobs(settings)), experiment.title) as advance:
        return run_experiment(experiment, settings, folder, advance)
