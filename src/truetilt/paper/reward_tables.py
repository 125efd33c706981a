"""Measured landscapes with a reward defined on clean words: TF Bind 8 (65,536 words) and GB1 (160,000 variants).

Both are small enough for an exact answer. Calls are expensive, so methods are compared by distinct states called.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..api import run
from ..baselines.base_draws import base_draws, site_by_site
from ..baselines.fk_steering import fk_steering
from ..commands.job_runner import Answer
from ..core.budget import Budget
from ..core.errors import InvalidInput
from ..core.logits import SiteLogits
from ..core.storage import TEXT, read_unpacked
from ..core.types import Model, Tokens
from ..diffusion.processes import Masking
from ..exact.tables import TableScore, flat_index, line_index
from ..rewards.recycled import recycled
from ..rewards.reward import Reward
from ..targets.annealed import Annealed
from ..targets.composed import Composed
from .binding import problem as binding_problem
from .dna_landscape import read_landscape
from .screening import screened_importance, within_calls

AMINO_ACIDS, WILD_TYPE, BEST = "ACDEFGHIKLMNPQRSTVWY", "VDGV", 8.76  # BEST: the largest fitness of the data
LEAST = 1e-3  # lowest fitness over the best that is assumed, also where none was measured
SOME_TIME = 0.5  # arbitrary: the posterior of a masked state does not depend on time
DISTINCT = 2000  # distinct calls on TF Bind 8
FLOORS = {"tfbind8": 1000, "gb1": 2048}  # number of independent draws that the error is compared with
REPLICATES = 10
SIZES = (8, 16, 32, 64, 128, 256, 512)  # particles of annealing on GB1
SWEEPS = 4


class RewardTable(NamedTuple):
    """p0 and a log-value of every state; the target is p0 exp(strength * value)."""

    p0: Tensor  # [S] * D
    values: Tensor  # [S ** D]

    @property
    def size(self) -> int:
        return self.p0.shape[0]

    def target(self, strength: float) -> tuple[Tensor, float]:
        """The target as a flat table, and log Z."""
        log_mass = self.p0.reshape(-1).log() + strength * self.values
        return log_mass.softmax(0), float(log_mass.logsumexp(0))

    def log_prob(self, x: Tokens) -> Tensor:
        """log p0 of states [..., D]."""
        return self.p0.reshape(-1)[flat_index(x, self.size)].log()

    def model(self) -> Model:
        """The exact base; only the lines of the table that particles read are computed."""
        process, length = Masking(self.size), self.p0.dim()
        score = TableScore(process, self.p0)
        rows = score(torch.zeros(1, length, dtype=torch.int64), SOME_TIME).rows - process.log_odds_kept(SOME_TIME)

        def base(x: Tokens, t: float) -> SiteLogits:
            return SiteLogits.of(rows[line_index(x, process.states)] + process.log_odds_kept(t))

        return Model(process, length, base)

    def reward(self) -> Reward:
        return Reward(lambda x: self.values[flat_index(x, self.size)], vocabulary=self.size)

    def miss(self, target: Tensor, x: Tokens, weights: Tensor) -> float:
        """Mean over sites of the TV between weighted and exact marginals."""
        seen = torch.zeros_like(self.values).scatter_add(0, flat_index(x, self.size), weights / weights.sum())
        gap = (seen - target).reshape(self.p0.shape)
        sites = range(self.p0.dim())
        each = [gap.sum([d for d in sites if d != site]).abs().sum() / 2 for site in sites]
        return float(torch.stack(each).mean())

    def floor(self, target: Tensor, seed: int, draws: int) -> float:
        """Mean error of `draws` independent draws."""
        p = target.numpy() / target.numpy().sum()
        counts = torch.from_numpy(np.random.default_rng(seed).multinomial(draws, p, REPLICATES)).double()
        every = torch.cartesian_prod(*[torch.arange(self.size)] * self.p0.dim())
        return math.fsum(self.miss(target, every, row) for row in counts) / REPLICATES


def binding_table(folder: Path, prior: str) -> RewardTable:
    """TF Bind 8 as `truetilt reproduce tfbind8` has it: the value is log p(it binds | x)."""
    table = binding_problem(read_landscape(folder), prior)
    return RewardTable(table.p0, table.likelihood.log().reshape(-1))


def fitness_table(folder: Path) -> RewardTable:
    """GB1: log of fitness over the best; p0 is a fixed law with pair terms that favours the wild type, as a learned one
    does.

    No protein network is involved: any law of this kind would do.
    """
    size, length = len(AMINO_ACIDS), len(WILD_TYPE)
    values = torch.full((size**length,), math.log(LEAST), dtype=torch.float64)
    path = folder / "fitness.tsv.xz"
    try:
        lines = read_unpacked(path, TEXT).decode().splitlines()
        for line in lines[1:]:
            variant, fitness = line.split("\t")
            place = 0
            for letter in variant:
                place = place * size + AMINO_ACIDS.index(letter)
            values[place] = math.log(max(float(fitness) / BEST, LEAST))
    except (OSError, ValueError, IndexError) as error:
        raise InvalidInput(f"{path} cannot be read as rows of a variant and its fitness ({error})") from error
    generator = torch.Generator().manual_seed(0)
    sites = 1.2 * torch.randn(length, size, generator=generator, dtype=torch.float64)
    pairs = 0.4 * torch.randn(length, length, size, size, generator=generator, dtype=torch.float64)
    log_p = torch.zeros((size,) * length, dtype=torch.float64)
    for d in range(length):
        sites[d, AMINO_ACIDS.index(WILD_TYPE[d])] += 2
        log_p = log_p + sites[d].reshape([size if k == d else 1 for k in range(length)])
        for e in range(d + 1, length):
            log_p = log_p + pairs[d, e].reshape([size if k in (d, e) else 1 for k in range(length)])
    return RewardTable(log_p.reshape(-1).softmax(0).reshape(log_p.shape), values)


def annealed(table: RewardTable, reward: Reward, strength: float, particles: int, sweeps: int, seed: int) -> Any:
    """From p0 to the target by Gibbs moves, one site per move, the strength growing quadratically."""
    moves = sweeps * table.p0.dim()
    shares = [min(1.0, ((k + 1) / (0.9 * moves)) ** 2) for k in range(moves)]
    goal = Composed(table.model(), reward=reward, strength=strength)
    return run(Annealed(goal, shares), particles=particles, seed=seed)


class Measured(NamedTuple):
    """A table with one of its targets, and the floor that a method is compared with."""

    table: RewardTable
    strength: float
    law: Tensor
    log_z: float
    floor: float

    def row(self, x: Tokens, weights: Tensor, log_z: float, evaluations: int, reward: Reward) -> Answer:
        return {
            "tv": self.table.miss(self.law, x, weights),
            "floor": self.floor,
            "log_z_error": log_z - self.log_z,
            "ess": float(weights.sum() ** 2 / (weights**2).sum()),
            "evaluations": evaluations,
            "calls": reward.calls,
            "distinct": reward.distinct,
        }


def _measured(table: RewardTable, strength: float, draws: int, seed: int) -> Measured:
    law, log_z = table.target(strength)
    return Measured(table, strength, law, log_z, table.floor(law, seed, draws))


def one_binding(prior: str, alpha: float, seed: int, folder: str) -> Answer:
    """TF Bind 8 with 2,000 distinct calls: importance, screened importance, the pilot's choice of them, and others."""
    table = binding_table(Path(folder), prior)
    known = _measured(table, alpha, FLOORS["tfbind8"], seed)
    model = table.model()
    walk, steps = site_by_site(model), model.length
    out: Answer = {}

    def add(name: str, method: Callable[[Reward], tuple[Tokens, Tensor, float, int]]) -> None:
        reward = table.reward()
        out[name] = known.row(*method(reward), reward)

    def plain(reward: Reward) -> tuple[Tokens, Tensor, float, int]:
        x = within_calls(walk, DISTINCT, 20 * DISTINCT, seed)
        log_w = alpha * reward(x)
        return x, log_w.softmax(0), float(log_w.logsumexp(0)) - math.log(len(x)), len(x) * steps

    def chosen(reward: Reward) -> tuple[Tokens, Tensor, float, int]:
        found = screened_importance(walk, reward, alpha, table.size, distinct=DISTINCT, seed=seed)
        return found.x, found.log_weights.softmax(0), found.log_z, found.draws * steps

    def steered(reward: Reward) -> tuple[Tokens, Tensor, float, int]:
        found = fk_steering(model, reward, alpha, budget=Budget(calls=DISTINCT), completions=4, seed=seed)
        return found.states, found.weights, float(found.log_z or 0.0), found.spent.evaluations

    def moved(reward: Reward) -> tuple[Tokens, Tensor, float, int]:
        found = annealed(table, reward, alpha, 64, 2, seed)
        return found.particles[0], found.weights.reshape(-1), found.log_z, found.spent.evaluations

    add("importance", plain)
    add("screened", chosen)
    add("FK steering, K = 4", steered)
    add("annealed", moved)
    return out


