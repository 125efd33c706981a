"""The layout of a genealogy to be drawn: no two lines cross, and a shared ancestor is drawn once.

Particles of a step are placed in the order of their parents, so that a family stays together. A chain is a part of the
tree without branches: a chain that reaches the end carries the number of particles it leads to, and one that dies is
drawn faint. Long runs are thinned to chosen columns of steps, large ones to chosen lines.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..runtime.snapshots import evenly

COLUMNS, LINES = 160, 60  # at most: what can be told apart on a screen


class Branch(NamedTuple):
    """A stretch of a line without branches, from its parent's place to its last column."""

    parent: int  # the chain it comes from; -1 for one that starts at the first draw
    start: int  # column of its first place
    places: list[int]  # place 0 .. particles - 1 in each column from `start` on
    leads_to: int  # final particles that descend from it; 0 for a line that dies
    particle: int  # at its last column


class Forest(NamedTuple):
    """The genealogy of one population, ready to draw."""

    steps: list[int]  # the step each column stands for
    particles: int
    chains: list[Branch]
    shown: list[int]  # final particles whose lines are among the chains, from top to bottom
    lost: list[int]  # lines that ended between the column before and this one
    families: list[int]  # first draws with a descendant in each column
    dying: int  # lines that die in the whole run, of which some are drawn


def columns(ancestors: np.ndarray, limit: int = COLUMNS) -> list[int]:
    """The steps that get a column: both ends, and each resampling step with the step before it; evenly thinned."""
    steps = len(ancestors)
    redrawn = np.flatnonzero((ancestors != np.arange(ancestors.shape[1])).any(1))
    told = sorted({0, steps - 1, *redrawn.tolist(), *(redrawn[redrawn > 0] - 1).tolist()})
    return [told[k] for k in evenly(len(told), limit)]


def parents_between(ancestors: np.ndarray, steps: list[int]) -> list[np.ndarray]:
    """For each column after the first, the parent of every particle in the column before."""
    out = []
    for before, after in pairwise(steps):
        line = ancestors[after]
        for step in range(after - 1, before, -1):
            line = ancestors[step][line]
        out.append(line)
    return out


def places(parents: list[np.ndarray], particles: int) -> list[np.ndarray]:
    """The position of each particle in each column: ordered by parent, so that no lines cross."""
    out = [np.arange(particles)]
    for parent in parents:
        order = np.argsort(out[-1][parent], kind="stable")
        place = np.empty(particles, dtype=np.int64)
        place[order] = np.arange(particles)
        out.append(place)
    return out


def leads_to(parents: list[np.ndarray], particles: int) -> list[np.ndarray]:
    """How many final particles descend from each particle of each column."""
    out = [np.ones(particles, dtype=np.int64)]
    for parent in reversed(parents):
        out.append(np.bincount(parent, out[-1], particles).astype(np.int64))
    return out[::-1]


def forest(ancestors: np.ndarray, column_limit: int = COLUMNS, line_limit: int = LINES) -> Forest:
    """Lay out the ancestors [steps + 1, particles] of one population."""
    particles = ancestors.shape[1]
    steps = columns(ancestors, column_limit)
    parents = parents_between(ancestors, steps)
    place, heirs = places(parents, particles), leads_to(parents, particles)
    bottom_up = np.argsort(place[-1])
    shown = [int(bottom_up[k]) for k in evenly(particles, line_limit)]
    tips = _tips(parents, particles)
    dying = [tips[k] for k in evenly(len(tips), line_limit)]
    root, families = np.arange(particles), [particles]
    for parent in parents:
        root = root[parent]
        families.append(len(np.unique(root)))
    lost = [0, *(particles - len(np.unique(parent)) for parent in parents)]
    chains = _chains([(len(steps) - 1, leaf) for leaf in shown], parents, place, heirs)
    chains += _dead_chains(dying, parents, place, heirs)
    died = sum(particles - len(np.unique(parents)) for parents in ancestors[1:])
    return Forest(steps, particles, chains, shown, lost, families, died)


def _tips(parents: list[np.ndarray], particles: int) -> list[tuple[int, int]]:
    """(column, particle) of every particle before the last column that has no child."""
    out = []
    for column, parent in enumerate(parents):
        childless = np.setdiff1d(np.arange(particles), parent)
        out += [(column, int(particle)) for particle in childless]
    return out


def _chains(
    ends: list[tuple[int, int]], parents: list[np.ndarray], place: list[np.ndarray], heirs: list[np.ndarray]
) -> list[Branch]:
    """The tree of the lines that lead to `ends`, cut where lines meet; parents come before children."""
    through: dict[tuple[int, int], int] = {}
    for end in ends:
        for node in _line(end, parents):
            through[node] = through.get(node, 0) + 1
    made: dict[tuple[int, int], int] = {}
    chains: list[Branch] = []
    for end in ends:
        line = _line(end, parents)[::-1]
        parent, stretch = -1, [line[0]]
        for node, following in zip(line, [*line[1:], None], strict=True):
            if node != stretch[-1]:
                stretch.append(node)
            if following is not None and through[following] == through[node]:
                continue
            if node not in made:
                made[node] = len(chains)
                spots = [int(place[c][i]) for c, i in stretch]
                chains.append(Branch(parent, stretch[0][0], spots, int(heirs[node[0]][node[1]]), node[1]))
            parent, stretch = made[node], [node]
    return chains


def _dead_chains(
    tips: list[tuple[int, int]], parents: list[np.ndarray], place: list[np.ndarray], heirs: list[np.ndarray]
) -> list[Branch]:
    """Chains that die, each from the point where it leaves a surviving chain or one drawn earlier."""
    seen: set[tuple[int, int]] = set()
    chains = []
    for tip in tips:
        stretch: list[tuple[int, int]] = []
        for column, particle in _line(tip, parents):
            stretch.append((column, particle))
            if heirs[column][particle] or (column, particle) in seen:
                break
        seen.update(stretch)
        spots = [int(place[c][i]) for c, i in stretch[::-1]]
        chains.append(Branch(-1, stretch[-1][0], spots, 0, tip[1]))
    return chains


def _line(end: tuple[int, int], parents: list[np.ndarray]) -> list[tuple[int, int]]:
    """A node and its ancestors, back to the first column."""
    column, particle = end
    out = [end]
    for parent in reversed(parents[:column]):
        column, particle = column - 1, int(parent[particle])
        out.append((column, particle))
    return out
