"""A sampling command that can be stopped: what was asked lies beside its checkpoints until the result is whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..models.hub import EMBEDDED
from ..storage import write_json
from ..types import InvalidInput, StepInfo
from .jobs import RANK, RANKS
from .own_digits import Wish, sample_any, settled

_FORMAT, _VERSION = "truetilt-asked", 1
_FILE, _CHECKPOINTS = "asked.json", "checkpoints"


class Asked(NamedTuple):
    """All that a sampling command says: what is sampled and how, a table's noise, the steps between checkpoints."""

    model: str
    wish: Wish
    noise: tuple[str, float]
    every: int | None = None


def carry_out(asked: Asked, folder: Path, advance: Callable[[int], Any]) -> dict[str, Any]:
    """Sample as asked, from the last checkpoint if there is one; forget the checkpoints once the result is written."""
    reached = 0

    def tick(done: int, total: int, info: StepInfo) -> None:
        nonlocal reached
        advance(done - reached)
        reached = done

    wish = settled(Path(asked.model), asked.wish)
    options: dict[str, Any] = {"callback_on_step_end": tick}
    if RANKS > 1:
        from ..distributed import particle_shard

        options["shard"] = particle_shard(wish.particles or 0)
    if asked.every is not None:
        options |= {"checkpoint": folder / _CHECKPOINTS, "checkpoint_every": asked.every}
        if RANK == 0:
            write_json(folder / _FILE, _plain(asked))
    with TemporaryDirectory() as elsewhere:  # every rank has the result, and the first one's is kept
        out = folder if RANK == 0 else Path(elsewhere)
        summary = sample_any(Path(asked.model), wish, asked.noise, out, options)
    if asked.every is not None and RANK == 0:
        (folder / _FILE).unlink()
        shutil.rmtree(folder / _CHECKPOINTS, ignore_errors=True)
    return summary


def _plain(asked: Asked) -> dict[str, Any]:
    plain = {"model": asked.model, "found": str(Path(asked.model).resolve()), "wish": asked.wish._asdict()}
    return {"format": _FORMAT, "version": _VERSION} | plain | {"noise": list(asked.noise), "every": asked.every}


def read_asked(folder: Path) -> Asked:
    """What the stopped command in a folder was asked."""
    path = folder / _FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as e:
        raise InvalidInput(
            f"{folder} holds no stopped run ({_FILE} is missing): it is finished, or was started without "
            "--checkpoint-every"
        ) from e
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path} cannot be read ({e}); start the run again in another folder") from e
    try:
        if (found["format"], found["version"]) != (_FORMAT, _VERSION):
            raise KeyError("format")
        model = found["model"]
        here = str(model) in EMBEDDED or Path(model).resolve() == Path(found["found"])
        model = model if here else found["found"]  # resumed from another folder
        return Asked(model, Wish(**found["wish"]), (found["noise"][0], found["noise"][1]), found["every"])
    except (KeyError, TypeError, IndexError) as e:
        raise InvalidInput(f"{path} was not written by this version of truetilt; start the run again") from e