def one_fitness(alpha: float, seed: int, folder: str, sizes: tuple[int, ...] = SIZES) -> Answer:
    """GB1: annealing with increasing numbers of particles, plain and recycled, beside importance and FK steering."""
    table = fitness_table(Path(folder))
    known = _measured(table, alpha, FLOORS["gb1"], seed)
    model, out = table.model(), {}
    walk = site_by_site(model)

    def add(name: str, x: Tokens, weights: Tensor, log_z: float, evaluations: int, reward: Reward) -> None:
        out[name] = known.row(x, weights, log_z, evaluations, reward)
        again = recycled(reward, table.log_prob, alpha)
        out[f"{name}, recycled"] = known.row(again.states, again.weights, again.log_z, evaluations, reward)

    for particles in sizes:
        reward = table.reward()
        found = annealed(table, reward, alpha, particles, SWEEPS, seed)
        weights = found.weights.reshape(-1)
        add(f"annealed / {particles}", found.particles[0], weights, found.log_z, found.spent.evaluations, reward)
        count = 64 * particles
        reward, x = table.reward(), base_draws(walk, count, seed)
        log_w = alpha * reward(x)
        log_z = float(log_w.logsumexp(0)) - math.log(count)
        add(f"importance / {count}", x, log_w.softmax(0), log_z, count * model.length, reward)
        reward = table.reward()
        steered = fk_steering(model, reward, alpha, budget=Budget(calls=count), completions=4, seed=seed)
        cost = steered.spent.evaluations
        add(f"FK steering, K = 4 / {count}", steered.states, steered.weights, float(steered.log_z or 0.0), cost, reward)
    return out
