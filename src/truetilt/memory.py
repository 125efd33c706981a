"""How many particles to draw at a time: as many as fit into half of the memory that is free."""

from __future__ import annotations

from typing import Any

import torch

from .types import FeynmanKac, InvalidInput

_SHARE = 0.5  # of what is free: the rest is for what this estimate leaves out
_COPIES = 6  # of a row a site: scores, laws and weights of the base, the conditional and the proposal
_WORD = 8  # bytes of a float64


def check_room(fk: FeynmanKac, shape: tuple[int, int], times: int, device: torch.device | str) -> None:
    """Refuse a run whose states and ancestors alone, kept to the end, exceed the memory that is free."""
    populations, particles = shape
    sites = getattr(getattr(fk, "model", None), "length", 1)
    needed = _WORD * populations * particles * (2 * sites + times)
    check_free(needed, f"{populations} populations of {particles} particles over {times - 1} steps", device)


def check_free(needed: int, words: str, device: torch.device | str = "cpu") -> None:
    """Refuse what takes more bytes than are free."""
    free = free_bytes(device)
    if needed > free:
        raise InvalidInput(
            f"{words} take at least {needed // 2**20:,} MiB, and {free // 2**20:,} MiB of memory are free; ask for "
            "fewer"
        )


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
    batch = max([getattr(score, "batch", 1) for score in scores], default=1)
    if fitting >= particles:
        return None
    return fitting // batch * batch or fitting  # whole batches of a network, where at least one fits


def particle_bytes(model: Any, score: Any) -> int:
    """What a score says a particle takes, or what it takes with a row of float64 at every site."""
    stated = getattr(score, "particle_bytes", None)
    if stated is not None:
        return int(stated)
    vocabulary = getattr(getattr(model, "process", None), "vocabulary", 1)
    return _COPIES * _WORD * vocabulary * getattr(model, "length", 1)


def free_bytes(device: torch.device | str) -> int:
    """Memory that can still be had: of a GPU, with what torch holds and does not use; else of the machine."""
    device = torch.device(device)
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    return _available()


def _available() -> int:
    """MemAvailable of Linux; elsewhere a cautious 2 GiB."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(found[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 2 * 2**30
