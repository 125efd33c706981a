"""Exact jumps: the limits of continuous time without a time grid, by generators, by flow and by z-tests.

First hitting is exact on any grid of resampling times. A candidate step is I + A / bound with A written out by hand,
and its mean over Poisson grids is the closed-form mass of continuous time.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

import truetilt as tt
from problems import clean, hard_table, miss, reverse_rates, table, tv, z_limit
from test_unbiased import z_scores
from truetilt.core.types import Particles
from truetilt.exact.flow import push
from truetilt.exact.joint import transitions
from truetilt.exact.tables import flat_index
from truetilt.smc.sampler import Source, Stream, run_steps
from truetilt.targets.jumps.first_hitting import log_chance
from truetilt.targets.jumps.jump_moves import PointLaw
from truetilt.targets.jumps.rates import Rates, edge

BETAS = pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0, 4.0])
ADAPTED_TOO = pytest.mark.parametrize("beta", [None, 0.0, 1.0, 2.0])
SHORT = tt.LogLinear(0.2)  # a fifth of the data survives: the start matters, and the clock is short
BRIEF = table(tt.Uniform, 3, 2, seed=6, schedule=SHORT)


def z_of(mass, exact):
    """z of the mean of independent replicates [n, K], and of their totals, against exact means [K]."""
    mass, exact = torch.cat([mass, mass.sum(1, keepdim=True)], 1), torch.cat([exact, exact.sum()[None]])
    error = mass.std(0) / len(mass) ** 0.5
    seen = error > 1e-12
    assert torch.allclose(mass.mean(0)[~seen], exact[~seen], atol=1e-12)
    return ((mass.mean(0) - exact) / error)[seen].abs().max()


def masses(result, problem):
    """Weight at each state of every population [populations, K]."""
    states = problem.process.states
    empty = torch.zeros(len(result.particles), states**problem.length, dtype=torch.float64)
    share = result.log_weights.exp() / result.particles.shape[1]
    return empty.scatter_add(1, flat_index(result.particles, states), share)


# First hitting


def target_mass(problem, alpha):
    """p0 (p(zeta|x) / p(zeta))^alpha: what is left at t = 0 where nothing is masked."""
    return problem.p0 * (problem.likelihood / problem.evidence) ** alpha


@BETAS
@pytest.mark.parametrize("grid", [(1.0, 0.0), (1.0, 0.7, 0.2, 0.0)])
@pytest.mark.parametrize("guide", [tt.rate_level, tt.posterior_level])
def test_first_hitting_is_the_target_on_any_grid_and_proposal(beta, grid, guide):
    for problem in (table(tt.Masking, 3, 2, seed=6), hard_table(tt.Masking)):
        limit = tt.flow(tt.FirstHitting(problem.model(), 3.0, beta, guide), grid, 4, 2)
        assert (clean(limit.log_mass.exp(), problem) - target_mass(problem, 3.0)).abs().max() < 1e-12
        assert abs(float(limit.log_z - problem.log_z_tempered(3.0))) < 1e-12  # no mass behind masks


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0])  # beyond, some states are hardly ever proposed
@pytest.mark.parametrize("grid", [(1.0, 0.0), (1.0, 0.5, 0.0)])
def test_first_hitting_draws_what_it_weighs(beta, grid):
    """The paths and their times are drawn; the target is not computed from them."""
    problem = table(tt.Masking, 3, 2, seed=6)
    fk = tt.FirstHitting(problem.model(), 2.0, beta)
    result = tt.run(fk, grid, particles=4, populations=10_000, seed=1, resample=tt.adaptive(tt.systematic, 0.9))
    exact = torch.nn.functional.pad(target_mass(problem, 2.0), (0, 1, 0, 1)).reshape(-1)
    assert z_of(masses(result, problem), exact) < z_limit(20)


@pytest.mark.parametrize("beta", [0.0, 2.0, lambda t: 2 * t])
def test_first_hitting_on_the_way_is_its_flow(beta):
    """Stopped while masks are left, with every kind of draw: the waiting times and the integral are right."""
    problem = table(tt.Masking, 3, 2, seed=6)
    fk, grid = tt.FirstHitting(problem.model(), 2.0, beta), (1.0, 0.8, 0.4)
    exact = tt.flow(fk, grid, 4, 2).log_mass.exp()
    masked = (problem.states == 3).any(-1)
    assert 0.4 < exact[masked].sum() / exact.sum() < 0.9
    for couple in (tt.independent, tt.systematic_draws):
        *_, (state, _) = run_steps(fk, grid, (10_000, 4), tt.multinomial, Source(Stream(2), couple))
        result = SimpleNamespace(particles=state.x, log_weights=state.log_w)
        assert z_of(masses(result, problem), exact) < z_limit(40)


def test_first_hitting_in_the_sampler_of_all_models():
    """Six intervals and hard constraints: the same z-test as every other model."""
    problem = hard_table(tt.Masking)
    for beta in (0.0, 1.0):
        fk = tt.FirstHitting(problem.model(), 3.0, beta)
        assert z_scores(fk, problem, tt.adaptive(tt.systematic, 0.9), populations=8000).abs().max() < z_limit(400)


def test_first_hitting_reaches_a_chain_that_no_table_holds():
    """Eight sites, two tokens: marginals of the weighted particles against forward-backward."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(2, 2, generator=generator) + 0.3
    chain = tt.Chain(tt.Masking(2), torch.ones(2), rows, torch.rand(8, 2, generator=generator) + 0.5)
    result = tt.run(tt.FirstHitting(chain.model(), 2.0), tt.uniform_grid(4), particles=4000, seed=0)
    ones = result.expectation(lambda x: x.double())
    assert (result.particles < 2).all()
    assert (ones - chain.target(2.0).marginals()[:, 1]).abs().max() < 0.05
    assert abs(result.log_z - float(chain.log_z_tempered(2.0))) < 0.05


