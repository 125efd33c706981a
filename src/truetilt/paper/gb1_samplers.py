"""Samplers of a measured landscape on an exact base, each with a budget of distinct calls of the reward.

Each takes a table, a strength, a number of calls and a seed, and returns weighted states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..api import reveal, run
from ..baselines.base_draws import site_by_site
from ..baselines.methods import ADALEAD, METHODS, TITLES, Contest, run_method
from ..core.budget import Budget
from ..core.spent import Spent
from ..core.types import Tokens
from ..diffusion.processes import Masking
from ..exact.tables import Table, flat_index
from ..result import Result
from ..rewards.reward import Reward
from ..steering.steer import steer
from ..targets.annealed import Annealed
from ..targets.composed import Composed
from ..targets.moves import Metropolis, scan_gibbs
from ..targets.scans import systematic_scan
from .kriging import kriged
from .reward_tables import RewardTable
from .screening import within_calls

PER_CALL = 20  # base draws' worth of evaluations, for each call
POPULATIONS, FEW = 16, 4  # populations of independent draws, and of annealing, which needs many particles in each
MOVES = 32  # Metropolis moves of annealing; Gibbs moves call 19 states each, and there are half as many
HIGHEST = 1e-3  # upper bound of log(fitness / 8.76): the largest fitness is rounded in 8.76
MOST, ROUNDS = 20_000, 2  # draws from a fitted law, at most, and number of fits
NOTHING = Spent()
scan_metropolis = partial(Metropolis, scan=systematic_scan)


class SampledStates(NamedTuple):
    """Weighted states, log Z (None if a method has no target), the cost, and the verdict of our runs."""

    x: Tokens
    weights: Tensor
    log_z: float | None
    spent: Spent
    verdict: str | None = None


Sampler = Callable[[RewardTable, Reward, float, int, int], SampledStates]  # (table, reward, strength, calls, seed)


def bounded_reward(table: RewardTable) -> Reward:
    """The values of a table as a black box of which only the largest value is known."""
    return Reward(lambda x: table.values[flat_index(x, table.size)], vocabulary=table.size, highest=HIGHEST)


def budget_of(table: RewardTable, calls: int) -> Budget:
    """The calls, and the evaluations of `PER_CALL` draws for each."""
    return Budget(PER_CALL * calls * table.p0.dim(), calls)


class AnnealingSizes(NamedTuple):
    """Sizes of annealing: populations and particles of each, the kernel and the number of moves."""

    sizes: tuple[int, int]
    kernel: Callable[..., Any] = scan_metropolis
    moves: int = MOVES


def annealing(table: RewardTable, reward: Reward, strength: float, how: AnnealingSizes, seed: int) -> Result:
    """From the base to the target, sweep after sweep, the strength growing quadratically."""
    moves = how.moves
    shares = [min(1.0, ((k + 1) / (0.9 * moves)) ** 2) for k in range(moves)]
    goal = Composed(table.model(), reward=reward, strength=strength)
    populations, particles = how.sizes
    return run(Annealed(goal, shares, kernel=how.kernel), particles=particles, populations=populations, seed=seed)


def annealed_gibbs(table: RewardTable, reward: Reward, strength: float, calls: int, seed: int) -> SampledStates:
    """Moves that evaluate all 20 letters of a site: few particles are affordable."""
    how = AnnealingSizes((1, max(calls // 130, 2)), scan_gibbs, min(MOVES // 2, max(calls // 60, 4)))
    return _told(annealing(table, reward, strength, how, seed), reward)


def annealed_metropolis(table: RewardTable, reward: Reward, strength: float, calls: int, seed: int) -> SampledStates:
    """Moves that evaluate one letter: many particles, which share a cache."""
    how = AnnealingSizes((FEW, max(round((calls / 25) ** 1.5 / FEW), 4)))
    return _told(annealing(table, reward, strength, how, seed), reward)


def kriged_twist(table: RewardTable, reward: Reward, strength: float, calls: int, seed: int) -> SampledStates:
    """Annealing finds where the mass is; then independent draws from the law that kriging of all calls predicts, twice.

    The value of a masked state, log E[exp(strength h) | x_U], is exact on the table: a twist that makes all weights
    equal but for the last, exp(strength (r - h)). The second round's draws are the particles.
    """
    found = annealing(table, reward, strength, AnnealingSizes((1, max(round((calls / 60) ** 1.5), 8))), seed)
    spent = found.spent
    for left in range(ROUNDS, 0, -1):
        promised = _promise(table, reward, strength)
        known = flat_index(reward.known()[0], table.size)
        draws = _affordable(promised.target(1.0).reshape(-1), known, (calls - reward.distinct) // left)
        twist = partial(_promised, promised, strength)
        goal = Composed(table.model(), reward=reward, strength=strength, twist=twist)
        spent = found.spent if left == ROUNDS else spent.plus(found.spent)
        found = run(goal, particles=max(draws // POPULATIONS, 2), populations=POPULATIONS, seed=seed + (left << 40))
    return _told(found, reward, spent)


def _promise(table: RewardTable, reward: Reward, strength: float) -> Table:
    """The law that kriging of all calls so far predicts, with the expectations of masked states."""
    guess = kriged(*reward.known(), table.p0.reshape(-1).log(), strength)
    return Table(Masking(table.size), table.p0, (strength * guess).exp().reshape(table.p0.shape))


def _promised(promised: Table, strength: float, x: Tokens, t: float) -> Tensor:
    return promised.potential(x, t) / strength


def _affordable(law: Tensor, known: Tensor, calls: int) -> int:
    """The number of draws of a law expected to meet at most `calls` states that are not cached."""
    new, low, high = law.index_fill(0, known, 0.0), 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        over = float(-torch.expm1(middle * torch.log1p(-new)).sum()) > calls - 2 * math.sqrt(max(calls, 1))
        low, high = (low, middle) if over else (middle, high)
    return low


def one_call(table: RewardTable, reward: Reward, strength: float, calls: int, seed: int) -> SampledStates:
    """`tt.steer`."""
    evaluations = budget_of(table, calls).evaluations
    how: Any = {"calls": calls, "evaluations": evaluations, "seed": seed, "progress": False}
    return _told(steer(table.model(), reward, strength, **how), reward)


def importance(table: RewardTable, reward: Reward, strength: float, calls: int, seed: int) -> SampledStates:
    """Draws of the base, as long as they contain at most `calls` distinct states."""
    model = table.model()
    x = within_calls(site_by_site(model), calls, PER_CALL * calls, seed)
    log_w = strength * reward(x)
    spent = Spent(model.length, len(x) * model.length, reward.calls, reward.distinct)
    return SampledStates(x, log_w.softmax(0), float(log_w.logsumexp(0)) - math.log(len(x)), spent)


def _told(result: Result, reward: Reward, before: Spent = NOTHING) -> SampledStates:
    spent = result.spent.plus(before)._replace(calls=reward.calls, distinct=reward.distinct)
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    return SampledStates(x, weights, result.log_z, spent, str(result.trust().verdict))


OURS: dict[str, Sampler] = {
    "kriged twist": kriged_twist,
    "annealed, Metropolis": annealed_metropolis,
    "annealed, Gibbs": annealed_gibbs,
    "tt.steer": one_call,
    "importance": importance,
}
RIVALS = {TITLES[name]: name for name in (*METHODS, ADALEAD) if name != "importance"}


def rival(name: str, table: RewardTable, reward: Reward, strength: float, calls: int, seed: int) -> SampledStates:
    """A baseline, as large as the budget affords by a search that it is not charged for."""
    found = run_method(name, Contest(table.model(), reward, strength, budget_of(table, calls), seed))
    return SampledStates(found.states, found.weights, found.log_z, found.spent)


def knowing(table: RewardTable, strength: float, sizes: tuple[int, int], seed: int) -> SampledStates:
    """`tt.reveal` with the exact likelihood of partial states: as if every state had been called."""
    known = Table(Masking(table.size), table.p0, table.values.exp().reshape(table.p0.shape))
    found = reveal(known.model(), strength, particles=sizes[1], populations=sizes[0], seed=seed)
    x, weights = found.particles.flatten(0, 1), found.weights.reshape(-1)
    log_z = found.log_z + strength * float(known.evidence.log())
    return SampledStates(x, weights, log_z, found.spent, str(found.trust().verdict))
