"""Particles at chosen steps, as HTML tiles: each tile follows one final particle and its ancestors.

The size of a page is limited, so a selection of lines is shown, even over populations and families, and the page says
so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from ..runtime.snapshots import evenly
from ..smc.genealogy import LINES, shown_lines
from ..smc.resampling import normalised
from .report_data import ResultLike, plain
from .reward_gain import gain_words
from .views import View

FRAMES = 16
SHOWN = {"picture": LINES, "structure": 24, "text": 8, "line": 24}  # lines, by the shape of a tile
BYTES = 1_400_000  # of all tiles and pictures together


class Tile(NamedTuple):
    """One particle: its population and number, its weight (1 is an equal share), and its picture."""

    population: int
    particle: int
    weight: float
    bar: float  # its weight over the heaviest shown
    twin: bool  # the same particle as the tile before it
    html: str
    reward: float | None = None  # of a finished state, where it is known


class TileFrame(NamedTuple):
    """The particles after one step."""

    step: int
    time: float
    picture: str
    tiles: list[Tile]


class Moment(NamedTuple):
    """States [populations, particles, D] and log-weights after a step."""

    step: int
    x: Tensor
    log_w: Tensor


def frames(run: ResultLike, view: View) -> list[TileFrame]:
    """Every chosen step with as many lines as fit."""
    told = _moments(run)
    count = SHOWN[view.shape]
    pictures = [
        view.picture(moment.x.flatten(0, 1).numpy(), normalised(moment.log_w.reshape(-1)).numpy()) for moment in told
    ]
    while True:
        found = _frames(run, view, told, count, pictures)
        if count == 1 or sum(len(f.picture) + sum(len(t.html) for t in f.tiles) for f in found) <= BYTES:
            return found
        count //= 2


def _moments(run: ResultLike) -> list[Moment]:
    """The kept steps, thinned, and the end."""
    kept, last = run.snapshots, len(run.times) - 1
    told = [
        Moment(int(step), plain(kept.particles[k]).flatten(2), kept.log_weights[k].cpu())
        for k, step in enumerate(kept.steps.tolist())
        if step != last
    ]
    told = [told[k] for k in evenly(len(told), FRAMES - 1)]
    return [*told, Moment(last, plain(run.particles).flatten(2), run.log_weights.cpu())]


def _frames(run: ResultLike, view: View, told: list[Moment], count: int, pictures: list[str]) -> list[TileFrame]:
    ancestors = run.ancestors.cpu()
    populations, particles = run.log_weights.shape
    flat = shown_lines(ancestors, count)
    worths = _rewards(run)
    slots = [_forebears(ancestors, flat // particles, flat % particles, moment.step) for moment in told]
    out: list[TileFrame] = []
    before: np.ndarray | None = None
    for moment, slot, picture in zip(told, slots, pictures, strict=True):
        states = moment.x[flat // particles, slot].numpy()
        weight = (normalised(moment.log_w.reshape(-1)).reshape(populations, particles) * populations * particles)[
            flat // particles, slot
        ]
        top = float(weight.max()) or 1.0
        tiles: list[Tile] = []
        for k, (population, particle) in enumerate(zip((flat // particles).tolist(), slot.tolist(), strict=True)):
            twin = bool(tiles) and (tiles[-1].population, tiles[-1].particle) == (population, particle)
            html = view.tile(states[k], None if before is None else before[k])
            worth = worths.get((population, particle)) if moment.step == len(run.times) - 1 else None
            tiles.append(Tile(population, particle, float(weight[k]), float(weight[k]) / top, twin, html, worth))
        out.append(TileFrame(moment.step, float(run.times[moment.step]), picture, tiles))
        before = states
    return out


def _rewards(run: ResultLike) -> dict[tuple[int, int], float]:
    """The rewards of final particles that a steered run keeps, by population and particle."""
    found = gain_words(run.settings)
    return {} if found is None else found.lines


def _forebears(ancestors: Tensor, population: Tensor, particle: Tensor, step: int) -> Tensor:
    """Indices of the ancestors of these final particles after a step."""
    line = particle
    for later in range(len(ancestors) - 1, step, -1):
        line = ancestors[later][population, line].long()
    return line
