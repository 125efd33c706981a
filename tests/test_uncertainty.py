"""Error bars: by hand, against brute force, and by how often they hold the truth.

False alarms: the z-tests of one test fail by chance with probability 5e-7 together (problems.z_limit); a coverage test
of 300 seeds fails with probability 5e-7 when the true coverage is 94-96 % (exact binomial); the proof of 1,000 seeds
with probability 2e-5 at 95 % for each of its four figures.
"""

import json
import math
from dataclasses import replace
from functools import cache

import pytest
import torch

import truetilt as tt
from problems import FALSE_ALARM, flow, table, z_limit
from truetilt.smc.descriptions import described, in_words
from truetilt.smc.genealogy import lineage
from truetilt.smc.resampling import SCHEMES
from truetilt.smc.uncertainty import History, ancestral_variance, of_log_z, student_quantile

INF = math.inf


def result_of(weights, ancestors=None, x=None, **settings):
    """A result with these weights [populations][N]; nobody resampled unless ancestors say so."""
    log_w = torch.tensor(weights, dtype=torch.float64).log()
    populations, n = log_w.shape
    x = torch.arange(populations * n).reshape(populations, n, 1) if x is None else x
    if ancestors is None:
        ancestors = torch.arange(n).expand(2, populations, n)
    steps = len(ancestors)
    path = torch.full((steps, populations), float(n), dtype=torch.float64)
    times = torch.linspace(1, 0, steps, dtype=torch.float64)
    moved = torch.zeros(steps, populations, dtype=torch.float64)
    settings = {"resampler": {"name": "multinomial"}, "coupling": "independent"} | settings
    return tt.Result(x, log_w, times, path, path, ancestors.int(), settings, moved)


# Student's t.


@pytest.mark.parametrize(
    ("level", "freedom", "t"),
    [
        (0.95, 1, 12.706204736),
        (0.95, 2, 4.302652730),
        (0.95, 3, 3.182446305),
        (0.99, 5, 4.032142984),
        (0.90, 10, 1.812461123),
        (0.95, 15, 2.131449546),
        (0.95, 30, 2.042272456),
        (0.95, 31, 2.039513446),
        (0.95, 1000, 1.962339081),
        (0.95, INF, 1.959963985),
        (0.999, 4, 8.610301581),
        (0.5, 1, 1.0),
    ],
)
def test_student_quantiles_are_those_of_the_tables(level, freedom, t):
    assert student_quantile(level, freedom) == pytest.approx(t, rel=2e-9)


def test_student_quantiles_have_the_right_coverage_by_integration():
    """The density integrated by Simpson's rule, for every freedom up to 40."""
    for freedom in range(1, 41):
        t = student_quantile(0.9, freedom)
        x = torch.linspace(-t, t, 4001, dtype=torch.float64)
        log_c = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
        density = math.exp(log_c) * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
        simpson = (density[0] + density[-1] + 4 * density[1::2].sum() + 2 * density[2:-1:2].sum()) * (t / 2000 / 3)
        assert float(simpson) == pytest.approx(0.9, abs=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95, math.nan])
def test_a_level_that_is_no_probability_is_rejected_by_name(level):
    with pytest.raises(tt.InvalidInput, match=f"level of an interval is {level}"):
        result_of([[1.0, 2.0], [2.0, 2.0]]).log_z_interval(level)


# Across populations, by hand.

WEIGHTS = [[1.0, 3.0], [2.0, 4.0], [0.0, 0.0], [1.0, 1.0]]  # masses 2, 3, 0, 1: one population is dead


def test_log_z_interval_is_students_t_on_the_masses_over_their_mean():
    got = result_of(WEIGHTS).log_z_interval()
    z = torch.tensor([2.0, 3.0, 0.0, 1.0], dtype=torch.float64)
    stderr = float(z.std() / 2 / z.mean())
    assert got.estimate == pytest.approx(math.log(1.5), abs=1e-12)
    assert got.stderr == pytest.approx(stderr, rel=1e-12)
    assert got.high - got.estimate == pytest.approx(3.182446305 * stderr, rel=1e-8)
    assert got.estimate - got.low == pytest.approx(3.182446305 * stderr, rel=1e-8)
    assert (got.level, got.method, got.reason) == (0.95, "Student t across 4 populations", "")