def test_time_spent_between_jumps_is_a_known_integral():
    exits = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    clock = 0.7
    twice = math.exp(-2 * clock) - 2 * math.exp(-clock) + 1  # two sites, each revealed at rate 1
    assert abs(float(log_chance(exits, clock).exp()) - twice / 2) < 1e-14
    assert abs(float(log_chance(exits, math.inf).exp()) - 0.5) < 1e-14
    assert float(log_chance(exits[:1], math.inf)) == -math.inf


# Uniformisation


def by_hand(problem, alpha, t):
    """The generator A [K, K] a unit of the clock sigma / S, from reverse rates summed over x_0."""
    given = problem.p0 * problem.likelihood / problem.evidence
    scale = problem.process.vocabulary / float(problem.process.schedule(t).rate)
    r, r1 = (reverse_rates(problem, p0, t) * scale for p0 in (problem.p0, given))
    a = torch.diag(-r.sum((1, 2)) + alpha * (r.sum((1, 2)) - r1.sum((1, 2))))
    for k, x in enumerate(problem.states.tolist()):
        for d in range(2):
            for v in range(problem.process.vocabulary):
                if v != x[d]:
                    y = [*x[:d], v, *x[d + 1 :]]
                    a[k, y[0] * problem.process.vocabulary + y[1]] += r[k, d, v] * (r1[k, d, v] / r[k, d, v]) ** alpha
    return a


def one_candidate(problem, alpha, beta, t, bound, kind=tt.Uniformised):
    return kind(problem.model(), alpha, tt.Candidates((1.0, t, 0.0), (bound,)), beta)


def step_matrix(fk, problem, t):
    """Law times weight of one candidate event, from every state [K, K]."""
    states, log_one = problem.states, torch.zeros(9, dtype=torch.float64)
    move = fk.move(Particles(states, log_one, {}), t, 0.0)
    alone = (move.take(torch.tensor([k])) for k in range(9))
    return torch.stack([push(m, log_one[:1], states, problem.process.states)[0].exp() for m in alone])


