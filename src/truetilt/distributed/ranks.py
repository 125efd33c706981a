"""One population sharded over several ranks: each holds a contiguous range of particles, and all see all weights.

Weights are gathered, so every rank computes the same ancestors; then only particles whose descendants are on another
rank are sent, once to each rank. If a move has evaluated its networks already, its draws are made on the ancestor's
rank instead: uniforms are sent there, and the drawn particles are sent back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.types import Move, Particles
from ..smc.shards import Drawing, Drawn, Origin, SharedSettings
from .exchange import Exchange, packed, plan, visits
from .world import World


@dataclass(frozen=True)
class Ranks:
    """A `Shard` over `torch.distributed`: this rank's range of the particles of each population."""

    world: World
    particles: int

    def __post_init__(self) -> None:
        if self.particles < self.world.size:
            raise InvalidInput(
                f"{self.particles} particles over {self.world.size} ranks; give each at least one, or start fewer ranks"
            )

    @property
    def cuts(self) -> list[int]:
        """First particle of each rank's range, and the total at the end."""
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

    def summed(self, here: Tensor) -> Tensor:
        total = here.clone()
        self.world.together(lambda: dist.all_reduce(total, dist.ReduceOp.SUM))
        return total

    def agreed(self, flag: bool) -> bool:
        asked = torch.tensor(int(flag))
        self.world.together(lambda: dist.all_reduce(asked, dist.ReduceOp.MAX))
        return bool(asked)

    def compare(self, settings: SharedSettings) -> None:
        compare(self.world, settings)

    def draw(self, move: Move, ancestors: Tensor, origin: Origin | None, draws: Drawing) -> Drawn:
        """Collective: all ranks call it with the same ancestors.

        A lazily evaluated move is rebuilt from the received particles; any other is drawn on the ancestor's rank.
        """
        found = None if origin is None else plan(ancestors.cpu(), self.cuts, self.world.rank)
        if origin is None or found is None:
            return draws(move.take(self.mine(ancestors) - self.first))
        if not move.lazy:
            return self._draw_at_home(move, ancestors, draws)
        (x, log_w, aux), u = origin.particles, origin.u
        x, log_w, u, *rest = self._exchange([x, log_w, u, *aux.values()], found)
        return draws(origin.make(Particles(x, log_w, dict(zip(aux, rest, strict=True))), u))

    def _draw_at_home(self, move: Move, ancestors: Tensor, draws: Drawing) -> Drawn:
        """Draw each particle on its ancestor's rank, from the particle's own uniforms, and send it to its own rank."""
        found, device = visits(ancestors.cpu(), self.cuts, self.world.rank).to(ancestors.device), ancestors.device
        own = move.take(found.own)
        u = draws.uniforms(own)
        x, log_after, aux = draws(own, u)
        asked = u.new_zeros(*found.others.shape, u.shape[-1])
        asked[found.here] = self._sent(u[found.away], found.needed, found.asked)
        theirs = draws(move.take(found.others), asked)
        rows, unpack = packed([x, log_after, *aux.values()])
        guests, _ = packed([theirs[0], theirs[1], *(theirs[2][key] for key in aux)])
        place = torch.arange(found.others.numel(), device=device).reshape(found.others.shape)[found.here]
        back = torch.arange(log_after.numel(), device=device).reshape(log_after.shape)[found.away]
        rows[back] = self._sent(guests[place], found.asked, found.needed)
        x, log_after, *rest = (tensor.unflatten(0, log_after.shape) for tensor in unpack(rows))
        return x, log_after, dict(zip(aux, rest, strict=True))

    def _sent(self, rows: Tensor, counts: list[int], coming: list[int]) -> Tensor:
        """All-to-all: send `counts` rows to each rank in turn, and return the rows received."""
        came = rows.new_empty(sum(coming), *rows.shape[1:])
        self.world.together(lambda: dist.all_to_all_single(came, rows.contiguous(), coming, counts))
        return came

    def _exchange(self, tensors: Sequence[Tensor], found: Exchange) -> list[Tensor]:
        """The rows of the ancestors of this rank's particles, out of tensors [populations, n, ...]."""
        rows, unpack = packed(tensors)
        sent = rows[torch.cat(found.leaving).to(rows.device)]
        came = self._sent(sent, [len(leaving) for leaving in found.leaving], found.arriving)
        taken = torch.cat([rows, came])[found.row.reshape(-1).to(rows.device)]
        return [tensor.unflatten(0, found.row.shape) for tensor in unpack(taken)]


def compare(world: World, settings: SharedSettings) -> None:
    """Raise on every rank if the settings of one differ from the first's, and name the setting and the rank."""
    if world.size == 1:
        return
    mine = torch.frombuffer(bytearray(json.dumps(settings, sort_keys=True).encode()), dtype=torch.uint8)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world.size)]
    world.together(lambda: dist.all_gather(sizes, torch.tensor([len(mine)])))
    longest = max(int(size) for size in sizes)
    parts = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
    world.together(lambda: dist.all_gather(parts, torch.cat([mine, mine.new_zeros(longest - len(mine))])))
    told = [json.loads(bytes(part[: int(size)].tolist())) for part, size in zip(parts, sizes, strict=True)]
    for rank, theirs in enumerate(told):
        names = sorted(name for name in told[0].keys() | theirs.keys() if told[0].get(name) != theirs.get(name))
        if names:
            values = ", ".join(f"{name} ({told[0].get(name)!r:.80} and {theirs.get(name)!r:.80})" for name in names)
            raise InvalidInput(f"ranks 0 and {rank} were told different things: {values}; call all ranks alike")


def gathered(world: World, here: Tensor, axis: int, cuts: Sequence[int]) -> Tensor:
    """All-gather: the ranks' tensors concatenated along an axis, of which rank r holds cuts[r] to cuts[r + 1]."""
    if world.size == 1:
        return here
    sizes = [end - begin for begin, end in pairwise(cuts)]
    lines = here.movedim(axis, 0).contiguous()
    filled = torch.cat([lines, lines.new_zeros(max(sizes) - len(lines), *lines.shape[1:])])  # padded to one size
    parts = [torch.empty_like(filled) for _ in sizes]
    world.together(lambda: dist.all_gather(parts, filled))
    whole = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
    return whole.movedim(0, axis).contiguous()