def test_expectation_interval_is_that_of_a_ratio_of_means():
    h = torch.tensor([[1.0, 0.0], [2.0, 5.0], [math.nan, INF], [4.0, 4.0]], dtype=torch.float64)
    got = result_of(WEIGHTS).expectation_interval(lambda x: h.flatten(), level=0.9)
    z, top = torch.tensor([2.0, 3.0, 0.0, 1.0]).double(), torch.tensor([0.5, 12.0, 0.0, 4.0]).double()
    ratio = top.sum() / z.sum()
    error = ((top - ratio * z) / z.mean()).std() / 2
    assert got.estimate == pytest.approx(float(ratio), rel=1e-12)
    assert got.stderr == pytest.approx(float(error), rel=1e-12)
    assert got.high == pytest.approx(float(ratio) + student_quantile(0.9, 3) * float(error), rel=1e-12)


def test_a_vector_of_expectations_gets_a_vector_of_intervals():
    result = result_of(WEIGHTS)
    both = result.expectation_interval(lambda x: torch.stack([x[..., 0], x[..., 0] ** 2], -1))
    for k, h in enumerate([lambda x: x[..., 0], lambda x: x[..., 0] ** 2]):
        one = result.expectation_interval(h)
        for name in ("estimate", "stderr", "low", "high"):
            assert float(getattr(both, name)[k]) == pytest.approx(getattr(one, name), rel=1e-12)
    assert str(both).startswith("2 estimates with standard errors from ")
    torch.testing.assert_close(
        both.estimate, result.expectation(lambda x: torch.stack([x[..., 0], x[..., 0] ** 2], -1))
    )


def test_the_scale_of_the_weights_does_not_matter():
    small, large = result_of(WEIGHTS), result_of(WEIGHTS)
    large = replace(large, log_weights=large.log_weights + 5000)
    assert large.log_z_stderr == pytest.approx(small.log_z_stderr, rel=1e-9)
    a, b = (r.expectation_interval(lambda x: x[..., 0]) for r in (small, large))
    assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-9)


def test_constant_weights_leave_no_error():
    got = result_of([[1.0, 1.0]] * 3).log_z_interval()
    assert (got.stderr, got.low, got.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-15)


def test_one_population_is_refused_with_the_remedy():
    with pytest.raises(tt.InvalidInput, match=r"at least 2 and there is 1; run with populations=16"):
        result_of([[1.0, 2.0]]).log_z_interval()


def test_the_standard_error_is_none_where_none_can_be_had():
    one, two = result_of([[1.0, 2.0]]), result_of(WEIGHTS)
    assert one.log_z_stderr is None
    assert result_of([[0.0, 0.0], [0.0, 0.0]]).log_z_stderr is None
    assert two.log_z_stderr == two.log_z_interval().stderr


def test_one_living_population_gives_no_interval_for_an_expectation():
    got = result_of([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]).expectation_interval(lambda x: x[..., 0])
    assert (got.stderr, got.low, got.high) == (INF, -INF, INF)
    assert "no interval: only 1 of 3 populations has any mass" in str(got)


def test_a_result_without_weight_has_no_interval():
    for ask in (tt.Result.log_z_interval, lambda r: r.expectation_interval(lambda x: x[..., 0])):
        with pytest.raises(tt.DegenerateWeights):
            ask(result_of([[0.0, 0.0], [0.0, 0.0]]))


def test_an_interval_reads_well():
    assert str(tt.Interval(-1.0324, 0.0112, -1.0563, -1.0085, 0.95, "Student t across 16 populations")) == (
        "-1.0324 ± 0.011 (95 % interval -1.0563 to -1.0085, Student t across 16 populations)"
    )


# Copies are no evidence.


def small_run(seed=0, first_population=0, populations=2, **options):
    fk = tt.Tempered(table(tt.Masking, 3, 2).model(), 3.0)
    options = {"particles": 6, "seed": seed, "first_population": first_population, "populations": populations} | options
    return tt.run(fk, tt.uniform_grid(5), **options)


def test_the_same_population_twice_is_refused():
    twice = tt.Result.union([small_run(), small_run(first_population=1)])
    assert twice.log_z_stderr is None
    with pytest.raises(tt.InvalidInput, match="share a seed and a population number"):
        twice.log_z_interval()


