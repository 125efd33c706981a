"""SIGTERM for calls that save their progress continuously: they stop at once, with a message on how to resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from ..core.errors import Stopped


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM. Like KeyboardInterrupt it is no `Exception`, so that a user's `except Exception` does not
    catch it.
    """


class Stoppable:
    """Context manager within which SIGTERM ends the work at once; it then raises `Stopped` with the given message.

    It acts in the main thread only, where Python handles signals.
    """

    def __init__(self, words: Callable[[], str]) -> None:
        self._words = words
        self._before: Any = None  # the handler that was installed before

    def __enter__(self) -> Stoppable:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._told)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGTERM, self._before)
        self._before = None
        if isinstance(error, Terminated):
            raise Stopped(self._words()) from error

    def _told(self, number: int, frame: object) -> None:
        raise Terminated


def stops_at_once() -> bool:
    """Whether the current handler of SIGTERM is that of a `Stoppable`."""
    return isinstance(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), Stoppable)
