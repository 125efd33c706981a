"""What a run keeps: its record, and snapshots, the particles after chosen steps; snapshots of several runs joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.arguments import listed, plain, shown
from ..core.errors import InvalidInput
from ..core.types import Particles, StepInfo
from ..smc.shards import Shard

_NOBODY = Particles(torch.empty(0), torch.empty(0), {})


@dataclass
class Record:
    """The state of a run: its particles, the information of each step, and the snapshots taken."""

    particles: Particles = _NOBODY
    infos: list[StepInfo] = field(default_factory=list)
    kept: list[tuple[int, Particles]] = field(default_factory=list)

    @property
    def step(self) -> int:
        """How many steps are done; -1 before the first draw."""
        return len(self.infos) - 1

    def gathered(self, shard: Shard) -> Record:
        """The same record with the particles of all ranks gathered."""
        kept = [(step, spread(shard.everyone, particles)) for step, particles in self.kept]
        spent = shard.summed(torch.stack([info.spent.cpu() for info in self.infos]))
        infos = [info._replace(spent=mine) for info, mine in zip(self.infos, spent, strict=True)]
        return Record(spread(shard.everyone, self.particles), infos, kept)


def spread(change: Callable[[Tensor], Tensor], particles: Particles) -> Particles:
    """The particles with a function applied to each of their tensors."""
    aux = {key: change(value) for key, value in particles.aux.items()}
    return Particles(change(particles.x), change(particles.log_w), aux)


class Snapshots(NamedTuple):
    """Particles after chosen steps, with their weights then. Step 0 is the first draw."""

    steps: Tensor  # int64 [kept]
    particles: Tensor  # [kept, populations, particles, D]
    log_weights: Tensor  # float64 [kept, populations, particles], unnormalised


def no_snapshots() -> Snapshots:
    """The empty snapshots of a run that kept none."""
    return Snapshots(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 0), torch.zeros(0, 0, dtype=torch.float64))


def chosen_steps(wanted: int | Sequence[int] | None, steps: int) -> tuple[int, ...]:
    """The steps to keep of a run: a number of them, evenly spaced from the first draw to the end, or a list."""
    if wanted is None:
        return ()
    need = f"give how many to keep, or a list of steps from 0 to {steps}"
    count = plain(wanted)
    if isinstance(count, bool):
        raise InvalidInput(f"snapshots is {shown(wanted)}; {need}")
    if isinstance(count, int):
        if count < 0:
            raise InvalidInput(f"snapshots is {wanted}; give how many to keep, 0 or more")
        return evenly(steps + 1, count)
    named = [plain(step) for step in listed("snapshots", wanted, need)]
    for step in named:
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= steps:
            raise InvalidInput(f"snapshots names step {shown(step)}; steps are whole numbers from 0 to {steps}")
    return tuple(sorted(set(named)))


def evenly(count: int, kept: int) -> tuple[int, ...]:
    """`kept` of the numbers 0 .. count - 1, evenly spaced, the first and the last among them; one means the last."""
    if kept >= count:
        return tuple(range(count))
    if kept < 2:
        return (count - 1,) * kept
    return tuple(round(k * (count - 1) / (kept - 1)) for k in range(kept))


def stacked(kept: Sequence[tuple[int, Particles]]) -> Snapshots:
    """Snapshots from the particles after each kept step."""
    if not kept:
        return no_snapshots()
    return Snapshots(
        torch.tensor([step for step, _ in kept], dtype=torch.int64),
        torch.stack([particles.x for _, particles in kept]),
        torch.stack([particles.log_w for _, particles in kept]),
    )


def united(parts: Sequence[Snapshots]) -> Snapshots:
    """The snapshots of several runs joined along populations, at the steps that all of them kept."""
    common = sorted(set.intersection(*(set(part.steps.tolist()) for part in parts)))
    if not common:
        return no_snapshots()
    rows = [[part.steps.tolist().index(step) for step in common] for part in parts]
    return Snapshots(
        torch.tensor(common, dtype=torch.int64),
        torch.cat([part.particles[row] for part, row in zip(parts, rows, strict=True)], 1),
        torch.cat([part.log_weights[row] for part, row in zip(parts, rows, strict=True)], 1),
    )
