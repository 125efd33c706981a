"""Exponent schedules from a pilot run: what they promise, and that the target stays where it was.

False alarms: z-tests at 1e-5 over the whole file.
"""

import math
from dataclasses import replace

import pytest
import torch

import truetilt as tt
from truetilt.smc.resampling import effective_sample_size

GRID = tt.uniform_grid(20)


def table(process=tt.Masking, seed=0, vocabulary=4, length=3, power=3):
    generator = torch.Generator().manual_seed(seed)
    p0, likelihood = (
        torch.rand((vocabulary,) * length, generator=generator, dtype=torch.float64) ** power for power in (1, power)
    )
    return tt.Table(process(vocabulary), p0, likelihood)


def steered(model, alpha):
    return tt.Steered(model, model.potential, alpha)


def in_order(model, alpha):
    return tt.AnyOrder(model, alpha)


MODELS = {"tilted": tt.Tilted, "steered": steered, "any order": in_order}
each_model = pytest.mark.parametrize("name", MODELS)


def grid_of(name, problem):
    return tt.masked_fraction_grid(problem.process.schedule, problem.length) if name == "any order" else GRID


def least(result):
    """The least effective sample size after any step."""
    return min(*result.ess[:, 0].tolist(), float(effective_sample_size(result.log_weights)))


def with_ramp(fk, ramp):
    return replace(fk, ramp=ramp)


