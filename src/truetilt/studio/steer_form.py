"""The form of steering: its values are validated field by field, and kept as one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.errors import InvalidInput
from ..models.hub import embedded
from .folders import DIGITS, REVIEWS, TABLE, Found, found_at
from .form import device_fault, is_number, is_whole, one_of, trimmed
from .steer_choices import KINDS, POPULATIONS, SUBJECTS, RewardChoice, rewards_for

MOST = 5_000_000  # evaluations, or calls
_NOTHING = ("", "none")


class SteerForm(NamedTuple):
    """The settings of one steering, in the order of the form's fields."""

    model: str = "letters"
    path: str = ""
    condition: str | None = None
    reward: str = "ones"
    strength: float = 1.5
    evaluations: int = 24_000
    calls: int | None = 2_000
    seed: int = 0
    steps: int | None = None
    compare: bool = True
    device: str = "cpu"


def first_steer_form(known: Mapping[str, RewardChoice], model: str = "letters") -> SteerForm:
    """The form's initial values, and those after another model was chosen."""
    subject = SUBJECTS[model]
    key, reward = next(iter(rewards_for(subject.kind or TABLE, known).items()))
    form = SteerForm(model, condition=subject.asked, reward=key, strength=reward.strength)
    return form._replace(evaluations=subject.evaluations, calls=subject.calls, steps=subject.steps)


def subject_at(values: Mapping[str, Any]) -> Found:
    """The kind of the chosen model; a user's path is inspected."""
    if values["model"] == "own":
        return found_at(trimmed(values["path"]))
    if values["model"] == "tiny-reviews":
        return found_at(embedded("tiny-reviews"))
    return Found(SUBJECTS[values["model"]].kind)


def steer_faults(values: Mapping[str, Any], known: Mapping[str, RewardChoice]) -> dict[str, str]:
    """Errors by field; empty if the form is valid."""
    told = {
        "model": one_of(SUBJECTS)(values["model"]),
        "strength": _strength(values["strength"]),
        "evaluations": is_whole(1, MOST)(values["evaluations"]),
        "calls": "" if _empty(values["calls"]) else is_whole(1, MOST)(values["calls"]),
        "steps": "" if _empty(values["steps"]) else is_whole(1, 100_000)(values["steps"]),
        "seed": is_whole(0, 2**53)(values["seed"]),
        "device": device_fault(values["device"]),
    }
    found = {name: words for name, words in told.items() if words}
    if "model" in found:
        return found
    return found | _subject_faults(values, known) | ({} if found else _budget_faults(values))


def steer_form_of(values: Mapping[str, Any], known: Mapping[str, RewardChoice]) -> SteerForm:
    """The record of values that have no errors."""
    found = steer_faults(values, known)
    if found:
        raise InvalidInput("; ".join(f"{name}: {words}" for name, words in found.items()))
    read: dict[str, Any] = dict(values) | {"path": trimmed(values["path"])}
    read |= {name: None if _empty(values[name]) else int(values[name]) for name in ("calls", "steps")}
    read |= {name: int(values[name]) for name in ("evaluations", "seed")}
    read |= {"strength": float(values["strength"]), "compare": bool(values["compare"])}
    read["condition"] = trimmed(values["condition"]) or None
    return SteerForm(**read)


def _empty(value: Any) -> bool:
    return value is None or value in _NOTHING


def _strength(value: Any) -> str:
    words = is_number(-1000, 1000)(value)
    return words or ("Give another number than 0, which would steer nothing." if value == 0 else "")


def _subject_faults(values: Mapping[str, Any], known: Mapping[str, RewardChoice]) -> dict[str, str]:
    there = subject_at(values)
    if not there.kind:
        return {"path": "There is nothing at this path; name a table (.json) or a folder of networks on this machine."}
    if there.kind not in KINDS:
        return {"path": "Only tables and bundles of digit or text networks are steered here; for others use tt.steer."}
    fitting = rewards_for(there.kind, known)
    out = {}
    if values["reward"] not in fitting:
        out["reward"] = f"Choose one that this model can be steered by: {', '.join(r.label for r in fitting.values())}."
    given = trimmed(values["condition"])
    if given and there.kind == DIGITS and not (given.isdecimal() and int(given) <= 1_000_000):
        out["condition"] = "Give the number of a class, such as 4, or nothing."
    if given and values["model"] == "mnist" and given not in tuple("0123456789"):
        out["condition"] = "Give a digit from 0 to 9, or nothing."
    if given and there.kind == REVIEWS and there.classes and given not in there.classes:
        out["condition"] = f"Choose one of {', '.join(there.classes)}, or nothing."
    return out


def _budget_faults(values: Mapping[str, Any]) -> dict[str, str]:
    """Errors for budgets that do not buy one draw for each population, if the number of steps is known."""
    length = SUBJECTS[values["model"]].length
    steps = None if _empty(values["steps"]) else int(values["steps"])
    if length is not None and steps is not None and steps > length:
        return {"steps": f"Give at most {length}, one for each site."}
    least = POPULATIONS * (steps or length or 1)
    if values["evaluations"] < least:
        words = f"Give at least {least:,}: one draw for each of {POPULATIONS} populations."
        return {"evaluations": words}
    if not _empty(values["calls"]) and values["calls"] < POPULATIONS:
        return {"calls": f"Give at least {POPULATIONS}, one for each population, or nothing."}
    return {}
