"""Baselines for rewards: which of them reach the target on small tables, what they cost, and what they refuse."""

from functools import partial

import pytest
import torch

import truetilt as tt
from truetilt.baselines.base_draws import in_clock_time, site_by_site
from truetilt.baselines.fk_steering import difference, fk_steering, largest_so_far, sum_so_far
from truetilt.baselines.independent_draws import best_of_n, importance
from truetilt.baselines.svdd import regressed_value, svdd
from truetilt.core.budget import Budget
from truetilt.exact.tables import flat_index

LENGTH, SIZE, STRENGTH = 3, 3, 1.5


def problem():
    """A table, its model, a reward that is no sum over sites, and the exact target."""
    generator = torch.Generator().manual_seed(0)
    p0, reward = (torch.rand((SIZE,) * LENGTH, generator=generator, dtype=torch.float64) for _ in range(2))
    table = tt.Table(tt.Masking(SIZE), p0**3, torch.ones_like(p0))
    values = 2 * reward.reshape(-1)
    return table, lambda x: values[flat_index(x, SIZE)], (table.p0.reshape(-1) * (STRENGTH * values).exp())


def miss(found, mass):
    """TV of the weighted states to the target, and how far log Z is off."""
    seen = torch.zeros_like(mass).index_add_(0, flat_index(found.states, SIZE), found.weights)
    off = None if found.log_z is None else abs(found.log_z - float(mass.sum().log()))
    return float(0.5 * (seen - mass / mass.sum()).abs().sum()), off


def test_importance_reaches_the_target():
    table, reward, mass = problem()
    found = importance(table.model(), reward, STRENGTH, budget=Budget(calls=20_000), seed=1)
    tv, off = miss(found, mass)
    assert tv < 0.02
    assert off < 0.02
    assert found.spent == tt.Spent(LENGTH, 20_000 * LENGTH, 20_000, 20_000)


@pytest.mark.parametrize("potential", [difference, largest_so_far, sum_so_far])
@pytest.mark.parametrize("completions", [1, 4])
def test_fk_steering_reaches_the_target_with_every_potential(potential, completions):
    table, reward, mass = problem()
    budget = Budget(evaluations=200_000 * LENGTH)  # sums leave an effective sample of 6 %
    options = {"completions": completions, "potential": potential, "seed": 2}
    tv, off = miss(fk_steering(table.model(), reward, STRENGTH, budget=budget, **options), mass)
    assert tv < 0.03
    assert off < 0.03


def test_fk_steering_that_looks_rarely_and_in_clock_time():
    table, reward, mass = problem()
    options = {"budget": Budget(evaluations=40 * 20_000), "walk": partial(in_clock_time, steps=40), "every": 10}
    tv, off = miss(fk_steering(table.model(), reward, STRENGTH, **options), mass)
    assert tv < 0.03  # steps of 1 / 40 draw a few sites as if independent
    assert off < 0.03


def test_fk_steering_is_exact_in_its_flow():
    """Its weights are right in the limit of infinitely many particles, whatever completions say."""
    from truetilt.baselines.fk_steering import Steering

    table, reward, mass = problem()
    model = table.model()
    walk = site_by_site(model, order=(2, 0, 1))
    look = tt.Lookahead(model, reward, STRENGTH, completions=2)
    fk = Steering(walk.fk, look, lambda x, t: reward(x), STRENGTH, difference, walk.grid)
    limit = tt.flow(fk, walk.grid, SIZE + 1, LENGTH)
    clean = limit.law.reshape((SIZE + 1,) * LENGTH)[:SIZE, :SIZE, :SIZE].reshape(-1)
    assert torch.allclose(clean, mass / mass.sum(), atol=1e-12)


def test_a_look_and_the_next_step_share_their_pass():
    """Steps and looks cost one evaluation a particle and step together, and one for the state where all is masked."""
    table, reward, _ = problem()
    found = fk_steering(table.model(), reward, budget=Budget(evaluations=300), completions=4)
    assert found.spent.evaluations == 1 + 100 * (LENGTH - 1)
    assert found.spent.calls == 4 + 4 * 100 * (LENGTH - 1) + 100
    assert len(found.states) == 100


