"""What is asked for in the form: read, checked field by field, and kept as one record.

Faults are told by field, so that each can be shown where it arose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..smc.resampling import adaptive, multinomial, never, partial, systematic
from ..types import InvalidInput, Resampler


class Choice(NamedTuple):
    """A model that can be chosen: its name in the list, what its condition is called, and what suits it."""

    label: str
    words: str
    condition: str | None = None
    start: tuple[float, int, int, int] = (4.0, 500, 4, 50)  # alpha, particles, populations, steps


MODELS: Mapping[str, Choice] = {
    "nine": Choice(
        "Nine states, two masked sites",
        "The paper’s figure 2. Small enough to know the answer: the exact target stands beside both samplers.",
    ),
    "six": Choice(
        "Six states, one site",
        "The paper’s figure 1: one site whose token is replaced at random. The answer is known exactly.",
    ),
    "mnist": Choice(
        "Digits",
        "Embedded networks of 28 × 28 pixels, masked. Some seconds a step on a CPU.",
        "Condition: the digit, 0 to 9",
        (3.0, 16, 4, 30),
    ),
    "plane": Choice(
        "Points in the plane",
        "A mixture of Gaussians: x₁ was seen with an error of 1.",
        "Condition: where x₁ was seen",
        (4.0, 250, 4, 80),
    ),
    "own": Choice(
        "My own table or networks",
        "A JSON table with p0 and likelihood, or a folder of networks as `truetilt train` writes them.",
        "Condition: the class, for networks only",
    ),
}
SAMPLERS: Mapping[str, tuple[str, str]] = {
    "tilted": ("Tilted (recommended)", "Moves by the conditional model, weighs by a potential that grows."),
    "tempered": ("Tempered (the paper’s)", "Moves by guidance of strength β, weighs by ratios of the two models."),
    "any-order": ("Any order", "Reveals masked sites in random order and weighs before it draws: no time error."),
    "guidance": ("Guidance only", "No weights: what everybody does, with α as its strength."),
}
PACES: Mapping[str, str] = {"watch": "To be watched: 4 seconds at least", "fast": "As fast as it goes"}
PROCESSES: Mapping[str, str] = {"masking": "Masking", "uniform": "Uniform"}


class Scheme(NamedTuple):
    """A way to resample: in words, in Python, and itself."""

    words: str
    python: str
    made: Resampler


RESAMPLING: Mapping[str, Scheme] = {
    "half": Scheme("When ESS falls below half", "tt.adaptive(tt.systematic, 0.5)", adaptive(systematic, 0.5)),
    "multinomial": Scheme(
        "The same, multinomial", "tt.adaptive(tt.multinomial, 0.5)", adaptive(multinomial, 0.5)
    ),
    "partial": Scheme(
        "The same, half of the particles",
        "tt.adaptive(tt.partial(tt.systematic, 0.5), 0.5)",
        adaptive(partial(systematic, 0.5), 0.5),
    ),
    "always": Scheme("At every step", "tt.systematic", systematic),
    "never": Scheme("Never", "tt.never", never),
}  # fmt: skip
MOST = 200_000  # particles of all populations together
STEPS = 5_000
MOVES = 100_000_000  # particles times steps: the record of who descends from whom


class Wish(NamedTuple):
    """One run, as the form says it. The order is the form's."""

    model: str = "nine"
    path: str = ""
    process: str = "masking"
    condition: float | None = None
    sampler: str = "tilted"
    alpha: float = 4.0
    beta: float = 1.0
    particles: int = 500
    populations: int = 4
    steps: int = 50
    resampling: str = "half"
    seed: int = 0
    device: str = "cpu"
    pace: str = "watch"  # changes no bit


def first_wish(model: str = "nine") -> Wish:
    """What the form says at the start, and after another model was chosen."""
    alpha, particles, populations, steps = MODELS[model].start
    condition = {"mnist": 4, "plane": 0.2}.get(model)
    return Wish(model, condition=condition, alpha=alpha, particles=particles, populations=populations, steps=steps)


