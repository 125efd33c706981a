"""The loss curve on disk: one JSON line every so many steps, and TensorBoard logs if that is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.storage import parse_json, read_text, write_text

_NAME = "loss.jsonl"


class Journal:
    """Appends to loss.jsonl; lines after `step` are removed first, because a resumed run writes them again."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        kept = [line for line in read_losses(folder) if line["step"] <= step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_text(folder / _NAME, text)
        self._file = open(folder / _NAME, "a", encoding="utf-8")  # noqa: SIM115
        self._board = _tensorboard(folder / "tensorboard", step)

    def write(self, step: int, **values: float) -> None:
        """Write one line and flush."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_losses(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's loss.jsonl; an incomplete last line is left out."""
    path = folder / _NAME
    found = []
    try:
        for line in read_text(path).splitlines() if path.exists() else []:
            values = parse_json(line)
            if not isinstance(values, dict) or type(values.get("step")) is not int:
                break
            found.append(values)
    except InvalidInput:
        raise
    except ValueError:  # an incomplete line
        pass
    return found


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except (ImportError, AttributeError):  # not installed, or incompatible
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)
