"""Runs by a condition, watched step by step.

A run has two lanes (the sampler and plain guidance) in two threads. The `watch` callback of `run` records each step of
a lane and raises when the run is cancelled, so that it stops after the current step; its memory is then freed.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..commands.outputs import SNAPSHOTS
from ..core.types import Particles, StepInfo
from ..result import Result
from ..runtime.memory import RunSizes, check_run
from ..smc.resampling import normalised
from .background import DONE, Background, Cancelled
from .form import RunForm
from .plans import PlannedRun, caution, command_of, guidance, no_command, options, plan, python_of
from .problems import Problem, problem_of

EVERY = 0.2  # seconds between pictures
WATCHED = 4.0  # shortest duration in seconds of a run that is to be watched


class LaneFrame(NamedTuple):
    """The particles of a lane after a step: states [n, D], weights that sum to one [n], and their ancestors' states."""

    step: int
    x: np.ndarray
    weights: np.ndarray
    before: np.ndarray | None = None  # states of their ancestors in the previous picture


@dataclass(eq=False)
class Lane:
    """One sampler of a job, and its progress."""

    steps: int
    frame: LaneFrame | None = None
    ess: list[tuple[float, float, float]] = field(default_factory=list)  # per step: mean, min and max over populations
    log_z: float | None = None
    result: Result | None = None
    scores: np.ndarray | None = None  # the judge's probability of the condition for each particle of the result
    seen: float = 0.0
    line: torch.Tensor | None = None  # index of each particle's ancestor in the previous picture

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
class StudioRun(Background):
    """A queued or running run by a condition, and what the page shows of it."""

    form: RunForm
    folder: Path
    note: str = ""
    python: str = ""
    command: str = ""
    lanes: dict[str, Lane] = field(default_factory=dict)
    problem: Problem | None = None
    steps: int = 0  # steps of both lanes so far

    def carry_out(self) -> None:
        self._run()
        self._judge()
        self._write_report()

    def _run(self) -> None:
        self.check()
        self.problem = problem_of(self.form)
        self.note = caution(self.problem, self.form)
        self.python = python_of(self.problem, self.form)
        self.command = command_of(self.problem, self.form) or no_command(self.problem, self.form)
        plans = {"run": plan(self.problem, self.form)}
        alone = self.problem.order is not None and self.problem.condition is None  # p0 itself, without a condition
        if self.form.sampler != "guidance" and not alone:
            plans["plain"] = guidance(self.problem, self.form)
        sizes = RunSizes(self.form.particles, self.form.populations, plans["run"].steps)
        length = getattr(self.problem.model, "length", 1)
        check_run(sizes._replace(particles=len(plans) * sizes.particles), length, SNAPSHOTS, self.form.device)
        self.lanes = {name: Lane(made.steps) for name, made in plans.items()}
        failed: list[BaseException] = []
        others = [threading.Thread(target=self._lane, args=(name, plans[name], failed), daemon=True) for name in plans]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        for error in sorted(failed, key=lambda e: isinstance(e, Cancelled)):
            raise error

    def _judge(self) -> None:
        """Let the judge score the final texts of every lane."""
        judge = self._problem.judge
        for lane in self.lanes.values() if judge is not None else ():
            if lane.result is not None and judge is not None:
                self.check()
                lane.scores = judge(lane.result.particles.flatten(0, 1))

    def _lane(self, name: str, made: PlannedRun, failed: list[BaseException]) -> None:
        lane, begin = self.lanes[name], time.monotonic()

        def watch(step: int, particles: Particles, info: StepInfo) -> None:
            self.steps += 1
            lane.look(step, particles, info)
            if self.form.pace == "watch":
                self.stop.wait(max(0.0, begin + WATCHED * (step + 1) / (made.steps + 1) - time.monotonic()))
            self.check()

        told = options(self._problem, self.form)
        try:
            self.work_here()
            lane.result = made.run(watch=watch, **told)
        except BaseException as e:  # raised again in the thread that joins this one
            failed.append(e)
            self.stop.set()

    @property
    def _problem(self) -> Problem:
        if self.problem is None:
            raise Cancelled
        return self.problem

    def _write_report(self) -> None:
        result, problem = self.lanes["run"].result, self._problem
        if result is None:
            raise Cancelled
        told: dict[str, Any] = {"bundle": problem.name, "command": command_of(problem, self.form)}
        told |= {"condition": problem.condition, "net": problem.net, "length": problem.length}
        told = {name: value for name, value in told.items() if value is not None}
        by_itself = problem.backbone is not None and self.form.sampler == "guidance"  # its model is made by itself
        if by_itself or problem.target is not None:  # a reward is no condition
            told.pop("condition", None)
        elif problem.backbone is not None:  # it may have no condition
            told |= {"condition": problem.condition, "backbone": problem.backbone}
        result = replace(result, settings=result.settings | told)
        self.lanes["run"].result = result
        x, weights = result.particles.flatten(0, 1).cpu().numpy(), result.weights.reshape(-1).cpu().numpy()
        self.write_report(result, problem.looked_at(x, weights))

    def free(self) -> None:
        """Release networks and particles from the device; what the page shows is kept in host memory."""
        if self.problem is not None:
            self.problem = self.problem.freed()
        for lane in self.lanes.values():
            lane.result = None if self.state != DONE or lane.result is None else at_home(lane.result)


def at_home(result: Result) -> Result:
    """The result copied to host memory."""
    held = {f.name: getattr(result, f.name) for f in fields(result)}
    return replace(result, **{name: value.cpu() for name, value in held.items() if isinstance(value, torch.Tensor)})
