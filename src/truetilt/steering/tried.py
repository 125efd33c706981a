"""Ways to a target as candidates, and as they were tried: what a particle of each was worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..result import Result
from .account import Price
from .drift import Drift
from .routes import Route
from .work import Work

SEVERAL = 8  # populations tell by their scatter


class Candidate(NamedTuple):
    """A route that can be built: its name, what a particle costs, and what it is worth in independent draws at best.

    `hope` is less than 1 by what getting there costs, as far as can be told. `build` prepares it (learns a twist) and
    returns it, with why, or None where the budget does not suffice.
    """

    name: str
    each: Price
    hope: Callable[[Work], float]
    build: Callable[[Work], tuple[Route, str] | None]


class Tried(NamedTuple):
    """A route, a run of it, what a particle of it was worth in independent draws, and the check of it by moves."""

    route: Route
    result: Result
    worth: float
    drift: Drift | None = None

    def efficiency(self, work: Work) -> float:
        """Independent draws that the whole budget would buy."""
        return self.worth / work.account.weight(self.route.each)

    @property
    def sound(self) -> bool:
        """Whether the check, if there was one, found nothing."""
        return self.drift is None or not self.drift.found


def worth_of(result: Result) -> float:
    """Independent draws that a particle is worth: by weights, and by how populations scatter or by ancestry.

    Of independent draws the weights tell all.
    """
    figures = result.trust().figures
    if figures.resampling == "never":
        return figures.union_ess / result.log_weights.numel()
    scatter = figures.union_ess if figures.draws is None else figures.draws
    if figures.populations < SEVERAL:  # too few to scatter
        scatter = figures.union_ess if figures.moved else figures.lines
    return min(scatter, figures.union_ess) / result.log_weights.numel()


def rounded(value: float) -> str:
    """A number to two digits, in words."""
    return f"{float(f'{value:.2g}'):,.10g}"