@ADAPTED_TOO
@pytest.mark.parametrize("alpha", [0.5, 2.0, 4.0])
def test_a_candidate_event_is_one_plus_the_generator_over_the_bound(alpha, beta):
    problem = table(tt.Uniform, 3, 2, seed=6)
    for t in (0.9, 0.2):
        a = by_hand(problem, alpha, t)
        bound = 1.1 * max(tt.least_bound(problem.model(), alpha, problem.states, t, beta), 1.0)
        p = step_matrix(one_candidate(problem, alpha, beta, t, bound), problem, t)
        assert (bound * (p - torch.eye(9)) - a).abs().max() < 1e-11 * bound


@cache
def continuous(problem, alpha):
    """E[W; X_0 = y] in closed form: the weight of a path is (h_0(X_0) / h_1(X_1))^alpha, from uniform tokens."""
    log_h1, log_h0 = problem.expected(1.0, 1.0).reshape(-1, 1), problem.likelihood.log().reshape(1, -1)
    kernel = (transitions(problem, problem.p0, 1.0, 0.0) + alpha * (log_h0 - log_h1)).exp()
    return kernel.mean(0)


def exponential(problem, a, pieces):
    """The same by integrating a generator A(t) over the clock, in pieces that shrink towards the data."""
    schedule, mass = problem.process.schedule, torch.full((9,), 1 / 9, dtype=torch.float64)
    knots = [float(schedule(1.0).value) * (1 - k / pieces) ** 2 for k in range(pieces + 1)]
    for later, earlier in pairwise(knots):
        step = a(schedule.time_of((later + earlier) / 2)) * ((later - earlier) / problem.process.vocabulary)
        mass = mass @ torch.linalg.matrix_exp(step)
    return mass


@pytest.mark.parametrize("alpha", [2.0, 4.0])
def test_the_limit_of_uniformisation_is_the_target_where_the_grid_form_fails(alpha):
    """The library's own candidate events, integrated over the clock; what is left is the prior's exp(-sigma(1))."""
    problem = table(tt.Uniform, 3, 2, seed=6)
    target = problem.target(alpha).reshape(-1)

    def generator(t):
        bound = 2 * tt.least_bound(problem.model(), alpha, problem.states, t)
        return bound * (step_matrix(one_candidate(problem, alpha, None, t, bound), problem, t) - torch.eye(9))

    exact = continuous(problem, alpha)
    coarse, fine = (exponential(problem, generator, pieces) for pieces in (60, 120))
    errors = [float((mass - exact).abs().max() / exact.sum()) for mass in (coarse, fine)]
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] > 3.5  # what is left is this test's quadrature: it falls as 1 / pieces^2
    assert tv(fine / fine.sum(), target) < 1e-3
    assert tv(exact / exact.sum(), target) < 1e-5  # of the prior's 1e-3 of surviving data next to nothing is left
    assert miss(tt.Tempered(problem.model(), 4.0), problem, 4.0, 100) > 0.05


def falling(t):
    return 160 - 120 * t


@cache
def grids(problem, bound, count):
    return [tt.poisson_times(problem.process, bound, seed) for seed in range(count)]


def test_the_mean_flow_over_poisson_grids_is_the_mass_of_continuous_time():
    problem = BRIEF
    fks = [tt.Uniformised(problem.model(), 2.0, c) for c in grids(problem, lambda t: 60 - 40 * t, 60)]
    mass = torch.stack([tt.flow(fk, fk.grid, 3, 2).log_mass.exp() for fk in fks])
    assert z_of(mass, continuous(problem, 2.0)) < z_limit(10)


@cache
def fine_generators(problem, alpha, pieces=400):
    """A by hand at the middles of equal pieces of sigma."""
    end = float(problem.process.schedule(1.0).value)
    times = [problem.process.schedule.time_of(end * (1 - (k + 0.5) / pieces)) for k in range(pieces)]
    return torch.stack([by_hand(problem, alpha, t) for t in times]), end


