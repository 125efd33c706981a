"""Models of several conditions: each condition has an equal share of the populations, in order.

A Score or Potential of several conditions has an attribute `condition_count`. A run checks before it begins that its
populations are a multiple of that number: otherwise particles of two conditions would compete in one population.
"""

from __future__ import annotations

import math
from typing import Any

from .binding import is_record, parts
from .errors import InvalidInput


def parts_of(value: Any) -> int:
    """The number of conditions of a value: the least common multiple over its parts; 1 if no part has several."""
    return math.lcm(*(getattr(part, "condition_count", 1) for part in parts(value) if is_record(part)))


def check_parts(value: Any, populations: int) -> None:
    """Raise for a number of populations that cannot be divided equally among the conditions of what is sampled."""
    count = parts_of(value)
    if populations % count:
        raise InvalidInput(
            f"this model has {count} conditions (prompts or classes), each of which has populations of its own, and "
            f"populations is {populations}; give populations=, a multiple of {count}"
        )