def test_different_seeds_or_populations_unite():
    whole = small_run(populations=4)
    parts = tt.Result.union([small_run(), small_run(first_population=2)])
    assert parts.log_z_interval() == whole.log_z_interval()
    nested = tt.Result.union([parts, small_run(seed=1)])
    assert nested.log_z_interval().method == "Student t across 6 populations"


# How the resampler is remembered.


def test_resamplers_are_described_and_named():
    scheme = tt.adaptive(tt.partial(tt.ssp, 3), 0.7)
    assert in_words(described(scheme)) == "adaptive(partial(ssp, 3), 0.7)"
    assert described(tt.multinomial) == {"name": "multinomial"}
    assert json.loads(json.dumps(described(scheme))) == described(scheme)
    assert tt.adaptive(tt.systematic, 0.5) == tt.adaptive(tt.systematic)


def test_a_run_remembers_its_resampler_and_coupling_through_a_file(tmp_path):
    result = small_run(resample=tt.adaptive(tt.multinomial, 0.9))
    again = tt.Result.load(result.save(tmp_path))
    assert again.settings["resampler"] == {"name": "adaptive", "scheme": {"name": "multinomial"}, "threshold": 0.9}
    assert again.log_z_interval(by=tt.genealogy()) == result.log_z_interval(by=tt.genealogy())


# Genealogy: refusals.


def multinomial_of_my_own(log_w, u):
    return tt.systematic(log_w, u)


multinomial_of_my_own.__name__ = multinomial_of_my_own.__qualname__ = "multinomial"
REFUSED = {
    **{name: scheme for name, scheme in SCHEMES.items() if scheme is not tt.multinomial},
    "adaptive(systematic, 0.5)": None,  # the default
    "partial(multinomial, 3)": tt.partial(tt.multinomial, 3),
    "adaptive(partial(multinomial, 3), 0.9)": tt.adaptive(tt.partial(tt.multinomial, 3), 0.9),
    "test_uncertainty.multinomial": multinomial_of_my_own,
}


@pytest.mark.parametrize("name", REFUSED)
def test_genealogy_is_refused_for_other_schemes_by_name(name):
    result = small_run(resample=REFUSED[name])
    for ask in (result.log_z_interval, lambda by: result.expectation_interval(lambda x: x[..., 0], by=by)):
        with pytest.raises(tt.InvalidInput) as error:
            ask(by=tt.genealogy())
        assert f"used {name}; run it again with resample=multinomial" in str(error.value)


def test_genealogy_is_refused_when_particles_share_their_draws():
    result = small_run(resample=tt.multinomial, couple=tt.systematic_draws)
    with pytest.raises(tt.InvalidInput, match="multinomial with draws that particles share"):
        result.log_z_interval(by=tt.genealogy())


def test_genealogy_is_refused_when_nobody_knows_how_it_was_drawn():
    with pytest.raises(tt.InvalidInput, match="not recorded"):
        replace(small_run(), settings={}).log_z_interval(by=tt.genealogy())
    mixed = tt.Result.union([small_run(resample=tt.multinomial), small_run(1, resample=tt.never)])
    with pytest.raises(tt.InvalidInput, match="not recorded"):
        mixed.log_z_interval(by=tt.genealogy())


def test_genealogy_of_one_particle_and_senseless_lags_are_refused():
    with pytest.raises(tt.InvalidInput, match="1 particle"):
        result_of([[1.0]]).log_z_interval(by=tt.genealogy())
    with pytest.raises(tt.InvalidInput, match="lag is 0 steps"):
        tt.genealogy(lag=0)
    with pytest.raises(tt.InvalidInput, match="lag of 3 steps forgets"):
        result_of(WEIGHTS).log_z_interval(by=tt.genealogy(lag=3))


def test_a_value_that_never_varies_has_no_interval_and_says_so():
    result = result_of([[1.0, 2.0], [2.0, 1.0], [1.0, 4.0]])
    alone = result.expectation_interval(lambda x: x[..., 0].double())
    never = result.expectation_interval(lambda x: torch.zeros_like(x[..., 0]).double())
    both = result.expectation_interval(lambda x: torch.cat([torch.zeros_like(x), x], -1).double())
    assert (never.estimate, never.stderr, never.low, never.high) == (0.0, math.inf, -math.inf, math.inf)
    assert (never.method, alone.method) == ("Student t across 3 populations",) * 2
    assert "no particle differs from the others" in never.reason
    assert not alone.reason
    assert both.reason == never.reason
    assert both.stderr.tolist() == pytest.approx([math.inf, alone.stderr])
    assert both.high.tolist() == pytest.approx([math.inf, alone.high])