def hand_flow(problem, alpha, candidates, factor=1.0):
    """Mass of a grid by matrix products; `factor` other than 1 mistakes the bound."""
    a, end = fine_generators(problem, alpha)
    sigma = problem.process.schedule(torch.tensor(candidates.grid[1:-1], dtype=torch.float64)).value
    piece = ((1 - sigma / end) * len(a)).long().clamp(max=len(a) - 1)
    mass = torch.full((9,), 1 / 9, dtype=torch.float64)
    for k, bound in zip(piece.tolist(), candidates.bounds, strict=True):
        mass = mass + mass @ a[k] / (factor * bound)
    return mass


@pytest.mark.parametrize("alpha", [2.0, 4.0])
def test_a_thousand_grids_average_to_the_exponential(alpha):
    """Poisson times at a bound that changes with time, and a kernel by hand: at alpha = 4 too."""
    problem = BRIEF
    many = grids(problem, falling, 1000)
    mass = torch.stack([hand_flow(problem, alpha, c) for c in many])
    assert z_of(mass, continuous(problem, alpha)) < z_limit(10)
    mistaken = torch.stack([hand_flow(problem, alpha, c, 1.25) for c in many])
    assert z_of(mistaken, continuous(problem, alpha)) > 5 * z_limit(10)


@pytest.mark.parametrize("beta", [None, 0.0, 1.0, 1.5])
def test_given_its_candidates_the_sampler_is_unbiased_for_the_flow(beta):
    problem = BRIEF
    model = problem.model()
    bound = 1.5 * max(tt.least_bound(model, 2.0, problem.states, t, beta) for t in (1.0, 0.5, 1e-9))
    fk = tt.Uniformised(model, 2.0, tt.poisson_times(problem.process, bound, 0), beta)
    exact = tt.flow(fk, fk.grid, 3, 2).log_mass.exp()
    for resample in (tt.adaptive(tt.systematic, 0.9), tt.multinomial):
        result = tt.run(fk, fk.grid, particles=4, populations=4000, seed=1, resample=resample)
        assert z_of(masses(result, problem), exact) < z_limit(80)


@pytest.mark.parametrize("beta", [None, 1.0])
def test_over_grids_the_sampler_is_unbiased_for_continuous_time(beta):
    """A replicate is a grid with its populations: they share it, and are not independent of one another."""
    problem = BRIEF
    runs = []
    for seed, candidates in enumerate(grids(problem, 40.0, 60)):
        fk = tt.Uniformised(problem.model(), 2.0, candidates, beta)
        result = tt.run(fk, fk.grid, particles=4, populations=50, seed=seed)
        runs.append(masses(result, problem).mean(0))
    assert z_of(torch.stack(runs), continuous(problem, 2.0)) < z_limit(20)


def test_candidate_times_are_a_poisson_process():
    """Their number, and where they fall, for a bound that doubles half-way through the clock."""
    process, half = tt.Uniform(3, SHORT), SHORT.time_of(float(SHORT(1.0).value) / 2)
    many = [tt.poisson_times(process, lambda t: 40.0 if t < half else 20.0, seed) for seed in range(2000)]
    clock = float(SHORT(1.0).value) / 3
    counts = torch.tensor([[sum(b == size for b in c.bounds) for size in (20.0, 40.0)] for c in many]).double()
    mean = torch.tensor([10.0, 20.0], dtype=torch.float64) * clock
    assert ((counts.mean(0) - mean) / (mean / 2000).sqrt()).abs().max() < z_limit(5)
    assert ((counts.var(0) / mean - 1) / (2 / 2000 + 1 / (2000 * mean)).sqrt()).abs().max() < z_limit(5)
    assert abs(float(torch.corrcoef(counts.T)[0, 1])) * 2000**0.5 < z_limit(5)
    late = torch.cat([SHORT(torch.tensor([t for t, b in zip(c.grid[1:-1], c.bounds, strict=True) if b == 40.0])).value
                      for c in many]) / float(SHORT(1.0).value) / 0.5  # fmt: skip
    assert abs(float(late.mean() - 0.5)) * (12 * len(late)) ** 0.5 < z_limit(5)
    assert 0 <= float(late.min()) < 1e-3 < 1 - 1e-3 < float(late.max()) <= 1


