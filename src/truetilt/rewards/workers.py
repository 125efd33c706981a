"""Calls of a reward's function: in this process, or in worker processes that can be killed when they hang.

A worker process is spawned afresh, loads the function once and answers one task at a time through a pipe. It imports
torch only if the function takes tokens. A task that cannot be answered yields a `Failure`; tasks that other workers
have begun are still waited for.
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
from ..core.user_functions import raised

RowNumbers = Sequence[int]  # row numbers of a batch that make one task
MakeArgument = Callable[[RowNumbers], Any]  # makes the function's argument for these rows
Answered = Generator[tuple[RowNumbers, list[float]], None, None]
_READY = "ready"
_TRACE = 10_000  # characters of a traceback that a worker hands over
_LOOK = 1.0  # seconds between a worker's checks that its parent process is still alive


class Failure(NamedTuple):
    """Why these rows have no value; `raised` is True if the function itself raised."""

    rows: RowNumbers
    words: str
    raised: bool = False
    error: Exception | SystemExit | None = None
    trace: str = ""


def answers(function: Callable[[Any], Any], given: Any, single: bool) -> list[float]:
    """The function's values for the sequences it is given, one float each; any other return value is an error."""
    found = function(given)
    if single:
        value = _number(found)
        if value is None:
            raise InvalidInput(f"returned {_told(found)}; return one number")
        return [value]
    entries = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(entries, list | tuple) or len(entries) != len(given):
        raise InvalidInput(_needed(found, len(given)) + ", or say one_at_a_time=True")
    numbers = [float(entry) if type(entry) in (float, int) else _number(entry) for entry in entries]
    known = [value for value in numbers if value is not None]
    if len(known) < len(numbers):
        raise InvalidInput(_needed(found, len(given)))
    return known


def _number(value: Any) -> float | None:
    """A number, or an array of one, as a float; None for anything else."""
    with contextlib.suppress(ValueError, RuntimeError):  # an array of several has no single value
        value = value.item() if hasattr(value, "item") else value
    return float(value) if isinstance(value, Real) else None


def _needed(found: Any, count: int) -> str:
    return f"returned {_told(found)} for {count} sequences; return one number each, [{count}]"


def _told(value: Any) -> str:
    shape = getattr(value, "shape", None)
    count = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return f"a {type(value).__name__}{count}" + (f" of shape {tuple(shape)}" if shape is not None else "")


def ask_here(
    function: Callable[[Any], Any],
    single: bool,
    tasks: Sequence[RowNumbers],
    make: MakeArgument,
    failures: list[Failure],
) -> Answered:
    """The function's answers, computed in this process task by task, up to the first failure."""
    for rows in tasks:
        if failures:
            return
        try:
            found = answers(function, make(rows), single)
        except Stopped:
            raise
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            failures.append(_failure(rows, error))
        else:
            yield rows, found


def _failure(rows: RowNumbers, error: Exception | SystemExit, trace: str = "") -> Failure:
    if isinstance(error, InvalidInput):
        return Failure(rows, str(error), error=error)
    return Failure(rows, f"raised {raised(error)}", True, error, trace)


class Workers:
    """Up to `count` worker processes that hold a function; started on first use, and restarted if one has ended."""

    def __init__(self, function: Callable[[Any], Any], single: bool, tokens: bool, count: int, timeout: float) -> None:
        try:
            pickle.dumps(function)
        except Exception as error:  # pickling may raise anything
            raise InvalidInput(
                f"{function!r} cannot be sent to a worker process ({error}); define it at the top of a module that can "
                "be imported, or leave out workers and timeout"
            ) from error
        self._brief, self._count, self._timeout = (function, single, tokens, count > 1), count, timeout
        self._crew: list[_Worker] = []
        self._owner = os.getpid()

    def ask(self, tasks: Sequence[RowNumbers], make: MakeArgument, failures: list[Failure]) -> Answered:
        """The answers in order of completion. After a failure no new task is started; those under way are finished."""
        if self._owner != os.getpid():  # after a fork the pipes belong to the parent process
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
        """End all workers; the next `ask` starts new ones."""
        while self._crew and self._owner == os.getpid():
            self._dismiss(self._crew[0])

    def _hand_out(self, waiting: deque[RowNumbers], make: MakeArgument, failures: list[Failure]) -> None:
        for worker in [worker for worker in self._crew if not worker.process.is_alive() and not worker.rows]:
            self._dismiss(worker)
        while waiting and not failures:
            idle = next((worker for worker in self._crew if not worker.rows), None)
            if idle is None and len(self._crew) == self._count:
                return
            rows = waiting.popleft()
            try:
                given = make(rows)
            except Exception as error:  # the tokenizer failed on these tokens
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
    """One worker process: its pipe, the rows it is working on, and their deadline."""

    def __init__(self, brief: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()
        self.rows: RowNumbers = ()
        self.deadline, self._loaded = math.inf, False
        with contextlib.suppress(OSError):  # the process ended at once; the next `hear` reports it
            self.pipe.send(brief)

    def give(self, rows: RowNumbers, given: Any, timeout: float) -> None:
        self.rows = rows
        self.deadline = time.monotonic() + timeout if self._loaded else math.inf
        with contextlib.suppress(OSError):
            self.pipe.send(given)

    def hear(self, timeout: float) -> tuple[RowNumbers, list[float] | tuple[Any, ...] | None]:
        """The rows of its task with their values, or with the reason why there are none; None when it reports ready.

        The deadline of the first task counts from that report, so loading the function is not timed.
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
        """Kill the process and all processes that the function started in it."""
        self.rows, self.deadline = (), math.inf
        if self.process.exitcode is None and self.process.pid is not None and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, parent: int) -> None:
    """The main loop of a worker process: load the function, answer tasks until the pipe is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # a process group of its own, to be killed as one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            function, single, tokens, several = pipe.recv()
            if tokens:
                import torch  # import before the deadline starts to count
            if several and "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
        except (EOFError, OSError):
            raise
        except (Exception, SystemExit) as error:
            pipe.send((f"cannot be loaded in a worker ({raised(error)}); define it in a module that can be imported",))
            return
        pipe.send(_READY)
        while True:
            given = pipe.recv()
            pipe.send(_reply(function, torch.from_numpy(given) if tokens else given, single))


def _reply(function: Callable[[Any], Any], given: Any, single: bool) -> list[float] | tuple[Any, ...]:
    """The function's values, one float per sequence, or the fields of a `Failure` after its rows."""
    try:
        return answers(function, given, single)
    except (Exception, SystemExit) as error:
        found = _failure((), error, traceback.format_exc()[-_TRACE:])
        return found.words, found.raised, None, found.trace


def _follow(parent: int) -> None:
    """End this process and its children when the parent process is gone, even while the function hangs."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    if hasattr(os, "killpg"):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
