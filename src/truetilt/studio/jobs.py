"""Background runs: a queue with one worker; each run can be watched and cancelled.

A run has two lanes, the sampler and plain guidance, in two threads. The `watch` callback of `run` records each step of
a lane and raises when the run is cancelled, so that it stops after the current step; its memory is then freed.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, NamedTuple

import numpy as np
import torch

from ..core.types import Particles, StepInfo, TruetiltError
from ..result import Result
from ..smc.resampling import normalised
from .form import RunForm
from .plans import PlannedRun, caution, command_of, guidance, no_command, options, plan, python_of
from .problems import Problem, problem_of

log = logging.getLogger(__name__)
EVERY = 0.2  # seconds between pictures
WATCHED = 4.0  # seconds that a run takes at least, if it is to be watched
WAITING, RUNNING, DONE, CANCELLED, FAILED = "waiting", "running", "done", "cancelled", "failed"


class Cancelled(Exception):
    """Raised inside a run to cancel it."""


class LaneFrame(NamedTuple):
    """The particles of a lane after a step: states [n, D], weights that sum to one [n], and their ancestors' states."""

    step: int
    x: np.ndarray
    weights: np.ndarray
    before: np.ndarray | None = None  # states of their ancestors, in the picture before


@dataclass(eq=False)
class Lane:
    """One sampler of a job, and its progress."""

    steps: int
    frame: LaneFrame | None = None
    ess: list[tuple[float, float, float]] = field(default_factory=list)  # by step: mean, least and most of populations
    log_z: float | None = None
    result: Result | None = None
    seen: float = 0.0
    line: torch.Tensor | None = None  # index of each particle's ancestor in the picture before

    def look(self, step: int, particles: Particles, info: StepInfo) -> None:
        """Record a step for display; pictures only at intervals."""
        share = (info.ess / particles.log_w.shape[-1]).cpu()
        self.ess.append((float(share.mean()), float(share.min()), float(share.max())))
        came = info.ancestors.cpu().long()
        self.line = came if self.line is None else self.line.gather(-1, came)
        now = time.monotonic()
        if now - self.seen < EVERY and step < self.steps:
            return
        self.seen, flat = now, particles.log_w.reshape(-1)
        self.log_z = float(torch.logsumexp(flat, 0)) - float(np.log(len(flat)))
        x = particles.x.flatten(0, 1).cpu().numpy()
        before = None if self.frame is None else self.frame.x[_flat(self.line)]
        self.frame = LaneFrame(step, x, normalised(flat).cpu().numpy(), before)
        self.line = None


def _flat(line: torch.Tensor) -> np.ndarray:
    """Indices within each population as indices into the union [populations * particles]."""
    populations, particles = line.shape
    return (line + particles * torch.arange(populations)[:, None]).reshape(-1).numpy()


