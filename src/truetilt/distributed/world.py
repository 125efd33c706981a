"""The process group of a run: the ranks that `torchrun` started, or this process alone.

A single process joins no group and pays nothing. When a collective operation fails because a rank was lost, the
remaining ranks report in the launcher's store, and the error names those that did not.
"""

from __future__ import annotations

import os
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


_JOINED: list[World] = []  # the process group that this process joined, if any


def world(patience: float = PATIENCE) -> World:
    """The ranks of this job; the first call joins the process group. A process that no launcher started is alone."""
    if not 0 < number("patience", patience, "give seconds to wait for the others") < 2**31:
        raise InvalidInput(f"patience is {patience}; give seconds to wait for the others, more than 0")
    if dist.is_available() and dist.is_initialized():
        return _JOINED[0] if _JOINED else World(dist.get_rank(), dist.get_world_size())
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return World()
    if not dist.is_available():
        raise InvalidInput("this build of torch has no torch.distributed; install one that has, or run one process")
    timeout = timedelta(seconds=patience)
    store, rank, size = next(iter(dist.rendezvous("env://", timeout=timeout)))
    if torch.cuda.is_available():
        torch.cuda.set_device(device())
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(
        backend, store=dist.PrefixStore("truetilt", store), rank=rank, world_size=size, timeout=timeout
    )
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
