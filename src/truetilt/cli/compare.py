"""The command `compare`: every method that steers by a reward, at equal cost. Torch is imported when it runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..steering.progress import stages
from .terminal import Device, Json, OneLineErrors, Seed, show
from .terminal import device as found_device

_FIGURES = ("reward", "naturalness", "diversity", "log Z", "error")
_COSTS = {"evaluations": "evaluations", "calls": "distinct_calls"}


def register(app: typer.Typer) -> None:
    """Add the command to those of the command line."""
    app.command("compare")(compare)


def compare(
    model: Annotated[
        str, typer.Argument(help="A table (JSON), mnist, tiny-reviews, a folder, or file.py:function of a tt.Model.")
    ],
    reward: Annotated[
        str, typer.Option(help="file.py:name of a function of tokens [B, D], or of a tt.Reward (strings, workers).")
    ],
    strength: Annotated[float, typer.Option(help="Factor of the reward in the target p0(x) exp(strength r(x)).")] = 1.0,
    calls: Annotated[int, typer.Option(help="Distinct calls of the reward that a run may make.", min=1)] = 4000,
    evaluations: Annotated[
        int | None, typer.Option(help="Network evaluations that a run may make; any number if not given.", min=1)
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each method, for intervals.", min=1)] = 5,
    methods: Annotated[
        str | None, typer.Option(help="Which, by their names with commas between; all if not given.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps in which a draw is revealed; one a site, 128 beyond 256 sites.", min=1)
    ] = None,
    judged: Annotated[int, typer.Option(help="Draws of each run whose naturalness is judged.", min=1)] = 64,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for compare.json and compare.png; runs/compare.")] = None,
    as_json: Json = False,
) -> None:
    """Steer a model by a reward with every method at equal cost: reward against naturalness, diversity, log Z.

    The Python files that are named are run: name only files you trust.
    """
    folder = out or Path("runs/compare")
    with OneLineErrors():
        from ..commands.compare import FIGURE, FILE, NAMES, Comparison, beyond, cells, checked
        from ..commands.compare import compare as run_all

        some = None if methods is None else tuple(name.strip() for name in methods.split(",") if name.strip())
        asked = checked(
            Comparison(
                model, reward, strength, calls, evaluations, seeds, some, steps, judged, seed, found_device(device)
            )
        )
        for title, why in beyond(asked).items():
            words = "it may not be bought, unless states repeat, which cost nothing"
            typer.echo(f"note: {NAMES[title]}: {words} ({why})", err=True)
        with stages() as told:
            told.line(f"{len(cells(asked))} runs: {len(asked.methods or ())} methods, {asked.seeds} of each")
            result = run_all(asked, folder, _Lines(told, len(cells(asked))))
        exact = result["exact"]
        lines = [_line(line) for line in result["summary"]] + ([] if exact is None else [_exact(exact)])
        figures = _FIGURES[: None if exact else -1]
        columns = ("method", "target", *figures[:3], "distinct", *figures[3:], *_COSTS)
        bars = "± is half of a 95 % interval over seeds; " if seeds > 1 else "one seed: no intervals; "
        notes = {"notes": [*result["notes"], f"{bars}calls are distinct ones"]}
        show(result | ({} if as_json else notes), columns, folder, as_json, (FILE, FIGURE), lines)


def _line(line: dict[str, Any]) -> dict[str, str]:
    """A method's row of the table."""
    told = {"method": line["title"], "target": "yes" if line["has_target"] else "no"}
    for column in _FIGURES:
        name = column.lower().replace(" ", "_")
        told[column] = _with_half(line[name], line[f"{name}_half"])
    told["distinct"] = _with_half(line["distinct"], None)
    costs = {column: line[name] for column, name in _COSTS.items()}
    return told | {column: "-" if cost is None else f"{cost:,.0f}" for column, cost in costs.items()}


def _with_half(value: float | None, half: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if half is None else f"{value:.3g} ± {half:.2g}"


def _exact(exact: dict[str, float]) -> dict[str, str]:
    """The row of the exact target."""
    told = {name.replace("log_z", "log Z"): f"{value:.4g}" for name, value in exact.items()}
    return {"method": "exact target", "target": "itself"} | told


class _Lines:
    """Progress on stderr: a line for each finished cell, and the running cells below."""

    def __init__(self, told: stages, count: int) -> None:
        self._told, self._count, self._done = told, count, 0
        self._running: dict[str, float] = {}

    def begun(self, title: str) -> None:
        self._running[title] = time.monotonic()
        self._told.beneath(f"running: {'; '.join(self._running)}")

    def ended(self, title: str, why: str | None) -> None:
        self._done += 1
        begun = self._running.pop(title, None)
        took = "kept from before" if begun is None else f"{time.monotonic() - begun:.0f} s"
        self._told.line(f"{self._done:3} of {self._count}  {title}  {took if why is None else 'could not be run'}")
        if self._running:
            self._told.beneath(f"running: {'; '.join(self._running)}")
