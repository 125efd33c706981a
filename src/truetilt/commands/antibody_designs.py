"""Designs of a chain: a run of its target, and the distinct sequences among the weighted particles."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ..antibodies.masked_readings import READINGS
from ..antibodies.redesign import Redesign
from ..antibodies.redesign_target import PulledTarget
from ..core.arguments import whole_number
from ..core.errors import InvalidInput
from ..core.types import Tokens
from ..result import Result
from ..targets.annealed import Annealed
from .samplers import reveal_grid

ALPHA_TO_PULL = 8.0  # default ratio of alpha to pull; with a much smaller one the parent is not changed
STEPS = 20  # steps that reveal a chain: a quarter of its open residues, as docs/antibodies.md was measured


class Design(NamedTuple):
    """A distinct sequence, its share of the weight, and its number of changed residues."""

    sequence: str
    weight: float
    changes: int


class DesignPlan(NamedTuple):
    """A target and its sampler: the exponents, annealing sweeps (0: none), and reveal steps (None: one per site).

    `readings` is the number of masked copies over which p(species) of a finished chain is averaged (0: the chain as it
    is). Sites revealed in one step are drawn independently, so their number and order are part of p0's definition.
    """

    alpha: float
    pull: float
    sharpness: float
    sweeps: int = 0
    steps: int | None = None
    readings: int = READINGS

    def passes(self, sites: int) -> int:
        """Network evaluations for one particle of a chain with this many open sites, if no state repeats."""
        judged = max(self.readings, 1)
        return min(self.steps or sites, sites) + judged + self.sweeps * sites * (1 + judged)

    def of(self, redesign: Redesign, species: str = "human") -> tuple[PulledTarget | Annealed, tuple[float, ...]]:
        """The Feynman-Kac model that `tt.run` takes for a chain, and its time grid."""
        sites = len(redesign.open_sites)
        steps = sites if self.steps is None else min(whole_number("steps", self.steps, 1), sites)
        exponents: dict[str, Any] = {"alpha": self.alpha, "pull": self.pull, "sharpness": self.sharpness}
        exponents |= {"readings": self.readings}
        if whole_number("sweeps", self.sweeps, 0, 1000):
            fk = redesign.annealed(species, **exponents, sweeps=self.sweeps, reveal_steps=steps)
            return fk, fk.grid
        target = redesign.target(species, **exponents)
        return target, reveal_grid(target.model, steps)


def distinct_designs(redesign: Redesign, result: Result, most: int) -> list[Design]:
    """The distinct sequences of a run by weight, the heaviest first; at most `most`."""
    return designs_of(redesign, result.particles.flatten(0, 1), result.weights.reshape(-1), most)


def designs_of(
    redesign: Redesign, x: Tokens, weights: Tensor, most: int, rewards: Tensor | None = None
) -> list[Design]:
    """The distinct sequences of weighted states [n, D], the heaviest first; of equal ones the better rewarded."""
    found: dict[str, float] = {}
    worth = [0.0] * len(x) if rewards is None else rewards.tolist()
    spelled = redesign.spell(x)
    for sequence, weight in zip(spelled, weights.tolist(), strict=True):
        found[sequence] = found.get(sequence, 0.0) + weight
    value, parent = dict(zip(spelled, worth, strict=True)), redesign.parent_letters
    designs = [
        Design(sequence, weight, sum(a != b for a, b in zip(sequence, parent, strict=True)))
        for sequence, weight in found.items()
        if weight > 0
    ]
    if not designs:
        raise InvalidInput("no particle has any weight; ask less of it (a smaller alpha, pull or sharpness)")
    designs.sort(key=lambda one: (-one.weight, -value[one.sequence], one.sequence))
    return designs[: whole_number("designs", most, 1)]