# Wrong variants


def flipped(rates):
    """The integral with its sign turned: Q - exit' = -(Q - exit)."""
    return rates._replace(exit=2 * rates.leave - rates.exit)


def without_log_q(rates):
    """Jumps weighed by R g^alpha, -log Q forgotten."""
    q, a = rates.proposed, rates.tilted
    rows, both = a.logits.aligned(q.logits), a.log_reference + q.log_reference
    mixed = a._replace(logits=rows[0].with_rows(rows[0].rows + rows[1].rows), log_reference=both)
    return rates._replace(tilted=mixed)


@dataclass(frozen=True)
class WrongHitting(tt.FirstHitting):
    spoil: object = None

    def rates(self, x, t, s) -> Rates:
        return self.spoil(super().rates(x, t, s))


@dataclass(frozen=True)
class WrongUniformised(tt.Uniformised):
    spoil: object = None

    def rates(self, x, t, s) -> Rates:
        return self.spoil(super().rates(x, t, s))


SPOILED = pytest.mark.parametrize("spoil", [flipped, without_log_q])


@SPOILED
def test_wrong_weights_of_first_hitting_miss(spoil):
    problem = table(tt.Masking, 3, 2, seed=6)
    wrong = WrongHitting(problem.model(), 2.0, 1.5, spoil=spoil)
    assert miss(wrong, problem, 2.0, 4) > 0.02
    assert miss(tt.FirstHitting(problem.model(), 2.0, 1.5), problem, 2.0, 4) < 1e-12
    exact = torch.nn.functional.pad(target_mass(problem, 2.0), (0, 1, 0, 1)).reshape(-1)
    result = tt.run(wrong, (1.0, 0.5, 0.0), particles=4, populations=10_000, seed=1)
    assert z_of(masses(result, problem), exact) > 5 * z_limit(20)


@SPOILED
@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_wrong_weights_of_uniformisation_are_another_generator(spoil, beta):
    problem, t = table(tt.Uniform, 3, 2, seed=6), 0.4
    bound = 3 * tt.least_bound(problem.model(), 2.0, problem.states, t, 2.0)
    right, wrong = one_candidate(problem, 2.0, beta, t, bound), tt.Candidates((1.0, t, 0.0), (bound,))
    spoiled = WrongUniformised(problem.model(), 2.0, wrong, beta, spoil=spoil)
    errors = [
        float((bound * (step_matrix(fk, problem, t) - torch.eye(9)) - by_hand(problem, 2.0, t)).abs().max())
        for fk in (right, spoiled)
    ]
    assert errors[0] < 1e-10
    assert errors[1] > 0.5


def test_wrong_bound_clamped_instead_of_raised():
    """Rates cut to fit under the bound are those of another process."""
    problem, t = table(tt.Uniform, 3, 2, seed=6), 0.1
    least = tt.least_bound(problem.model(), 2.0, problem.states, t, 2.0)
    with pytest.raises(tt.InvalidWeights, match=r"t = 0\.1: .* at rate .* bound is .*; raise the bound"):
        step_matrix(one_candidate(problem, 2.0, 2.0, t, 0.5 * least), problem, t)

    def clamped(rates):
        return rates._replace(exit=rates.exit.clamp(max=0.49 * least), leave=rates.leave.clamp(max=0.49 * least))

    fk = one_candidate(problem, 2.0, 2.0, t, 0.5 * least, lambda *a: WrongUniformised(*a, spoil=clamped))
    error = 0.5 * least * (step_matrix(fk, problem, t) - torch.eye(9)) - by_hand(problem, 2.0, t)
    assert error.abs().max() > 1


# Replay, laws, bad input


def make(name):
    if name == "first hitting":
        return tt.FirstHitting(table(tt.Masking, 4, 2).model(), 2.0, 1.5), tt.uniform_grid(5)
    model = table(tt.Uniform, 3, 2, schedule=SHORT).model()
    fk = tt.Uniformised(model, 2.0, tt.poisson_times(model.process, 40.0, 3), None if name == "adapted" else 1.0)
    return fk, fk.grid


