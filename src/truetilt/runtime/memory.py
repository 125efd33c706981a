"""What fits into memory: how many particles to draw at a time, and whether a size that is asked for can be had at all.

Sizes are refused by a lower bound of what they take, with the number named, before anything is made.
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.batch import needs_of
from ..core.types import FeynmanKac, InvalidInput

_SHARE = 0.5  # of what is free: the rest is for what this estimate leaves out
_COPIES = 6  # of a row a site: scores, laws and weights of the base, the conditional and the proposal
_WORD = 8  # bytes of a float64
_STEP = 2048  # bytes of the record of a step beside its particles


def fitting_chunk(fk: FeynmanKac, shape: tuple[int, int], device: torch.device | str) -> int | None:
    """Particles of every population at a time, or None where all fit; shape is (populations, particles)."""
    populations, particles = shape
    model: Any = getattr(fk, "model", None)
    if model is None:
        return None
    scores = [
        score for score in (getattr(model, "base", None), getattr(model, "conditional", None)) if score is not None
    ]
    each = max([particle_bytes(model, score) for score in scores], default=_WORD)
    fitting = max(1, int(_SHARE * free_bytes(device)) // (each * populations))
    batch = max([needs_of(score).batch for score in scores], default=1)
    if fitting >= particles:
        return None
    return fitting // batch * batch or fitting  # whole batches of a network, where at least one fits


def particle_bytes(model: Any, score: Any) -> int:
    """What a score says a particle takes, or what it takes with a row of float64 at every site."""
    stated = needs_of(score).particle_bytes
    if stated is not None:
        return stated
    vocabulary = getattr(getattr(model, "process", None), "vocabulary", 1)
    return _COPIES * _WORD * vocabulary * getattr(model, "length", 1)


def free_bytes(device: torch.device | str) -> int:
    """Memory that can still be had: of a GPU, with what torch holds and does not use; else of the machine."""
    device = torch.device(device)
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    return _available()


def check_fits(needed: int, what: str, device: torch.device | str = "cpu") -> None:
    """Refuse what takes more bytes than are free; `what` names it with its numbers."""
    free = free_bytes(device)
    if needed > free:
        raise InvalidInput(f"{what} would take {told_bytes(needed)} and {told_bytes(free)} are free; take fewer")


def check_run(sizes: tuple[int, int, int], length: int, kept: int, device: torch.device | str = "cpu") -> None:
    """Refuse (particles, populations, steps) whose record alone does not fit: who descends from whom, and states."""
    particles, populations, steps = sizes
    if min(sizes) < 1:
        return  # refused by whoever runs it, in its own words
    each = 4 * (steps + 1) + _WORD * length * (1 + min(kept, steps + 1))
    words = f"{particles:,} particles in {populations:,} populations over {steps:,} steps"
    check_fits(particles * populations * each + _STEP * steps, words, device)


def check_room(fk: FeynmanKac, shape: tuple[int, int], steps: int, device: torch.device | str) -> None:
    """Refuse a run of this model, of (populations, particles), whose record alone does not fit."""
    model: Any = getattr(fk, "model", None)
    length = getattr(model, "length", None) or getattr(model, "dimension", 1)
    check_run((shape[1], shape[0], steps), length, 1, device)


def told_bytes(size: float) -> str:
    """A size to read: 3.2 GiB."""
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
