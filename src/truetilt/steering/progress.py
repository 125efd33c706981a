"""What `steer` shows of its progress on a terminal or in a notebook."""

from __future__ import annotations

import os
import shutil
import sys
import time

_CLEAR = "\r\x1b[K"  # clears the current line
_PAUSE = 0.1  # seconds between updates, at least


class stages:
    """The stages of a run on stderr: a line for each, with its progress below if stderr is a terminal.

    Called with ("stage · progress in it", share of the budget spent). In a notebook there are lines only, elsewhere
    nothing is shown.
    """

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._seen = (self._terminal or _in_notebook()) and os.environ.get("RANK", "0") == "0"
        self._stage, self._due, self._share = "", 0.0, 0.0

    def __enter__(self) -> stages:
        return self

    def __exit__(self, *_: object) -> None:
        self._write(_CLEAR)

    def __call__(self, what: str, share: float) -> None:
        stage, _, where = what.partition(" · ")
        if stage != self._stage:
            self.line(f"{min(share, 1.0):4.0%} spent  {stage}")
        self._stage, self._share = stage, share
        if where:
            self.within(where)

    def calls(self, done: int, total: int) -> None:
        """Show how many of a batch of states the reward has evaluated."""
        self.within(f"reward: {done:,} of {total:,} sequences")

    def within(self, where: str) -> None:
        """Show the progress within a stage in place of the previous one, at a limited rate."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _PAUSE
            self.beneath(where)

    def beneath(self, words: str) -> None:
        """Show a temporary line, cut at the terminal's width, until the next one."""
        self._write(f"{_CLEAR}{'':12}{words}"[: len(_CLEAR) + shutil.get_terminal_size().columns - 1])

    def say(self, words: str) -> None:
        """Print a line on stderr, whether or not it is a terminal."""
        self._write(_CLEAR)
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()

    def line(self, words: str) -> None:
        """Print a permanent line."""
        self._write(f"{_CLEAR}{words}\n")
        self._due = 0.0

    def _write(self, text: str) -> None:
        text = text if self._terminal else text.removeprefix(_CLEAR)
        if self._seen and (self._terminal or text.endswith("\n")):
            sys.stderr.write(text)
            sys.stderr.flush()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return shell is not None and hasattr(shell(), "kernel")
