"""Methods to redesign a whole chain by the ratio of two networks: ours, guidance, and baselines with it as reward.

The baselines spend as many evaluations of the base as ours of both networks, and may call the ratio, two passes each,
for as many again. Methods that complete a masked chain in one pass (FK steering, SVDD-PM, particle Gibbs) cannot run:
the network predicts a site only given all sites before it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..baselines.methods import ADALEAD, TITLES, Contest, run_method
from ..commands.samplers import in_order
from ..core.budget import Budget
from ..core.fasta import AMINO_ACIDS
from ..core.spent import Spent
from ..core.types import Tokens
from ..proteins.bundle import Protein
from ..rewards.reward import Reward
from ..smc.resampling import never

TRUETILT, GUIDANCE = "truetilt", "guidance"
BASELINES = ("best-of-n", "importance", "svdd-mc", "tds", ADALEAD)
CONDITION = "soluble"


class WeightedDesigns(NamedTuple):
    """Finished states with weights that sum to 1, their cost, and log Z and the verdict if a method has them."""

    x: Tokens
    weights: Tensor
    spent: Spent
    log_z: float | None = None
    verdict: str | None = None
    reasons: tuple[str, ...] = ()


def drawn(name: str, design: Protein, alpha: float, sizes: tuple[int, int], seed: int) -> WeightedDesigns:
    """Designs by the method of this name."""
    if name in BASELINES:
        return _baseline(name, design, alpha, sizes, seed)
    return (_guided if name == GUIDANCE else _ours)(design, alpha, sizes, seed)


def _ours(design: Protein, alpha: float, sizes: tuple[int, int], seed: int) -> WeightedDesigns:
    fk = in_order(design.model(CONDITION), alpha, None, design.order)
    result = run(fk, particles=sizes[1], populations=sizes[0], seed=seed)
    x, weights, trust = result.particles.flatten(0, 1), result.weights.reshape(-1).cpu(), result.trust()
    return WeightedDesigns(x, weights, result.spent, result.log_z, str(trust.verdict), tuple(trust.reasons))


def _guided(design: Protein, alpha: float, sizes: tuple[int, int], seed: int) -> WeightedDesigns:
    """Every site drawn from its guided law, without weights."""
    fk = in_order(design.model(CONDITION), alpha, alpha, design.order)
    result = run(fk, particles=sizes[1], populations=sizes[0], seed=seed, resample=never)
    x = result.particles.flatten(0, 1)
    return WeightedDesigns(x, torch.full((len(x),), 1 / len(x), dtype=torch.float64), result.spent)


def budget_of(design: Protein, sizes: tuple[int, int]) -> Budget:
    """The evaluations of both networks by our method, as evaluations of the base; and calls for as many passes more."""
    each = sizes[0] * sizes[1] * design.length
    return Budget(2 * each, each)


def _baseline(name: str, design: Protein, alpha: float, sizes: tuple[int, int], seed: int) -> WeightedDesigns:
    leaning = design.under(CONDITION)

    def log_ratio(x: Tokens) -> Tensor:
        return leaning.log_prob(x) - design.log_prob(x)

    reward = Reward(log_ratio, vocabulary=len(AMINO_ACIDS))
    found = run_method(name, Contest(design.model(), reward, alpha, budget_of(design, sizes), seed))
    return WeightedDesigns(found.states, found.weights.cpu(), found.spent, found.log_z)


def titled(name: str) -> str:
    """The title of a method in tables and figures."""
    return TITLES.get(name, name)
