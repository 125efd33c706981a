"""The any-order clock: exact in D steps, for every order and any proposal; and draws better than independent ones."""

import itertools
import math

import numpy as np
import pytest
import torch

import truetilt as tt
from problems import clean, hard_table, table, tv, z_limit
from truetilt.core.types import Particles
from truetilt.exact.tables import flat_index
from truetilt.metrics.divergences import histogram, kl
from truetilt.smc.coupling import row_hash
from truetilt.smc.sampler import CHOOSE, Stream
from truetilt.targets.stage import nothing_known


def grid(problem, steps=None):
    return tt.masked_fraction_grid(problem.process.schedule, steps or problem.length)


def limit(problem, fk, steps=None):
    return tt.flow(fk, grid(problem, steps), problem.process.states, problem.length)


def assert_exact(problem, alpha, **options):
    found = limit(problem, tt.AnyOrder(problem.model(), alpha, **options))
    assert tv(clean(found.law, problem), problem.target(alpha)) < 1e-12
    assert abs(float(found.log_z - problem.log_z_tempered(alpha))) < 1e-12


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("size", [(3, 2), (2, 4), (5, 1)])
def test_the_limit_is_the_target_for_any_proposal(size, alpha):
    problem = table(tt.Masking, *size)
    for beta in (None, 0.0, 1.0, 2.5, lambda t: 4 * t) if alpha > 0 else (None, 0.0):
        assert_exact(problem, alpha, beta=beta)
        assert_exact(problem, alpha, beta=beta, choose=tt.adapted_sites)


def test_the_limit_is_the_target_for_every_order():
    problem = table(tt.Masking, 3, 3)
    for order in itertools.permutations(range(3)):
        assert_exact(problem, 4.0, order=order)
        assert_exact(problem, 4.0, order=order, beta=1.0)


@pytest.mark.parametrize("ramp", [tt.Power(1.0), tt.Power(2.0), tt.at_end, lambda u: 0.3 + 0.7 * u])
@pytest.mark.parametrize("alpha", [0.5, 4.0])
def test_the_limit_is_the_target_for_every_exponent_schedule(ramp, alpha):
    assert_exact(table(tt.Masking, 3, 3), alpha, ramp=ramp)
    assert_exact(table(tt.Masking, 3, 3), alpha, ramp=ramp, beta=0.7)


@pytest.mark.parametrize("schedule", [tt.LogLinear(1e-3), tt.Cosine(), tt.Geometric(1e-3, 20.0)])
def test_the_schedule_does_not_matter(schedule):
    problem = table(tt.Masking, 3, 3, schedule=schedule)
    assert_exact(problem, 3.0)


def test_hard_constraints_are_exact():
    problem = hard_table(tt.Masking)
    for beta in (None, 0.0, 1.0):
        assert_exact(problem, 3.0, beta=beta)
        assert_exact(problem, 3.0, beta=beta, choose=tt.adapted_sites)


def test_several_sites_at_once_cost_a_factorisation_error_and_nothing_else():
    problem = table(tt.Masking, 3, 4)
    errors = [
        tv(clean(limit(problem, tt.AnyOrder(problem.model(), 3.0), steps).law, problem), problem.target(3.0))
        for steps in (1, 2, 4)
    ]
    assert errors[0] > errors[1] > 0.01
    assert errors[2] < 1e-12
    a, b = (torch.tensor(values, dtype=torch.float64) for values in ([0.1, 0.5, 0.9], [0.7, 0.2, 0.4]))
    product = tt.Table(tt.Masking(3), torch.ones(3, 3), a[:, None] * b)
    found = limit(product, tt.AnyOrder(product.model(), 3.0), 1)
    assert tv(clean(found.law, product), product.target(3.0)) < 1e-12  # independent sites have no such error


def z_scores(fk, problem, populations=20_000, n=4, **options):
    """z of the mean weight at every state and of the total, against the exact mass."""
    result = tt.run(fk, grid(problem), particles=n, populations=populations, seed=2, **options)
    size = problem.process.vocabulary
    exact = (problem.target(fk.alpha) * problem.log_z_tempered(fk.alpha).exp()).reshape(-1)
    mass = torch.zeros(populations, len(exact), dtype=torch.float64)
    mass = mass.scatter_add(1, flat_index(result.particles, size), result.log_weights.exp() / n)
    mass, exact = (torch.cat([m, m.sum(-1, keepdim=True)], -1) for m in (mass, exact))
    return (mass.mean(0) - exact) / (mass.std(0) / populations**0.5)


COUPLINGS = [tt.independent, tt.stratified_draws, tt.systematic_draws]


@pytest.mark.parametrize("couple", COUPLINGS)
@pytest.mark.parametrize(
    "resample",
    [tt.never, tt.systematic, tt.adaptive(tt.systematic, 0.95), tt.adaptive(tt.partial(tt.ssp, 3), 0.95)],
)
def test_sampling_is_unbiased_however_it_resamples_and_draws(couple, resample):
    """At most 400 z-scores; false-alarm rate 5e-7."""
    problem = table(tt.Masking, 3, 2, seed=6)
    for options in ({}, {"beta": 0.5}, {"choose": tt.adapted_sites}, {"ramp": tt.Power(1.0)}):
        z = z_scores(tt.AnyOrder(problem.model(), 3.0, **options), problem, couple=couple, resample=resample)
        assert z.abs().max() < z_limit(400)


