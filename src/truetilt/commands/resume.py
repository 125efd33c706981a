"""Sampling commands that can be stopped and resumed: the request is stored beside the checkpoints until the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..core.errors import InvalidInput, TruetiltError
from ..core.storage import read_bytes, read_json, remove_written, write_bytes, write_json
from ..core.types import StepInfo
from ..models.hub import EMBEDDED
from ..runtime.checkpoints import forget, found
from .job_runner import RANK, RANKS
from .request import Backbone, SampleRequest, TableNoise
from .sample import sample_any, with_defaults
from .sample_protein import NAME

_FORMAT, _VERSION = "truetilt-asked", 1
_FILE, _CHECKPOINTS = "asked.json", "checkpoints"


class SampleCommand(NamedTuple):
    """A sampling command: model, request, a table's noise, steps between checkpoints, a protein's backbone."""

    model: str
    request: SampleRequest
    noise: TableNoise
    every: int | None = None
    backbone: Backbone = Backbone()


def sample_or_resume(asked: SampleCommand, folder: Path, advance: Callable[[int], Any]) -> dict[str, Any]:
    """Sample as requested, from the last checkpoint if any; remove the checkpoints once the result is written."""
    reached, begun = 0, False

    def tick(done: int, total: int, info: StepInfo) -> None:
        nonlocal reached, begun
        advance(done - reached)
        reached, begun = done, True

    request = with_defaults(Path(asked.model), asked.request)
    options: dict[str, Any] = {"callback_on_step_end": tick}
    if RANKS > 1:
        from ..distributed import particle_shard

        options["shard"] = particle_shard(request.particles or 0)
    stoppable = asked.every is not None and RANK == 0
    if asked.every is not None:
        options |= {"checkpoint": folder / _CHECKPOINTS, "checkpoint_every": asked.every}
    fresh = not folder.exists()
    before = _begin(asked, folder) if stoppable else None
    try:
        with TemporaryDirectory() as elsewhere:  # every rank writes the result; only that of the first is kept
            out = folder if RANK == 0 else Path(elsewhere)
            summary = sample_any(Path(asked.model), request, asked.noise, asked.backbone, out, options)
    except TruetiltError:
        if stoppable and not begun:  # refused: leave the folder as it was
            _put_back(folder, before, fresh)
        raise
    if stoppable:
        (folder / _FILE).unlink()
        forget(folder / _CHECKPOINTS)
    return summary


def _begin(asked: SampleCommand, folder: Path) -> bytes | None:
    """Write the request, unless another stopped run's would be lost; return the previous file's content."""
    path, mine = folder / _FILE, _plain(asked)
    before = read_bytes(path) if path.is_file() else None
    if before is not None and found(folder / _CHECKPOINTS):
        theirs = _plain(read_command(folder))
        differing = sorted(name for name in ("found", "wish", "noise", "backbone") if mine[name] != theirs[name])
        if differing:
            raise InvalidInput(
                f"{folder} holds a run that was stopped and asked for something else; `truetilt resume {folder}` goes "
                "on with it, or give another --out"
            )
    write_json(path, mine)
    return before


def _put_back(folder: Path, before: bytes | None, fresh: bool) -> None:
    """Restore the folder of a refused run: the previous request, or nothing."""
    if before is None:
        (folder / _FILE).unlink(missing_ok=True)
        if fresh:
            remove_written(folder, ())
    else:
        write_bytes(folder / _FILE, before)


def _plain(asked: SampleCommand) -> dict[str, Any]:
    """The request as plain JSON data."""
    plain: dict[str, Any] = {
        "model": asked.model,
        "found": os.path.realpath(asked.model),
        "wish": asked.request._asdict(),
    }
    plain |= {"noise": list(asked.noise), "every": asked.every}
    plain |= {"backbone": asked.backbone.given, "files": asked.backbone.files}
    return {"format": _FORMAT, "version": _VERSION} | plain


def read_command(folder: Path) -> SampleCommand:
    """The request of the stopped command in a folder."""
    path = folder / _FILE
    try:
        told = read_json(path)
    except (FileNotFoundError, NotADirectoryError) as e:
        raise InvalidInput(
            f"{folder} holds no stopped run ({_FILE} is missing): it is finished, or was started without "
            "--checkpoint-every"
        ) from e
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path} cannot be read ({e}); start the run again in another folder") from e
    try:
        if (told["format"], told["version"]) != (_FORMAT, _VERSION):
            raise KeyError("format")
        model, (process, eps) = _known(told["model"], str), told["noise"]
        here = model in (*EMBEDDED, NAME) or os.path.realpath(model) == told["found"]
        model = model if here else _known(told["found"], str)  # resumed from another working directory
        request = SampleRequest(**told["wish"])
        for name, kinds in _KINDS.items():
            _known(getattr(request, name), *kinds)
        return SampleCommand(
            model, request, TableNoise(_known(process, str), _known(eps, float)), _known(told["every"], int),
            _backbone(_known(told.get("backbone", {}), dict), _known(told.get("files", {}), dict)),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, OSError) as e:
        raise InvalidInput(f"{path} was not written by this version of truetilt; start the run again") from e


def _backbone(given: dict[str, str], files: dict[str, str]) -> Backbone:
    """The backbone as requested; a file not found by its relative name is read from its stored path."""
    asked = Backbone(**{name: _known(value, str) for name, value in given.items()})
    moved = {name: _known(path, str) for name, path in files.items() if asked.files.get(name) != path}
    return asked._replace(**moved)


_KINDS: dict[str, tuple[type, ...]] = {  # types of a request's fields, with defaults filled in
    "condition": (str, int, type(None)),
    "alpha": (float, int),
    "beta": (float, int, type(None)),
    "particles": (int,),
    "populations": (int,),
    "steps": (int, type(None)),
    "seed": (int,),
    "device": (str,),
    "prompt": (str, type(None)),
    "length": (int, type(None)),
    "trust_remote_code": (bool,),
    "sharpness": (float, int, type(None)),
    "temperature": (float, int, type(None)),
}


def _known(value: Any, *kinds: type) -> Any:
    """The value, if it has one of these types; else raises."""
    if type(value) not in kinds:
        raise TypeError(f"{value!r} is of another kind")
    return value
