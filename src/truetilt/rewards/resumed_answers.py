"""The account of a reward in a checkpoint folder: a call that is interrupted and resumed pays for no answer twice.

The folder holds the reward's cache as it was when the call began (free of charge) and a log of every answer since. When
the call is resumed, logged answers are used without calling the function, and each counts as a distinct call when it is
first asked for, as in the interrupted call. So every decision that depends on the budget spent comes out the same.
"""

from __future__ import annotations

from pathlib import Path

from .answer_log import AnswerLog, read_answers
from .reward import Reward

_KNOWN, _ANSWERS = "known.safetensors", "answers.txt"


class Ledger:
    """The account of a caching reward in a folder; a context manager within which every new answer is logged."""

    def __init__(self, reward: Reward, folder: Path) -> None:
        self._reward, self._cache, self._folder = reward, reward._cache, folder
        self.answers = len(read_answers(folder / _ANSWERS))  # number of answers logged by the interrupted call

    def forget(self) -> None:
        """Delete the logged answers: they belong to another reward."""
        (self._folder / _ANSWERS).unlink(missing_ok=True)
        self.answers = 0

    def begin(self) -> None:
        """Start a new call: save the reward's present cache, whose values cost nothing."""
        self._reward.save(self._folder / _KNOWN)

    def __enter__(self) -> Ledger:
        with self._cache.lock:
            try:
                self._set_back()
            except BaseException:
                self._cache.release()
                raise
        return self

    def _set_back(self) -> None:
        """Restore the cache as it was when the call began; all later answers become paid, but not yet counted."""
        cache, answers = self._cache, read_answers(self._folder / _ANSWERS)
        known, cache.values = cache.values, {}
        cache.set_aside(known)
        if (self._folder / _KNOWN).exists():
            self._reward.load_cache(self._folder / _KNOWN)
        lengths = {len(key) // cache.width for key in answers}
        if len(lengths) == 1 and cache.length in (None, *lengths):
            cache.length = lengths.pop()
            cache.set_aside(answers)
        cache.log = AnswerLog(self._folder / _ANSWERS)

    def __exit__(self, *_: object) -> None:
        with self._cache.lock:
            log, self._cache.log = self._cache.log, None
            self._cache.release()
            if log is not None:
                log.close()
