"""TDS, particle Gibbs over trajectories and AdaLead; budgets that are spent in full and never exceeded."""

import math
import statistics
from dataclasses import dataclass

import pytest
import torch

import truetilt as tt
from test_baselines import LENGTH, SIZE, STRENGTH, miss, problem
from truetilt.baselines.adalead import adalead
from truetilt.baselines.base_draws import in_clock_time, site_by_site
from truetilt.baselines.budget_search import afresh, largest
from truetilt.baselines.fk_particle_gibbs import trajectory_gibbs
from truetilt.baselines.methods import METHODS, TITLES, Contest, run_method
from truetilt.baselines.record import Baseline
from truetilt.baselines.relaxation import relaxed
from truetilt.baselines.svdd import regressed_value, svdd
from truetilt.baselines.tds import TwistedReveal, TwistedRevealMove, tds
from truetilt.core.budget import Budget, BudgetTooSmall

ORDER = (2, 0, 1)


def curved(onehot, t):
    """A value with a gradient that no first-order guess knows."""
    weight = torch.linspace(-1, 1, onehot.shape[-1] * onehot.shape[-2], dtype=onehot.dtype).reshape(onehot.shape[1:])
    return torch.tanh((onehot * weight).sum((-1, -2))) + onehot[:, 0, 0] * onehot[:, 1, 1] + t


def limit_of(fk, walk):
    """The exact law and log Z of a sampler with infinitely many particles."""
    limit = tt.flow(fk, walk.grid, SIZE + 1, LENGTH)
    clean = limit.log_mass.reshape((SIZE + 1,) * LENGTH)[:SIZE, :SIZE, :SIZE].reshape(-1)
    return clean.softmax(-1), float(clean.logsumexp(-1))


@pytest.mark.parametrize("kind", ["regressed", "learned", "network", "own"])
@pytest.mark.parametrize("order", [ORDER, None])
def test_tds_is_exact_in_its_flow(kind, order):
    """Whatever the value, weights of p/q and its differences lead to the target."""
    table, reward, mass = problem()
    model = table.model()
    family = tt.SmallNetwork(seed=1) if kind == "network" else tt.PairTables(1)
    make = {
        "regressed": lambda: regressed_value(model, reward, draws=50, order=order),
        "own": lambda: curved,
    }
    learn = lambda: tt.learn_twist(model, reward, 0.7, calls=200, draws=50, order=order, family=family)  # noqa: E731
    value = make.get(kind, learn)()
    walk = site_by_site(model, order=order)
    law, log_z = limit_of(TwistedReveal(walk.fk, relaxed(value), reward, STRENGTH), walk)
    assert torch.allclose(law, mass / mass.sum(), atol=1e-12)
    assert log_z == pytest.approx(float(mass.sum().log()), abs=1e-12)


@dataclass(frozen=True)
class Uncorrected(TwistedRevealMove):
    """A wrong variant: the weight of the base, as if the proposal had not been tilted."""

    def after(self, y):
        log_w, aux = super().after(y)
        return log_w - self.inner.law.log_prob(y) + self.law.log_prob(y), aux


@dataclass(frozen=True)
class WithoutCorrection(TwistedReveal):
    def led(self, move, t, s):
        right = super().led(move, t, s)
        return Uncorrected(right.fk, right.inner, right.law, right.held, right.s)


def test_tds_without_the_proposal_in_its_weight_is_wrong():
    table, reward, mass = problem()
    model = table.model()
    walk = site_by_site(model, order=ORDER)
    law, log_z = limit_of(WithoutCorrection(walk.fk, curved, reward, STRENGTH), walk)
    assert float((law - mass / mass.sum()).abs().sum()) > 0.1
    assert abs(log_z - float(mass.sum().log())) > 0.01


def test_tds_estimates_z_without_bias_with_few_particles():
    table, reward, mass = problem()
    model = table.model()
    value = regressed_value(model, reward, draws=50)
    runs = [
        tds(model, reward, STRENGTH, value=value, budget=Budget(), particles=4, seed=seed).log_z for seed in range(400)
    ]
    z = [math.exp(log_z) for log_z in runs]
    error = statistics.stdev(z) / math.sqrt(len(z))
    assert abs(statistics.fmean(z) - float(mass.sum())) < 4 * error
    assert error < 0.05 * float(mass.sum())