def test_draws_are_independent_unless_they_are_said_to_be_coupled():
    log_w = torch.tensor([[0.0, 0.5, 1.0]], dtype=torch.float64)
    history = History(log_w, FAMILY, torch.full((3, 1), 3.0, dtype=torch.float64), {"name": "multinomial"})
    assert tt.genealogy()(of_log_z(log_w), history).method == "genealogy"
    with pytest.raises(tt.InvalidInput, match="multinomial with draws that particles share"):
        tt.genealogy()(of_log_z(log_w), history._replace(coupled=True))


@pytest.mark.parametrize("constant", [1.0, 7.0, -0.3])
def test_an_event_that_every_particle_shows_has_no_interval_either(constant):
    """Weights sum to one up to rounding only; that error is no spread."""
    generator = torch.Generator().manual_seed(0)
    for count in range(2, 30):
        weights = torch.rand(count, 7, generator=generator, dtype=torch.float64) + 0.1
        found = result_of(weights.tolist()).expectation_interval(lambda x: torch.full(x.shape[:-1], constant))
        assert found.estimate == pytest.approx(constant, rel=1e-6)
        assert found.stderr == math.inf
        assert "no particle differs from the others" in found.reason


# Genealogy: by hand.

FAMILY = torch.tensor([[[0, 1, 2]], [[0, 0, 2]], [[0, 1, 2]]])  # particles 0 and 1 are sisters from step 1 on


def test_variance_counts_pairs_of_different_first_draws():
    got = result_of([[0.9, 0.08, 0.02]], FAMILY).log_z_interval(by=tt.genealogy())
    assert got.stderr**2 == pytest.approx(1 - (3 / 2) ** 3 * 2 * (0.9 + 0.08) * 0.02, rel=1e-9)
    assert got.high - got.estimate == pytest.approx(1.959963985 * got.stderr, rel=1e-8)
    assert got.method == "genealogy"


def test_variance_of_an_expectation_sums_families():
    w, h = (torch.tensor(v, dtype=torch.float64) for v in ([0.2, 0.3, 0.5], [1.0, 2.0, 4.0]))
    result = result_of([w.tolist()], FAMILY)
    mean = float((w * h).sum())
    sisters, other = 0.2 * (1 - mean) + 0.3 * (2 - mean), 0.5 * (4 - mean)
    got = result.expectation_interval(lambda x: h, by=tt.genealogy())
    assert got.estimate == pytest.approx(mean, rel=1e-12)
    assert got.stderr**2 == pytest.approx(3.375 * (sisters**2 + other**2), rel=1e-9)
    assert got.high - mean == pytest.approx(1.959963985 * got.stderr, rel=1e-8)
    recent = result.expectation_interval(lambda x: h, by=tt.genealogy(lag=1))  # nobody is related since
    alone = float((w * (h - mean)).square().sum())
    assert recent.stderr**2 == pytest.approx(2.25 * alone, rel=1e-9)
    assert recent.method == "genealogy of 1 steps"


def test_a_lag_as_long_as_the_run_is_none():
    result = small_run(particles=40, resample=tt.multinomial)
    asked = [result.expectation_interval(lambda x: x[..., 0], by=tt.genealogy(lag)).stderr for lag in (None, 5, 99)]
    assert asked[0] == asked[1] == asked[2]


def test_several_populations_add_their_variances():
    options = {"particles": 50, "resample": tt.adaptive(tt.multinomial, 0.5)}
    many = small_run(populations=3, **options)
    variance = [small_run(first_population=k, populations=1, **options).log_z_interval(by=tt.genealogy()).stderr ** 2
                for k in range(3)]  # fmt: skip
    share = many.population_log_z.softmax(0)
    expected = sum(float(share[k]) ** 2 * variance[k] for k in range(3))
    assert many.log_z_interval(by=tt.genealogy()).stderr ** 2 == pytest.approx(expected, rel=1e-9)
    assert expected < INF


def test_without_resampling_it_is_the_variance_of_independent_weights():
    result = small_run(particles=50, populations=1, resample=tt.never)
    w = result.log_weights.exp()[0]
    assert result.log_z_interval(by=tt.genealogy()).stderr == pytest.approx(float(w.std() / w.mean() / 50**0.5))


