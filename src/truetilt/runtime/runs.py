"""Carrying out a run: its steps one after another, counted, observed, and saved when that is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch

from ..core.bases import FeynmanKac
from ..core.evaluation import RunLog
from ..core.types import Particles, Resampler, StepInfo
from ..smc.rejuvenation import Rejuvenation
from ..smc.sampler import Begun, Source, trace
from .checkpoints import Checkpoints, Record

Callback = Callable[[int, int, StepInfo], None]  # (steps done, steps in all, what happened)
Watch = Callable[[int, Particles, StepInfo], None]  # (steps done, the particles, what happened)


class CheckedRun(NamedTuple):
    """A run whose arguments have been checked."""

    fk: FeynmanKac
    moves: Rejuvenation | None
    grid: Sequence[float]
    shape: tuple[int, int]  # populations and particles
    resample: Resampler
    source: Source
    wanted: tuple[int, ...]  # the steps whose particles are kept


def carried_out(
    run: CheckedRun, log: RunLog, saved: Checkpoints | None, watch: Watch | None, callback: Callback | None
) -> Record:
    """The record of a run, from its last checkpoint on; every step is counted, observed, and saved when that is due."""
    steps, device = len(run.grid) - 1, run.source.stream.device
    with saved or nullcontext():
        record = Record() if saved is None else saved.load(device)
        begin = None if record.step < 0 else Begun(record.step, record.particles)
        for state, info in trace(run.fk, run.grid, run.shape, run.resample, run.source, run.moves, begin):
            info = info._replace(spent=torch.tensor(log.lap()))
            record.particles, done = state, len(record.infos)
            record.infos.append(info._replace(ancestors=info.ancestors.int()))
            if done in run.wanted:
                record.kept.append((done, state._replace(aux={})))
            if watch:
                watch(done, state, info)
            if callback:
                callback(done, steps, info)
            if saved:
                saved.after_step(record, steps)
    return record
