"""Ranks without a launcher: forks of this process, which meet as those that `torchrun` starts do."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(size: int, work: Callable[[int], object], errors: Path) -> list[int]:
    """Call work(rank) in each of `size` forks; returns their process ids. A traceback is left in errors/RANK."""
    meeting = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.environ.update({name: str(value) for name, value in (meeting | {"RANK": rank}).items()})
                work(rank)
                code = 0
            except BaseException:
                (errors / str(rank)).write_text(traceback.format_exc())
            os._exit(code)
        pids.append(pid)
    return pids


def wait(pids: list[int]) -> list[int]:
    """Their exit codes, negative for a signal."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def on_ranks(size: int, work: Callable[[int], object], errors: Path) -> None:
    """All ranks to their end; the first traceback fails the test."""
    codes = wait(start(size, work, errors))
    told = [path.read_text() for path in sorted(errors.glob("[0-9]"))]
    assert codes == [0] * size, "\n".join(told)
