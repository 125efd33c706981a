"""Kriging of few sites: the closed forms of Gaussian processes, masked values by enumeration, and runs with it."""

import itertools
import math
from statistics import NormalDist

import pytest
import torch

import truetilt as tt
from truetilt.exact.tables import flat_index, with_mask
from truetilt.twists import kriging, learning
from truetilt.twists.kriging import Covariance, base_law, fitted_covariance, masked_values, predicted
from truetilt.twists.lessons import Lessons, Mutants
from truetilt.twists.recorded_draws import weighed_draws
from truetilt.twists.rounds import Plan

S, D = 4, 3
SHAPE = (S,) * D
ALL = torch.tensor(list(itertools.product(range(S), repeat=D)))
MASKED = torch.tensor(list(itertools.product(range(S + 1), repeat=D)))
GENERATOR = torch.Generator().manual_seed(3)
SITES = torch.randn(D, S, generator=GENERATOR, dtype=torch.float64)
PAIRS = torch.randn(S, S, generator=GENERATOR, dtype=torch.float64)
OWN = 0.3 * torch.randn(S**D, generator=GENERATOR, dtype=torch.float64)
PRIOR = Covariance(torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64), 0.2)


def base():
    """p0 with pairs between neighbours, and little of its own in every state."""
    x = ALL.T
    log_p = SITES[0, x[0]] + PAIRS[x[0], x[1]] + PAIRS[x[1], x[2]]
    return tt.Table(tt.Masking(S), log_p.softmax(0).reshape(SHAPE), torch.ones(SHAPE, dtype=torch.float64))


def reward(x):
    """Sites, a pair far apart, and a part of its own."""
    return SITES[torch.arange(D), x].sum(-1) + 2 * PAIRS[x[:, 0], x[:, 2]] + OWN[flat_index(x, S)]


def written_out(a, b, prior=PRIOR):
    """The covariance written out, state by state."""
    factors = [[[prior.factors[d] if p[d] != q[d] else 1.0 for d in range(D)] for q in b] for p in a]
    return torch.tensor(factors, dtype=torch.float64).prod(-1)


def exact_log_z(strength=1.0):
    return float((base().p0.reshape(-1).log() + strength * reward(ALL)).logsumexp(0))


def test_the_covariance_is_a_factor_for_each_site_that_differs():
    assert torch.allclose(PRIOR.between(ALL[:9], ALL), written_out(ALL[:9], ALL), atol=1e-14)
    weights = torch.randn(2, *SHAPE, generator=GENERATOR, dtype=torch.float64)
    summed = PRIOR.spread_over(weights).reshape(2, -1)
    assert torch.allclose(summed, weights.reshape(2, -1) @ written_out(ALL, ALL), atol=1e-12)
    root = PRIOR.sample(torch.eye(S**D, dtype=torch.float64).reshape(-1, *SHAPE)).reshape(S**D, -1)
    assert torch.allclose(root @ root.T, written_out(ALL, ALL), atol=1e-12)


def test_mean_and_deviation_are_those_of_the_closed_form(monkeypatch):
    """1,600 samples: each of 64 variances within 5 standard errors, 3.5 % each."""
    monkeypatch.setattr(kriging, "_SAMPLES", 1600)
    x = ALL[::5]
    value = reward(x)
    inverse = torch.linalg.inv(written_out(x, x) + PRIOR.nugget * torch.eye(len(x)))
    ones = torch.ones(len(x), dtype=torch.float64)
    centre = (ones @ inverse @ value) / (ones @ inverse @ ones)
    across = written_out(ALL, x)
    mean = centre + across @ inverse @ (value - centre)
    scale = (value - centre) @ inverse @ (value - centre) / len(x)
    variance = scale * (1 + PRIOR.nugget - (across @ inverse * across).sum(-1))
    found, deviation = predicted(PRIOR, x, value, S, True)
    assert torch.allclose(found, mean, atol=1e-10)
    assert float((deviation**2 / variance - 1).abs().max()) < 5 * math.sqrt(2 / 1600)
    assert not predicted(PRIOR, x, value, S, False)[1].any()


