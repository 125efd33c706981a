"""Counting what a run asks: a meter that its model and its reward report to.

`metered` makes a copy of what is sampled whose networks and rewards are counted; a run of it draws the same bits.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from torch import Tensor

from .spent import Spent

T = TypeVar("T")


class Meter:
    """Counts rounds, evaluations, calls and distinct calls; see `Spent`."""

    def __init__(self) -> None:
        self.rounds = self.evaluations = self.calls = self.distinct = 0

    def asked(self, states: int) -> None:
        """One batched pass of a network over so many states."""
        self.rounds += 1
        self.evaluations += states

    def called(self, states: int, distinct: int) -> None:
        """A reward was given so many states, of which so many were new to it."""
        self.calls += states
        self.distinct += distinct

    @property
    def spent(self) -> Spent:
        return Spent(self.rounds, self.evaluations, self.calls, self.distinct)

    def lap(self) -> Spent:
        """What was asked since the last lap."""
        spent = self.spent
        self.rounds = self.evaluations = self.calls = self.distinct = 0
        return spent


@dataclass(frozen=True, eq=False)
class MeteredPotential:
    """A function of a model (x, t), each batch of which is one pass of its network."""

    potential: Any
    meter: Meter

    def __call__(self, x: Tensor, t: float) -> Tensor:
        self.meter.asked(len(x))
        return self.potential(x, t)


@dataclass(frozen=True, eq=False)
class MeteredReward:
    """A reward whose calls are counted; one without a cache makes every call a distinct one."""

    reward: Any
    meter: Meter

    def __call__(self, x: Tensor, *time: float) -> Tensor:  # some rewards take the time, some do not
        before = getattr(self.reward, "distinct", None)  # of a tt.Reward: how many its function has answered
        try:
            return self.reward(x, *time)
        finally:
            new = len(x) if before is None else self.reward.distinct - before
            self.meter.called(len(x), new)


def metered(value: T, meter: Meter) -> T:
    """A copy of what is sampled (or of moves) whose model's networks and whose reward report to a meter.

    Parts are found through the fields of dataclasses: those called `reward`, and those that a model lists in `counted`
    because they are asked directly (its scores are counted where they are asked). What holds none of them is left as it
    is, and the same part stays one object in all places.
    """
    return _metered(value, meter, {})


def _metered(value: Any, meter: Meter, done: dict[int, tuple[Any, Any]]) -> Any:
    if id(value) in done:
        return done[id(value)][1]
    found = value
    if isinstance(value, tuple) and type(value) is tuple:
        parts = tuple(_metered(part, meter, done) for part in value)
        found = value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
    elif is_dataclass(value) and not isinstance(value, type):
        found = _changed(value, {f.name: _part(value, f.name, meter, done) for f in fields(value)})
    done[id(value)] = value, found  # the value is kept, so that its id stays its own
    return found


def _part(value: Any, name: str, meter: Meter, done: dict[int, tuple[Any, Any]]) -> Any:
    part = getattr(value, name)
    if name == "meter" and part is None:
        return meter
    if part is None or name not in ("reward", *getattr(value, "counted", ())) or not callable(part):
        return _metered(part, meter, done)
    if id(part) not in done:
        done[id(part)] = part, (MeteredReward if name == "reward" else MeteredPotential)(part, meter)
    return done[id(part)][1]


def _changed(value: Any, parts: dict[str, Any]) -> Any:
    """A shallow copy with other parts; nothing that was worked out from the old ones is kept."""
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
    """What the parts of a value cost when they were made: pilots of ramps, fits of twists, each counted once."""
    total = Spent()
    for part in {id(part): part for part in _parts(value)}.values():
        found = getattr(part, "spent", None)
        total = total.plus(found) if isinstance(found, Spent) else total
    return total


def rewards_of(value: Any) -> list[Any]:
    """The rewards among the parts of a value whose answers can be kept (`tt.Reward`), each once."""
    found = [getattr(part, "reward", None) for part in _parts(value)]
    return list({id(reward): reward for reward in found if getattr(reward, "keeps", False)}.values())


def _parts(value: Any) -> Iterator[Any]:
    """A value and every dataclass among its parts."""
    if type(value) is tuple:
        for part in value:
            yield from _parts(part)
    elif is_dataclass(value) and not isinstance(value, type):
        yield value
        for f in fields(value):
            yield from _parts(getattr(value, f.name))
