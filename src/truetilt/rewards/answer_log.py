"""An append-only log of a reward's answers in a text file, written as they come: answers survive a killed process.

A line holds a checksum, the bytes of the state and its value. Incomplete lines are skipped when reading.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from ..core.storage import read_bytes


class AnswerLog:
    """A file to which answers are appended; each `write` passes the pending ones to the operating system."""

    def __init__(self, path: Path) -> None:
        whole = not path.exists() or path.stat().st_size == 0 or read_bytes(path).endswith(b"\n")
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._lines = [] if whole else [b"\n"]  # the last line was cut off by a kill

    def add(self, key: bytes, value: float) -> None:
        """Queue an answer to be written."""
        told = f"{key.hex()} {value!r}".encode()
        self._lines.append(b"%08x %b\n" % (zlib.crc32(told), told))

    def write(self) -> None:
        """Write the queued answers to the file."""
        if self._lines:
            self._file.write(b"".join(self._lines))
            self._lines.clear()

    def close(self) -> None:
        self.write()
        self._file.close()


def read_answers(path: Path) -> dict[bytes, float]:
    """The answers in a file, by the bytes of their states; an empty dictionary if there is no file."""
    if not path.exists():
        return {}
    found: dict[bytes, float] = {}
    for line in read_bytes(path).split(b"\n"):
        check, _, told = line.partition(b" ")
        if told and check == b"%08x" % zlib.crc32(told):
            key, _, value = told.partition(b" ")
            found.setdefault(bytes.fromhex(key.decode()), float(value))
    return found
