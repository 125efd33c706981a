"""The checkpoint folder of a `steer` call: every finished stage is stored, so that an interrupted call resumes to the
same bits.

`steer.json` identifies the call. A subfolder per stage holds its output and the reward's answers up to then. A stage is
finished once its `stage.json` exists. For an unfinished stage the checkpoint of its run is read, and logged answers of
the reward are used and counted as if the function had been called again (`rewards/resumed_answers`).
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import FolderTaken
from ..core.spent import Spent
from ..core.storage import check_folder, read_json, write_json
from ..rewards.resumed_answers import Ledger
from ..rewards.reward import Reward
from ..runtime.stopping import Stoppable

T = TypeVar("T")
GOING_ON = "going on"  # first words of the progress message of a resumed call
WHOSE = "model and reward"  # key of the fingerprint in the header
_FORMAT, _VERSION = "truetilt-steer", 1
_STAGE, _HEADER = "stage.json", "steer.json"
_NAMED = re.compile(r"\d+-(run|twist|agree|order|sample|chains|check)")  # names of the stages' subfolders


class StageFolder:
    """The folder of a call's stages; without a folder, stages are run and not stored."""

    def __init__(self, folder: Path | None, identity: dict[str, Any], reward: object) -> None:
        self.folder = folder
        self._reward = reward if isinstance(reward, Reward) and reward.keeps else None
        self._ledger: Ledger | None = None
        self.going_on: str | None = None  # what an interrupted call left, in words
        if folder is None:
            return
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._ledger = None if self._reward is None else Ledger(self._reward, folder)
        self._claim(folder, {"format": _FORMAT, "version": _VERSION, **identity})
        self.going_on = self._left(folder)

    @contextlib.contextmanager
    def opened(self) -> Generator[StageFolder]:
        """A context in which every answer of the reward is logged as it comes, and SIGTERM raises `Stopped`."""
        if self.folder is None:
            yield self
            return
        with Stoppable(self._stopped), self._ledger or contextlib.nullcontext():
            yield self

    def stage(
        self,
        name: str,
        make: Callable[[Path | None], tuple[T, Spent]],
        write: Callable[[T, Path], object],
        read: Callable[[Path], T],
    ) -> tuple[T, Spent]:
        """The output of a stage and its cost: read if the stage is finished, else made and stored."""
        if self.folder is None:
            return make(None)
        folder = self.folder / name
        answers = folder / "reward.safetensors"
        if (folder / _STAGE).exists():
            if self._reward is not None and answers.exists():
                self._reward.load_cache(answers)
            return read(folder), Spent(**read_json(folder / _STAGE))
        folder.mkdir(exist_ok=True)
        found, spent = make(folder / "checkpoint")
        write(found, folder)
        if self._reward is not None:
            self._reward.save(answers)
        write_json(folder / _STAGE, spent._asdict())
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        return found, spent

    def _claim(self, folder: Path, header: dict[str, Any]) -> None:
        """Claim the folder for this call: resume its own, take over one without a finished stage, or refuse another
        call's."""
        found = _read_header(folder)
        if found == header:
            return
        if finished(folder):
            raise FolderTaken(_taken(folder, found, header))
        if self._ledger is not None and (found or {}).get(WHOSE) != header.get(WHOSE):
            self._ledger.forget()
        for begun in _stages(folder) if (folder / _HEADER).exists() else ():
            shutil.rmtree(begun)
        if self._ledger is not None:
            self._ledger.begin()
        write_json(folder / _HEADER, header)

    def _left(self, folder: Path) -> str | None:
        """What an interrupted call left, in words; None if there is nothing."""
        stages, answers = finished(folder), 0 if self._ledger is None else self._ledger.answers
        where = f"{GOING_ON} after stage {stages} of {folder}" if stages else f"{GOING_ON} in stage 1 of {folder}"
        paid = f": {answers:,} calls of the reward were answered before" if answers else ""
        return where + paid if stages or answers else None

    def _stopped(self) -> str:
        stages = 0 if self.folder is None else finished(self.folder)
        where = f"after stage {stages}" if stages else "in stage 1"
        return f"stopped {where}; all answers are kept in {self.folder}, and the same call goes on from there"


def finished(folder: Path) -> int:
    """Number of finished stages in a folder."""
    return sum((stage / _STAGE).exists() for stage in _stages(folder))


def _stages(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*-*") if _NAMED.fullmatch(path.name) and path.is_dir()]


def _read_header(folder: Path) -> dict[str, Any] | None:
    """The contents of steer.json; None if it is missing or unreadable."""
    try:
        found = read_json(folder / _HEADER)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _taken(folder: Path, found: dict[str, Any] | None, header: dict[str, Any]) -> str:
    """The error message for a folder that belongs to another call."""
    count = finished(folder)
    stages = "a finished stage" if count == 1 else f"{count} finished stages"
    again = f"delete the folder {folder} to begin anew without them, or give another"
    if found is None:
        return f"{folder / _HEADER} cannot be read, and {folder} holds {stages} of a call of steer; {again}"
    names = sorted(name for name in {*header, *found} if header.get(name) != found.get(name))
    return f"{folder} holds {stages} of a call of steer with another {', '.join(names)}; {again}"