def test_evidence_is_the_log_density_at_the_best_mean_and_variance():
    """Beside the normal density of torch.distributions: the same difference between two covariances."""
    x, value = ALL[::3], reward(ALL[::3])
    other = Covariance(torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64), 0.05)

    def density(prior):
        shape = written_out(x, x, prior) + prior.nugget * torch.eye(len(x), dtype=torch.float64)
        inverse, ones = torch.linalg.inv(shape), torch.ones(len(x), dtype=torch.float64)
        mean = (ones @ inverse @ value) / (ones @ inverse @ ones)
        scale = (value - mean) @ inverse @ (value - mean) / len(x)
        return torch.distributions.MultivariateNormal(mean * ones, scale * shape).log_prob(value)

    mine = [kriging._evidence(torch.linalg.cholesky(k.with_itself(x)), value) for k in (PRIOR, other)]
    assert float(mine[0] - mine[1]) == pytest.approx(float(density(PRIOR) - density(other)), abs=1e-9)


def test_the_covariance_is_found_from_values_that_it_made():
    """A draw of the prior at 343 states of 7 letters at three sites: the factors' order, and nothing nearby has more
    evidence, with the prior of the logits."""
    every = torch.tensor(list(itertools.product(range(7), repeat=D)))
    true = Covariance(torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64), 0.1)
    root = torch.linalg.cholesky(true.with_itself(every))
    value = 3.0 * root @ torch.randn(len(every), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = fitted_covariance(every, value)
    assert found.factors.argsort().tolist() == [0, 1, 2]
    assert float((found.factors - true.factors).abs().max()) < 0.25
    assert abs(math.log(found.nugget / true.nugget)) < 0.7

    def judged(tried):
        """The evidence, and the prior of the logits."""
        logits, nugget = ((tried.factors - 0.02) / 0.96).logit(), math.log((tried.nugget - 1e-3) / 0.1)
        evidence = kriging._evidence(torch.linalg.cholesky(tried.with_itself(every)), value)
        return float(evidence - (logits**2).sum() / 2) - (nugget / 2) ** 2 / 2

    best = judged(found)
    for site in range(D):
        for change in (0.93, 1.07):
            near = torch.where(torch.arange(D) == site, change * found.factors, found.factors).clamp(max=0.97)
            assert judged(found._replace(factors=near)) < best
    for change in (0.8, 1.25):
        assert judged(found._replace(nugget=change * found.nugget)) < best
    assert fitted_covariance(every, value).factors.equal(found.factors)


def steps_of(order=None, count=400):
    return weighed_draws(base().model(), count, None, order, 0, 0).steps


@pytest.mark.parametrize("order", [None, (2, 0, 1)])
def test_p0_is_told_by_the_steps(order):
    p0 = base().p0
    told = base_law(steps_of(order), D, S)
    assert float((p0 * (p0.log() - told)).sum()) < 2e-3
    assert float(told.exp().sum()) == pytest.approx(1, abs=1e-12)
    flat = base_law(steps_of(order, 25)._replace(log_p=torch.zeros(25 * D, S, dtype=torch.float64)), D, S)
    assert float((p0 * (p0.log() - flat)).sum()) > 0.2


def test_without_steps_p0_counts_as_even():
    none = steps_of(count=25)._replace(draw=torch.zeros(0, dtype=torch.int64))
    nothing = type(none)(*(column[:0] for column in none))
    assert torch.allclose(base_law(nothing, D, S).exp(), torch.full(SHAPE, S**-D, dtype=torch.float64))


def test_masked_values_are_exact_by_enumeration():
    p0, value = base().p0, reward(ALL).reshape(SHAPE)
    found = masked_values(p0.log(), value).reshape(-1)
    for state, mine in zip(MASKED, found, strict=True):
        fits = ((state == ALL) | (state == S)).all(-1)
        law = p0.reshape(-1)[fits] / p0.reshape(-1)[fits].sum()
        assert float(mine) == pytest.approx(float((law * value.reshape(-1)[fits].exp()).sum().log()), abs=1e-12)


def lessons_of(x, count=200):
    found = weighed_draws(base().model(), count, None, None, 0, 0)
    none = torch.zeros(0, dtype=torch.int64)
    mutants = Mutants(none, none, none, none.double())
    value = reward(x)
    return Lessons(x, value, mutants, found.steps, S, value, torch.ones(len(x), dtype=torch.bool))


def test_called_states_have_their_value_and_low_ones_level_off():
    lessons = lessons_of(ALL[::2])
    twist = tt.Kriging(depth=1.0).fit(lessons)
    level = lessons.low - 1.0
    goal = torch.logaddexp(lessons.value, torch.tensor(level, dtype=torch.float64))
    assert torch.allclose(twist(lessons.x, 0.0), goal, atol=1e-12)
    assert level - 1e-12 <= float(twist(ALL, 0.0).min())
    assert float(twist(ALL, 0.0).max()) <= float(goal.max()) + 1e-12


def test_optimism_raises_what_was_not_called_and_nothing_else():
    lessons, others = lessons_of(ALL[::4]), torch.arange(len(ALL)) % 4 != 0
    sober, hopeful = (tt.Kriging(optimism=optimism).fit(lessons)(ALL, 0.0) for optimism in (0.0, 2.0))
    assert torch.equal(sober[~others], hopeful[~others])
    assert (hopeful[others] >= sober[others]).all()
    assert float((hopeful - sober)[others].mean()) > 0.1


def test_a_state_called_twice_has_the_mean_of_its_values():
    lessons = lessons_of(torch.cat([ALL[::4], ALL[:1]]))
    noisy = lessons._replace(value=lessons.value + torch.tensor([1.0] + [0.0] * 15 + [-1.0], dtype=torch.float64))
    twist = tt.Kriging(depth=50.0).fit(noisy)
    assert float(twist(ALL[:1], 0.0)) == pytest.approx(float(reward(ALL[:1])), abs=1e-9)


def test_constant_rewards_and_few_states_are_fitted():
    constant = lessons_of(ALL[::4])
    constant = constant._replace(value=torch.full_like(constant.value, 1.5))
    assert torch.allclose(tt.Kriging(depth=60.0).fit(constant)(MASKED, 0.0), torch.tensor(1.5, dtype=torch.float64))
    assert tt.Kriging().fit(lessons_of(ALL[:2])._replace(value=torch.tensor([0.0, 1.0])))(MASKED, 0.0).isfinite().all()


def log_zs(twist, runs=40, wrong=False):
    """log Z of independent runs with a twist; `wrong`: without the last weight, e^(r - h), where the twist is high."""
    told = twist if not wrong else (lambda x: twist(x, 0.0))
    found = []
    for seed in range(runs):
        fk = tt.Composed(base().model(), reward=told if wrong else reward, twist=twist)
        found.append(tt.run(fk, particles=100, populations=1, seed=seed).log_z)
    return torch.tensor(found, dtype=torch.float64)


def z_score(found):
    """How far the mean of exp(log Z - exact) is from 1, in standard errors: unbiased at any twist."""
    ratio = (found - exact_log_z()).exp()
    return float((ratio.mean() - 1) / (ratio.std() / math.sqrt(len(ratio))))


def test_runs_with_it_have_the_right_log_z():
    """A z-test of the mean of Z over 40 fixed seeds; it rejects a right sampler once in 10,000 times. The same twist
    counted in the weights (the reward replaced by it, optimism and all) is rejected."""
    few = tt.learn_twist(base().model(), reward, calls=30, draws=30, refits=0, family=tt.Kriging())
    limit = NormalDist().inv_cdf(1 - 0.5e-4)
    assert abs(z_score(log_zs(few))) < limit
    assert abs(z_score(log_zs(few, wrong=True))) > limit


def test_where_everything_was_called_all_particles_weigh_the_same():
    twist = tt.learn_twist(base().model(), reward, calls=4000, draws=2000, family=tt.Kriging(depth=50.0))
    fk = tt.Composed(base().model(), reward=reward, twist=twist)
    log_w = tt.run(fk, particles=400, resample=tt.never, seed=3).log_weights
    assert float(log_w.std()) < 0.05
    assert float(log_w.mean()) == pytest.approx(exact_log_z(), abs=0.01)
    assert float(twist(torch.full((1, D), S), 1.0)) == pytest.approx(exact_log_z(), abs=0.01)


def test_held_out_draws_prefer_it_where_pairs_do_not_suffice():
    """A draw of the prior at 1,296 states, in which all four sites matter together."""
    size, shape = 6, (6,) * 4
    even = tt.Table(tt.Masking(size), torch.full(shape, 1.0 / 6**4), torch.ones(shape))
    normals = torch.randn(shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    rugged = 1.5 * Covariance(torch.full((4,), 0.4, dtype=torch.float64), 0.0).sample(normals).flatten()
    families = [tt.PairTables(0), tt.PairTables(3, 1.0), tt.Kriging()]
    twist = tt.learn_twist(even.model(), lambda x: rugged[flat_index(x, size)], calls=400, draws=200, family=families)
    assert twist.held_out.family == tt.Kriging().name
    assert twist.held_out.ess > 1.1 * twist.tried[1].ess


def test_the_default_families_hold_it_where_all_states_can_be_tabulated():
    plan = Plan(1.0, 100, 0, 0, None, 0)
    for length, held in ((4, True), (5, False)):
        model = tt.Model(tt.Masking(20), length, lambda x, t: x)
        assert held is any(
            isinstance(one, tt.Kriging) for tier in learning._families(model, None, plan) for one in tier
        )


def test_a_saved_twist_is_read_back(tmp_path):
    twist = tt.learn_twist(base().model(), reward, calls=100, draws=50, family=tt.Kriging())
    twist.save(tmp_path / "twist")
    again = tt.LearnedTwist.load(tmp_path / "twist")
    assert torch.equal(again(MASKED, 0.0), twist(MASKED, 0.0))
    assert again.length == D
    assert again.held_out == twist.held_out


def test_too_many_states_and_bad_settings_are_named():
    for words, wrong in {"depth": {"depth": -1.0}, "optimism": {"optimism": math.inf}}.items():
        with pytest.raises(tt.InvalidInput, match=words):
            tt.Kriging(**wrong)
    lessons = lessons_of(ALL[::4])
    with pytest.raises(tt.InvalidInput, match="12 sites of 4 tokens"):
        tt.Kriging().fit(lessons._replace(x=ALL[::4].repeat(1, 4)))


def test_p0_may_be_impossible_in_places():
    """A base without one token at a site: values stay finite, and the run is right."""
    p0 = base().p0.clone()
    p0[:, 2] = 0
    table = tt.Table(tt.Masking(S), p0, torch.ones(SHAPE, dtype=torch.float64))
    twist = tt.learn_twist(table.model(), reward, calls=200, draws=100, family=tt.Kriging())
    assert twist(MASKED, 0.0).isfinite().all()
    exact = float((table.p0.reshape(-1).log() + reward(ALL)).logsumexp(0))
    found = tt.run(tt.Composed(table.model(), reward=reward, twist=twist), particles=4000, seed=1).log_z
    assert found == pytest.approx(exact, abs=0.02)


def test_with_mask_sums_a_site_out():
    p0 = base().p0
    assert torch.allclose(with_mask(p0)[:S, S, S], p0.sum((1, 2)))


def rounds_of(first, second):
    """Lessons of two rounds: these numbers of states of ALL."""
    x = ALL[torch.tensor([*first, *second])]
    none = torch.zeros(0, dtype=torch.int64)
    steps = weighed_draws(base().model(), len(x), None, None, 0, 0).steps
    latest = torch.arange(len(x)) >= len(first)
    return Lessons(
        x, reward(x), Mutants(none, none, none, none.double()), steps, S, torch.arange(len(x)).log1p(), latest
    )


def test_the_share_of_known_states_is_that_of_the_last_rounds_weight():
    lessons = rounds_of([3, 5, 5, 9], [5, 7, 9, 9])
    weight = torch.arange(8)[4:] + 1.0
    assert lessons.known == pytest.approx(float(weight[[0, 2, 3]].sum() / weight.sum()))
    assert rounds_of([], [1, 1, 2]).known == 0


def test_a_family_that_is_exact_where_it_was_fitted_is_judged_so(monkeypatch):
    """The exact effective share on clean states is 1 / sum_x pi(x)^2 / q(x). With the share of known states the figure
    is within a tenth of it; held-out states alone are off by more on average."""
    model, x = base().model(), base().p0.reshape(-1).log()
    target = (x + reward(ALL)).softmax(0)

    def off(seed):
        twist = tt.learn_twist(model, reward, calls=120, draws=60, seed=seed, family=tt.Kriging(depth=50.0))
        return abs(math.log(twist.held_out.ess * float((target**2 / (x + twist(ALL, 0.0)).softmax(0)).sum())))

    with_known = [off(seed) for seed in range(4)]
    assert max(with_known) < 0.1
    monkeypatch.setattr(learning, "_RARE", 2.0)
    assert sum(off(seed) for seed in range(4)) > 2 * sum(with_known)
