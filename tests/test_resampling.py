"""Resampling: mass kept, nobody raised from the dead, and the right answer on average.

Populations are replicates, a particle's state is its number, and phi is a random function of it.
"""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import truetilt as tt
from problems import FIXED, TOP, z_limit
from test_wrong import partial_as_printed
from truetilt.smc.resampling import SCHEMES
from truetilt.testing.resamplers import bias_scores, check_draw, check_resampler

INF = math.inf
N = 9
RESAMPLERS = {"never": tt.never} | {
    f"{wrapped}({name})": wrap(scheme)
    for name, scheme in SCHEMES.items()
    for wrapped, wrap in {
        "full": lambda f: f,
        "half": lambda f: tt.partial(f, 0.5),
        "three": lambda f: tt.partial(f, 3),
        "seven": lambda f: tt.partial(f, 7),
        "adaptive": lambda f: tt.adaptive(f, 0.5),
        "always": lambda f: tt.adaptive(f, 1.0),
        "adaptive-partial": lambda f: tt.adaptive(tt.partial(f, 5), 0.5),
        "partial-adaptive": lambda f: tt.partial(tt.adaptive(f, 0.5), 6),
        "partial-partial": lambda f: tt.partial(tt.partial(f, 3), 0.8),
    }.items()
}
every = pytest.mark.parametrize("resample", RESAMPLERS.values(), ids=RESAMPLERS.keys())
each_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES.keys())

log_weight = st.one_of(st.just(-INF), st.floats(-5, 5), st.sampled_from([-600.0, 0.0, 600.0]))
uniform = st.one_of(st.sampled_from([0.0, TOP]), st.floats(0, TOP))


def random_weights(populations, n=N, seed=0):
    """Log-weights, heavier towards the end, a fifth of them -inf, no population dead."""
    generator = torch.Generator().manual_seed(seed)
    log_w = torch.randn(populations, n, generator=generator, dtype=torch.float64) + torch.linspace(-1, 1, n)
    gone = torch.rand(populations, n, generator=generator) < 0.2
    gone[:, 0] = False
    return log_w.masked_fill(gone, -INF)


