"""A zoo of small problems with exact answers, shared by the tests; and the arithmetic of false alarms."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from hypothesis import settings
from torch import Tensor

import truetilt as tt
from truetilt.exact.flow import Limit
from truetilt.testing.tables import TOP as TOP
from truetilt.testing.tables import clean as clean
from truetilt.testing.tables import tv as tv
from truetilt.testing.verdicts import z_limit as normal_limit

FALSE_ALARM = 1e-5  # of the whole suite; a test that makes m comparisons shares its part among them


def table(process: type, vocabulary: int, length: int, seed: int = 0, schedule: object | None = None) -> tt.Table:
    """p0 and p(zeta|x) with entries uniform on (0, 1), the paper's toy family."""
    generator = torch.Generator().manual_seed(seed)
    shape = (vocabulary,) * length
    p0 = torch.rand(shape, generator=generator, dtype=torch.float64)
    likelihood = torch.rand(shape, generator=generator, dtype=torch.float64)
    made = process(vocabulary) if schedule is None else process(vocabulary, schedule)
    return tt.Table(made, p0, likelihood)


def hard_table(process: type) -> tt.Table:
    """Zeros in p0 and in the likelihood, not in the same places."""
    p0 = torch.tensor([[0.2, 0.0, 0.1], [0.3, 0.1, 0.0], [0.1, 0.1, 0.1]])
    likelihood = torch.tensor([[0.0, 0.5, 0.9], [0.4, 0.0, 0.3], [0.0, 0.0, 0.7]])
    return tt.Table(process(3), p0, likelihood)


def flow(fk: object, problem: tt.Table, steps: int) -> Limit:
    return tt.flow(fk, tt.uniform_grid(steps), problem.process.states, problem.length)


def miss(fk: object, problem: tt.Table, alpha: float, steps: int) -> float:
    """TV between the exact limit of a model and the tempered target."""
    return tv(clean(flow(fk, problem, steps).law, problem), problem.target(alpha))


def guided(
    problem: tt.Table, beta: float, guide: Callable = tt.rate_level, kernel: Callable = tt.euler
) -> tt.Unweighted:
    model = problem.model()
    score = tt.Guided(problem.process, model.base, model.conditional, beta, guide)
    return tt.Unweighted(model, score, kernel=kernel)


def z_limit(comparisons: int, rate: float = FALSE_ALARM / 20) -> float:
    """The |z| that `comparisons` normal scores all stay under with probability 1 - rate (Bonferroni, two-sided)."""
    return normal_limit(comparisons, rate)


# By hand: two sites, every sum written out, nothing of the library but sigma(t).

FIXED = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def site_noise(process: object, t: float, s: float = 0.0) -> Tensor:
    """Chance that a site that is a at s is b at t [states, states]."""
    noise = float(process.schedule(t).value - process.schedule(s).value)
    size = process.states
    kept = math.exp(-noise) * torch.eye(size, dtype=torch.float64)
    noised = torch.zeros(size, size, dtype=torch.float64)
    if isinstance(process, tt.Masking):
        noised[:, -1] = -math.expm1(-noise)
    else:
        noised[:] = -math.expm1(-noise) / size
    return kept + noised


def law_at(problem: tt.Table, p0: Tensor, t: float) -> Tensor:
    """p_t over the noised space of two sites, by summing over x_0."""
    q = site_noise(problem.process, t)[: p0.shape[0]]
    return torch.einsum("ab,ai,bj->ij", p0, q, q)


def conditional(problem: tt.Table) -> Tensor:
    """p0(x | zeta)."""
    joint = problem.p0 * problem.likelihood
    return joint / joint.sum()


def neighbours(law: Tensor, vocabulary: int) -> Tensor:
    """law(y) for y = x with site d set to v [K, 2, V], from a law of two sites."""
    first = law[:vocabulary].T.expand(*law.shape, vocabulary)
    second = law[:, :vocabulary].unsqueeze(1).expand(*law.shape, vocabulary)
    return torch.stack([first, second], -2).flatten(0, 1)


def ratios(law: Tensor, vocabulary: int) -> Tensor:
    """p_t(y) / p_t(x) for y = x with site d set to v [K, 2, V], from a law of two sites."""
    return neighbours(law, vocabulary) / law.reshape(-1, 1, 1)


def reverse_rates(problem: tt.Table, p0: Tensor, t: float) -> Tensor:
    """sigma'(t) Q(y, x) p_t(y) / p_t(x), the time reversal of the forward jumps [K, 2, V]; 0 for y = x."""
    process, x = problem.process, problem.states
    other = x[..., None] != torch.arange(process.vocabulary)
    masking = isinstance(process, tt.Masking)
    forward = (x == process.vocabulary).double()[..., None] if masking else 1 / process.vocabulary
    jumps = ratios(law_at(problem, p0, t), process.vocabulary) * forward * float(process.schedule(t).rate)
    return torch.where(other, jumps, 0.0)


def meaningful(problem: tt.Table) -> Tensor:
    """The sites a score speaks of [K, 2]: masked ones for masking, all for uniform."""
    x = problem.states
    return x == problem.process.vocabulary if isinstance(problem.process, tt.Masking) else x >= 0
