"""Annealed samplers of the text and digit experiments: from draws of the conditional model to p0(x) p(zeta|x)^alpha.

The bounded form takes the conditional model as its base and weighs clean states by p(zeta|x)^(alpha - 1) of the
bundle's classifier. The edge form takes the base and the ratios of its two scores, summed along the moves; the ordered
form evaluates them in one fixed order (`ordered`). All start from p(x|zeta), which is alpha = 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..api import run
from ..commands.job_runner import Answer
from ..core.bases import MoveKernel
from ..core.errors import InvalidInput
from ..core.types import Model
from ..result import Result
from ..targets.annealed import Annealed
from ..targets.composed import Composed
from ..targets.moves import Gibbs, Metropolis
from ..targets.ramp_pilot import pilot
from ..targets.scans import Scan, random_scan, systematic_scan
from ..targets.stage import SiteTarget
from .ordered_ratio import STEPS, EdgeSweep, by_ordered_ratio

Goal = Callable[[Model, float], Composed]
MakeKernel = Callable[[SiteTarget], MoveKernel]
PILOT = 256  # particles of the pilot run that finds a ladder


def by_potential(model: Model, alpha: float) -> Composed:
    """p(x|zeta) p(zeta|x)^(alpha - 1), its second factor by the potential at clean states: at most 1."""
    if model.conditional is None or model.potential is None:
        raise InvalidInput("annealing by a potential needs a conditional score and a potential; the model lacks one")
    base = replace(model, base=model.conditional, conditional=None, potential=None)
    return Composed(base, reward=model.potential, strength=alpha - 1)


def by_edges(model: Model, alpha: float) -> Composed:
    """p0(x) (p(zeta|x)/p(zeta))^alpha, the ratio added up site by site from two scores: nothing bounds it."""
    if model.conditional is None:
        raise InvalidInput("annealing by edge ratios needs a conditional score, and the model has none")
    return Composed(model, conditions=[(model.conditional, alpha)])


@dataclass(frozen=True)
class Annealing:
    """An annealed sampler: the form of the target, the number of steps, the moves, and the reveal steps."""

    goal: Goal
    shares: int
    moves: Callable[[Model], MakeKernel]  # makes the kernel from the model
    reveal_steps: int | None = None  # None: one site per step
    piloted: bool = True  # whether a pilot run spaces the shares; else they are equal

    def __call__(self, model: Model, alpha: float, seed: int = 0) -> Annealed:
        """The Feynman-Kac model to run, after its pilot run, whose cost is stored with it."""
        reveals = None if self.reveal_steps is None else min(self.reveal_steps, model.length)
        fk = Annealed(self.goal(model, alpha), self.shares, kernel=self.moves(model), reveal_steps=reveals)
        if not self.piloted:
            return fk
        ladder = pilot(fk, particles=PILOT, seed=seed)
        return replace(fk, shares=ladder.shares, spent=ladder.spent)


def one_site(kernel: Any, scan: Scan) -> Callable[[Model], MakeKernel]:
    """A kernel that moves one site per step, chosen by a scan."""
    return lambda model: partial(kernel, scan=scan)


def sweeps(model: Model) -> MakeKernel:
    """A kernel that moves every site per step, under the edge ratios of the model's two scores."""
    return partial(EdgeSweep, model=model)


TEXT = Annealing(by_potential, 64, one_site(Metropolis, systematic_scan))  # a move at every site
TEXT_EDGES = Annealing(by_edges, 256, one_site(Gibbs, systematic_scan))
TEXT_ORDERED = Annealing(by_ordered_ratio, 24, sweeps, reveal_steps=STEPS)
DIGITS = Annealing(by_potential, 64, one_site(Metropolis, random_scan), reveal_steps=196, piloted=False)


def annealed(model: Model, alpha: float, how: Annealing, shape: tuple[int, int], seed: int) -> Result:
    """Populations and particles annealed to alpha; the pilot run is the same for all of a run's populations."""
    with of_learned_nets():
        return run(how(model, alpha, seed), particles=shape[1], populations=shape[0], seed=seed)


@contextmanager
def of_learned_nets() -> Generator[None]:
    """A context without the warning that the conditionals of these networks disagree: the docs say by how much."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the conditionals of this model disagree", UserWarning)
        yield


def told(result: Result) -> Answer:
    """log Z with its interval across populations and the trust verdict: the columns of a weighted row."""
    trust = result.trust()
    interval = trust.figures.log_z_interval
    return {
        "log_z": trust.figures.log_z,
        "log_z_low": None if interval is None else interval.low,
        "log_z_high": None if interval is None else interval.high,
        "log_z_spread": trust.figures.log_z_spread,
        "populations_by_mass": trust.figures.effective_populations,
        "union_ess": trust.figures.union_ess,
        "trust": str(trust.verdict),
    }
