"""Chains of 8 tokens with a black-box reward that has neighbour terms: every sampler against the exact law.

p0 is the chain of the `chain` experiment, r(x) = 3 sum_d log f_d(x_d) + sum_d g_d(x_d, x_d+1) with g standard normal.
p0 exp(r) is a chain again, so its marginals and log Z are exact. Without g the reward is a sum over sites, which a
linear twist represents exactly: a check.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..baselines.base_draws import site_by_site
from ..baselines.fk_steering import fk_steering, largest_so_far
from ..baselines.independent_draws import best_of_n, importance
from ..baselines.record import Baseline
from ..baselines.svdd import regressed_value, svdd
from ..commands.job_runner import Answer
from ..core.budget import Budget
from ..core.spent import Spent
from ..core.types import Model, Tokens
from ..diffusion.processes import Masking
from ..exact.chain import ChainLaw, ChainScore
from ..result import Result
from ..rewards.reward import Reward
from ..targets.annealed import Annealed
from ..targets.composed import Composed
from ..targets.consistency import STATES
from ..targets.moves import Gibbs, Metropolis
from ..targets.scans import systematic_scan
from ..twists.learning import learn_twist
from ..twists.lessons import TwistFamily
from ..twists.lookahead import Lookahead, plain_mean
from ..twists.tables import PairTables

VOCABULARY, ALPHA, PARTICLES = 8, 3.0, 500
EVALUATIONS = 10  # evaluations per site and particle that a method may spend, fits included
CALLS = 32_000  # calls of the reward, per site
REPLICATES = 10  # of the i.i.d. floor
DRAWS, LESSONS = 250, 640  # draws of a round that a twist is fitted to, and calls per site


@dataclass(frozen=True)
class RewardChain:
    """A chain, the parts of its reward, and the exact target."""

    model: Model
    sites: Tensor  # [D, S], 3 log f
    pairs: Tensor  # [D - 1, S, S], g
    target: ChainLaw

    def reward(self, x: Tokens) -> Tensor:
        d = torch.arange(x.shape[-1], device=x.device)
        return self.sites[d, x].sum(-1) + self.pairs[d[:-1], x[:, :-1], x[:, 1:]].sum(-1)

    def miss(self, x: Tokens, weights: Tensor) -> float:
        """Mean over sites of the TV between weighted and exact marginals."""
        length, seen = x.shape[-1], torch.zeros_like(self.sites)
        seen = seen.scatter_add(1, x.T, weights.expand(length, -1))
        return float(0.5 * (seen - self.target.marginals()).abs().sum(-1).mean())

    def floor(self, seed: int) -> float:
        """Mean error of equally many independent draws from the target."""
        length, generator = len(self.sites), torch.Generator().manual_seed(seed + 99)
        u = torch.rand(REPLICATES, PARTICLES, length, generator=generator, dtype=torch.float64).to(self.sites.device)
        equal = torch.full((PARTICLES,), 1 / PARTICLES, dtype=torch.float64, device=u.device)
        return statistics.fmean(self.miss(self.target.draw(each), equal) for each in u)


def chain_problem(dimension: int, seed: int, neighbours: bool = True, device: str = "cpu") -> RewardChain:
    """Chain problem number `seed`."""
    generator = torch.Generator().manual_seed(seed)
    size = VOCABULARY
    shapes = ((size,), (size, size), (dimension, size), (dimension - 1, size, size))
    initial, steps, factors, pairs = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    initial, steps = initial.softmax(-1), (2 * steps).softmax(-1)
    sites, pairs = ALPHA * factors.log_softmax(-1), pairs if neighbours else torch.zeros_like(pairs)
    tilted = steps * pairs.exp()  # rows that do not sum to 1: their sums are moved to the sites
    log_factors = sites.clone()
    log_factors[:-1] += tilted.sum(-1).log()
    target = ChainLaw(initial.to(device), tilted.to(device), log_factors.to(device))
    process, base = Masking(size), ChainLaw(initial, steps, torch.zeros(dimension, size, dtype=torch.float64))
    base = ChainLaw(base.initial.to(device), base.transitions.to(device), base.log_factors.to(device))
    model = Model(process, dimension, ChainScore(process, base), device=device)
    return RewardChain(model, sites.to(device), pairs.to(device), target)


class Outcome(NamedTuple):
    """Weighted states, log Z (None if the method has none), and the cost."""

    x: Tokens
    weights: Tensor
    log_z: float | None
    spent: Spent


ChainMethod = Callable[[RewardChain, Reward, int], Outcome]


def _ours(result: Result) -> Outcome:
    return Outcome(result.particles.flatten(0, 1), result.weights.reshape(-1), result.log_z, result.spent)


def _theirs(found: Baseline) -> Outcome:
    return Outcome(found.states, found.weights, found.log_z, found.spent)


def _twisted(
    chain: RewardChain,
    reward: Reward,
    seed: int,
    *,
    sweeps: int,
    in_order: bool = True,
    family: TwistFamily | tuple[TwistFamily, ...] | None = None,
    gibbs: bool = False,
) -> Outcome:
    """Learn a twist, reveal by it, then anneal from the twist to the reward, one site per move."""
    model, length = chain.model, chain.model.length
    order = tuple(range(length)) if in_order else None
    twist = learn_twist(model, reward, calls=LESSONS * length, draws=DRAWS, order=order, family=family, seed=seed)
    goal = Composed(model, reward=reward, twist=twist, order=order)
    if sweeps == 0:
        return _ours(run(goal, particles=PARTICLES, seed=seed))
    surrogate = partial(Metropolis, scan=systematic_scan, surrogate=twist)
    kernel: Any = partial(Gibbs, scan=systematic_scan) if gibbs else surrogate
    fk = Annealed(goal, _shares(_moves(sweeps, length), 0.6, 1.0), kernel=kernel)
    return _ours(run(fk, particles=PARTICLES, seed=seed))


def _moves(sweeps: int, length: int) -> int:
    """The moves of `sweeps` sweeps, minus the cost of the consistency check of the conditionals."""
    return sweeps * length - math.ceil(3 * STATES / PARTICLES)


def _shares(moves: int, until: float, power: float) -> list[float]:
    """Annealing shares, 1 from the fraction `until` of the moves on."""
    return [min(1.0, ((k + 1) / (until * moves)) ** power) for k in range(moves)]


def _annealed(chain: RewardChain, reward: Reward, seed: int, *, sweeps: int) -> Outcome:
    """Anneal from p0 to the target with Gibbs moves, without a twist."""
    model = chain.model
    goal = Composed(model, reward=reward, order=tuple(range(model.length)))
    fk = Annealed(goal, _shares(_moves(sweeps, model.length), 0.9, 2.0))
    return _ours(run(fk, particles=PARTICLES, seed=seed))


def _budget(chain: RewardChain) -> Budget:
    return Budget(EVALUATIONS * chain.model.length * PARTICLES, CALLS * chain.model.length)


def _in_order(chain: RewardChain) -> Any:
    return partial(site_by_site, order=range(chain.model.length))


def _best(chain: RewardChain, reward: Reward, seed: int) -> Outcome:
    return _theirs(best_of_n(chain.model, reward, budget=_budget(chain), particles=PARTICLES, seed=seed))


def _importance(chain: RewardChain, reward: Reward, seed: int) -> Outcome:
    return _theirs(importance(chain.model, reward, budget=_budget(chain), seed=seed))


def _steering(chain: RewardChain, reward: Reward, seed: int, *, completions: int, largest: bool = False) -> Outcome:
    options: dict[str, Any] = {"completions": completions, "budget": _budget(chain), "walk": _in_order(chain)}
    options |= {"potential": largest_so_far, "every": max(chain.model.length // 5, 1)} if largest else {}
    return _theirs(fk_steering(chain.model, reward, seed=seed, **options))


def _svdd(chain: RewardChain, reward: Reward, seed: int, *, learned: bool) -> Outcome:
    order = tuple(range(chain.model.length))
    value: Any = Lookahead(chain.model, reward, completions=4, average=plain_mean, seed=seed)
    if learned:
        value = regressed_value(chain.model, reward, draws=PARTICLES, order=order, seed=seed)
    options: dict[str, Any] = {"value": value, "budget": _budget(chain), "particles": PARTICLES}
    return _theirs(svdd(chain.model, reward, walk=_in_order(chain), seed=seed, **options))


NEAR = (PairTables(0), PairTables(1), PairTables(1, 1.0))
METHODS: dict[str, ChainMethod] = {
    "twist, then annealed": partial(_twisted, sweeps=4),
    "twist alone": partial(_twisted, sweeps=0),
    "annealed alone": partial(_annealed, sweeps=EVALUATIONS - 1),
    "wrong twist alone": partial(_twisted, sweeps=0, family=PairTables(0)),
    "wrong twist, then annealed": partial(_twisted, sweeps=8, family=PairTables(0), gibbs=True),
    "random order, then annealed": partial(_twisted, sweeps=8, in_order=False, family=NEAR),
    "best of N": _best,
    "importance": _importance,
    "FK steering, K = 1": partial(_steering, completions=1),
    "FK steering, K = 4": partial(_steering, completions=4),
    "FK steering, K = 16": partial(_steering, completions=16),
    "FK steering, K = 4, max": partial(_steering, completions=4, largest=True),
    "SVDD-PM": partial(_svdd, learned=False),
    "SVDD-MC": partial(_svdd, learned=True),
}
ADDITIVE = "additive: twist, then annealed"


def one_chain(dimension: int, seed: int, name: str, base_seed: int = 0, device: str = "cpu") -> Answer:
    """A method on one problem: its error, the floor, the error of log Z, and its cost."""
    chain = chain_problem(dimension, seed, name != ADDITIVE, device)
    reward = Reward(chain.reward, vocabulary=VOCABULARY)
    method = METHODS["twist, then annealed" if name == ADDITIVE else name]
    found = method(chain, reward, 1000 * base_seed + seed)
    weights = found.weights / found.weights.sum()
    return {
        "tv": chain.miss(found.x, weights),
        "floor": chain.floor(seed),
        "log_z_error": None if found.log_z is None else found.log_z - float(chain.target.log_z),
        "ess": float(1 / (weights**2).sum()),
        **found.spent._asdict(),
        "distinct": reward.distinct,
    }
