"""Files that are whole or absent: written beside their name, flushed, then renamed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_with(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file in the same folder, then put it in place of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    try:
        write(Path(name))
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Pretty JSON; NaN and infinity are refused, because readers would choke on them."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    write_with(path, lambda temporary: _write_text(temporary, text))


def write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder beside `target`, then put it in its place; what others left half done is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(".*.part"):
        shutil.rmtree(left, ignore_errors=True)
    beside = target.parent / f".{target.name}.part"
    beside.mkdir()
    write(beside)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(beside, target)
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)  # makes the renaming itself durable
    finally:
        os.close(handle)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