@pytest.mark.parametrize("name", ["first hitting", "adapted", "guided"])
def test_a_run_replays_bit_for_bit_with_any_chunk_size(name):
    fk, grid = make(name)
    options = {"particles": 37, "populations": 3, "seed": 11}
    first = tt.run(fk, grid, **options)
    for chunk in (None, 1, 5, 1000):
        again = tt.run(fk, grid, chunk=chunk, **options)
        assert torch.equal(first.particles, again.particles)
        assert torch.equal(first.log_weights, again.log_weights)
    alone = tt.run(fk, grid, **(options | {"populations": 1, "first_population": 2}))
    assert torch.equal(alone.log_weights[0], first.log_weights[2])
    assert not torch.equal(first.particles, tt.run(fk, grid, **(options | {"seed": 12})).particles)


def test_candidate_times_are_a_function_of_the_seed():
    process = tt.Uniform(3)
    assert tt.poisson_times(process, 9.0, 5) == tt.poisson_times(process, 9.0, 5)
    assert tt.poisson_times(process, 9.0, 5) != tt.poisson_times(process, 9.0, 6)
    assert tt.poisson_times(process, 1e-9, 0).grid == (1.0, 0.0)  # hardly ever a candidate: nothing moves
    assert min(tt.poisson_times(tt.Uniform(3, tt.Geometric()), 9.0, 0).grid[:-1]) > 0


@pytest.mark.parametrize("beta", [None, 1.0])
def test_the_law_of_a_candidate_event(beta):
    """Draws follow log_prob, which sums to one over the support and knows no other state."""
    problem, t = table(tt.Uniform, 3, 2, seed=1), 0.3
    move = one_candidate(problem, 2.0, beta, t, 60.0).move(
        Particles(problem.states, torch.zeros(9, dtype=torch.float64), {}), t, 0.0
    )
    y, log_q = move.law.support()
    assert torch.allclose(log_q.exp().sum(-1), torch.ones(9, dtype=torch.float64), atol=1e-12)
    assert torch.equal(move.law.log_prob((problem.states + 1) % 3), torch.full((9,), -torch.inf).double())
    u = (torch.arange(400) + 0.5) / 400
    many = move.law.take(torch.full((160_000,), 4))
    drawn = many.sample(torch.cartesian_prod(u, u).double())
    share = torch.zeros(9).double().index_add(0, flat_index(drawn, 3), torch.full((160_000,), 1 / 160_000).double())
    law = torch.zeros(9).double().index_add(0, flat_index(y[4], 3), log_q[4].exp())
    assert (share - law).abs().max() < 0.01


@pytest.mark.parametrize("grid", [(1.0, 0.0), (1.0, 0.4, 0.0)])
def test_the_last_interval_of_first_hitting_keeps_its_weights(grid):
    """Only those before it are resampled by what they weigh: an answer counts its particles by weight."""
    fk = tt.FirstHitting(table(tt.Masking, 3, 2).model(), 3.0)
    *_, before, last = (p.log_w for p, _ in run_steps(fk, grid, (1, 50), tt.multinomial, Source(Stream(0))))
    assert float(before.std()) < 1e-12
    assert float(last.std()) > 0.1


def test_a_settled_path_has_one_end():
    law = PointLaw(torch.tensor([[0, 1], [2, 2], [1, 0]]))
    log_prob = law.log_prob(torch.tensor([[0, 1], [2, 1], [1, 0]]))
    assert torch.equal(log_prob, torch.tensor([0.0, -torch.inf, 0.0]).double())


