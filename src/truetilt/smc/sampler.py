"""The sampler: one order of events for every model, with no special cases.

move -> weigh what is known before the draw -> resample -> draw -> weigh the rest. Nothing is resampled after the last
draw, so the result carries its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ..types import Aux, FeynmanKac, InvalidInput, LogWeights, Move, Particles, Resampler, StepInfo
from .resampling import never
from .stream import DRAW, RESAMPLE, Stream
from .weights import check_weights, effective_sample_size, log_mean_exp


def trace(
    fk: FeynmanKac,
    grid: Sequence[float],
    shape: tuple[int, int],
    resample: Resampler,
    stream: Stream,
    chunk: int | None = None,
) -> Iterator[tuple[Particles, StepInfo]]:
    """Yield the particles after the first draw and after every step; shape is (populations, particles)."""
    _check_shape(shape, chunk)
    log_w = torch.zeros(shape, dtype=torch.float64, device=stream.device)
    particles, info = advance(fk.start(shape, grid[0]), log_w, (grid[0], grid[0]), never, (stream, 0, chunk))
    yield particles, info
    for number, (t, s) in enumerate(pairwise(grid), start=1):
        particles, info = step(fk, particles, (t, s), resample, (stream, number, chunk))
        yield particles, info


def step(
    fk: FeynmanKac,
    particles: Particles,
    interval: tuple[float, float],
    resample: Resampler,
    source: tuple[Stream, int, int | None],
) -> tuple[Particles, StepInfo]:
    """One step t -> s of every particle; `source` is the stream, the step's number and the chunk size."""
    return advance(fk.move(particles, *interval), particles.log_w, interval, resample, source)


def advance(
    move: Move,
    log_w: LogWeights,
    interval: tuple[float, float],
    resample: Resampler,
    source: tuple[Stream, int, int | None],
) -> tuple[Particles, StepInfo]:
    """Carry out a move on weighted particles."""
    stream, number, chunk = source
    where = f"step {number} (t = {interval[0]:.6g} -> {interval[1]:.6g})"
    log_w = log_w + move.log_before
    check_weights(log_w, where)
    ess = effective_sample_size(log_w)
    populations, n = log_w.shape
    ancestors, log_w = resample(log_w, stream.uniforms(number, RESAMPLE, populations, (0, n)))
    x, log_after, aux = _draw(move, ancestors, stream, number, chunk or n)
    log_w = log_w + log_after
    check_weights(log_w, where)
    return Particles(x, log_w, aux), StepInfo(*interval, ess, log_mean_exp(log_w), ancestors)


def _draw(move: Move, ancestors: Tensor, stream: Stream, number: int, chunk: int) -> tuple[Tensor, LogWeights, Aux]:
    """Draw and weigh in chunks of particles: the uniforms are counted, so no chunk size changes a bit."""
    populations, n = ancestors.shape
    parts = []
    for first in range(0, n, chunk):
        last = min(first + chunk, n)
        part = move.take(ancestors[:, first:last])
        u = stream.uniforms(number, DRAW, populations, (first * move.uniforms, last * move.uniforms))
        y = part.law.sample(u.unflatten(-1, (last - first, move.uniforms)))
        parts.append((y, *part.after(y)))
    xs, log_ws, auxes = zip(*parts, strict=True)
    return torch.cat(xs, 1), torch.cat(log_ws, 1), {k: torch.cat([aux[k] for aux in auxes], 1) for k in auxes[0]}


def _check_shape(shape: tuple[int, int], chunk: int | None) -> None:
    populations, n = shape
    if populations < 1 or n < 1:
        raise InvalidInput(f"{populations} populations of {n} particles; need at least one of each")
    if chunk is not None and chunk < 1:
        raise InvalidInput(f"chunk is {chunk}; give at least one particle at a time, or None for all")