def devices() -> list[str]:
    """Where one can compute here."""
    import torch

    return ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]


def faults(values: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong, by field; nothing where all is well."""
    told = {name: check(values[name]) for name, check in _CHECKS.items()}
    found = {name: words for name, words in told.items() if words}
    if values["model"] == "own" and not found:
        found |= _own_faults(values)
    elif values["model"] in ("mnist", "plane"):
        found |= _condition_faults(values["model"], values["condition"])
    if values["sampler"] == "any-order" and _hides_nothing(values):
        found["sampler"] = "This model has nothing masked to reveal; choose another sampler."
    if not {"particles", "populations", "steps"} & found.keys():
        found |= _size_faults(values["particles"] * values["populations"], values["steps"])
    return found


def wish_of(values: Mapping[str, Any]) -> Wish:
    """The record of values without faults."""
    found = faults(values)
    if found:
        raise InvalidInput("; ".join(f"{name}: {words}" for name, words in found.items()))
    read: dict[str, Any] = dict(values) | {"path": _trimmed(values)}
    read |= {name: int(values[name]) for name in ("particles", "populations", "steps", "seed")}
    read |= {name: float(values[name]) for name in ("alpha", "beta")}
    return Wish(**read)


def _number(low: float, high: float) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        fits = isinstance(value, int | float) and math.isfinite(value) and low <= value <= high
        return "" if fits else f"Give a number from {low:g} to {high:g}."

    return check


def _whole(low: int, high: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        fits = isinstance(value, int | float) and math.isfinite(value) and value == int(value) and low <= value <= high
        return "" if fits else f"Give a whole number from {low:,} to {high:,}."

    return check


def _one_of(known: Mapping[str, Any]) -> Callable[[Any], str]:
    return lambda value: "" if value in known else f"Choose one of {', '.join(known)}."


_CHECKS: Mapping[str, Callable[[Any], str]] = {
    "model": _one_of(MODELS),
    "process": _one_of(PROCESSES),
    "sampler": _one_of(SAMPLERS),
    "alpha": _number(0, 100),
    "beta": _number(0, 100),
    "particles": _whole(1, MOST),
    "populations": _whole(1, 4096),
    "steps": _whole(1, STEPS),
    "resampling": _one_of(RESAMPLING),
    "seed": _whole(0, 2**53),
    "pace": _one_of(PACES),
    "device": lambda value: "" if value in devices() else f"Choose one of {', '.join(devices())}.",
}


def _trimmed(values: Mapping[str, Any]) -> str:
    return str(values["path"] or "").strip()


def _kind(path: str) -> str:
    """What lies at a path: a file, a folder or nothing."""
    try:
        return "folder" if path and Path(path).is_dir() else "file" if path and Path(path).is_file() else ""
    except (OSError, ValueError):  # a name that no file system takes
        return ""


def _hides_nothing(values: Mapping[str, Any]) -> bool:
    table = values["model"] == "own" and _kind(_trimmed(values)) == "file"
    return values["model"] in ("six", "plane") or (table and values["process"] == "uniform")


def _size_faults(particles: float, steps: float) -> dict[str, str]:
    if particles > MOST:
        return {"particles": f"Together more than {MOST:,} particles; take fewer particles or populations."}
    if particles * steps > MOVES:
        return {"steps": f"Particles times steps is more than {MOVES:,}; take fewer of either."}
    return {}


def _condition_faults(model: str, value: Any) -> dict[str, str]:
    words = _whole(0, 9)(value) if model == "mnist" else _number(-10, 10)(value)
    return {"condition": words} if words else {}


def _own_faults(values: Mapping[str, Any]) -> dict[str, str]:
    kind = _kind(_trimmed(values))
    if not kind:
        return {"path": "There is nothing at this path; name a table (.json) or a folder of networks on this machine."}
    if kind == "folder" and (words := _whole(0, 1_000_000)(values["condition"])):
        return {"condition": f"Networks need a class. {words}"}
    return {}
