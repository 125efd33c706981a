"""What a twist may say of itself, beside its values; each part may be left out.

A twist is a `Potential`, a function (x, t) of a batch of states, and nothing more is asked of it. The page on twists
(docs/twists.md) has the table.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from .types import Potential, Tokens


@runtime_checkable
class SiteValued(Protocol):
    """A potential that also answers for all tokens of a site at once."""

    def __call__(self, x: Tokens, t: float) -> Tensor: ...
    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor: ...  # [B, D], [B] -> [B, S]


@runtime_checkable
class Learned(Protocol):
    """A twist that says what it was learned for, as those of `tt.learn_twist` do."""

    @property
    def twist(self) -> Potential: ...
    @property
    def held_out(self) -> Any: ...  # how good it was on draws that it was not fitted to
    @property
    def length(self) -> int | None: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def order(self) -> tuple[int, ...] | None: ...
    @property
    def strength(self) -> float: ...


@runtime_checkable
class Relaxable(Protocol):
    """A twist that has a gradient: `relaxed` is its value of one-hot states [B, D, S + 1], the mask last, [B]."""

    def relaxed(self, onehot: Tensor, t: float) -> Tensor: ...


def candidates_of(twist: object) -> int | None:
    """How many tokens of a site a twist should be asked about; None: all."""
    return getattr(twist, "candidates", None)


def words_of(twist: object) -> str | None:
    """What a twist is in its own words, if it has any."""
    return getattr(twist, "told", None)