# Genealogy: no interval.


def test_a_variance_of_zero_or_less_gives_no_interval_and_says_so():
    got = result_of([[1.0] * 4]).log_z_interval(by=tt.genealogy())  # 1 - (4/3)^2 (1 - 1/4) < 0
    assert (got.estimate, got.stderr, got.low, got.high) == (0.0, INF, -INF, INF)
    assert str(got) == "0, no interval: the genealogical variance came out as 0 or less; use more particles"


def test_one_root_gives_no_interval_and_says_so():
    one_root = torch.stack([torch.arange(4), torch.zeros(4, dtype=torch.int64)])[:, None]
    result = result_of([[1.0, 2.0, 3.0, 4.0]], one_root)
    for got in (
        result.log_z_interval(by=tt.genealogy()),
        result.expectation_interval(lambda x: x[..., 0], by=tt.genealogy()),
    ):
        assert got.stderr == INF
        assert "no interval: each population descends from a single particle" in str(got)


# Genealogy: unbiased, at any number of particles.

REPLICATES = 20_000
GRID = tt.uniform_grid(6)
SMALL = table(tt.Masking, 3, 2, seed=6)
REVEAL = tt.AnyOrder(SMALL.model(), 3.0)
REVEALS = tt.masked_fraction_grid(SMALL.process.schedule, 2)
MODELS = {
    "tempered": (tt.Tempered(SMALL.model(), 2.0), GRID, None),
    "tilted": (tt.Tilted(SMALL.model(), 4.0), GRID, None),
    "any-order": (REVEAL, REVEALS, None),
    "any-order with moves": (REVEAL, REVEALS, tt.Rejuvenation(tt.Gibbs(REVEAL), each_step=1)),
}
REDRAWS = {
    "always": tt.multinomial,
    "often": tt.adaptive(tt.multinomial, 0.9),
    "seldom": tt.adaptive(tt.multinomial, 0.5),
    "never": tt.never,
}
COMPARISONS = len(MODELS) * len(REDRAWS) * 2 * 2  # two sizes, two functions


def first_token(x):
    return (x[..., 0] == 0).double()


def bias_scores(model, resample, n, redraws):
    """z-scores of variance estimate - (error)^2, whose mean is 0: E[Z-hat] is the flow's mass. For 1 and for h."""
    fk, grid, moves = MODELS[model]
    exact = tt.flow(fk, grid, SMALL.process.states, SMALL.length)
    truth = torch.stack([exact.log_mass.exp().sum(), (exact.log_mass.exp() * first_token(exact.states)).sum()])
    r = tt.run(fk, grid, particles=n, populations=REPLICATES, seed=8, resample=resample, moves=moves)
    w = r.log_weights.exp() / n
    terms = torch.stack([w, w * first_token(r.particles)], -1)
    variance = ancestral_variance(terms, lineage(r.ancestors), 1 + redraws(r.ess[1:] / n).sum(0))
    gap = variance - (terms.sum(1) - truth).square()
    return gap.mean(0) / (gap.std(0) / REPLICATES**0.5)


def below(threshold):
    """Which populations redraw, from their share of effective particles."""
    return lambda share: share < threshold


@pytest.mark.parametrize("name", REDRAWS)
@pytest.mark.parametrize("model", MODELS)
def test_genealogical_variance_is_unbiased(model, name):
    """False alarm 5e-7 for all sizes and models together: the variance of Z-hat and of the unnormalised mean of h."""
    redraws = below({"always": 2.0, "often": 0.9, "seldom": 0.5, "never": 0.0}[name])
    for n in (2, 6):
        assert bias_scores(model, REDRAWS[name], n, redraws).abs().max() < z_limit(COMPARISONS)


def test_wrong_the_first_draw_alone_is_counted():
    """N / (N - 1) once instead of once for each redraw: the same test must see it."""
    scores = bias_scores("tempered", tt.multinomial, 4, redraws=below(0.0))
    assert scores.abs().min() > 5 * z_limit(COMPARISONS)


def test_wrong_systematic_resampling():
    """What the refusal is for: with systematic draws the estimate is far off."""
    scores = bias_scores("tempered", tt.systematic, 4, redraws=below(2.0))
    assert scores.abs().min() > 5 * z_limit(COMPARISONS)


