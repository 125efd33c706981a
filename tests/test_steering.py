"""Steering in clock time by a twist, ladders from a pilot, and the recycled estimate, against exact answers."""

import math

import pytest
import torch

import truetilt as tt
from problems import clean, table, tv
from truetilt.exact.tables import flat_index

S, D = 3, 2
GENERATOR = torch.Generator().manual_seed(3)
REWARDS = torch.randn(S**D, generator=GENERATOR, dtype=torch.float64)
TWISTS = torch.randn((S + 1) ** D, generator=GENERATOR, dtype=torch.float64)
MASKING, UNIFORM = (table(process, S, D, seed=2) for process in (tt.Masking, tt.Uniform))


def reward(x):
    return REWARDS[flat_index(x, S)]


def twist_of(problem, scale=1.0):
    """Any finite function of noised states and of the time."""
    return lambda x, t: scale * (1 + t) * TWISTS[flat_index(x, problem.process.states)]


def target(problem, strength=1.5):
    law = problem.p0 * (strength * REWARDS).exp().reshape(S, S)
    return law / law.sum(), float(law.sum().log())


def limit(fk, problem, steps):
    return tt.flow(fk, tt.uniform_grid(steps), problem.process.states, D)


@pytest.mark.parametrize("ramp", [None, tt.Power(1.0), tt.at_end])
@pytest.mark.parametrize(
    ("problem", "kernel"),
    [(MASKING, tt.euler), (MASKING, tt.tweedie), (MASKING, tt.tau_leaping), (UNIFORM, tt.euler)],
    ids=["euler", "tweedie", "tau-leaping", "uniform"],
)
def test_any_twist_leads_to_the_limit_of_the_base_weighed_at_the_end(problem, kernel, ramp):
    """The twist changes the proposal and the weights on the way, and no bit of the limit beyond rounding."""
    model = problem.model()
    led = tt.Steered(model, reward, 1.5, ramp, twist=twist_of(problem), kernel=kernel)
    plain = tt.Steered(model, reward, 1.5, tt.at_end, kernel=kernel)
    mine, theirs = limit(led, problem, 6), limit(plain, problem, 6)
    assert abs(float(mine.log_z - theirs.log_z)) < 1e-12
    assert (mine.law - theirs.law).abs().max() < 1e-12


def test_the_limit_is_the_target_up_to_the_time_error_of_the_base():
    for problem in (MASKING, UNIFORM):
        law, _ = target(problem)
        fk = tt.Steered(problem.model(), reward, 1.5, twist=twist_of(problem))
        misses = [tv(clean(limit(fk, problem, steps).law, problem), law) for steps in (50, 100)]
        assert misses[1] < 0.6 * misses[0] < 0.05


def test_the_sampler_draws_what_flow_says():
    """4.5 standard errors of log Z across 16 populations: a false alarm in about 2,000 by Student's t."""
    for problem in (MASKING, UNIFORM):
        fk = tt.Steered(problem.model(), reward, 1.5, twist=twist_of(problem, 0.3))
        result = tt.run(fk, tt.uniform_grid(20), particles=200, populations=16)
        assert abs(result.log_z - float(limit(fk, problem, 20).log_z)) < 4.5 * result.log_z_stderr


def test_wrong_proposal_without_its_correction():
    fk = tt.Steered(MASKING.model(), reward, 1.5, twist=twist_of(MASKING))

    class Uncorrected(tt.Steered):
        def propose(self, x, t, s):
            return tt.feynman_kac.Proposal(super().propose(x, t, s).law)

    wrong = Uncorrected(MASKING.model(), reward, 1.5, twist=twist_of(MASKING))
    right, law = limit(fk, MASKING, 40), target(MASKING)[0]
    assert tv(clean(limit(wrong, MASKING, 40).law, MASKING), law) > 0.1 > tv(clean(right.law, MASKING), law)


def test_wrong_kernels_are_refused_where_they_lose_states():
    with pytest.raises(tt.InvalidInput, match="lose states of the base"):
        tt.Steered(UNIFORM.model(), reward, twist=twist_of(UNIFORM), kernel=tt.tweedie)
    with pytest.raises(tt.InvalidInput, match="lose states of the base"):
        tt.Steered(UNIFORM.model(), reward, proposal=UNIFORM.model().conditional, kernel=tt.tweedie)