@dataclass(eq=False)
class StudioRun:
    """A queued or running run: its state, and what the page shows of it."""

    form: RunForm
    folder: Path
    state: str = WAITING
    message: str = ""
    note: str = ""
    python: str = ""
    command: str = ""
    lanes: dict[str, Lane] = field(default_factory=dict)
    problem: Problem | None = None
    token: str = ""  # names the report
    seconds: float = 0.0
    steps: int = 0  # of both lanes, counted
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        return self.state in (DONE, CANCELLED, FAILED)

    def run(self) -> None:
        """Run to the end, or until cancelled; every error becomes a message."""
        begin = time.monotonic()
        try:
            self._run()
            self._write_report()
            self.state = DONE
        except Cancelled:
            self.state = CANCELLED
        except TruetiltError as e:
            self.message, self.state = str(e), FAILED
        except torch.OutOfMemoryError:
            self.message, self.state = "The device has too little memory for this run; take fewer particles.", FAILED
        except Exception as e:  # a bug must not end the worker thread; the log has the traceback
            log.exception("a run of the studio failed")
            self.message, self.state = f"The run failed: {type(e).__name__}: {e}"[:500], FAILED
        self.seconds = time.monotonic() - begin
        self._free()

    def _run(self) -> None:
        self._check()
        self.problem = problem_of(self.form)
        self.note = caution(self.problem, self.form)
        self.python = python_of(self.problem, self.form)
        self.command = command_of(self.problem, self.form) or no_command(self.problem, self.form)
        plans = {"run": plan(self.problem, self.form)}
        if self.form.sampler != "guidance":
            plans["plain"] = guidance(self.problem, self.form)
        self.lanes = {name: Lane(made.steps) for name, made in plans.items()}
        failed: list[BaseException] = []
        others = [threading.Thread(target=self._lane, args=(name, plans[name], failed), daemon=True) for name in plans]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        for error in sorted(failed, key=lambda e: isinstance(e, Cancelled)):
            raise error

    def _lane(self, name: str, made: PlannedRun, failed: list[BaseException]) -> None:
        lane, begin = self.lanes[name], time.monotonic()

        def watch(step: int, particles: Particles, info: StepInfo) -> None:
            self.steps += 1
            lane.look(step, particles, info)
            if self.form.pace == "watch":
                self.stop.wait(max(0.0, begin + WATCHED * (step + 1) / (made.steps + 1) - time.monotonic()))
            self._check()

        told = options(self._problem, self.form)
        try:
            lane.result = made.run(watch=watch, **told)
        except BaseException as e:  # raised again in the thread that joins this one
            failed.append(e)
            self.stop.set()

    @property
    def _problem(self) -> Problem:
        if self.problem is None:
            raise Cancelled
        return self.problem

    def _check(self) -> None:
        if self.stop.is_set():
            raise Cancelled

    def _write_report(self) -> None:
        result, problem = self.lanes["run"].result, self._problem
        if result is None:
            raise Cancelled
        told: dict[str, Any] = {"bundle": problem.name, "command": command_of(problem, self.form)}
        told |= {"condition": problem.condition, "net": problem.net}
        result = replace(result, settings=result.settings | {k: v for k, v in told.items() if v is not None})
        self.lanes["run"].result = result
        token = token_urlsafe(16)
        result.report(self.folder / f"{token}.html", problem.view)
        self.token = token

    def _free(self) -> None:
        """Release networks and particles from the device; what the page shows is kept in host memory."""
        if self.problem is not None:
            self.problem = self.problem.freed()
        for lane in self.lanes.values():
            lane.result = None if self.state != DONE or lane.result is None else _at_home(lane.result)
        gc.collect()  # the frames of an error keep references to tensors
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _at_home(result: Result) -> Result:
    """The result copied to host memory."""
    held = {f.name: getattr(result, f.name) for f in fields(result)}
    return replace(result, **{name: value.cpu() for name, value in held.items() if isinstance(value, torch.Tensor)})


class Pool:
    """One worker thread and its queue."""

    def __init__(self) -> None:
        self._queue: deque[StudioRun] = deque()
        self._current: StudioRun | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="truetilt-studio", daemon=True)
        self._worker.start()

    def submit(self, job: StudioRun) -> None:
        with self._changed:
            self._queue.append(job)
            self._changed.notify_all()

    def ahead(self, job: StudioRun) -> int:
        """How many runs come before a waiting one."""
        with self._changed:
            if job not in self._queue:
                return 0
            return self._queue.index(job) + (self._current is not None)

    def cancel(self, job: StudioRun) -> None:
        """End a run after the step it is in, or take it out of the queue."""
        job.stop.set()
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)
                job.state = CANCELLED

    def close(self) -> None:
        """Cancel all runs and stop the worker."""
        with self._changed:
            self._closed = True
            jobs = [*self._queue, *([self._current] if self._current else [])]
            self._changed.notify_all()
        for job in jobs:
            self.cancel(job)
        self._worker.join(timeout=60)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job.state = RUNNING
            job.run()
            with self._changed:
                self._current = None

    def _next(self) -> StudioRun | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._queue))
            self._current = None if self._closed else self._queue.popleft()
            return self._current
