"""Part of a grid at a time: `--only` chooses jobs by name, and their rows join those that the folder already holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..commands.job_runner import Answer, Job, Settings
from ..core.errors import InvalidInput
from ..core.fingerprints import fingerprint
from ..core.storage import read_json
from ..models.text_bundle import Reviews
from .text_rows import ScoredText, read_lines
from .text_samplers import bundle

MODEL, REFERENCE = "model", "reference"  # options of the command


class Part(NamedTuple):
    """The folder of a task, and a regular expression that selects jobs; None: all, and earlier rows are replaced."""

    folder: Path
    only: str | None = None


def option(settings: Settings, name: str, default: str) -> str:
    return dict(settings.more).get(name, default)


def nets_of(settings: Settings) -> Reviews:
    return bundle(option(settings, MODEL, "tiny-reviews"), settings.device)


def chosen(part: Part, jobs: list[Job], settings: Settings) -> list[Job]:
    """The selected jobs; raises before any job starts if their rows could not join those in the folder."""
    if part.only is None:
        return jobs
    try:
        fits = re.compile(part.only)
    except re.error as e:
        raise InvalidInput(f"--only {part.only!r} is no regular expression ({e}); try a part of a job's name") from e
    found = [job for job in jobs if fits.search(job.name)]
    if not found:
        raise InvalidInput(
            f"--only {part.only!r} fits none of the {len(jobs)} jobs; they have names like {jobs[0].name} and "
            f"{jobs[-1].name}"
        )
    _earlier(part, settings)
    return found


def joined(
    part: Part, settings: Settings, rows: Sequence[Answer], lines: Sequence[ScoredText]
) -> tuple[list[Answer], list[ScoredText]]:
    """These rows and texts, appended to those of earlier parts that were not computed again."""
    before = _earlier(part, settings)
    if before is None:
        return list(rows), list(lines)
    names = {row["name"] for row in rows}
    kept = [row for row in before["rows"] if row["name"] not in names]
    texts = [line for line in read_lines(part.folder) if line.row not in names]
    return [*kept, *rows], [*texts, *lines]


def identity(settings: Settings) -> Answer:
    """The settings that all rows of a result must share."""
    return {
        "nets": fingerprint(dict(nets_of(settings).nets))[:16],
        "quick": settings.quick,
        "seed": settings.seed,
        "data": settings.data is not None,
    }


def _earlier(part: Part, settings: Settings) -> Any:
    """The earlier result in the folder, by the same networks and seed; None if there is none to join."""
    path = part.folder / "result.json"
    if part.only is None or not path.is_file():
        return None
    try:
        found = read_json(path)
        there = found["identity"]
        there.get("seed")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise InvalidInput(f"{path} holds no part of this grid; give another --out") from e
    here = identity(settings)
    if there != here:
        other = [f"{name} {there.get(name)} there, {here[name]} here" for name in here if there.get(name) != here[name]]
        raise InvalidInput(
            f"{path} holds rows of another run ({'; '.join(other)}); they do not join: give another --out"
        )
    return found


def in_order(names: Sequence[str], rows: Sequence[Answer]) -> list[Answer]:
    """Rows in the order of the grid."""
    place = {name: number for number, name in enumerate(names)}
    return sorted(rows, key=lambda row: place.get(row["name"], len(place)))