def test_which_populations_redrew_is_read_off_exactly():
    result = small_run(particles=40, populations=50, resample=tt.adaptive(tt.multinomial, 0.9))
    redrew = (result.ancestors != torch.arange(40)).any(-1)
    assert torch.equal(redrew[1:], (result.ess < 0.9 * 40)[1:])
    assert redrew.any()
    assert not redrew[1:].all()


# How often an interval holds the truth.

SEEDS, POPULATIONS, PARTICLES, STEPS = 300, 16, 50, 10
UNIFORM = table(tt.Uniform, 4, 2, seed=2)
PROBLEMS = {"tempered": (tt.Tempered(SMALL.model(), 2.0), SMALL), "tilted": (tt.Tilted(UNIFORM.model(), 4.0), UNIFORM)}


@cache
def intervals(name, seeds=SEEDS, resample=None):
    """Estimates, standard errors, whether they hold the truth [seeds, 2], for log Z and for an expectation.

    Each group of 16 populations is a run of its own: populations are keyed apart, so groups are as good as seeds.
    """
    fk, problem = PROBLEMS[name]
    exact = flow(fk, problem, STEPS)
    truth = (float(exact.log_z), float((exact.law * first_token(exact.states)).sum()))
    rows = []
    for first in range(0, seeds * POPULATIONS, 100 * POPULATIONS):
        size = {"particles": PARTICLES, "populations": 100 * POPULATIONS, "first_population": first}
        whole = tt.run(fk, tt.uniform_grid(STEPS), seed=21, resample=resample, **size)
        for k in range(0, 100 * POPULATIONS, POPULATIONS):
            part = slice(k, k + POPULATIONS)
            result = replace(whole, particles=whole.particles[part], log_weights=whole.log_weights[part])
            bars = (result.log_z_interval(), result.expectation_interval(first_token))
            rows.append([(b.estimate, b.stderr, b.low <= t <= b.high) for b, t in zip(bars, truth, strict=True)])
    return torch.tensor(rows, dtype=torch.float64).permute(2, 0, 1)


def chance_of_at_most(k, n, p):
    """Binomial tail, exactly."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def fewest(n, coverage=0.94, rate=FALSE_ALARM / 20 / 4):
    """How many of n intervals may hold the truth before it is no accident; four figures share the false alarm."""
    return next(k for k in range(n) if chance_of_at_most(k, n, coverage) > rate)


@pytest.mark.parametrize("name", PROBLEMS)
def test_intervals_across_populations_hold_the_truth(name):
    """The truth is the flow's on the same grid; 257 of 300 must hold it, as few as 94 % coverage allows."""
    assert (intervals(name)[2].sum(0) >= fewest(SEEDS)).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_standard_errors_are_as_large_as_the_errors_and_no_larger(name):
    """The variance of 300 estimates is known to 8 %: 45 % off is 5.5 standard deviations, 4e-8."""
    estimate, stderr, _ = intervals(name)
    ratio = stderr.square().mean(0) / estimate.var(0)
    assert ((ratio - 1).abs() < 0.45).all()


def test_wrong_particles_counted_as_independent():
    """Pooling the particles of all populations as if resampling had not made them relatives: far too short."""
    fk, problem = PROBLEMS["tilted"]
    exact = flow(fk, problem, STEPS)
    truth = float((exact.law * first_token(exact.states)).sum())
    whole = tt.run(fk, tt.uniform_grid(STEPS), particles=PARTICLES, populations=4800, seed=21, resample=tt.multinomial)
    w = whole.log_weights.reshape(300, -1).softmax(-1)
    h = first_token(whole.particles).reshape(300, -1)
    mean = (w * h).sum(1, keepdim=True)
    stderr = (w * (h - mean)).square().sum(1).sqrt()
    assert ((mean[:, 0] - truth).abs() <= 1.96 * stderr).sum() < fewest(SEEDS)


@pytest.mark.prove
@pytest.mark.parametrize("name", PROBLEMS)
def test_95_percent_means_92_to_98_percent_of_1000_seeds(name):
    """At a true coverage of 95 % each figure falls outside by chance with probability 2e-5 (binomial)."""
    coverage = intervals(name, seeds=1000)[2].mean(0)
    assert ((coverage >= 0.92) & (coverage <= 0.98)).all(), coverage.tolist()
