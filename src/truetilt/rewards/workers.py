"""Asking a function about sequences: in this process, or in worker processes that can be ended when they hang.

A worker is started afresh (spawn), loads the function once and answers one task at a time through a pipe. It imports no
torch unless the function takes tokens. What fails is said as a `Failure`; tasks that others are at are waited for.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, wait
from numbers import Real
from typing import Any, NamedTuple

from ..core.errors import InvalidInput, Stopped

Rows = Sequence[int]  # which states of a batch a task is about
Make = Callable[[Rows], Any]  # what the function is given for them
Answered = Generator[tuple[Rows, list[float]], None, None]
_READY = "ready"
_LOOK = 1.0  # seconds between two looks of a worker at whether the process that started it is still there


class Failure(NamedTuple):
    """Why there is no value for these states; `raised` where the function itself raised."""

    rows: Rows
    words: str
    raised: bool = False
    error: Exception | None = None
    trace: str = ""


def answers(function: Callable[[Any], Any], given: Any, single: bool) -> list[float]:
    """What a function says of the sequences it is given, one float each; anything else is refused."""
    found = function(given)
    if single:
        return [_number(found, f"returned {_told(found)}; return one number")]
    need = f"returned {_told(found)} for {len(given)} sequences; return one number each, [{len(given)}]"
    entries = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(entries, list | tuple) or len(entries) != len(given):
        raise InvalidInput(need + ", or say one_at_a_time=True")
    return [float(entry) if type(entry) in (float, int) else _number(entry, need) for entry in entries]


def _number(value: Any, need: str) -> float:
    with contextlib.suppress(ValueError, RuntimeError):  # of an array of several
        value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, Real):
        raise InvalidInput(need)
    return float(value)


def _told(value: Any) -> str:
    shape = getattr(value, "shape", None)
    count = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return f"a {type(value).__name__}{count}" + (f" of shape {tuple(shape)}" if shape is not None else "")


def ask_here(
    function: Callable[[Any], Any], single: bool, tasks: Sequence[Rows], make: Make, failures: list[Failure]
) -> Answered:
    """The answers of a function in this process, task by task, until something fails."""
    for rows in tasks:
        if failures:
            return
        try:
            found = answers(function, make(rows), single)
        except Stopped:
            raise
        except Exception as error:  # a stranger's function may raise anything
            failures.append(_failure(rows, error))
        else:
            yield rows, found


def _failure(rows: Rows, error: Exception, trace: str = "") -> Failure:
    if isinstance(error, InvalidInput):
        return Failure(rows, str(error), error=error)
    return Failure(rows, f"raised {type(error).__name__}: {error}", True, error, trace)


class Workers:
    """Up to `count` processes that hold a function; started when first needed, and again where one has ended."""

    def __init__(self, function: Callable[[Any], Any], single: bool, tokens: bool, count: int, timeout: float) -> None:
        try:
            pickle.dumps(function)
        except Exception as error:  # picklers raise what they like
            raise InvalidInput(
                f"{function!r} cannot be sent to a worker process ({error}); define it at the top of a module that can "
                "be imported, or leave out workers and timeout"
            ) from error
        self._brief, self._count, self._timeout = (function, single, tokens, count > 1), count, timeout
        self._crew: list[_Worker] = []
        self._owner = os.getpid()

    def ask(self, tasks: Sequence[Rows], make: Make, failures: list[Failure]) -> Answered:
        """The answers in the order they come. After a failure no task is begun, and those begun are finished."""
        if self._owner != os.getpid():  # a fork: the pipes are its parent's
            self._crew, self._owner = [], os.getpid()
        waiting = deque(tasks)
        try:
            while (waiting and not failures) or any(worker.rows for worker in self._crew):
                self._hand_out(waiting, make, failures)
                yield from self._hear(failures)
        finally:
            for worker in [worker for worker in self._crew if worker.rows]:  # interrupted: its answer would be stale
                self._dismiss(worker)

    def close(self) -> None:
        """End all workers; the next question starts new ones."""
        while self._crew and self._owner == os.getpid():
            self._dismiss(self._crew[0])

    def _hand_out(self, waiting: deque[Rows], make: Make, failures: list[Failure]) -> None:
        for worker in [worker for worker in self._crew if not worker.process.is_alive() and not worker.rows]:
            self._dismiss(worker)
        while waiting and not failures:
            idle = next((worker for worker in self._crew if not worker.rows), None)
            if idle is None and len(self._crew) == self._count:
                return
            rows = waiting.popleft()
            try:
                given = make(rows)
            except Exception as error:  # no text of these tokens
                failures.append(_failure(rows, error))
                return
            if idle is None:
                idle = _Worker(self._brief)
                self._crew.append(idle)
            idle.give(rows, given, self._timeout)

    def _hear(self, failures: list[Failure]) -> Answered:
        busy = {worker.pipe: worker for worker in self._crew if worker.rows}
        left = min((worker.deadline for worker in busy.values()), default=0.0) - time.monotonic()
        spoke = wait(list(busy), None if left == math.inf else max(left, 0.0))
        for worker in [worker for pipe, worker in busy.items() if pipe in spoke]:
            rows, heard = worker.hear(self._timeout)
            if isinstance(heard, list):
                yield rows, heard
            elif heard is not None:
                failures.append(Failure(rows, *heard))
        for worker in busy.values():
            if time.monotonic() >= worker.deadline and not worker.pipe.poll():
                failures.append(Failure(worker.rows, f"took longer than {self._timeout:g} seconds and was ended"))
                self._dismiss(worker)

    def _dismiss(self, worker: _Worker) -> None:
        self._crew.remove(worker)
        worker.end()


class _Worker:
    """One process, its pipe, the states it is at, and when they must be done."""

    def __init__(self, brief: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()
        self.rows: Rows = ()
        self.deadline, self._loaded = math.inf, False
        with contextlib.suppress(OSError):  # it ended at once, which is heard soon
            self.pipe.send(brief)

    def give(self, rows: Rows, given: Any, timeout: float) -> None:
        self.rows = rows
        self.deadline = time.monotonic() + timeout if self._loaded else math.inf
        with contextlib.suppress(OSError):
            self.pipe.send(given)

    def hear(self, timeout: float) -> tuple[Rows, list[float] | tuple[Any, ...] | None]:
        """The states it was at and its values, or why there are none; None if it is ready to begin.

        The clock of its first task starts when it is: loading the function counts for nobody.
        """
        try:
            heard = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(1.0)
            hint = "; it must be importable there, and a script that starts workers needs `if __name__ == '__main__':`"
            heard = (f"ended its worker process (exit code {self.process.exitcode})" + hint * (not self._loaded),)
        if heard == _READY:
            self._loaded, self.deadline = True, time.monotonic() + timeout
            return (), None
        rows, self.rows, self.deadline = self.rows, (), math.inf
        return rows, heard

    def end(self) -> None:
        """Kill it and what the function started in it."""
        self.rows, self.deadline = (), math.inf
        if self.process.exitcode is None and self.process.pid is not None and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, parent: int) -> None:
    """A worker's life: load the function, answer until the pipe is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # a group of its own, which can be killed as one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked ends this one
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            function, single, tokens, several = pipe.recv()
            if tokens:
                import torch  # before the clock starts
            if several and "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
        except (EOFError, OSError):
            raise
        except Exception as error:
            pipe.send((f"cannot be loaded in a worker ({error!r}); define it in a module that can be imported",))
            return
        pipe.send(_READY)
        while True:
            given = pipe.recv()
            pipe.send(_reply(function, torch.from_numpy(given) if tokens else given, single))


def _reply(function: Callable[[Any], Any], given: Any, single: bool) -> list[float] | tuple[Any, ...]:
    """One float a sequence, or the fields of a `Failure` after its rows."""
    try:
        return answers(function, given, single)
    except Exception as error:
        found = _failure((), error, traceback.format_exc())
        return found.words, found.raised, None, found.trace


def _follow(parent: int) -> None:
    """End with the process that started this one, and what the function started, even while it hangs."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    if hasattr(os, "killpg"):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
