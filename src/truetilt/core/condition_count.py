"""Models of several conditions: each condition has an equal share of the populations, in order.

A Score or Potential of several conditions has an attribute `condition_count`. A run checks before it begins that its
populations are a multiple of that number: otherwise particles of two conditions would compete in one population.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

from .errors import InvalidInput


@runtime_checkable
class ManyConditions(Protocol):
    """A Score or Potential of several conditions: each equal part of the populations is evaluated under its own."""

    @property
    def condition_count(self) -> int: ...


def parts_of(value: Any) -> int:
    """The number of conditions of a value: the least common multiple over its parts; 1 if no part has several."""
    seen: dict[int, Any] = {}
    waiting, found = [value], 1
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part  # kept alive, so that no other object gets its id
        if isinstance(part, tuple | list):
            waiting += part
        elif isinstance(part, Mapping):
            waiting += part.values()
        elif is_dataclass(part) and not isinstance(part, type):
            found = math.lcm(found, part.condition_count if isinstance(part, ManyConditions) else 1)
            waiting += [getattr(part, field.name) for field in fields(part)]
    return found


def check_parts(value: Any, populations: int) -> None:
    """Raise for a number of populations that cannot be divided equally among the conditions of what is sampled."""
    parts = parts_of(value)
    if populations % parts:
        raise InvalidInput(
            f"this model has {parts} conditions (prompts or classes), each of which has populations of its own, and "
            f"populations is {populations}; give populations=, a multiple of {parts}"
        )
