"""The folder of a `steer`: every finished stage is kept there, so that an interrupted call goes on to the same bits.

`steer.json` says whose it is, and a folder for each stage holds what came out of it and what the reward had answered by
then. A stage counts as finished once its `stage.json` is there; of another one only the checkpoint of its run is read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..core.spent import Spent
from ..core.storage import check_folder, read_json, write_json
from ..core.types import InvalidInput
from ..rewards.reward import Reward

T = TypeVar("T")
_FORMAT, _VERSION = "truetilt-steer", 1


class StageFolder:
    """Where stages are kept; without a folder they are carried out and not kept."""

    def __init__(self, folder: Path | None, identity: dict[str, Any], reward: object) -> None:
        self.folder = folder
        self._reward = reward if isinstance(reward, Reward) and reward.keeps else None
        if folder is None:
            return
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        header = {"format": _FORMAT, "version": _VERSION, **identity}
        if (folder / "steer.json").exists():
            _check_same(folder, header)
        write_json(folder / "steer.json", header)

    def stage(
        self,
        name: str,
        make: Callable[[Path | None], tuple[T, Spent]],
        write: Callable[[T, Path], object],
        read: Callable[[Path], T],
    ) -> tuple[T, Spent]:
        """What a stage gives, with its cost: read if it is finished, else made and kept."""
        if self.folder is None:
            return make(None)
        folder = self.folder / name
        answers = folder / "reward.safetensors"
        if (folder / "stage.json").exists():
            if self._reward is not None and answers.exists():
                self._reward.load_cache(answers)
            return read(folder), Spent(**read_json(folder / "stage.json"))
        folder.mkdir(exist_ok=True)
        found, spent = make(folder / "checkpoint")
        write(found, folder)
        if self._reward is not None:
            self._reward.save(answers)
        write_json(folder / "stage.json", spent._asdict())
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        return found, spent


def _check_same(folder: Path, header: dict[str, Any]) -> None:
    """Refuse the folder of another call."""
    try:
        found = read_json(folder / "steer.json")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{folder / 'steer.json'} cannot be read ({error}); give another folder") from error
    names = sorted(name for name in {*header, *found} if header.get(name) != found.get(name))
    if names:
        raise InvalidInput(
            f"{folder} belongs to a call of steer with another {', '.join(names)}; give another folder, or delete it"
        )
