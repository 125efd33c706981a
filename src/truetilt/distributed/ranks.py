"""One population over several ranks: each holds a stretch of its particles, and all see all weights.

Weights are gathered, so that every rank finds the same ancestors; then only particles whose descendants live elsewhere
travel, once to each rank. What was worked out of them before they left is worked out again where they arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from ..smc.shards import Origin
from ..types import InvalidInput, Move, Particles
from .exchange import Plan, packed, plan
from .guests import hosted
from .world import World


@dataclass(frozen=True)
class Ranks:
    """A `Shard`: this rank's share of so many particles a population."""

    world: World
    particles: int

    def __post_init__(self) -> None:
        if self.particles < self.world.size:
            raise InvalidInput(
                f"{self.particles} particles over {self.world.size} ranks; give each at least one, or start fewer ranks"
            )

    @property
    def cuts(self) -> list[int]:
        """Where each rank's particles begin, and the end."""
        return self.world.cuts(self.particles)

    @property
    def first(self) -> int:
        return self.cuts[self.world.rank]

    @property
    def complete(self) -> bool:
        return True

    def share(self, particles: int) -> int:
        if particles != self.particles:
            raise InvalidInput(f"{particles} particles on ranks that were told {self.particles}; give the same number")
        return self.cuts[self.world.rank + 1] - self.first

    def everyone(self, here: Tensor) -> Tensor:
        return gathered(self.world, here, 1, self.cuts)

    def mine(self, everyone: Tensor) -> Tensor:
        return everyone[:, self.first : self.cuts[self.world.rank + 1]]

    def agreed(self, wish: bool) -> bool:
        asked = torch.tensor(int(wish))
        self.world.together(lambda: dist.all_reduce(asked, dist.ReduceOp.MAX))
        return bool(asked)

    def take(self, move: Move, ancestors: Tensor, origin: Origin | None) -> Move:
        """All ranks call this with the same ancestors. A lazy move is made anew of all, another of the guests only."""
        own = self.mine(ancestors) - self.first
        found = None if origin is None else plan(ancestors.cpu(), self.cuts, self.world.rank)
        if origin is None or found is None:
            return move.take(own)
        arrived, u = self._exchange(origin, found)
        if found.guests == 0:
            return move.take(own)
        return origin.make(arrived, u) if getattr(move, "lazy", False) else hosted(move, arrived, u, origin, own)

    def _exchange(self, origin: Origin, found: Plan) -> tuple[Particles, Tensor]:
        """The ancestors of the particles here, and the uniforms of their choices."""
        x, log_w, aux = origin.particles
        rows, unpack = packed([x, log_w, origin.u, *aux.values()])
        sent = rows[torch.cat(found.leaving).to(rows.device)]
        came = rows.new_empty(found.guests, rows.shape[1])
        counts = [len(leaving) for leaving in found.leaving]
        self.world.together(lambda: dist.all_to_all_single(came, sent, found.arriving, counts))
        taken = torch.cat([rows, came])[found.row.reshape(-1).to(rows.device)]
        x, log_w, u, *rest = (tensor.unflatten(0, found.row.shape) for tensor in unpack(taken))
        return Particles(x, log_w, dict(zip(aux, rest, strict=True))), u


def gathered(world: World, here: Tensor, axis: int, cuts: Sequence[int]) -> Tensor:
    """The ranks' tensors side by side along an axis, of which rank r holds cuts[r] to cuts[r + 1]."""
    if world.size == 1:
        return here
    sizes = [end - begin for begin, end in pairwise(cuts)]
    lines = here.movedim(axis, 0).contiguous()
    filled = torch.cat([lines, lines.new_zeros(max(sizes) - len(lines), *lines.shape[1:])])  # all send as much
    parts = [torch.empty_like(filled) for _ in sizes]
    world.together(lambda: dist.all_gather(parts, filled))
    whole = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
    return whole.movedim(0, axis).contiguous()
