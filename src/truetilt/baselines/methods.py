"""Every baseline by name, with its paper's settings, spending a budget in full: for comparisons.

All reveal sites left to right: if a network's conditionals disagree, another order draws from another p0, and methods
must be compared on the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..core.budget import Budget
from ..core.errors import InvalidInput
from ..core.types import Model
from ..rewards.calls import Rewarding
from ..twists.lookahead import Lookahead, plain_mean
from .adalead import adalead
from .base_draws import WalkMaker, site_by_site
from .budget_search import afresh, largest
from .fk_particle_gibbs import gibbs_until_spent, trajectory_gibbs
from .fk_steering import LogPotential, difference, fk_steering, largest_so_far, sum_so_far
from .independent_draws import best_of_n, importance
from .record import Baseline
from .svdd import Regressed, svdd
from .tds import default_value, tds

LOOKS, COMPLETIONS = 5, 4  # of FK steering: looks at most (the paper's number for images), and completions at each
CANDIDATES = 10  # of SVDD, the paper's number for sequences


class Contest(NamedTuple):
    """The problem that a method is run on."""

    model: Model
    reward: Rewarding
    strength: float
    budget: Budget
    seed: int
    steps: int | None = None  # steps in which a draw is revealed; None: one site per step

    @property
    def walk(self) -> WalkMaker:
        return partial(site_by_site, order=range(self.model.length), steps=self.steps)

    @property
    def options(self) -> dict[str, Any]:
        return {"walk": self.walk, "seed": self.seed}

    @property
    def every(self) -> int:
        """Steps between two looks."""
        return -(-(self.steps or self.model.length) // LOOKS)

    def value(self) -> Regressed:
        """The value of masked states that peers learn (`regressed_value`), paid from the whole budget."""
        return default_value(self.model, self.reward, self.walk(self.model), self.budget, self.seed)


class Method(NamedTuple):
    """A baseline: its title, whether its limit is p0 exp(strength r), and a run of a given budget and largest size."""

    title: str
    has_target: bool
    run: Callable[[Contest, Budget, int | None], Baseline]


def _best_of_n(on: Contest, budget: Budget, size: int | None) -> Baseline:
    return best_of_n(on.model, on.reward, budget=budget, each=size, **on.options)


def _importance(on: Contest, budget: Budget, size: int | None) -> Baseline:
    return importance(on.model, on.reward, on.strength, budget=budget, draws=size, **on.options)


def _fk(potential: LogPotential, on: Contest, budget: Budget, size: int | None) -> Baseline:
    how: dict[str, Any] = {"completions": COMPLETIONS, "potential": potential, "every": on.every, **on.options}
    return fk_steering(on.model, on.reward, on.strength, budget=budget, particles=size, **how)


def _svdd_mc(on: Contest, budget: Budget, size: int | None) -> Baseline:
    return _svdd(on.value(), on, budget, size)


def _svdd_pm(on: Contest, budget: Budget, size: int | None) -> Baseline:
    value = Lookahead(on.model, on.reward, on.strength, 1, plain_mean, seed=on.seed)
    return _svdd(value, on, budget, size)


def _svdd(value: Any, on: Contest, budget: Budget, size: int | None) -> Baseline:
    how: dict[str, Any] = {"value": value, "candidates": CANDIDATES, **on.options}
    return svdd(on.model, on.reward, on.strength, budget=budget, particles=size, **how)


def _tds(on: Contest, budget: Budget, size: int | None) -> Baseline:
    return tds(on.model, on.reward, on.strength, budget=budget, value=on.value(), particles=size, **on.options)


def _trajectory_gibbs(on: Contest, budget: Budget, size: int | None) -> Baseline:
    how: dict[str, Any] = {"completions": COMPLETIONS, "every": on.every, **on.options}
    return trajectory_gibbs(on.model, on.reward, on.strength, budget=budget, sweeps=size, **how)


METHODS: dict[str, Method] = {
    "best-of-n": Method("best of N", False, _best_of_n),
    "importance": Method("importance", True, _importance),
    "fk-difference": Method("FK difference", True, partial(_fk, difference)),
    "fk-max": Method("FK max", True, partial(_fk, largest_so_far)),
    "fk-sum": Method("FK sum", True, partial(_fk, sum_so_far)),
    "svdd-mc": Method("SVDD-MC", False, _svdd_mc),
    "svdd-pm": Method("SVDD-PM", False, _svdd_pm),
    "tds": Method("TDS", True, _tds),
    "particle-gibbs": Method("particle Gibbs", True, _trajectory_gibbs),
}


def _adalead(on: Contest) -> Baseline:
    return adalead(on.model, on.reward, budget=on.budget, **on.options)


def _gibbs_until_spent(on: Contest) -> Baseline:
    how: dict[str, Any] = {"completions": COMPLETIONS, "every": on.every, **on.options}
    return gibbs_until_spent(on.model, on.reward, on.strength, budget=on.budget, **how)


ADALEAD = "adalead"
COUNTING = {ADALEAD: _adalead, "particle-gibbs": _gibbs_until_spent}  # these count their own spending and stop in time
TITLES = {name: method.title for name, method in METHODS.items()} | {ADALEAD: "AdaLead"}


def run_method(name: str, on: Contest) -> Baseline:
    """A baseline run as large as the budget affords by measured cost (`largest`), with an empty cache in each trial."""
    if name not in TITLES:
        raise InvalidInput(f"there is no baseline {name!r}; known are {', '.join(TITLES)}")
    if name in COUNTING:
        return COUNTING[name](on._replace(reward=afresh(on.reward)))
    method = METHODS[name]
    return largest(lambda limits, size: method.run(on._replace(reward=afresh(on.reward)), limits, size), on.budget)