def test_svdd_with_many_candidates_and_the_exact_value():
    """Without weights it needs the exact soft value and many candidates; with few it is off."""
    table, reward, mass = problem()
    soft = tt.Table(table.process, table.p0, (mass / table.p0.reshape(-1)).reshape(table.p0.shape))
    value = lambda x, t: soft.potential(x, t) / STRENGTH  # noqa: E731
    options = {"value": value, "particles": 5000, "seed": 3, "budget": Budget(calls=5000 * 64)}
    many = svdd(table.model(), reward, STRENGTH, candidates=64, **options)
    few = svdd(table.model(), reward, STRENGTH, candidates=2, **options)
    assert many.log_weights is None
    assert many.log_z is None
    assert miss(many, mass)[0] < 0.03
    assert miss(few, mass)[0] > 0.05


def test_svdd_pays_for_its_looks():
    table, reward, _ = problem()
    model = table.model()
    look = tt.Lookahead(model, reward, completions=2, average=tt.plain_mean)
    found = svdd(model, reward, value=look, budget=Budget(evaluations=10 * LENGTH * 4), particles=10)
    assert len(found.states) == 10  # and 4 candidates each
    assert found.spent.evaluations == 10 + 10 * 4 * (LENGTH - 1)
    assert found.spent.calls == 10 * 4 * 2 * (LENGTH - 1) + 10 * 4


def test_the_regressed_value_is_the_mean_of_an_additive_reward():
    """On independent sites a sum over sites is known exactly: a masked site counts with its mean."""
    site = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    table = tt.Table(tt.Masking(3), site[:, None] * site, torch.ones(3, 3))
    worth = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    value = regressed_value(table.model(), lambda x: worth[x].sum(-1), draws=4000)
    mean = float(site @ worth)
    states = torch.tensor([[3, 3], [1, 3], [2, 0]])
    assert torch.allclose(value(states, 0.5), torch.tensor([2 * mean, 1 + mean, 3.0]).double(), atol=0.15)
    found = svdd(table.model(), lambda x: worth[x].sum(-1), value=value, budget=Budget(evaluations=9000), particles=50)
    assert found.spent.evaluations == 8000 + 100  # the draws it was fitted to count


def test_the_best_of_n_is_the_best():
    table, reward, _ = problem()
    found = best_of_n(table.model(), reward, budget=Budget(calls=4000), particles=10)
    assert found.spent.calls == 4000
    assert found.log_weights is None
    assert torch.equal(found.weights, torch.full((10,), 0.1, dtype=torch.float64))
    best = max(reward(torch.cartesian_prod(*[torch.arange(SIZE)] * LENGTH)).tolist())
    assert float(reward(found.states).mean()) > 0.95 * best


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(), "nothing limits"),
        (Budget(evaluations=2), "costs 3"),
        (Budget(calls=-1), "whole number"),
        (Budget(calls=1.5), "whole number"),
    ],
)
def test_a_budget_that_buys_nothing_is_refused(budget, words):
    table, reward, _ = problem()
    with pytest.raises(tt.InvalidInput, match=words):
        importance(table.model(), reward, budget=budget)


def test_a_process_without_a_mask_is_refused():
    table = tt.Table(tt.Uniform(2), torch.ones(2, 2), torch.ones(2, 2))
    with pytest.raises(tt.InvalidInput, match="no mask"):
        fk_steering(table.model(), lambda x: x.sum(-1), budget=Budget(calls=100))


def test_looking_ahead_is_counted_in_a_run():
    """A lookahead asks the network and the reward, also one that takes no time; both were not counted once."""
    table, reward, _ = problem()
    model = table.model()
    fk = tt.Composed(model, reward=lambda x, t: reward(x), twist=tt.Lookahead(model, reward, completions=2))
    result = tt.run(fk, tt.masked_fraction_grid(model.process.schedule, LENGTH), particles=5)
    assert result.spent.evaluations > 5 * LENGTH
    assert result.spent.calls > 5 * 2 * LENGTH
