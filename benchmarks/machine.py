"""What every benchmark shares: the name of the machine, fair timing, and where figures are kept."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from truetilt.commands.job_runner import device_name
from truetilt.core.storage import write_json

RESULTS = Path(__file__).parent / "results"


def named(device: str) -> dict[str, Any]:
    """The machine and the versions that a figure is from."""
    return {
        "device": device_name(device),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": list(os.getloadavg()),  # of neighbours too: a shared machine is slower than its name
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def in_turn(pieces: dict[str, Callable[[], object]], rounds: int, device: str = "cpu") -> dict[str, float]:
    """The least seconds of each piece, all of them in turn: what disturbs one round disturbs every piece alike."""
    least = dict.fromkeys(pieces, float("inf"))
    for _ in range(rounds):
        for name, work in pieces.items():
            wait(device)
            begin = time.perf_counter()
            work()
            wait(device)
            least[name] = min(least[name], time.perf_counter() - begin)
    return least


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def keep(name: str, facts: dict[str, Any], device: str = "cpu") -> Path:
    """Write benchmarks/results/NAME.json."""
    path = RESULTS / f"{name}.json"
    write_json(path, {"machine": named(device)} | facts)
    print(f"written: {path}")
    return path
