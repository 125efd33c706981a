"""Models of several conditions: their populations are dealt to the conditions in equal parts, in order.

A Score or Potential that does so says to how many as its attribute `dealt`. It is checked before a run begins: with
other numbers of populations, particles of two conditions would stand in one population.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from .errors import InvalidInput


def parts_of(value: Any) -> int:
    """Into how many equal parts the populations of what is sampled are dealt; 1 where nothing deals them."""
    seen: dict[int, Any] = {}
    waiting, found = [value], 1
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part  # kept alive, so that its id stays its own
        if isinstance(part, tuple | list):
            waiting += part
        elif isinstance(part, Mapping):
            waiting += part.values()
        elif is_dataclass(part) and not isinstance(part, type):
            found = math.lcm(found, getattr(part, "dealt", 1))
            waiting += [getattr(part, field.name) for field in fields(part)]
    return found


def check_parts(value: Any, populations: int) -> None:
    """Refuse populations that cannot be dealt equally to the conditions of what is sampled."""
    parts = parts_of(value)
    if populations % parts:
        raise InvalidInput(
            f"this model has {parts} conditions (prompts or classes), each of which has populations of its own, and "
            f"populations is {populations}; give populations=, a multiple of {parts}"
        )
