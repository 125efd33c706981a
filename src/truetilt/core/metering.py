"""Counts of network passes and reward calls: copies of what is sampled whose networks and rewards report to a meter.

A run of such a copy draws the same bits. Also what the parts of a value cost when they were made.

The rule of what is counted: a value is a dataclass, and so is every part of it up to those that are asked. Counted are
the scores of a model (where they are asked through `evaluate`), the fields that a model lists in `counted`, a function
in a field called `reward`, and a `tt.Reward` in any field. What a class that is no dataclass holds cannot be reached,
and `uncounted` names it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from .evaluation import CountsDistinct, Meter, MeteredPotential, MeteredReward
from .spent import Spent

T = TypeVar("T")


@runtime_checkable
class CountsParts(Protocol):
    """A model that lists in `counted` which of its fields are called directly, and so are to be counted."""

    @property
    def counted(self) -> tuple[str, ...]: ...


@runtime_checkable
class Costly(Protocol):
    """A part with a record of what making it cost, such as a ramp found by a pilot or a learned twist."""

    @property
    def spent(self) -> Spent: ...


@runtime_checkable
class Rewarded(Protocol):
    """A part with a reward, a function of states or of them and a time; None where it has none."""

    @property
    def reward(self) -> Callable[..., Tensor] | None: ...


@runtime_checkable
class Keeps(Protocol):
    """A reward that states whether it has a cache, as `tt.Reward` does."""

    @property
    def keeps(self) -> bool: ...


def metered(value: T, meter: Meter) -> T:
    """A copy of what is sampled (or of moves) whose model's networks and whose reward report to a meter.

    Parts are found through the fields of dataclasses: those called `reward`, every `tt.Reward` whatever its field is
    called, and those that a model lists in `counted` because they are asked directly (its scores are counted where they
    are asked). What holds none of them is left as it is, and the same part stays one object in all places.
    """
    return _metered(value, meter, {})


def uncounted(value: object) -> list[str]:
    """Attributes of a value that is no dataclass, which hold what would be counted in one."""
    if is_dataclass(value) or isinstance(value, tuple):
        return []
    held = inspect.getmembers_static(value)
    return [name for name, part in held if metered(part, Meter()) is not part]


def _metered(value: Any, meter: Meter, done: dict[int, tuple[Any, Any]]) -> Any:
    if id(value) in done:
        return done[id(value)][1]
    found = value
    if isinstance(value, tuple) and type(value) is tuple:
        parts = tuple(_metered(part, meter, done) for part in value)
        found = value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
    elif callable(value) and isinstance(value, CountsDistinct) and not isinstance(value, type):
        found = MeteredReward(value, meter)
    elif is_dataclass(value) and not isinstance(value, type):
        found = _changed(value, {f.name: _part(value, f.name, meter, done) for f in fields(value)})
    done[id(value)] = value, found  # the value is kept alive, so that no other object gets its id
    return found


def _part(value: Any, name: str, meter: Meter, done: dict[int, tuple[Any, Any]]) -> Any:
    part = getattr(value, name)
    if name == "meter" and part is None:
        return meter
    counted = value.counted if isinstance(value, CountsParts) else ()
    if part is None or name not in ("reward", *counted) or not callable(part):
        return _metered(part, meter, done)
    if id(part) not in done:
        done[id(part)] = part, (MeteredReward if name == "reward" else MeteredPotential)(part, meter)
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


def spent_before(value: Any) -> Spent:
    """The cost of making the parts of a value: pilots of ramps, fits of twists, each counted once."""
    total = Spent()
    for part in {id(part): part for part in _parts(value)}.values():
        total = total.plus(cost_of(part))
    return total


def cost_of(part: object) -> Spent:
    """What making one part cost, where it says so."""
    return part.spent if isinstance(part, Costly) and isinstance(part.spent, Spent) else Spent()


def rewards_of(value: Any) -> list[Any]:
    """The rewards among the parts of a value whose answers can be kept (`tt.Reward`), each once."""
    parts = list(_parts(value))
    found = [part.reward for part in parts if isinstance(part, Rewarded)]
    found += [part for part in parts if isinstance(part, CountsDistinct)]
    return list({id(reward): reward for reward in found if isinstance(reward, Keeps) and reward.keeps}.values())


def _parts(value: Any) -> Iterator[Any]:
    """A value and every dataclass among its parts."""
    if type(value) is tuple:
        for part in value:
            yield from _parts(part)
    elif is_dataclass(value) and not isinstance(value, type):
        yield value
        for f in fields(value):
            yield from _parts(getattr(value, f.name))
