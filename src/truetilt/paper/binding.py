"""DNA binding as a problem with an exact answer: p0 and p(zeta|x) of all 8-mers, and the errors of a sample.

zeta is "it binds", p(zeta|x) = sigmoid((score - threshold) / temperature), with the 90th percentile of the scores as
threshold and a quarter of their standard deviation as temperature. p0 is uniform, or a Markov model of the strong
binders (those that reach the threshold). So the exact target is a sum over all 8-mers.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ..commands.job_runner import Answer
from ..core.logits import SiteLogits
from ..core.types import Model, Score, Tokens
from ..diffusion.processes import Masking
from ..exact.tables import Table, flat_index, line_index
from .dna_landscape import COUNT, Landscape
from .dna_landscape_files import LENGTH, LETTERS

SHAPE = (len(LETTERS),) * LENGTH
PRIORS = {"uniform": 0, "markov1": 1, "markov2": 2}  # name and order of each prior
REPLICATES = 10  # of the i.i.d. floor
SOME_TIME = 0.5  # arbitrary: posteriors and p(zeta|x) of a masked state do not depend on time
FIGURES = ("tv_mean", "pair_tv", "score_error", "distinct", "mean_score")


def prior_law(found: Landscape, order: int) -> Tensor:
    """Uniform (order 0), or a homogeneous Markov model of the strong binders, every count one more than seen."""
    if order == 0:
        return torch.full(SHAPE, 1 / COUNT, dtype=torch.float64)
    strong = torch.where(found.scores >= found.threshold, 1.0, 0.0).double().reshape(SHAPE)
    law = _window(strong, 0, order) + 1
    law = (law / law.sum()).reshape(*law.shape, *[1] * (LENGTH - order))
    step = 1 + torch.stack([_window(strong, first, order + 1) for first in range(LENGTH - order)]).sum(0)
    step = step / step.sum(-1, keepdim=True)
    for first in range(LENGTH - order):
        law = law * step.reshape(*[1] * first, *step.shape, *[1] * (LENGTH - order - first - 1))
    return law


def _window(law: Tensor, first: int, width: int) -> Tensor:
    """The marginal of neighbouring sites."""
    others = [d for d in range(LENGTH) if not first <= d < first + width]
    return law.sum(others)


def problem(found: Landscape, prior: str, device: str = "cpu") -> Table:
    """p0 and p(zeta|x) as tables."""
    binds = ((found.scores - found.threshold) / found.temperature).sigmoid().reshape(SHAPE)
    return Table(Masking(len(LETTERS)), prior_law(found, PRIORS[prior]).to(device), binds.to(device))


def lean_model(table: Table) -> Model:
    """`table.model()`, evaluated only at the rows that particles read: the table has 625,000 of them."""
    process, model, expected = cast("Masking", table.process), table.model(), table.expected(1.0, SOME_TIME)
    some = torch.zeros(1, LENGTH, dtype=torch.int64, device=table.p0.device)

    def lean(score: Score) -> Score:
        rows = score(some, SOME_TIME).rows - process.log_odds_kept(SOME_TIME)
        return lambda x, t: SiteLogits.of(rows[line_index(x, process.states)] + process.log_odds_kept(t))

    def potential(x: Tokens, t: float) -> Tensor:
        return table.lookup(expected, x)

    conditional = None if model.conditional is None else lean(model.conditional)
    return replace(model, base=lean(model.base), conditional=conditional, potential=potential)


class BindingMeasure(NamedTuple):
    """Errors of weighted 8-mers against the exact target."""

    target: Tensor
    scores: Tensor

    def of(self, x: Tokens, weights: Tensor) -> Answer:
        place = flat_index(x, len(LETTERS))
        seen = torch.zeros_like(self.scores).scatter_add(0, place, weights).reshape(SHAPE)
        mean = float(seen.reshape(-1) @ self.scores)
        return {
            "tv_mean": self._miss(seen, 1),
            "pair_tv": self._miss(seen, 2),
            "mean_score": mean,
            "score_error": abs(mean - float(self.target.reshape(-1) @ self.scores)),
            "distinct": len(place[weights > 0].unique()) / len(place),
        }

    def _miss(self, seen: Tensor, width: int) -> float:
        """Mean TV of the marginals of neighbouring sites."""
        firsts = range(LENGTH - width + 1)
        gaps = (_window(seen, first, width) - _window(self.target, first, width) for first in firsts)
        return statistics.fmean(float(0.5 * gap.abs().sum()) for gap in gaps)

    def floor(self, seed: int, particles: int) -> Answer:
        """The same errors for equally many independent draws from the target, averaged over replicates."""
        p = self.target.reshape(-1).cpu().numpy()
        counts = np.random.default_rng(seed).multinomial(particles, p / p.sum(), REPLICATES)
        states = torch.cartesian_prod(*[torch.arange(len(LETTERS))] * LENGTH)
        equal = torch.full((particles,), 1 / particles, dtype=torch.float64)
        each = [
            self.of(states[np.repeat(np.arange(COUNT), row)].to(self.scores.device), equal.to(self.scores.device))
            for row in counts
        ]
        return {key: statistics.fmean(one[key] for one in each) for key in FIGURES}
