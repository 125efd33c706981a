"""Memory limits: the chunk size that fits, and whether a requested run can fit at all.

A run is refused before any allocation, by a lower bound of its memory, which the error names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ..core.bases import FeynmanKac, model_of
from ..core.errors import InvalidInput
from ..core.evaluation import needs_of
from ..core.types import Model

_SHARE = 0.5  # fraction of the free memory to use; the other half covers what this estimate leaves out
_COPIES = 6  # copies of a row at each site: scores, laws and weights of base, conditional and proposal
_WORD = 8  # bytes of a float64
_STEP = 2048  # bytes that a step's record takes besides its particles


class RunSizes(NamedTuple):
    """The sizes of a run."""

    particles: int
    populations: int
    steps: int


def fitting_chunk(fk: FeynmanKac, shape: tuple[int, int], device: torch.device | str) -> int | None:
    """The largest chunk (particles of every population drawn at a time) that fits, or None where all fit.

    `shape` is (populations, particles).
    """
    (populations, particles), model = shape, model_of(fk)
    if model is None:
        return None
    scores = [score for name in ("base", "conditional") if (score := getattr(model, name, None))]
    each = max([particle_bytes(model, score) for score in scores], default=_WORD)
    fitting = max(1, int(_SHARE * free_bytes(device)) // (each * populations))
    batch = max([needs_of(score).batch for score in scores], default=1)
    if fitting >= particles:
        return None
    return fitting // batch * batch or fitting  # whole batches of a network, where at least one fits


def particle_bytes(model: Any, score: Any) -> int:
    """Bytes a particle takes while it is drawn: as the score states it, else for a dense float64 row at every site."""
    stated = needs_of(score).particle_bytes
    if stated is not None:
        return stated
    row = model.process.vocabulary * model.length if isinstance(model, Model) else 1
    return _COPIES * _WORD * row


def free_bytes(device: torch.device | str) -> int:
    """Free memory in bytes: of a GPU, including what torch has cached; otherwise of the machine."""
    device = torch.device(device)
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    return _available()


def check_fits(needed: int, what: str, device: torch.device | str = "cpu") -> None:
    """Refuse an allocation of more bytes than are free; `what` names it in the error."""
    free = free_bytes(device)
    if needed > free:
        raise InvalidInput(f"{what} would take {told_bytes(needed)} and {told_bytes(free)} are free; take fewer")


def check_run(sizes: RunSizes, length: int, kept: int, device: torch.device | str = "cpu") -> None:
    """Refuse a run whose genealogy and states alone do not fit; `kept` is how many of its steps are snapshots."""
    particles, populations, steps = sizes
    if min(sizes) < 1:
        return  # sizes below 1 raise where the run is built
    each = 4 * (steps + 1) + _WORD * length * (1 + min(kept, steps + 1))
    words = f"{particles:,} particles in {populations:,} populations over {steps:,} steps"
    check_fits(particles * populations * each + _STEP * steps, words, device)


def check_room(fk: FeynmanKac, shape: tuple[int, int], steps: int, device: torch.device | str) -> None:
    """Refuse a run of this model, of (populations, particles), whose genealogy and states alone do not fit."""
    populations, particles = shape
    check_run(RunSizes(particles, populations, steps), _width(fk), 1, device)


def _width(fk: FeynmanKac) -> int:
    """How many numbers a state has: sites of tokens, or dimensions of a vector; 1 where that is not known."""
    model = model_of(fk)
    return model.length if isinstance(model, Model) else getattr(model, "dimension", 1)


def told_bytes(size: float) -> str:
    """A size in readable units: 3.2 GiB."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size = size // 1024 if size > 2**60 else size / 1024
    return "more than 1,000 TiB"


def _available() -> int:
    """MemAvailable of Linux; elsewhere a cautious 2 GiB."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(found[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 2 * 2**30