def uniforms(populations, n=N, seed=1):
    return torch.rand(populations, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def counts(ancestors, n):
    return torch.zeros(len(ancestors), n, dtype=torch.int64).scatter_add(1, ancestors, torch.ones_like(ancestors))


def expected_copies(log_w):
    w = log_w.exp()
    return w.shape[-1] * w / w.sum(-1, keepdim=True)


# What holds for every draw.


@every
@FIXED
@given(data=st.lists(st.tuples(log_weight, uniform), min_size=N, max_size=N))
def test_mass_is_kept_and_nothing_comes_of_zero_weight(resample, data):
    log_w, u = torch.tensor(data, dtype=torch.float64).T.contiguous()
    out = resample(log_w[None], u[None])
    check_draw(log_w[None], out)
    if (log_w == -INF).all():
        assert torch.equal(out.ancestors[0], torch.arange(N))


@each_scheme
@FIXED
@given(data=st.lists(st.tuples(log_weight, uniform), min_size=1, max_size=N))
def test_a_particle_of_zero_weight_is_never_chosen(scheme, data):
    log_w, u = torch.tensor(data, dtype=torch.float64).T.contiguous()
    assume((log_w > -INF).any())
    assert (log_w[scheme(log_w[None], u[None]).ancestors[0]] > -INF).all()


def test_a_zero_weight_does_not_outlive_a_vanishing_one():
    log_w = torch.tensor([[0.42, 0.58, 0.0, 1e-304]], dtype=torch.float64).log()
    ancestors = tt.ssp(log_w, torch.tensor([[0.5, 0.5, 0.0, 0.5]], dtype=torch.float64)).ancestors
    assert 2 not in ancestors[0].tolist()


@every
def test_a_dead_population_is_left_alone_and_disturbs_no_other(resample):
    log_w, u = random_weights(3), uniforms(3)
    log_w[1] = -INF
    ancestors, new = resample(log_w, u)
    assert ancestors[1].tolist() == list(range(N))
    assert (new[1] == -INF).all()
    for k in (0, 2):
        alone = resample(log_w[k : k + 1], u[k : k + 1])
        assert torch.equal(ancestors[k], alone.ancestors[0])
        assert torch.equal(new[k], alone.log_w[0])


@each_scheme
def test_full_resampling_makes_all_weights_the_mean(scheme):
    log_w = random_weights(50)
    new = scheme(log_w, uniforms(50)).log_w
    torch.testing.assert_close(new.exp(), log_w.exp().mean(-1, keepdim=True).expand(50, N), rtol=1e-12, atol=0)


# What holds on average.


SKEWED = torch.tensor([0.5, 0.0, 0.02, 0.2, 0.0, 0.13, 0.05, 0.07, 0.03], dtype=torch.float64).log()
TIED = torch.tensor([1.0, 2.0, 1.0, 2.0, 1.0, 0.0, 1.0, 1.0, 4.0], dtype=torch.float64).log()
PHI = torch.randn(N, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
REPLICATES = 20_000


@every
def test_properly_weighted(resample):
    """46 checks: a false alarm of 5e-7 for all resamplers together."""
    check_resampler(resample, N)
    tied = TIED.expand(REPLICATES, N)
    assert bias_scores(tied, resample(tied, uniforms(REPLICATES))).abs().max() < z_limit(len(RESAMPLERS) * N)


def test_wrong_partial_resampling_as_printed():
    """Mass inside the subset shrinks and mass outside grows: the same scores must see it."""
    log_w, u = SKEWED.expand(REPLICATES, N), uniforms(REPLICATES)
    printed, mended = (bias_scores(log_w, f(log_w, u)) for f in (partial_as_printed, tt.partial(tt.multinomial, 4)))
    assert printed.abs().max() > 20 * z_limit(N)
    assert mended.abs().max() < z_limit(N)


@pytest.mark.parametrize("scheme", [tt.stratified, tt.systematic, tt.residual, tt.ssp])
def test_less_noise_than_multinomial(scheme):
    log_w, u = SKEWED.expand(REPLICATES, N), uniforms(REPLICATES)

    def noise(resample):
        return PHI[resample(log_w, u).ancestors].mean(1).var(0)

    assert noise(scheme).sum() < 0.6 * noise(tt.multinomial).sum()


def test_multinomial_counts_are_binomial():
    """False alarm 5e-7: mean and variance of the copies of each of nine particles."""
    p = SKEWED.exp() / SKEWED.exp().sum()
    copies = counts(tt.multinomial(SKEWED.expand(REPLICATES, N), uniforms(REPLICATES)).ancestors, N).double()
    variance = N * p * (1 - p)
    fourth = variance * (1 + 3 * (N - 2) * p * (1 - p)) - variance**2
    alive = p > 0
    scale = math.sqrt(REPLICATES)
    means = (copies.mean(0) - N * p)[alive] / variance[alive].sqrt() * scale
    spreads = ((copies - N * p).square().mean(0) - variance)[alive] / fourth[alive].sqrt() * scale
    assert torch.cat([means, spreads]).abs().max() < z_limit(18)


# How many copies a particle may have.


@pytest.mark.parametrize("scheme", [tt.systematic, tt.ssp])
@pytest.mark.parametrize("n", [2, 3, 7, 9, 64])
def test_copies_are_the_expected_number_rounded_down_or_up(scheme, n):
    log_w = random_weights(500, n)
    copies, expected = counts(scheme(log_w, uniforms(500, n)).ancestors, n), expected_copies(log_w)
    assert (copies >= (expected - 1e-9).floor()).all()
    assert (copies <= (expected + 1e-9).ceil()).all()


@pytest.mark.parametrize("n", [1, 2, 7, 9, 64])
def test_residual_gives_at_least_the_expected_number_rounded_down(n):
    log_w = random_weights(500, n)
    copies = counts(tt.residual(log_w, uniforms(500, n)).ancestors, n)
    assert (copies >= expected_copies(log_w).floor()).all()


@pytest.mark.parametrize("n", [1, 2, 7, 9, 64])
def test_stratified_copies_are_within_two_of_the_expected_number(n):
    log_w = random_weights(500, n)
    copies = counts(tt.stratified(log_w, uniforms(500, n)).ancestors, n)
    assert ((copies - expected_copies(log_w)).abs() < 2).all()


@pytest.mark.parametrize(
    "scheme",
    [
        tt.stratified,
        tt.systematic,
        tt.ssp,
        tt.residual,
    ],
)
def test_equal_weights_keep_everyone(scheme):
    for n in range(2, 130):
        log_w = torch.full((5, n), -3.7, dtype=torch.float64)
        assert (counts(scheme(log_w, 0.01 + 0.98 * uniforms(5, n)).ancestors, n) == 1).all()


# The combinators.


def test_adaptive_resamples_the_populations_whose_ess_is_low_and_no_other():
    log_w, u = random_weights(400), uniforms(400)
    w = log_w.exp()
    ess = w.sum(-1) ** 2 / w.square().sum(-1)
    for threshold in (0.0, 0.8, 0.5):
        low = ess < threshold * N
        got, full = tt.adaptive(tt.multinomial, threshold)(log_w, u), tt.multinomial(log_w, u)
        assert torch.equal(got.ancestors[low], full.ancestors[low])
        assert torch.equal(got.log_w[low], full.log_w[low])
        assert (got.ancestors[~low] == torch.arange(N)).all()
        assert torch.equal(got.log_w[~low], log_w[~low])
    assert low.any()
    assert not low.all()


@pytest.mark.parametrize(("size", "m"), [(1, 1), (2, 2), (5, 5), (9, 9), (0.5, 4), (1.0, 9), (0.01, 1)])
def test_partial_touches_only_the_lightest_and_the_heaviest(size, m):
    log_w, u = random_weights(100), uniforms(100)
    log_w = torch.where(log_w == -INF, -20 - u, log_w)  # no ties: the subset is unique
    ancestors, new = tt.partial(tt.multinomial, size)(log_w, u)
    for k in range(100):
        ranked = sorted(range(N), key=lambda i: float(log_w[k, i]))
        subset = set(ranked[: m - m // 2] + ranked[N - m // 2 :])
        inside = torch.tensor([i in subset for i in range(N)])
        assert (ancestors[k] == torch.arange(N))[~inside].all()
        assert torch.equal(new[k, ~inside], log_w[k, ~inside])
        assert {int(a) for a in ancestors[k, inside]} <= subset
        mean = log_w[k, inside].exp().mean()
        torch.testing.assert_close(new[k, inside].exp(), mean.expand(m), rtol=1e-12, atol=0)


def test_never_changes_nothing():
    log_w = random_weights(3)
    ancestors, new = tt.never(log_w, uniforms(3))
    assert (ancestors == torch.arange(N)).all()
    assert torch.equal(new, log_w)


@pytest.mark.parametrize("size", [0, -1, 0.0, -0.5, 1.5, math.nan])
def test_bad_partial_sizes_are_rejected_by_name(size):
    with pytest.raises(tt.InvalidInput, match=f"size {size}"):
        tt.partial(tt.multinomial, size)


def test_partial_resampling_of_more_than_there_are_is_rejected_by_name():
    with pytest.raises(tt.InvalidInput, match="10 particles, but the population has 9"):
        tt.partial(tt.multinomial, 10)(random_weights(1), uniforms(1))


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, math.inf])
def test_bad_thresholds_are_rejected_by_name(threshold):
    with pytest.raises(tt.InvalidInput, match=f"threshold is {threshold}"):
        tt.adaptive(tt.multinomial, threshold)