@pytest.mark.parametrize(
    ("name", "process"),
    [*((name, tt.Masking) for name in MODELS), ("tilted", tt.Uniform), ("steered", tt.Uniform)],
)
def test_each_step_costs_what_was_allowed(name, process):
    """The exponent comes as late as it may, so the steps where it grows cost the allowed fraction, and none more."""
    problem = table(
        process, length=3 if name != "any order" else 6, vocabulary=4 if name != "any order" else 2, power=1
    )
    grid = grid_of(name, problem) if name == "any order" else tt.uniform_grid(60)
    fall = 0.03
    fk = MODELS[name](problem.model(), 0.5 if name == "steered" else 2.0)
    ramp = tt.pilot(fk, grid, fall=fall, particles=4000, seed=3)
    assert len(ramp.shares) == len(ramp.falls) + 1 == len(grid)
    assert list(ramp.shares) == sorted(ramp.shares)
    assert (ramp.shares[0], ramp.shares[-1]) == (0, 1)
    assert ramp.shares[len(grid) // 4] < 0.2
    grows = [cost for cost, a, b in zip(ramp.falls, ramp.shares, ramp.shares[1:], strict=False) if b > a]
    assert len(grows) > 1
    assert max(ramp.falls) < 1.5 * fall
    assert min(grows[1:]) > 0.75 * fall
    result = tt.run(with_ramp(fk, ramp), grid, particles=4000, seed=4, resample=tt.multinomial)
    assert least(result) > (1 - 1.6 * fall) * 4000  # always resampled: a step's own fall, in another run


def test_wrong_all_of_the_exponent_while_it_is_free():
    """The first step reveals too little to cost anything, so a greedy ramp is full at once: later steps then pay."""
    fk = tt.Tilted(table().model(), 4.0)
    greedy = tt.Frozen((0.0, 1 - GRID[1], 1.0), (0.0, 1.0, 1.0))
    ours = tt.pilot(fk, GRID, fall=0.1, particles=4000, seed=3)
    kept = [
        least(tt.run(with_ramp(fk, ramp), GRID, particles=4000, seed=4, resample=tt.multinomial))
        for ramp in (ours, greedy)
    ]
    assert kept[0] > (1 - 1.1 * max(ours.falls)) * 4000 > 1.2 * kept[1]


def test_a_step_that_cannot_be_cheap_is_as_cheap_as_it_can_be():
    problem = table()
    fk = tt.Tilted(problem.model(), 4.0)
    ramp = tt.pilot(fk, tt.uniform_grid(5), fall=0.01, particles=2000)
    assert max(ramp.falls) > 0.05  # and says so

    def kept(ramp):
        return least(tt.run(with_ramp(fk, ramp), tt.uniform_grid(5), particles=2000, resample=tt.multinomial))

    assert kept(ramp) > max(kept(tt.Power(0.0)), kept(tt.at_end))


@each_model
def test_the_exact_limit_is_the_same_target(name):
    problem = table()
    fk, grid = MODELS[name](problem.model(), 3.0), grid_of(name, problem)
    ramp = tt.pilot(fk, grid, fall=0.2, particles=64)
    size, length = problem.process.states, problem.length
    laws = []
    for chosen in (fk, with_ramp(fk, ramp)):
        law = tt.flow(chosen, grid, size, length).law.reshape((size,) * length)
        laws.append(law[(slice(0, 4),) * length])
    tolerance = 1e-12 if name == "any order" else 0.03  # a clock grid of 20 steps has an error of its own
    for law in laws:
        assert 0.5 * (law - problem.target(3.0)).abs().sum() < tolerance


def test_log_z_is_unbiased_with_a_frozen_ramp():
    problem = table()
    fk = tt.Tilted(problem.model(), 3.0)
    fk = with_ramp(fk, tt.pilot(fk, GRID, fall=0.1, particles=4, seed=0))
    exact = tt.flow(fk, GRID, problem.process.states, problem.length).log_z.exp()
    result = tt.run(fk, GRID, particles=4, populations=20_000, seed=0)
    z = result.population_log_z.exp()
    assert abs(float((z.mean() - exact) / (z.std() / len(z) ** 0.5))) < 4.42  # 1e-5


def test_networks_are_asked_once_a_step():
    problem = table()
    model, asked = problem.model(), []

    def counted(x, t):
        asked.append(t)
        return model.conditional(x, t)

    watched = tt.Model(model.process, model.length, model.base, counted, model.potential)
    tt.pilot(tt.Tilted(watched, 3.0), GRID, fall=0.05)
    assert asked in [passes * list(GRID[:-1]) for passes in (2, 3, 4)]


def test_no_uniform_of_the_pilot_is_one_of_the_run():
    """A schedule that knew the run's own uniforms would bias it."""
    problem = table()
    fk = tt.Tilted(problem.model(), 3.0)
    seen = []
    model = problem.model()

    def watch(x, t):
        seen.append(x)
        return model.conditional(x, t)

    watched = tt.Model(model.process, model.length, model.base, watch, model.potential)
    tt.pilot(tt.Tilted(watched, 3.0), GRID, particles=500, seed=7)
    mine = [x.clone() for x in seen]
    seen.clear()
    tt.run(with_ramp(tt.Tilted(watched, 3.0), fk.ramp), GRID, particles=500, seed=7)
    same = (mine[10] == seen[10]).double().mean()
    assert same < 0.9
    assert torch.equal(mine[0], seen[0])  # all masked


def test_hard_zeros_do_not_hold_the_exponent_back():
    p0 = torch.ones(2, 2, dtype=torch.float64)
    likelihood = torch.tensor([[1.0, 0.0], [0.5, 0.0]], dtype=torch.float64)
    problem = tt.Table(tt.Masking(2), p0, likelihood)
    fk = tt.Steered(problem.model(), problem.potential, 2.0)
    ramp = tt.pilot(fk, GRID, fall=0.1, particles=500)
    assert ramp.shares[-2] > 0.3
    assert max(ramp.falls) < 0.3


def test_the_same_seed_gives_the_same_ramp():
    fk = tt.Tilted(table().model(), 3.0)
    assert tt.pilot(fk, GRID, seed=5) == tt.pilot(fk, GRID, seed=5)
    assert tt.pilot(fk, GRID, seed=5) != tt.pilot(fk, GRID, seed=6)


def test_frozen_is_a_broken_line():
    ramp = tt.Frozen((0.0, 0.5, 1.0), (0.0, 0.2, 1.0))
    assert [ramp(u) for u in (0.0, 0.25, 0.5, 0.75, 1.0)] == pytest.approx([0.0, 0.1, 0.2, 0.6, 1.0])
    assert ramp(1.0) == 1
    assert tt.Frozen((0.0, 1.0), (0.5, 1.0))(0.5) == 0.75  # two points are enough


@pytest.mark.parametrize(
    ("elapsed", "shares"),
    [((0.0, 1.0), (0.0, 0.5)), ((0.0, 1.0), (1.0,)), ((0.5, 0.5, 1.0), (0.0, 0.5, 1.0)), ((0.0, 0.9), (0.0, 1.0))],
)
def test_bad_ramps(elapsed, shares):
    with pytest.raises(tt.InvalidInput, match="ramp"):
        tt.Frozen(elapsed, shares)


@pytest.mark.parametrize("share", [math.nan, math.inf, -math.inf])
def test_shares_that_are_no_number_are_refused(share):
    with pytest.raises(tt.InvalidInput, match="they must be finite"):
        tt.Frozen((0.0, 0.5, 1.0), (0.0, share, 1.0))


def test_the_cost_of_each_step_is_what_a_run_pays():
    """A run that resamples at every step loses at each what the rehearsal says, also where the pilot resampled."""
    fk, grid = tt.Tilted(table().model(), 8.0), tt.uniform_grid(6)
    ramp = tt.pilot(fk, grid, fall=0.3, particles=4000, seed=3)
    result = tt.run(with_ramp(fk, ramp), grid, particles=4000, seed=4, resample=tt.multinomial)
    kept = [*result.ess[2:, 0].tolist(), float(effective_sample_size(result.log_weights[0]))]
    assert max(ramp.falls) > 0.25
    assert [1 - n / 4000 for n in kept] == pytest.approx(ramp.falls, abs=0.03)


def test_the_exponent_starts_as_late_as_it_may():
    """The share is halved upon until the step costs what is allowed, to the last digits that 24 halvings give."""
    fk = tt.Tilted(table().model(), 8.0)
    ramp = tt.pilot(fk, tt.uniform_grid(4), fall=0.2, particles=200, seed=3)
    assert min(abs(cost - 0.2) for cost in ramp.falls) < 1e-6


def test_bad_pilots():
    model = table().model()
    for fall in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(tt.InvalidInput, match="fall"):
            tt.pilot(tt.Tilted(model, 3.0), GRID, fall=fall)
    with pytest.raises(tt.InvalidInput, match="Tempered has no exponent that a pilot can grow"):
        tt.pilot(tt.Tempered(model, 3.0), GRID)