def without_permutation(u, labels, spare):
    """A comb dealt out in the order of the particles, as they stand."""
    return tt.systematic_draws(u, labels, torch.arange(u.shape[-2]).expand(u.shape[:-1])[..., None] + 0 * spare)


def test_wrong_coupling_without_permutation():
    """Particles of one state with unequal weights: the heavy one always gets the low uniforms, and that is a bias."""
    labels = torch.zeros(20_000, 4, 1, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    u, spare = (torch.rand(20_000, 4, 1, generator=generator, dtype=torch.float64) for _ in range(2))
    weights = torch.tensor([0.7, 0.1, 0.1, 0.1], dtype=torch.float64)
    for couple, right in ((tt.systematic_draws, True), (tt.stratified_draws, True), (without_permutation, False)):
        low = ((couple(u, labels, spare).squeeze(-1) < 0.25).double() * weights).sum(-1)
        z = float((low.mean() - 0.25) / (low.std() / 20_000**0.5)) if low.std() > 0 else float("inf")
        assert (abs(z) < z_limit(400)) == right


def test_a_comb_is_even_and_every_tooth_uniform():
    labels = torch.tensor([[0], [1], [0], [0], [1]]).expand(4000, 5, 1)
    generator = torch.Generator().manual_seed(1)
    u, spare = (torch.rand(4000, 5, 1, generator=generator, dtype=torch.float64) for _ in range(2))
    got = tt.systematic_draws(u, labels, spare).squeeze(-1)
    for group in ([0, 2, 3], [1, 4]):
        k = len(group)
        assert torch.allclose(got[:, group].sort(-1).values.diff(dim=-1), torch.tensor(1 / k, dtype=torch.float64))
    z = (got.mean(0) - 0.5) / (12 * 4000) ** -0.5
    assert z.abs().max() < z_limit(400)
    assert (got >= 0).all()
    assert (got < 1).all()


def test_hashes_tell_states_apart():
    states = tt.exact.tables.enumerate_states(7, 4)
    assert len(set(row_hash(states).tolist())) == 7**4
    assert torch.equal(row_hash(states), row_hash(states.clone()))


def test_coupled_draws_beat_independent_sampling_from_the_target():
    problem = table(tt.Masking, 10, 2, seed=1)
    n, target = 50_000, problem.target(4.0)
    counts = np.random.default_rng(0).multinomial(n, target.reshape(-1).numpy(), 20)
    floor = sum(float(kl(target, torch.from_numpy(c / n), 1e-10)) for c in counts) / 20
    found = {}
    for couple in (tt.independent, tt.systematic_draws):
        result = tt.run(tt.AnyOrder(problem.model(), 4.0), grid(problem), particles=n, seed=0, couple=couple)
        law = histogram(flat_index(result.particles, 10), result.weights, 100)
        found[couple] = float(kl(target, law, 1e-10))
    assert found[tt.independent] < 1.6 * floor
    assert found[tt.systematic_draws] < 0.6 * floor


def test_replay_is_bit_for_bit_with_any_chunk_size():
    problem = table(tt.Masking, 4, 3)
    fk = tt.AnyOrder(problem.model(), 3.0)
    for couple in COUPLINGS:
        runs = [
            tt.run(fk, grid(problem), particles=23, populations=2, seed=5, couple=couple, chunk=c) for c in (None, 1, 7)
        ]
        for other in runs[1:]:
            assert torch.equal(runs[0].particles, other.particles)
            assert torch.equal(runs[0].log_weights, other.log_weights)


def test_bad_input():
    problem = table(tt.Masking, 3, 2)
    with pytest.raises(tt.InvalidInput, match="has no mask"):
        tt.AnyOrder(table(tt.Uniform, 3, 2).model(), 2.0)
    with pytest.raises(tt.InvalidInput, match="names each of the 2 sites"):
        tt.AnyOrder(problem.model(), 2.0, order=(0, 0))
    with pytest.raises(tt.InvalidInput, match="alpha is"):
        tt.AnyOrder(problem.model(), -2.0)
    for odd in ({"beta": 1.0}, {"beta": lambda t: t}, {"ramp": tt.Power(1.0)}, {"ramp": tt.at_end}):
        with pytest.raises(tt.InvalidInput, match="alpha = 0 targets p0 itself"):
            tt.AnyOrder(problem.model(), 0.0, **odd)
    with pytest.raises(tt.InvalidInput, match="give `order` or `choose`"):
        tt.AnyOrder(problem.model(), 2.0, order=(1, 0), choose=tt.adapted_sites)
    with pytest.raises(tt.InvalidInput, match="reveals 2 sites at once"):
        tt.run(tt.AnyOrder(problem.model(), 2.0, choose=tt.adapted_sites), (1.0, 0.0), particles=4)
    for order in ((0.0, 1.0), (0, 1.0), (0,), (0, 1, 2)):
        with pytest.raises(tt.InvalidInput, match="names each of the 2 sites"):
            tt.AnyOrder(problem.model(), 2.0, order=order)
    for beta in (-1.0, math.nan, math.inf, lambda t: math.inf if t == 0 else 1.0):
        with pytest.raises(tt.InvalidInput, match="guidance strength must be finite and at least 0"):
            tt.AnyOrder(problem.model(), 2.0, beta=beta)
    for part in ((0.5, 0.0), (1.0, 0.5)):
        with pytest.raises(tt.InvalidInput, match="starts from noise"):
            tt.run(tt.AnyOrder(problem.model(), 2.0), part)
    for sites in (0, 3, 1.5):
        with pytest.raises(tt.InvalidInput, match=f"sites_per_step is {sites}"):
            tt.reveal(problem.model(), 2.0, sites_per_step=sites)


def test_hard_constraints_are_exact_at_every_alpha():
    """Where p(zeta|x) = 0 the target has mass at alpha = 0 only, and 0 to a power below 1 is still 0."""
    problem = hard_table(tt.Masking)
    for alpha in (0.0, 0.5, 1.0, 3.0):
        assert_exact(problem, alpha)
        assert_exact(problem, alpha, beta=0.0)
        if alpha > 0:
            assert_exact(problem, alpha, beta=0.0, ramp=tt.Power(1.0))


def test_several_sites_at_once_are_any_of_their_sets_alike():
    problem = table(tt.Masking, 2, 4)
    fk, times = tt.AnyOrder(problem.model(), 1.0), tt.masked_fraction_grid(problem.process.schedule, 4)
    assert [fk.choices(1.0, times[k]) for k in range(4)] == [0, 1, 4, 4]
    u = Stream(0).uniforms(1, CHOOSE, 1, 24_000).reshape(1, 6000, 4)
    x = torch.full((1, 6000, 4), 2)
    start = Particles(x, torch.zeros(1, 6000).double(), nothing_known(x, 1))
    sites = fk.move(start, 1.0, times[2], u).law.sites.sort(-1).values
    pairs, count = sites[0].unique(dim=0, return_counts=True)
    assert len(pairs) == 6
    assert (count - 1000).abs().max() < 5 * 1000**0.5


def test_reveal_is_the_any_order_clock():
    problem = table(tt.Masking, 3, 4)
    one = tt.reveal(problem.model(), 3.0, particles=50, seed=3)
    whole = tt.run(tt.AnyOrder(problem.model(), 3.0), grid(problem), particles=50, seed=3)
    assert torch.equal(one.particles, whole.particles)
    assert len(tt.reveal(problem.model(), 3.0, sites_per_step=3, particles=5).times) == 3
    assert (tt.reveal(problem.model(), 3.0, sites_per_step=4, particles=5).particles < 3).all()


def test_a_step_that_reveals_nothing_asks_nobody():
    problem = table(tt.Masking, 3, 3)
    model, asked = problem.model(), []

    def base(x, t):
        asked.append(t)
        return model.base(x, t)

    watched = tt.Model(model.process, 3, base, model.conditional)
    tt.run(tt.AnyOrder(watched, 2.0), tt.uniform_grid(40), particles=8)
    assert len(asked) == 3


@pytest.mark.parametrize("couple", [tt.systematic_draws, tt.stratified_draws])
@pytest.mark.parametrize("size", [1, 3, 4, 1000])
def test_coupled_uniforms_stay_below_one(couple, size):
    """The last place of a comb and the largest uniform there is: their sum rounds up to the size of the group."""
    u = torch.full((size, 1), 1 - 2.0**-53, dtype=torch.float64)
    spare = torch.arange(size, dtype=torch.float64)[:, None] / size
    drawn = couple(u, torch.zeros(size, 1, dtype=torch.int64), spare)
    assert 1 - 2 / size <= drawn.max() < 1


def test_a_score_of_nan_is_named():
    problem = table(tt.Masking, 3, 2)
    model = problem.model()

    def broken(x, t):
        logits = model.conditional(x, t)
        return logits.with_rows(torch.full_like(logits.rows, torch.nan))

    def broken_at_one_site(x, t):
        return tt.SiteLogits.of(model.base(x, t).dense().masked_fill(torch.tensor([[True], [False]]), torch.nan))

    with pytest.raises(tt.InvalidWeights, match="the conditional score returned NaN"):
        tt.reveal(tt.Model(model.process, 2, model.base, broken), 2.0)
    half = tt.AnyOrder(tt.Model(model.process, 2, broken_at_one_site, model.conditional), 2.0)
    with pytest.raises(tt.InvalidWeights, match="the base score returned NaN or only -inf for 7 of 7 particles"):
        tt.run(half, (1.0, 0.0), particles=7)  # both sites at once
    with pytest.raises(tt.InvalidInput, match="conditional"):
        tt.AnyOrder(tt.Model(problem.process, 2, problem.model().base), 2.0)
