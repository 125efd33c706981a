"""The process group of a run: the ranks that `torchrun` started, or this process alone.

A single process joins no group and pays nothing. When a collective operation fails because a rank was lost, the
remaining ranks report in the launcher's store, and the error names those that did not.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ..core.arguments import LONGEST, number, set_fields, whole_number
from ..core.errors import InvalidInput, TruetiltError

PATIENCE = 600.0  # seconds a rank waits for the others
_GRACE = 3.0  # seconds in which a living rank must report

T = TypeVar("T")


class LostRank(TruetiltError):
    """Another rank did not answer; the message names it."""


@dataclass(frozen=True)
class World:
    """This process among all that were started: its rank, and the number of ranks.

    Args:
        rank: Number of this process, 0 to size - 1; 0 by default.
        size: Number of ranks; 1 by default.
        store: The launcher's key-value store. None (the default): there is none.
    """

    rank: int = 0
    size: int = 1
    store: Any = field(default=None, repr=False, compare=False)  # the launcher's key-value store, if there is one

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes files."""
        return self.rank == 0

    def __post_init__(self) -> None:
        set_fields(self, size=whole_number("size", self.size, 1, LONGEST))
        set_fields(self, rank=whole_number("rank", self.rank, 0, self.size - 1))

    def cuts(self, count: int) -> list[int]:
        """First item of each rank's share of `count` items, and the total: shares differ by at most one."""
        count = whole_number("count", count, 0)
        return [count * rank // self.size for rank in range(self.size + 1)]

    def together(self, work: Callable[[], T]) -> T:
        """Run a collective operation; if it fails, name the ranks that do not answer."""
        try:
            return work()
        except RuntimeError as e:
            raise LostRank(
                f"rank {self.rank} of {self.size}: {self._missing()} did not answer ({str(e).splitlines()[0]:.200}). "
                "The job ends; the same command goes on from the last checkpoint, if it kept any"
            ) from e

    def _missing(self) -> str:
        """The ranks that do not report in time, in words."""
        try:
            self.store.set(f"alive/{self.rank}", "yes")
            time.sleep(_GRACE)
            lost = [r for r in range(self.size) if not self.store.check([f"alive/{r}"])]
        except (AttributeError, RuntimeError):
            lost = []
        return f"rank {', '.join(map(str, lost))}" if lost else "another rank"


def told_ranks() -> tuple[int, int]:
    """The rank of this process and the number of ranks, as a launcher says in the environment; (0, 1) without one."""
    told = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    if not told["RANK"] and told["WORLD_SIZE"] in ("", "1"):
        return 0, 1
    need = "start ranks by torchrun, which sets all of them, or unset RANK and WORLD_SIZE to run one process"
    odd = [name for name in ("RANK", "WORLD_SIZE") if not re.fullmatch("[0-9]{1,6}", told[name])]
    rank, size = (0, 1) if odd else (int(told["RANK"]), int(told["WORLD_SIZE"]))
    odd += [name for name in ("MASTER_ADDR", "MASTER_PORT") if size > 1 and not told[name]]
    if odd:
        raise InvalidInput(f"{odd[0]} is {told[odd[0]] or 'not set'!r} in the environment; {need}")
    if rank >= size:
        raise InvalidInput(f"RANK is {rank} and WORLD_SIZE {size} in the environment; {need}")
    return rank, size


_JOINED: list[World] = []  # the process group that this process joined, if any


def world(patience: float = PATIENCE) -> World:
    """The ranks of this job; the first call joins the process group. A process that no launcher started is alone."""
    if not 0 < number("patience", patience, "give seconds to wait for the others") < 2**31:
        raise InvalidInput(f"patience is {patience}; give seconds to wait for the others, more than 0")
    if dist.is_available() and dist.is_initialized():
        return _JOINED[0] if _JOINED else World(dist.get_rank(), dist.get_world_size())
    rank, size = told_ranks()
    if size == 1:
        return World()
    if not dist.is_available():
        raise InvalidInput("this build of torch has no torch.distributed; install one that has, or run one process")
    timeout = timedelta(seconds=patience)
    if torch.cuda.is_available():
        torch.cuda.set_device(device())
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(iter(dist.rendezvous("env://", timeout=timeout)))
        dist.init_process_group(
            backend, store=dist.PrefixStore("truetilt", store), rank=rank, world_size=size, timeout=timeout
        )
    except (RuntimeError, ValueError) as e:
        raise LostRank(
            f"rank {rank} of {size} met no others in {patience:g} seconds ({str(e).splitlines()[0]:.200}); start all "
            "of them, as torchrun does, or unset RANK and WORLD_SIZE to run one process"
        ) from e
    _JOINED[:] = [World(rank, size, store)]
    return _JOINED[0]


def leave() -> None:
    """Leave the process group, if there is one: the next call of `world` joins again."""
    _JOINED.clear()
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def device() -> str:
    """The device of this rank: its own GPU, or the CPU if there is none."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
