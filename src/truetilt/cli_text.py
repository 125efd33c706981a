"""The commands of texts: `infill`, and `reproduce sentiment`, `toxicity` and `infill`. Torch waits until one runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .terminal import Device, Json, Out, Plainly, Quick, Seed, progress, show
from .terminal import device as found_device

Bundle = Annotated[
    str, typer.Option("--model", help="The nets: tiny-reviews, or a folder with sedd, deft, potential, judge.")
]
Reference = Annotated[
    str, typer.Option(help="Whose perplexity: smollm2, a folder with a causal model of transformers, or none.")
]
Score = Annotated[
    Path | None, typer.Option("--score", metavar="DIR", help="Sample nothing: perplexity of the texts kept in DIR.")
]


def register(app: typer.Typer, reproduce: typer.Typer) -> None:
    """Add the commands of texts to those of the command line."""
    app.command("infill")(infill)
    for name, words in (
        ("sentiment", "Reviews of an asked sentiment from every sampler: judge, perplexity, diversity against beta."),
        ("toxicity", "Comments asked to be toxic and not to be, from every sampler; no text is shown."),
    ):
        reproduce.command(name, help=words)(_reproduces(name))
    reproduce.command(
        "infill", help="Half of held-out sentences given, the rest drawn: GLEU against what stood there."
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
        from .experiments.own_text import Gaps, infill

        folder = out or Path("runs/infill-text")
        asked = Gaps(text, condition, alpha, beta, particles, populations, seed, found_device(device))
        show(infill(model, asked, folder), ("quantity", "value"), folder, as_json)


def _reproduces(name: str) -> Callable[..., None]:
    """The command of a task of classes."""

    def command(
        model: Bundle = "tiny-reviews",
        reference: Reference = "none",
        score: Score = None,
        quick: Quick = False,
        seed: Seed = 0,
        device: Device = "cpu",
        out: Out = None,
        as_json: Json = False,
    ) -> None:
        _task(name, (model, reference, None), score, (quick, seed, device), out, as_json)

    return command


def _reproduce_infill(
    data: Annotated[
        Path | None, typer.Option(help="A prepared corpus, for its test sentences; else eight of ours.")
    ] = None,
    model: Bundle = "tiny-reviews",
    reference: Reference = "none",
    score: Score = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Out = None,
    as_json: Json = False,
) -> None:
    _task("infill", (model, reference, data), score, (quick, seed, device), out, as_json)


def _task(
    name: str,
    told: tuple[str, str, Path | None],
    score: Path | None,
    how: tuple[bool, int, str],
    out: Path | None,
    as_json: bool,
) -> None:
    """Sample, then ask the reference; with `score` the second part alone."""
    with Plainly():
        from .experiments import controlled, infill, sentiment, toxicity
        from .experiments.jobs import Settings, carry_out

        folder, (model, reference, data), (quick, seed, device) = score or out or Path("runs") / name, told, how
        tasks = {task.name: task for task in (sentiment.TASK, toxicity.TASK)}
        experiment = controlled.experiment(tasks[name], folder) if name in tasks else infill.experiment(folder)
        result: dict[str, Any] = {}
        if score is None:
            if reference != "none":
                controlled.reference(reference)  # missing, it is missed before hours of sampling
            more = (("model", model), ("reference", reference))
            settings = Settings(quick, seed, found_device(device), None if data is None else str(data), more)
            with progress(len(experiment.jobs(settings)), experiment.title) as advance:
                result = carry_out(experiment, settings, folder, advance)
        if score is not None or (result and reference != "none"):
            result = controlled.score_folder(folder, reference, experiment.draw)
        show(result, experiment.columns, folder, as_json)
