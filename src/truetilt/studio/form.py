"""The form: its values are parsed, validated field by field, and kept as one record.

Errors are reported by field, so that each can be shown beside its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.errors import InvalidInput
from ..models.hub import embedded
from .choices import MODELS, ORDERED, PACES, PROCESSES, RESAMPLING, SAMPLERS, WEIGHTS
from .folders import BACKBONE, DIGITS, MOLECULES, REVIEWS, STRINGS, TABLE, TEXT, Found, found_at
from .molecules import molecule_faults

MOST = 200_000  # particles of all populations together
STEPS = 5_000
LONGEST = 100_000  # characters of a field
OF_NETWORKS = 10_000  # the same of a model with networks, where a step of them takes minutes
MOVES = 100_000_000  # particles times steps, at most: the size of the genealogy


class RunForm(NamedTuple):
    """The settings of one run, in the order of the form's fields."""

    model: str = "nine"
    path: str = ""
    process: str = "masking"
    condition: str | int | None = None  # as typed; parsed when the problem is built
    prompt: str = ""
    open: str = ""  # residues of a protein
    weights: str = "vanilla"
    sampler: str = "tilted"
    alpha: float = 4.0
    beta: float = 1.0
    particles: int = 500
    populations: int = 4
    steps: int = 50
    resampling: str = "half"
    seed: int = 0
    device: str = "cpu"
    pace: str = "watch"  # affects only the display


def first_form(model: str = "nine") -> RunForm:
    """The form's initial values, and those after another model was chosen."""
    choice = MODELS[model]
    return RunForm(model, condition=choice.asked, sampler=choice.sampler, **choice.start._asdict())


def devices() -> list[str]:
    """The devices available here."""
    import torch

    return ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]


def faults(values: Mapping[str, Any]) -> dict[str, str]:
    """Errors by field; empty if the form is valid."""
    told = {name: check(values[name]) for name, check in _CHECKS.items()}
    found = {name: words for name, words in told.items() if words}
    if "model" not in found:
        found |= _model_faults(values)
    if not {"model", "particles", "populations", "steps"} & found.keys():
        most = MOST if what_is_there(values).kind in (TABLE, "plane", "") else OF_NETWORKS
        found |= _size_faults(values["particles"] * values["populations"], values["steps"], most)
    return found


