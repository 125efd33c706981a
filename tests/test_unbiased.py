"""The sampler against the exact flow, by z-tests over many populations; and replay, bit for bit.

A population of N = 4 is one replicate: E[sum of weights at a state] / N is the flow's mass there, whatever N is.
False alarms: each test compares at most 400 z-scores and fails by chance with probability 5e-7 (problems.z_limit).
"""

import pytest
import torch

import truetilt as tt
from problems import flow, hard_table, table, z_limit
from truetilt.core.types import Particles
from truetilt.exact.tables import flat_index
from truetilt.smc.resampling import SCHEMES
from truetilt.testing.targets import masses
from truetilt.testing.verdicts import z_scores as normal_scores

STEPS, REPLICATES, N = 6, 20_000, 4


def z_scores(fk, problem, resample, seed=1, populations=REPLICATES, n=N):
    """z of the mean weight at every state, and of the total, against the flow."""
    result = tt.run(fk, tt.uniform_grid(STEPS), particles=n, populations=populations, seed=seed, resample=resample)
    exact = flow(fk, problem, STEPS).log_mass.exp()
    mass = masses(Particles(result.particles, result.log_weights, {}), problem.process.states)
    mass, exact = torch.cat([mass, mass.sum(1, keepdim=True)], 1), torch.cat([exact, exact.sum()[None]])
    reached = (mass > 0).any(0)
    assert (exact[~reached] < 20 / populations).all()  # a state nobody reached is one hardly anybody should
    return normal_scores(mass[:, reached], exact[reached])


RESAMPLERS = {
    "never": tt.never,
    **SCHEMES,
    "adaptive": tt.adaptive(tt.systematic, 0.9),
    "partial": tt.partial(tt.systematic, 0.5),
    "partial of 3": tt.partial(tt.multinomial, 3),
    "adaptive partial": tt.adaptive(tt.partial(tt.ssp, 3), 0.95),
}


@pytest.mark.parametrize("name", RESAMPLERS)
def test_expected_mass_is_that_of_the_flow_for_every_resampler(name):
    problem = table(tt.Masking, 3, 2, seed=6)
    z = z_scores(tt.Tempered(problem.model(), 2.0), problem, RESAMPLERS[name])
    assert z.abs().max() < z_limit(400)


MODELS = {
    "tempered, guided": lambda m: tt.Tempered(m, 2.0, 1.7),
    "tempered, base": lambda m: tt.Tempered(m, 2.0, 0.0),
    "tempered, posterior": lambda m: tt.Tempered(m, 2.0, 1.5, tt.posterior_level),
    "tempered, as tt.sample has it": lambda m: tt.Tempered(m, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie),
    "tempered, scheduled": lambda m: tt.Tempered(m, 2.0, lambda t: 2 * (1 - t)),
    "tilted": lambda m: tt.Tilted(m, 4.0),
    "tilted, full": lambda m: tt.Tilted(m, 4.0, tt.Power(0.0)),
    "tilted, tau": lambda m: tt.Tilted(m, 4.0, kernel=tt.tau_leaping),
    "tilted, tweedie": lambda m: tt.Tilted(m, 4.0, kernel=tt.tweedie),
    "steered": lambda m: tt.Steered(m, m.potential, 2.0),
    "steered, guided": lambda m: tt.Steered(
        m, m.potential, 2.0, proposal=tt.Guided(m.process, m.base, m.conditional, 1.0)
    ),
    "unweighted": lambda m: tt.Unweighted(m, m.conditional),
}


@pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
@pytest.mark.parametrize("name", MODELS)
def test_expected_mass_is_that_of_the_flow_for_every_model(name, process):
    problem = table(process, 3, 2, seed=6)
    z = z_scores(MODELS[name](problem.model()), problem, tt.adaptive(tt.systematic, 0.9))
    assert z.abs().max() < z_limit(400)


def test_hard_constraints_are_sampled_without_bias():
    problem = hard_table(tt.Masking)
    for fk in (tt.Tilted(problem.model(), 3.0), tt.Tempered(problem.model(), 3.0, 0.0)):
        assert z_scores(fk, problem, tt.adaptive(tt.systematic, 0.9)).abs().max() < z_limit(400)


@pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
@pytest.mark.parametrize("name", ["tempered, guided", "tilted", "steered"])
def test_a_run_replays_bit_for_bit_with_any_chunk_size(process, name):
    problem = table(process, 4, 2)
    fk, options = MODELS[name](problem.model()), {"particles": 37, "populations": 3, "seed": 11}
    first = tt.run(fk, tt.uniform_grid(9), **options)
    for chunk in (None, 1, 5, 36, 37, 1000):
        again = tt.run(fk, tt.uniform_grid(9), chunk=chunk, **options)
        for name in ("particles", "log_weights", "ess", "log_z_path", "ancestors"):
            assert torch.equal(getattr(first, name), getattr(again, name)), (chunk, name)
    other = tt.run(fk, tt.uniform_grid(9), **(options | {"seed": 12}))
    assert not torch.equal(first.particles, other.particles)


@pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
@pytest.mark.parametrize("kernel", [tt.euler, tt.tweedie, tt.tau_leaping])
@pytest.mark.parametrize("kind", [tt.Tempered, tt.Tilted])
def test_neither_chunks_nor_company_change_a_bit_of_any_step(process, kernel, kind):
    """37 fills no vector register: functions of two arguments round the entries at the end of a tensor differently."""
    fk = kind(table(process, 4, 2).model(), 3.0, kernel=kernel)
    options = {"particles": 37, "seed": 11}
    whole = tt.run(fk, tt.uniform_grid(9), populations=3, **options)
    in_chunks = [tt.run(fk, tt.uniform_grid(9), populations=3, chunk=chunk, **options) for chunk in (1, 3)]
    alone = tt.Result.union([tt.run(fk, tt.uniform_grid(9), first_population=k, **options) for k in range(3)])
    for again in (*in_chunks, alone):
        assert torch.equal(again.particles, whole.particles)
        assert torch.equal(again.log_weights, whole.log_weights)


def test_two_populations_give_what_two_runs_give():
    problem = table(tt.Masking, 4, 2)
    fk = tt.Tempered(problem.model(), 3.0)
    both = tt.run(fk, tt.uniform_grid(9), particles=25, populations=2, seed=3)
    apart = [tt.run(fk, tt.uniform_grid(9), particles=25, seed=3, first_population=k) for k in (0, 1)]
    united = tt.Result.union(apart)
    assert torch.equal(both.particles, united.particles)
    assert torch.equal(both.log_weights, united.log_weights)
    assert torch.equal(both.ancestors, united.ancestors)
    assert both.log_z == united.log_z


def test_populations_weighed_by_mass_are_right_where_counting_them_equally_is_biased():
    """Populations of 4: the union by mass is consistent, the mean of normalised populations is not."""
    problem = table(tt.Masking, 3, 2, seed=6)
    fk = tt.Tempered(problem.model(), 4.0, 0.0)
    result = tt.run(fk, tt.uniform_grid(STEPS), particles=4, populations=50_000, seed=5, resample=tt.never)
    exact = flow(fk, problem, STEPS).law
    index = flat_index(result.particles, problem.process.states)

    def law(weights):
        return torch.zeros(len(exact), dtype=torch.float64).index_add(0, index.reshape(-1), weights.reshape(-1))

    by_mass = 0.5 * (law(result.weights) - exact).abs().sum()
    equally = 0.5 * (law(result.log_weights.softmax(-1) / 50_000) - exact).abs().sum()
    assert by_mass < 0.02
    assert equally > 0.05


def test_smc_reaches_the_flow_as_particles_grow():
    problem = table(tt.Masking, 3, 2, seed=6)
    fk = tt.Tempered(problem.model(), 4.0)
    exact = flow(fk, problem, 50)
    result = tt.run(fk, tt.uniform_grid(50), particles=20_000, seed=0)
    weights = torch.zeros(16, dtype=torch.float64).index_add(
        0, flat_index(result.particles, 4).reshape(-1), result.weights.reshape(-1)
    )
    assert 0.5 * (weights - exact.law).abs().sum() < 0.03
    assert abs(result.log_z - float(exact.log_z)) < 0.03
