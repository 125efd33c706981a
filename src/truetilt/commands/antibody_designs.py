"""Designs of a chain: a run of its target, and the distinct sequences among the weighted particles."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..antibodies.pulled import PulledTarget
from ..antibodies.redesign import Redesign
from ..core.types import InvalidInput, whole
from ..diffusion.schedules import masked_fraction_grid
from ..result import Result
from ..smc.rejuvenation import Rejuvenation
from ..targets.moves import Metropolis
from ..targets.scans import systematic_scan


class Design(NamedTuple):
    """A distinct sequence with its share of the weight, and how many residues changed."""

    sequence: str
    weight: float
    changes: int


def reveal_grid(target: PulledTarget, steps: int | None) -> tuple[float, ...]:
    """The times of a run that reveals all sites in so many steps; None for one site a step.

    Sites that are revealed together are drawn as if independent: with their order that is part of what p0 means.
    """
    length = target.model.length
    count = length if steps is None else whole("steps", steps, 1)
    process: Any = target.model.process
    return tuple(masked_fraction_grid(process.schedule, min(count, length)))


def sweeping(target: PulledTarget, sweeps: int) -> Rejuvenation | None:
    """Moves at the end that redraw each site so many times, from the network's conditionals; None for none.

    The conditionals disagree with one another: such moves keep another law than the fixed order's p0 has, and the run
    measures by how much.
    """
    if whole("sweeps", sweeps, 0, 1000) == 0:
        return None
    kernel = Metropolis(target, systematic_scan, target.guide_values)
    return Rejuvenation(kernel, at_end=sweeps * target.model.length)


def distinct_designs(redesign: Redesign, result: Result, most: int) -> list[Design]:
    """The distinct sequences of a run by their weight, the heaviest first."""
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    found: dict[str, float] = {}
    for sequence, weight in zip(redesign.spell(x), weights.tolist(), strict=True):
        found[sequence] = found.get(sequence, 0.0) + weight
    parent = redesign.parent_letters
    designs = [
        Design(sequence, weight, sum(a != b for a, b in zip(sequence, parent, strict=True)))
        for sequence, weight in found.items()
        if weight > 0
    ]
    if not designs:
        raise InvalidInput("no particle has any weight; ask less of it (a smaller alpha, pull or sharpness)")
    return sorted(designs, key=lambda one: (-one.weight, one.sequence))[: whole("designs", most, 1)]
