"""The checkpoint folder of a `steer` call: every finished stage is stored, so that an interrupted call resumes to the
same bits.

`steer.json` identifies the call. A subfolder per stage holds its output. A stage is finished once its `stage.json`
exists, which has its cost and the checksums of its files. For an unfinished stage the checkpoint of its run is read.
Answers of the reward are written as they come, and those of an unfinished stage are used and counted as if the function
had been called again (`rewards/resumed_answers`). One process at a time owns the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import FolderTaken, InvalidInput
from ..core.spent import Spent
from ..core.storage import check_folder, owned, read_json, sha256_of, write_json
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
        self.folder, self._header = folder, {"format": _FORMAT, "version": _VERSION, **identity}
        self._reward = reward if isinstance(reward, Reward) and reward.keeps else None
        self._ledger: Ledger | None = None
        self.going_on: str | None = None  # what an interrupted call left, in words

    @contextlib.contextmanager
    def opened(self) -> Generator[StageFolder]:
        """A context in which this process owns the folder, every answer of the reward is written as it comes, and
        SIGTERM raises `Stopped`."""
        if self.folder is None:
            yield self
            return
        check_folder(self.folder)
        with owned(self.folder):
            self._ledger = None if self._reward is None else Ledger(self._reward, self.folder)
            self._claim(self.folder)
            self.going_on = self._left(self.folder)
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
        folder, number = self.folder / name, int(name.partition("-")[0])
        if (folder / _STAGE).exists():
            try:
                spent, found = _spent(folder), read(folder)
            except Exception as error:  # readers of damaged files raise anything
                raise InvalidInput(
                    f"{folder} is damaged ({error}); delete {folder} to do that stage again: what the reward answered "
                    "is kept beside it"
                ) from error
            if self._ledger is not None:
                self._ledger.load(number)
            return found, spent
        folder.mkdir(exist_ok=True)
        found, spent = make(folder / "checkpoint")
        write(found, folder)
        if self._ledger is not None:
            self._ledger.finish(number)
        told = {"spent": spent._asdict(), "files": _checksums(folder)}
        write_json(folder / _STAGE, told | {"sha256": _mark(told)})
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        return found, spent

    def _claim(self, folder: Path) -> None:
        """Claim the folder for this call: resume its own, take over one without a finished stage, or refuse another
        call's."""
        found, there = _read_header(folder), (folder / _HEADER).exists()
        if found == self._header:
            return
        lost = there and found is None and self._ledger is not None and self._ledger.answers > 0
        if finished(folder) or lost:
            raise FolderTaken(_taken(folder, found, self._header))
        if self._ledger is not None and (found or {}).get(WHOSE) != self._header.get(WHOSE):
            self._ledger.forget()
        for begun in _stages(folder) if there else ():
            shutil.rmtree(begun)
        if self._ledger is not None:
            self._ledger.begin()
        write_json(folder / _HEADER, self._header | {"sha256": _mark(self._header)})

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


def _spent(folder: Path) -> Spent:
    """What a finished stage cost, if its files are as they were written."""
    told = read_json(folder / _STAGE)
    if told.pop("sha256") != _mark(told):
        raise InvalidInput(f"{_STAGE} does not match its checksum")
    odd = sorted(set((found := _checksums(folder)).items()) ^ set(told["files"].items()))
    if odd:
        raise InvalidInput(f"{odd[0][0]} " + ("does not match its checksum" if odd[0][0] in found else "is missing"))
    return Spent(**told["spent"])


def _checksums(folder: Path) -> dict[str, str]:
    files = [path for path in folder.iterdir() if path.is_file() and path.name != _STAGE and path.name[0] != "."]
    return {path.name: sha256_of(path) for path in files}


def _mark(told: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _stages(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*-*") if _NAMED.fullmatch(path.name) and path.is_dir()]


def _read_header(folder: Path) -> dict[str, Any] | None:
    """The contents of steer.json; None if it is missing or damaged."""
    try:
        found = read_json(folder / _HEADER)
        return found if found.pop("sha256") == _mark(found) else None
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return None


def _taken(folder: Path, found: dict[str, Any] | None, header: dict[str, Any]) -> str:
    """The error message for a folder that belongs to another call."""
    count = finished(folder)
    stages = "a finished stage" if count == 1 else f"{count} finished stages" if count else "the answers"
    again = f"delete the folder {folder} to begin anew without them, or give another"
    if found is None:
        return f"{folder / _HEADER} cannot be read, and {folder} holds {stages} of a call of steer; {again}"
    names = sorted(name for name in {*header, *found} if header.get(name) != found.get(name))
    return f"{folder} holds {stages} of a call of steer with another {', '.join(names)}; {again}"