def scalars(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """What a request gives for these fields: numbers, truth values and texts as they are, without half characters;
    nothing in place of anything else."""
    padded = [*values[: len(names)], *[None] * (len(names) - len(values))]
    told = {
        name: value if isinstance(value, bool | int | float) else None
        for name, value in zip(names, padded, strict=True)
    }
    texts = {name: value for name, value in zip(names, padded, strict=True) if isinstance(value, str)}
    return told | {name: text[:LONGEST].encode("utf-8", "replace").decode() for name, text in texts.items()}


def form_of(values: Mapping[str, Any]) -> RunForm:
    """The record of values that have no errors."""
    found = faults(values)
    if found:
        raise InvalidInput("; ".join(f"{name}: {words}" for name, words in found.items()))
    read: dict[str, Any] = dict(values) | {name: trimmed(values[name]) for name in ("path", "prompt", "open")}
    read |= {name: int(values[name]) for name in ("particles", "populations", "steps", "seed")}
    read |= {name: float(values[name]) for name in ("alpha", "beta")}
    read["condition"] = trimmed(values["condition"]) or None
    return RunForm(**read)


def what_is_there(values: Mapping[str, Any]) -> Found:
    """The kind of the chosen model; a user's path is inspected."""
    if values["model"] == "own":
        return found_at(trimmed(values["path"]))
    if values["model"] == "protein":
        return Found(BACKBONE)
    if values["model"] == "molecules":
        return Found(MOLECULES)
    if values["model"] == "tiny-reviews":
        return found_at(embedded("tiny-reviews"))
    return Found({"mnist": DIGITS, "plane": "plane"}.get(values["model"], TABLE), masked=values["model"] == "nine")


def is_number(low: float, high: float) -> Callable[[Any], str]:
    """A check of a number in a range: it returns the error message, or an empty string."""

    def check(value: Any) -> str:
        fits = isinstance(value, int | float) and low <= value <= high
        return "" if fits else f"Give a number from {low:g} to {high:g}."

    return check


def is_whole(low: int, high: int) -> Callable[[Any], str]:
    """A check of a whole number in a range."""

    def check(value: Any) -> str:
        fits = isinstance(value, int | float) and low <= value <= high and value == int(value)
        return "" if fits else f"Give a whole number from {low:,} to {high:,}."

    return check


def one_of(known: Mapping[str, Any]) -> Callable[[Any], str]:
    """A check of a choice among known ones."""
    return lambda value: "" if isinstance(value, str) and value in known else f"Choose one of {', '.join(known)}."


_CHECKS: Mapping[str, Callable[[Any], str]] = {
    "model": one_of(MODELS),
    "process": one_of(PROCESSES),
    "weights": one_of(WEIGHTS),
    "sampler": one_of(SAMPLERS),
    "alpha": is_number(0, 100),
    "beta": is_number(0, 100),
    "particles": is_whole(1, MOST),
    "populations": is_whole(1, 4096),
    "steps": is_whole(1, STEPS),
    "resampling": one_of(RESAMPLING),
    "seed": is_whole(0, 2**53),
    "pace": one_of(PACES),
    "device": lambda value: device_fault(value),
}


def device_fault(value: Any) -> str:
    """The error message for a device, or an empty string."""
    return one_of(dict.fromkeys(devices()))(value)


def trimmed(value: Any) -> str:
    """A value as trimmed text; empty for None."""
    return "" if value is None else str(value).strip()


def _number_in(text: str) -> float | None:
    """The number that a text stands for; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def _size_faults(particles: float, steps: float, most: int) -> dict[str, str]:
    if particles > most:
        return {"particles": f"Together more than {most:,} particles; take fewer particles or populations."}
    if particles * steps > MOVES:
        return {"steps": f"Particles times steps is more than {MOVES:,}; take fewer of either."}
    return {}


def _model_faults(values: Mapping[str, Any]) -> dict[str, str]:
    """Values that the chosen model does not accept."""
    there = what_is_there(values)
    if not there.kind:
        return {"path": "There is nothing at this path; name a table (.json) or a folder of networks on this machine."}
    if there.kind == BACKBONE:
        return _protein_faults(values)
    if there.kind == MOLECULES:
        return molecule_faults(trimmed(values["condition"]), values["sampler"])
    if values["sampler"] == "in-order":
        return {"sampler": "This model has no order of its own; choose another sampler."}
    masked = values["process"] == "masking" if (values["model"], there.kind) == ("own", TABLE) else there.masked
    if values["sampler"] == "any-order" and not (masked and there.kind != "plane"):
        return {"sampler": "This model has nothing masked to reveal; choose another sampler."}
    given, number = trimmed(values["condition"]), _number_in(trimmed(values["condition"]))
    if there.kind == "plane":
        return _at("condition", is_number(-10, 10)(number))
    if there.kind == DIGITS:
        most, lead = (9, "") if values["model"] == "mnist" else (1_000_000, "Networks need a class. ")
        return _at("condition", is_whole(0, most)(number), lead)
    if there.kind == REVIEWS:
        return _reviews_faults(there, given, values["sampler"])
    one = there.kind in (TEXT, STRINGS)  # a single network, without a classifier
    return _text_faults(there, given, trimmed(values["prompt"]), values["sampler"]) if one else {}


def _protein_faults(values: Mapping[str, Any]) -> dict[str, str]:
    """Errors for a protein: the structure must exist; without other weights to lean to there is no guidance."""
    given, sampler = trimmed(values["condition"]), values["sampler"]
    if found_at(trimmed(values["path"])).kind != TABLE:  # not a plain file
        return {"path": "There is no such file; give a structure, PDB or mmCIF, on this machine."}
    if sampler not in ORDERED:
        return {"sampler": "ProteinMPNN decodes residues in one order; choose that, or guidance only."}
    if given and given not in WEIGHTS:
        return {"condition": f"Give {' or '.join(WEIGHTS)}, or nothing."}
    if given == values["weights"]:
        return {"condition": f"The weights are {given} already; lean to others, or to nothing."}
    return {} if given or sampler != "guidance" else {"condition": "Guidance needs weights to lean to."}


def _at(field: str, words: str, lead: str = "") -> dict[str, str]:
    return {field: f"{lead}{words}"} if words else {}


def _reviews_faults(there: Found, given: str, sampler: str) -> dict[str, str]:
    """Errors for the class, by name or number; only classes that the classifier predicts can be tilted by it."""
    if not there.classes:  # a card without classes is reported when the bundle is loaded
        return {}
    names = there.classes
    number = int(given) if re.fullmatch("[0-9]{1,9}", given) else len(names)
    name = given if given in names else names[number] if number < len(names) else ""
    if not name:
        return {"condition": f"Choose one of {', '.join(names)}."}
    if sampler == "tilted" and name not in there.judged:
        return {"condition": f"No classifier knows {name}, so it cannot be tilted; choose another class or sampler."}
    return {}


def _text_faults(there: Found, given: str, prompt: str, sampler: str) -> dict[str, str]:
    """Errors for a single text network: a class by its number, or a prompt; it has no classifier to tilt by."""
    if sampler == "tilted":
        return {"sampler": "One text net has no classifier to tilt by; choose another sampler."}
    if given and prompt:
        return {"prompt": "Give a class or a prompt, not both; empty one of them."}
    if not given and not prompt:
        return {"condition" if there.classes else "prompt": "Give a class by its number, or a prompt."}
    if given and given not in there.classes:
        known = f"a class from 0 to {len(there.classes) - 1}" if there.classes else "a prompt; this net has no classes"
        return {"condition": f"Give {known}."}
    return {}
