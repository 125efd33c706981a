"""The account of a reward in a checkpoint folder: a call that is interrupted and resumed pays for no answer twice.

A file in it holds what the reward knew when the call began (free of charge) and every answer since, with the stage by
whose end it was paid for. When the call is resumed, answers of finished stages are in the cache. Others are used
without calling the function, and each counts as a distinct call when it is first asked for, as in the interrupted call:
every decision that depends on the budget spent comes out the same.
"""

from __future__ import annotations

from pathlib import Path

from .answer_file import FREE, AnswerFile, Kept
from .reward import Reward

ANSWERS = "answers.sqlite"


class Ledger:
    """The account of a caching reward in a folder; a context manager within which every new answer is written."""

    def __init__(self, reward: Reward, folder: Path) -> None:
        self._cache, path = reward._cache, folder / ANSWERS
        self._file = AnswerFile(
            path, self._cache.width, remedy=f"delete {folder} to begin anew, or give another folder"
        )
        self._kept = self._file.read(self._cache.width, "")[1] if path.exists() else []

    @property
    def answers(self) -> int:
        """Number of answers that the interrupted call had."""
        return sum(row.stage != FREE for row in self._kept)

    def forget(self) -> None:
        """Delete the answers: they belong to another reward."""
        self._file.path.unlink(missing_ok=True)
        self._kept = []

    def begin(self) -> None:
        """Start a new call: the reward's present cache costs nothing, all that was answered since is to be paid."""
        known = [Kept(key, value, FREE) for key, value in self._cache.values.items()]
        paid = [row._replace(stage=None) for row in self._kept if row.stage != FREE]
        self._file.restart()
        self._file.add(known)
        self._file.write(now=True)
        self._kept = [*known, *(row for row in paid if row.key not in self._cache.values)]

    def __enter__(self) -> Ledger:
        """Restore the cache as it was when the call began; all later answers become paid, but not yet counted."""
        cache = self._cache
        with cache.lock:
            known, cache.values = cache.values, {}
            cache.set_aside(known)
            lengths = {len(row.key) // cache.width for row in self._kept}
            if len(lengths) == 1 and cache.length in (None, *lengths):
                cache.length = lengths.pop()
                cache.set_aside({row.key: row.value for row in self._kept})
                self.load(FREE)
            cache.log = self._file
        return self

    def load(self, stage: int) -> None:
        """Move the answers of a finished stage into the cache, without counting them."""
        cache = self._cache
        with cache.lock:
            for row in self._kept:
                if row.stage == stage and row.key in cache.paid:
                    cache.values[row.key] = cache.paid.pop(row.key)

    def finish(self, stage: int) -> None:
        """Note that all that the cache holds was paid for by the end of this stage."""
        with self._cache.lock:
            self._file.add(Kept(key, value, stage) for key, value in self._cache.values.items())
            self._file.write(now=True)

    def __exit__(self, *_: object) -> None:
        with self._cache.lock:
            self._cache.log = None
            self._cache.release()
            self._file.write(now=True)
