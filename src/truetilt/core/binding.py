"""Binding a value to the log of a run, and what a value is made of: parts that cost, rewards, conditions.

`bind` puts a log into a value: its models and targets have it as `log`, its rewards and potentials count their calls.
What is counted is found through the fields of dataclasses: the scores of a model (where they are asked), the fields
that a model lists in `counted`, a function in a field called `reward`, and a `tt.Reward` in any. What a class that is
no dataclass holds cannot be reached, and `uncounted` names it. A bound value draws the same bits; settings and
fingerprints are read from the value before it is bound.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from .errors import InvalidInput
from .evaluation import CountedFunction, RunLog
from .spent import Spent

T = TypeVar("T")


def bind(value: T, log: RunLog, functions: bool = True) -> T:
    """A copy of a value (what is sampled, its moves, a model) that notes in this log; one object stays one.

    Without `functions` its rewards and potentials do not count their calls. What neither asks nor is asked is left as
    it is, and so is a part that another log holds.
    """
    return _bound(value, log, functions, {})


def _bound(value: Any, log: RunLog, functions: bool, done: dict[int, tuple[Any, Any]]) -> Any:
    if id(value) in done:
        return done[id(value)][1]
    found = value
    if type(value) is tuple:
        parts = tuple(_bound(part, log, functions, done) for part in value)
        found = value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
    elif isinstance(value, type | CountedFunction):
        found = value
    elif callable(value) and hasattr(value, "distinct"):
        found = CountedFunction(value, log) if functions else value
    elif is_dataclass(value):
        new = {f.name: _bound_part(value, f.name, log, functions, done) for f in fields(value) if f.name != "log"}
        own = {"log": log} if getattr(value, "log", log) is None else {}
        found = _changed(value, new | own)
    done[id(value)] = value, found  # the value is kept alive, so that no other object gets its id
    return found


def _bound_part(value: Any, name: str, log: RunLog, functions: bool, done: dict[int, tuple[Any, Any]]) -> Any:
    part, counted = getattr(value, name), getattr(value, "counted", ())  # of a model: fields that are called directly
    own = functions and name in ("reward", *counted)
    if not own or not callable(part) or isinstance(part, CountedFunction):
        return _bound(part, log, functions, done)
    if id(part) not in done:
        done[id(part)] = part, CountedFunction(part, log, network=name != "reward")
    return done[id(part)][1]


def _changed(value: Any, parts: dict[str, Any]) -> Any:
    """A shallow copy with other parts; cached properties, computed from the old parts, are dropped."""
    names = [name for name, part in parts.items() if part is not getattr(value, name)]
    if not names:
        return value
    new = copy.copy(value)
    for name in set(vars(new)) - {f.name for f in fields(value)}:
        del vars(new)[name]
    for name in names:
        object.__setattr__(new, name, parts[name])
    return new


def uncounted(value: object) -> list[str]:
    """Attributes of a value that is no dataclass, which hold what would be counted in one."""
    if is_dataclass(value) or isinstance(value, tuple):
        return []
    held = inspect.getmembers_static(value)
    return [name for name, part in held if bind(part, RunLog()) is not part]


def parts(value: Any) -> Iterator[Any]:
    """A value and all that it is made of, through fields of dataclasses, tuples, lists and mappings; each once."""
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part  # kept alive, so that no other object gets its id
        yield part
        if isinstance(part, tuple | list):
            waiting += reversed(part)
        elif isinstance(part, Mapping):
            waiting += reversed(part.values())
        elif is_record(part):
            waiting += [getattr(part, f.name) for f in reversed(fields(part))]


def is_record(part: object) -> bool:
    """Whether this is a value of a dataclass."""
    return is_dataclass(part) and not isinstance(part, type)


def spent_before(value: Any) -> Spent:
    """The cost of making the parts of a value: pilots of ramps, fits of twists, each counted once."""
    total = Spent()
    for part in filter(is_record, parts(value)):
        total = total.plus(cost_of(part))
    return total


def cost_of(part: object) -> Spent:
    """What making one part cost, where it says so."""
    spent = getattr(part, "spent", None)
    return spent if isinstance(spent, Spent) else Spent()


def rewards_of(value: Any) -> list[Any]:
    """The rewards among the parts of a value whose answers can be kept (`tt.Reward`), each once."""
    every = list(filter(is_record, parts(value)))
    found = [part.reward for part in every if hasattr(part, "reward")]
    found += [part for part in every if hasattr(part, "distinct")]
    return list({id(reward): reward for reward in found if getattr(reward, "keeps", False)}.values())


def conditions_of(value: Any) -> int:
    """The number of conditions of a value: the least common multiple over its parts; 1 if no part has several.

    A Score or Potential of several has an attribute `condition_count`: each has an equal share of the populations, in
    order. Otherwise particles of two conditions would compete in one population.
    """
    return math.lcm(*(getattr(part, "condition_count", 1) for part in parts(value) if is_record(part)))


def check_parts(value: Any, populations: int) -> None:
    """Raise for a number of populations that cannot be divided equally among the conditions of what is sampled."""
    count = conditions_of(value)
    if populations % count:
        raise InvalidInput(
            f"this model has {count} conditions (prompts or classes), each of which has populations of its own, and "
            f"populations is {populations}; give populations=, a multiple of {count}"
        )