def test_an_edge_that_is_none_has_no_rate():
    fk = tt.FirstHitting(table(tt.Masking, 3, 2).model(), 2.0)
    x = torch.tensor([[3, 1], [3, 3], [0, 3]])
    rates = fk.rates(x, 0.5, 0.2)
    assert torch.equal(edge(rates.tilted, x, x), torch.full((3,), -torch.inf).double())
    assert torch.equal(edge(rates.tilted, x, torch.tensor([[3, 2], [3, 3], [1, 3]])) > -torch.inf, torch.zeros(3) > 0)


MASKED, UNIFORM = table(tt.Masking, 3, 2).model(), table(tt.Uniform, 3, 2).model()
ONE = tt.Candidates((1.0, 0.5, 0.0), (50.0,))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: tt.FirstHitting(UNIFORM, 2.0), "use Uniformised"),
        (lambda: tt.Uniformised(MASKED, 2.0, ONE), "use FirstHitting"),
        (lambda: tt.poisson_times(MASKED.process, 9.0, 0), "use FirstHitting"),
        (lambda: tt.FirstHitting(MASKED, -1.0), "alpha is -1"),
        (lambda: tt.FirstHitting(MASKED, 2.0, math.nan), "beta is nan"),
        (lambda: tt.FirstHitting(MASKED, 0.0, 1.0), "use beta = 0"),
        (lambda: tt.Uniformised(UNIFORM, math.inf, ONE), "alpha is inf"),
        (lambda: tt.FirstHitting(replace(MASKED, conditional=None), 2.0), "conditional score"),
        (lambda: tt.poisson_times(UNIFORM.process, 0.0, 0), "bound on rates is 0"),
        (lambda: tt.poisson_times(UNIFORM.process, lambda t: 1 / t if t else math.inf, 0), "inf at t = 0"),
        (lambda: tt.poisson_times(UNIFORM.process, 9.0, -1), "seed is -1"),
        (lambda: tt.Candidates((1.0, 0.5, 0.0), ()), "0 bounds for a grid of 3"),
        (lambda: tt.Candidates((1.0, 0.5, 0.0), (-2.0,)), "bound on rates is -2"),
        (lambda: tt.Candidates((1.0, 0.5, 0.7, 0.0), (9.0, 9.0)), "times must fall"),
        (lambda: tt.run(tt.Uniformised(UNIFORM, 2.0, ONE), tt.uniform_grid(4), particles=3), "grid of its candidates"),
        (lambda: tt.run(tt.Uniformised(UNIFORM, 2.0, ONE), ONE.grid[1:], particles=3), "starts from noise"),
    ],
)
def test_bad_input(build, words):
    with pytest.raises(tt.InvalidInput, match=words):
        build()


def test_a_rate_above_the_bound_is_named_with_its_time():
    fk = tt.Uniformised(UNIFORM, 2.0, tt.Candidates((1.0, 0.5, 0.0), (2.0,)))
    with pytest.raises(tt.InvalidWeights, match=r"t = 0\.5: .* and the bound is 2; raise the bound"):
        tt.run(fk, fk.grid, particles=5)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_score_of_nan_is_named_with_its_time(bad):
    def conditional(x, t):
        logits = MASKED.conditional(x, t)
        return logits if t > 0.5 else logits.with_rows(torch.full_like(logits.rows, bad))

    fk = tt.FirstHitting(replace(MASKED, conditional=conditional), 2.0)
    with pytest.raises(tt.InvalidWeights, match=r"t = 0\.5: the conditional score returned NaN or only -inf"):
        tt.run(fk, tt.uniform_grid(4), particles=10)


def test_a_state_that_cannot_be_finished_dies_without_nan():
    """The base and the condition share no token at a site: its hazard is zero, and so is the weight at the end."""

    def apart(first):
        rows = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]], dtype=torch.float64)
        return lambda x, t: tt.SiteLogits(rows, torch.full_like(x, first)).with_rows(rows + proc.log_odds_kept(t))

    proc = tt.Masking(2)
    fk = tt.FirstHitting(tt.Model(proc, 2, apart(0), apart(1)), 2.0)
    with pytest.raises(tt.DegenerateWeights, match="every particle has weight zero"):
        tt.run(fk, (1.0, 0.5, 0.0), particles=10)
