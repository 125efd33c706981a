"""What a long call pays a reward for, in a folder: interrupted, it goes on without paying for an answer twice.

Kept are what the reward knew when the call began, which costs nothing, and every answer since, as it comes. When the
call goes on, those answers are used without asking the function, and each counts as a distinct call when it is first
asked for, as it did in the call that was interrupted. So all that hangs on what was spent comes out the same.
"""

from __future__ import annotations

from pathlib import Path

from .answer_log import AnswerLog, read_answers
from .reward import Reward

_KNOWN, _ANSWERS = "known.safetensors", "answers.txt"


class Ledger:
    """The account of a reward that keeps its values, in a folder; a context manager within which answers are kept."""

    def __init__(self, reward: Reward, folder: Path) -> None:
        self._reward, self._cache, self._folder = reward, reward._cache, folder
        self.answers = len(read_answers(folder / _ANSWERS))  # that were paid for before

    def forget(self) -> None:
        """Remove the answers: they are those of another reward."""
        (self._folder / _ANSWERS).unlink(missing_ok=True)
        self.answers = 0

    def begin(self) -> None:
        """A new call: what the reward knows by now costs nothing."""
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
        """What the reward knew when the call began costs nothing; all else that it knows is paid for in advance."""
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
