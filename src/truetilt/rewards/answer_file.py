"""Answers of a reward in a file: one sqlite table of states and values, which several processes may share.

It has a rollback journal (sqlite's write-ahead log fails on network disks), and a writer waits for another. Every row
has a checksum. A file is opened for each reading and writing and never kept open, so forks and threads may use it.
"""

from __future__ import annotations

import errno
import sqlite3
import time
import zlib
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from ..core.errors import InvalidInput
from ..core.storage import check_folder, check_plain, check_writable

_FORMAT, _VERSION = "truetilt-reward", "2"
_ROWS = "CREATE TABLE answers (state BLOB PRIMARY KEY, value REAL, stage INTEGER, checked INTEGER)"
_ABOUT = "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT)"
_PUT = """INSERT INTO answers VALUES (?, ?, ?, ?) ON CONFLICT (state)
DO UPDATE SET stage = excluded.stage, checked = excluded.checked WHERE stage IS NULL AND value = excluded.value"""
_ORDER = "ORDER BY rowid"  # of arrival
_PATIENCE = 9  # after a write that took one second, the next waits at least this many seconds
_WAIT = 60.0  # seconds that a writer waits for another
FREE = -1  # the stage of answers that a call of `steer` knew when it began
_AGAIN = "move it away, or name another file"


class Kept(NamedTuple):
    """A state's bytes, its value, and the stage of a `steer` call by whose end it was paid for, if any."""

    key: bytes
    value: float
    stage: int | None = None


class AnswerFile:
    """The answers in a file. `width` is the bytes of a token; `mark` tells whose function they are of."""

    def __init__(self, path: Path, width: int, mark: str = "", remedy: str = _AGAIN) -> None:
        check_writable(path)
        check_folder(path.parent)
        self.path, self.remedy = path, remedy
        self._facts = {"format": _FORMAT, "version": _VERSION, "function": mark, "width": str(width)}
        self._pending: list[Kept] = []
        self._due = 0.0

    def add(self, rows: Iterable[Kept]) -> None:
        """Queue answers to be written; a state that the file has keeps its value, and its stage unless it has none."""
        self._pending.extend(rows)

    def write(self, now: bool = False) -> None:
        """Write the queued answers, if that is due (so often that it takes a tenth of the time) or asked for `now`."""
        if not self._pending or (not now and time.monotonic() < self._due):
            return
        begun, count = time.monotonic(), len(self._pending)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing() as file:
            _begin(file, self._facts)
            file.executemany(_PUT, [(*row, _check(row)) for row in self._pending[:count]])
        del self._pending[:count]
        self._due = time.monotonic() + _PATIENCE * (time.monotonic() - begun)

    def restart(self) -> None:
        """Take the stages from all answers and drop those that had been free; an empty file gets its tables."""
        with self._writing() as file:
            _begin(file, self._facts)
            paid = [
                Kept(*row)
                for row in file.execute(f"SELECT state, value FROM answers WHERE stage IS NOT {FREE} {_ORDER}")
            ]
            file.execute("DELETE FROM answers")
            file.executemany(_PUT, [(*row, _check(row)) for row in paid])

    def read(self, width: int | None = None, mark: str | None = None) -> tuple[int, list[Kept]]:
        """The bytes of a token and the answers in order of arrival; a damaged or foreign file is refused.

        So is one of another width or function, where they are given.
        """
        try:
            check_plain(self.path)
        except FileNotFoundError as error:
            raise InvalidInput(f"{self.path} is not there; give a file that reward.save or cache_file wrote") from error
        try:
            with closing(_opened(self.path)) as file:
                facts = _facts_of(file)
                rows = file.execute(f"SELECT * FROM answers {_ORDER}").fetchall() if facts else []
                whole = file.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            raise InvalidInput(f"{self.path} cannot be read ({error}); {self.remedy}") from error
        if (facts.get("format"), facts.get("version")) != (_FORMAT, _VERSION):
            raise InvalidInput(f"{self.path} holds no values of a reward of version {_VERSION}; {self.remedy}")
        if mark is not None and (facts.get("function"), facts.get("width")) != (mark, str(width)):
            raise InvalidInput(
                f"{self.path} was written for another function, tokenizer, vocabulary or Python. If its values are "
                "still this reward's, make the reward without cache_file, then reward.load_cache(file) and "
                f"reward.save(file); else {self.remedy}"
            )
        kept = [Kept(*row[:3]) for row in rows]
        if whole != "ok" or facts.get("width") not in ("1", "4") or not _sound(kept, [row[3] for row in rows]):
            raise InvalidInput(f"{self.path} does not match its checksums: it is damaged or cut short; {self.remedy}")
        return int(facts["width"]), kept

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        try:
            with closing(_opened(self.path)) as file:
                file.execute("BEGIN IMMEDIATE")
                yield file
                file.commit()
        except sqlite3.OperationalError as error:  # such as a full disk, or a writer that never ends
            raise OSError(errno.EIO, f"{error}; the answers of the reward were not written", str(self.path)) from error
        except sqlite3.Error as error:
            raise InvalidInput(f"{self.path} cannot be written ({error}); {self.remedy}") from error


def _opened(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
    file.execute("PRAGMA trusted_schema = OFF")
    return file


def _begin(file: sqlite3.Connection, facts: dict[str, str]) -> None:
    """Make the tables of a new file; refuse one that holds something else."""
    if file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        file.execute(_ROWS)
        file.execute(_ABOUT)
        file.executemany("INSERT INTO about VALUES (?, ?)", facts.items())
    elif _facts_of(file) != facts:
        raise sqlite3.DatabaseError("it was changed meanwhile, and is no longer of this reward")


def _facts_of(file: sqlite3.Connection) -> dict[str, str]:
    """What the file says about itself; nothing if its tables are not ours."""
    tables = file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
    return dict(file.execute("SELECT * FROM about")) if tables == [(_ROWS,), (_ABOUT,)] else {}


def _check(row: Kept) -> int:
    return zlib.crc32(row.key + f"{row.value!r} {row.stage}".encode())


def _sound(kept: list[Kept], checked: list[object]) -> bool:
    """Whether all rows match their checksums, and all states are of one length."""
    if any(type(row.key) is not bytes or type(row.value) is not float for row in kept):
        return False
    return len({len(row.key) for row in kept}) < 2 and [_check(row) for row in kept] == checked