def test_tds_reaches_the_target_and_counts_what_it_learned():
    table, reward, mass = problem()
    found = tds(table.model(), reward, STRENGTH, budget=Budget(calls=20_000), seed=1)
    tv, off = miss(found, mass)
    assert tv < 0.02
    assert off < 0.02
    assert found.spent == tt.Spent(2 * LENGTH, 20_000 * LENGTH, 20_000, 20_000)
    assert found.size == 19_500


@pytest.mark.parametrize("family", [tt.PairTables(0), tt.PairTables(2), tt.SmallNetwork(seed=0), tt.Kriging()])
def test_a_relaxed_twist_is_the_twist_on_one_hot_states(family):
    table, reward, _ = problem()
    twist = tt.learn_twist(table.model(), reward, 0.5, calls=200, draws=50, family=family)
    states = torch.cartesian_prod(*[torch.arange(SIZE + 1)] * LENGTH)
    hot = torch.nn.functional.one_hot(states, SIZE + 1).double()
    assert torch.allclose(relaxed(twist)(hot, 0.5), twist(states, 0.5), atol=1e-10)


def test_tds_refuses_what_has_no_gradient_or_is_not_finite():
    table, reward, _ = problem()
    model, budget = table.model(), Budget(calls=20)
    with pytest.raises(tt.InvalidInput, match="no gradient"):
        tds(model, reward, budget=budget, value=lambda onehot, t: onehot.detach().sum((-1, -2)))
    with pytest.raises(tt.InvalidWeights, match="finite on every masked state"):
        tds(model, reward, budget=budget, value=lambda onehot, t: onehot.sum((-1, -2)) / 0)
    with pytest.raises(tt.InvalidInput, match="site_by_site"):
        tds(model, reward, budget=budget, walk=in_clock_time)


def test_particle_gibbs_reaches_the_target_by_sweeps_with_two_particles():
    table, reward, mass = problem()
    p0 = table.p0.reshape(-1)
    mass = p0 * (mass / p0) ** (4.0 / STRENGTH)
    options = {"budget": Budget(), "particles": 2, "completions": 1, "seed": 3}
    many = trajectory_gibbs(table.model(), reward, 4.0, chains=64, sweeps=200, **options)
    one = trajectory_gibbs(table.model(), reward, 4.0, chains=5000, sweeps=1, **options)
    assert many.log_z is None
    assert len(many.states) == 150 * 64 * 2
    assert miss(many, mass)[0] < 0.04
    assert miss(one, mass)[0] > 0.2


def test_particle_gibbs_pays_for_its_first_path():
    table, reward, _ = problem()
    sweep = 16 * (LENGTH * 4 + 1)
    with pytest.raises(BudgetTooSmall, match="after a first path was made"):
        trajectory_gibbs(table.model(), reward, budget=Budget(calls=2 * sweep - 1))
    found = trajectory_gibbs(table.model(), reward, budget=Budget(calls=3 * sweep))
    assert found.size == 2
    assert found.spent.calls <= 3 * sweep


def motif(x):
    """A sum over sites, and more where neighbours are alike."""
    return (x * torch.arange(1, x.shape[-1] + 1)).sum(-1) + (x[:, 1:] == x[:, :-1]).sum(-1)


def chain_model(length=12, size=4):
    process = tt.Masking(size)
    law = tt.ChainLaw(torch.ones(size), torch.ones(size, size) + torch.eye(size), torch.zeros(length, size))
    return tt.Model(process, length, tt.ChainScore(process, law))


def test_adalead_climbs_and_spends_its_calls_on_states_it_has_not_seen():
    model, seen = chain_model(), []

    def reward(x):
        seen.extend(map(tuple, x.tolist()))
        return motif(x)

    found = adalead(model, reward, budget=Budget(calls=3000), particles=8, seed=1)
    assert len(seen) == len(set(seen)) == found.spent.calls == 3000
    assert found.spent.evaluations == 100 * model.length
    assert found.log_weights is None
    best = float(motif(torch.full((1, 12), 3)))
    first = max(motif(torch.tensor(seen[:100])).tolist())
    assert float(motif(found.states).min()) >= 0.97 * best > first
    assert len({tuple(row) for row in found.states.tolist()}) == 8


def test_adalead_ends_when_all_states_are_known_and_leaves_forbidden_ones_out():
    table, _, _ = problem()
    reward = lambda x: torch.where(x[:, 0] == 0, -torch.inf, 1.0 * x.sum(-1))  # noqa: E731
    found = adalead(table.model(), reward, budget=Budget(calls=500))
    assert found.spent.calls == SIZE**LENGTH
    assert len(found.states) == 2 * SIZE ** (LENGTH - 1)
    assert bool((found.states[:, 0] > 0).all())


