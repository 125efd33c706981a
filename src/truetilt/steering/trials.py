"""Routes as candidates, and as tried: what a particle of each was worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..result import Result
from .account import Price
from .drift import Drift
from .routes import Route
from .stages import Work


class Candidate(NamedTuple):
    """A route that can be tried: its name, the price of a particle, and the most a particle can be worth.

    `hope` returns that most, in independent draws; it is below 1 by the estimated cost of preparing the route. `build`
    prepares the route (learns a twist) and returns it with the reason, or None if the budget does not suffice.
    """

    name: str
    each: Price
    hope: Callable[[Work], float]
    build: Callable[[Work], tuple[Route, str] | None]


class Tried(NamedTuple):
    """A route, a trial run of it, what a particle was worth in independent draws, and the outcome of the check by
    moves."""

    route: Route
    result: Result
    worth: float
    drift: Drift | None = None

    def efficiency(self, work: Work) -> float:
        """Independent draws that the whole budget would buy by this route."""
        return self.worth / work.account.weight(self.route.each)

    @property
    def sound(self) -> bool:
        """Whether the check by moves, if it was made, found no shift."""
        return self.drift is None or not self.drift.found


def worth_of(result: Result) -> float:
    """Independent draws that a particle is worth: the smaller of the figures by weights and by spread (or ancestry).

    For independent draws the weights alone decide.
    """
    figures = result.trust().figures
    if figures.dead == figures.populations:
        return 0.0
    if figures.resampling == "never":
        return figures.union_ess / result.log_weights.numel()
    scatter = figures.union_ess if figures.draws is None else figures.draws
    return min(scatter, figures.union_ess) / result.log_weights.numel()