def test_a_twist_is_in_force_from_the_start_and_a_reward_grows():
    assert tt.Steered(MASKING.model(), reward).ramp == tt.Power(1.0)
    assert tt.Steered(MASKING.model(), reward, twist=twist_of(MASKING)).ramp == tt.Power(0.0)


# ladders


def test_a_ladder_spaces_its_steps_by_what_they_cost():
    goal = tt.Composed(MASKING.model(), reward=reward, strength=6.0)
    ladder = tt.pilot(tt.Annealed(goal, 30), particles=500)
    assert len(ladder.shares) == 30
    assert list(ladder.shares) == sorted(ladder.shares)
    assert ladder.shares[-1] == 1
    steps = torch.tensor((0.0, *ladder.shares)).diff()
    assert steps[0] < steps.max()  # the first share changes most, and is the smallest
    assert ladder == tt.pilot(tt.Annealed(goal, 30), particles=500)
    fewer = tt.pilot(tt.Annealed(goal, 30), particles=500, fall=0.4)
    assert fewer.steps < ladder.steps


def test_a_frozen_ladder_leaves_z_unbiased():
    """4 particles, 4,000 populations: the mean of Z-hat within 4.5 standard errors."""
    goal = tt.Composed(MASKING.model(), reward=reward, strength=2.0)
    ladder = tt.pilot(tt.Annealed(goal, 5), particles=100)
    result = tt.run(tt.Annealed(goal, ladder), particles=4, populations=4000)
    z = (result.population_log_z - target(MASKING, 2.0)[1]).exp()
    assert abs(float(z.mean()) - 1) < 4.5 * float(z.std()) / math.sqrt(len(z))


def test_a_pilot_refuses_what_it_cannot_use():
    with pytest.raises(tt.InvalidInput, match="give the one that the run will have"):
        tt.pilot(tt.AnyOrder(MASKING.model(), 2.0))
    with pytest.raises(tt.InvalidInput, match=r"tt\.Annealed"):
        tt.pilot(tt.Tempered(MASKING.model(), 2.0), tt.uniform_grid(3))


# all calls, used again


def log_p0(x):
    return MASKING.p0.reshape(-1).log()[flat_index(x, S)]


def test_recycled_is_the_target_over_what_was_called():
    law, log_z = target(MASKING)
    law = law.reshape(-1)
    kept = tt.Reward(reward, vocabulary=S)
    every = torch.cartesian_prod(*[torch.arange(S)] * D)
    kept(every[:5])
    some = tt.recycled(kept, log_p0, 1.5)
    assert some.log_z == pytest.approx(float((law[:5].sum()).log()) + log_z, abs=1e-12)
    assert torch.allclose(some.weights, law[:5] / law[:5].sum(), atol=1e-12)
    kept(every)
    whole = tt.recycled(kept, log_p0, 1.5)
    assert some.log_z < whole.log_z == pytest.approx(log_z, abs=1e-12)
    first = whole.expectation(lambda x: torch.nn.functional.one_hot(x[:, 0], S))
    assert torch.allclose(first, law.reshape(S, S).sum(1), atol=1e-12)


def test_recycled_refuses_what_it_cannot_weigh():
    kept = tt.Reward(reward, vocabulary=S)
    with pytest.raises(tt.InvalidInput, match="has not been called yet"):
        tt.recycled(kept, log_p0)
    kept(torch.zeros(1, D, dtype=torch.int64))
    for wrong in (lambda x: torch.zeros(3), lambda x: torch.full((len(x),), math.nan), lambda x: torch.ones(len(x))):
        with pytest.raises(tt.InvalidInput, match="log_prob returned"):
            tt.recycled(kept, wrong)
    with pytest.raises(tt.InvalidInput, match=r"give the tt\.Reward"):
        tt.recycled(reward, log_p0)
    with pytest.raises(tt.DegenerateWeights, match="nothing to weigh"):
        tt.recycled(kept, lambda x: torch.full((len(x),), -math.inf))