def test_adalead_needs_calls():
    with pytest.raises(tt.InvalidInput, match="budget of calls"):
        adalead(chain_model(), motif, budget=Budget(evaluations=1000))


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("budget", [Budget(40_000, 700), Budget(9_000, 20_000)])
def test_no_baseline_exceeds_its_budget_and_all_use_it(name, budget):
    reward = tt.Reward(motif, vocabulary=4)
    on = Contest(chain_model(), reward, 0.3, budget, 0)
    found = run_method(name, on)
    assert found.spent.evaluations <= budget.evaluations
    assert found.spent.distinct <= budget.calls
    if name in METHODS:
        assert budget.share(found.spent) > 0.9
    again = run_method(name, on)  # whatever the reward has answered before
    assert torch.equal(again.states, found.states)
    assert again.spent == found.spent


def test_a_planned_run_leaves_calls_unspent_where_states_repeat():
    """The wrong variant: counting every call as a new one, as plans do."""
    table, reward, _ = problem()
    kept = tt.Reward(reward, vocabulary=SIZE)
    on = Contest(table.model(), kept, 1.0, Budget(3000, 26), 0)
    planned = METHODS["importance"].run(on._replace(reward=afresh(kept)), on.budget, None)
    assert planned.size == 26
    full = run_method("importance", on)
    assert full.size > 2 * planned.size
    assert full.spent.distinct <= 26


def test_the_largest_run_that_fits_is_found():
    """A cost that grows as the root of the size: 300 fits, and no more than a few above are missed."""

    def run(budget, size):
        size = size or budget.most(0, 1, "things")
        return Baseline(torch.zeros(1, 1), None, None, tt.Spent(0, 0, size, math.ceil(math.sqrt(size))), size)

    found = largest(run, Budget(calls=100))
    assert found.size == 6400  # 64 times the plan is the most that is tried
    assert found.spent.distinct <= 100
    assert largest(run, Budget(calls=20)).size > 0.9 * 20**2


def test_svdd_does_not_overspend_evaluations_that_its_particles_need():
    """Evaluations of the particles were taken off the budget and what was left went unchecked."""
    table, reward, _ = problem()
    value = regressed_value(table.model(), reward, draws=50)
    with pytest.raises(BudgetTooSmall, match="fewer particles"):
        svdd(table.model(), reward, value=value, budget=Budget(evaluations=160), particles=64)


def test_svdd_whose_last_candidates_are_all_forbidden_goes_on():
    table, _, _ = problem()
    value = lambda x, t: torch.zeros(len(x), dtype=torch.float64)  # noqa: E731
    found = svdd(table.model(), lambda x: torch.full((len(x),), -torch.inf), value=value, budget=Budget(), particles=3)
    assert found.states.max() < SIZE


def test_a_value_is_regressed_without_a_matrix_where_it_would_be_large(monkeypatch):
    from truetilt.baselines import svdd as module

    table, reward, _ = problem()
    dense = regressed_value(table.model(), reward, draws=200)
    monkeypatch.setattr(module, "_NUMBERS", 200 * (LENGTH + 1) * LENGTH)
    sparse = regressed_value(table.model(), reward, draws=200)
    states = torch.cartesian_prod(*[torch.arange(SIZE + 1)] * LENGTH)
    assert torch.allclose(dense(states, 0.5), sparse(states, 0.5), atol=1e-4)


def test_a_value_is_learned_from_draws_in_fewer_steps_at_their_cost():
    """The masked states of a draw in two steps are its beginnings, and cost two evaluations a draw."""
    site = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    table = tt.Table(tt.Masking(3), site[:, None, None] * site[:, None] * site, torch.ones(3, 3, 3))
    worth = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    value = regressed_value(table.model(), lambda x: worth[x].sum(-1), draws=4000, order=(2, 0, 1), steps=2)
    assert value.spent == tt.Spent(2, 8000, 4000, 4000)
    mean = float(site @ worth)
    states = torch.tensor([[3, 3, 3], [1, 0, 2]])  # of what was on the way
    assert torch.allclose(value(states, 0.5), torch.tensor([3 * mean, 4.0]).double(), atol=0.15)
    found = tds(
        table.model(), lambda x: worth[x].sum(-1), budget=Budget(evaluations=4000),
        walk=lambda model: site_by_site(model, order=(2, 0, 1), steps=2),
    )  # fmt: skip
    assert found.spent.evaluations == 4000
    assert abs(found.log_z - 3 * float((site * worth.exp()).sum().log())) < 0.1
