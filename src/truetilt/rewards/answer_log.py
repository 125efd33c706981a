"""Answers of a reward as lines of a text file, written as they come: what was answered outlives a kill.

A line is a checksum, the bytes of the state and its value. Lines that are not whole are passed over.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from ..core.storage import read_bytes


class AnswerLog:
    """A file to which answers are appended; each `write` hands them to the operating system."""

    def __init__(self, path: Path) -> None:
        whole = not path.exists() or path.stat().st_size == 0 or read_bytes(path).endswith(b"\n")
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._lines = [] if whole else [b"\n"]  # the last line was cut off by a kill

    def add(self, key: bytes, value: float) -> None:
        """Take note of an answer."""
        told = f"{key.hex()} {value!r}".encode()
        self._lines.append(b"%08x %b\n" % (zlib.crc32(told), told))

    def write(self) -> None:
        """Write what was noted."""
        if self._lines:
            self._file.write(b"".join(self._lines))
            self._lines.clear()

    def close(self) -> None:
        self.write()
        self._file.close()


def read_answers(path: Path) -> dict[bytes, float]:
    """The answers in a file, by the bytes of their states; none where there is no file."""
    if not path.exists():
        return {}
    found: dict[bytes, float] = {}
    for line in read_bytes(path).split(b"\n"):
        check, _, told = line.partition(b" ")
        if told and check == b"%08x" % zlib.crc32(told):
            key, _, value = told.partition(b" ")
            found.setdefault(bytes.fromhex(key.decode()), float(value))
    return found
