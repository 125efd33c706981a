"""Guidance against rates and posteriors worked out by hand on two sites of three tokens."""

import math

import pytest
import torch

import truetilt as tt
from problems import conditional, hard_table, law_at, meaningful, reverse_rates, site_noise, table

both = pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
timed = pytest.mark.parametrize("t", [0.1, 0.5, 1.0])
either = pytest.mark.parametrize("guide", [tt.rate_level, tt.posterior_level])
BAD = [-0.5, math.nan, math.inf, -math.inf]


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


def rates(problem, score, t):
    """Reverse rates [K, 2, V] that a score asks for."""
    return problem.process.rates(score(problem.states, t), problem.states, t).dense().exp()


def guided(problem, beta, guide=tt.rate_level):
    model = problem.model()
    return tt.Guided(problem.process, model.base, model.conditional, beta, guide)


def base_and_conditional_rates(problem, t):
    return reverse_rates(problem, problem.p0, t), reverse_rates(problem, conditional(problem), t)


def posterior(problem, p0, t):
    """p(x0^d = v | x) by hand [K, 2, V], and how likely x^d is from each v."""
    q = site_noise(problem.process, t)[:3]
    joint = torch.einsum("ab,ai,bj->abij", p0, q, q)
    given = torch.stack([joint.sum(1).permute(1, 2, 0), joint.sum(0).permute(1, 2, 0)], -2).flatten(0, 1)
    return given / given.sum(-1, keepdim=True)


def rates_of_posterior(problem, p, t):
    """sigma' Q(y, x) sum over x0 of p(x0|x) q(v|x0) / q(x|x0), by hand."""
    process, x = problem.process, problem.states
    q = site_noise(process, t)[:3]
    weight = p / q.T[x]  # p(x0|x) / q(x^d|x0)
    ratio = torch.einsum("kda,av->kdv", weight, q[:, :3])
    forward = (x == 3).double()[..., None] if isinstance(process, tt.Masking) else 1 / 3
    moved = x[..., None] != torch.arange(3)
    return torch.where(moved, ratio * forward * float(process.schedule(t).rate), 0.0)


@both
@timed
@pytest.mark.parametrize("beta", [0.5, 2.0, 8.0])
def test_rate_level_is_the_base_rate_times_the_ratio_to_the_beta(process, t, beta):
    problem = table(process, 3, 2)
    base, given = base_and_conditional_rates(problem, t)
    close(rates(problem, guided(problem, beta), t), torch.where(base > 0, base * (given / base) ** beta, 0.0))


@both
@timed
@pytest.mark.parametrize("beta", [0.5, 2.0, 8.0])
def test_posterior_level_is_the_softmax_of_the_mixed_posteriors(process, t, beta):
    problem = table(process, 3, 2)
    p, p_zeta = (posterior(problem, law, t) for law in (problem.p0, conditional(problem)))
    mixed = p ** (1 - beta) * p_zeta**beta
    mixed = mixed / mixed.sum(-1, keepdim=True)
    spoken = meaningful(problem)
    got = rates(problem, guided(problem, beta, tt.posterior_level), t)
    torch.testing.assert_close(got[spoken], rates_of_posterior(problem, mixed, t)[spoken], rtol=1e-9, atol=1e-12)


@timed
def test_posterior_level_leaves_the_total_unmasking_rate_alone(t):
    problem = table(tt.Masking, 3, 2)
    base, _ = base_and_conditional_rates(problem, t)
    got = rates(problem, guided(problem, 8.0, tt.posterior_level), t)
    close(got.sum(-1), base.sum(-1))


def test_rate_level_changes_the_total_unmasking_rate():
    problem = table(tt.Masking, 3, 2)
    base, _ = base_and_conditional_rates(problem, 0.5)
    got = rates(problem, guided(problem, 8.0), 0.5)
    assert (got.sum(-1) / base.sum(-1))[meaningful(problem).all(-1)].max() > 1.5


@either
@both
@timed
def test_beta_zero_is_the_base(process, t, guide):
    problem = table(process, 3, 2)
    base, _ = base_and_conditional_rates(problem, t)
    close(rates(problem, guided(problem, 0.0, guide), t), base)


@either
@both
@timed
def test_beta_one_is_the_conditional(process, t, guide):
    problem = table(process, 3, 2)
    _, given = base_and_conditional_rates(problem, t)
    close(rates(problem, guided(problem, 1.0, guide), t), given)


@either
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 8.0])
def test_what_the_base_cannot_do_stays_impossible(guide, beta):
    problem = hard_table(tt.Masking)
    base, _ = base_and_conditional_rates(problem, 0.5)
    got = rates(problem, guided(problem, beta, guide), 0.5)
    assert not got.isnan().any()
    assert (got[base == 0] == 0).all()


def likelihood(problem):
    """log p_t(zeta|x) by hand, as a classifier would give it."""

    def log_likelihood(x, t):
        joint, law = (law_at(problem, p, t) for p in (problem.p0 * problem.likelihood, problem.p0))
        return (joint / law).log()[x[..., 0], x[..., 1]]

    return log_likelihood


@both
@timed
def test_predictor_with_the_exact_likelihood_is_the_conditional(process, t):
    problem = table(process, 3, 2)
    _, given = base_and_conditional_rates(problem, t)
    predictor = tt.Predictor(problem.process, problem.model().base, likelihood(problem))
    close(rates(problem, predictor, t), given)


@both
def test_predictor_works_on_populations_of_particles(process):
    problem = table(process, 3, 2)
    predictor = tt.Predictor(problem.process, problem.model().base, likelihood(problem))
    x = problem.states[:8].reshape(2, 4, 2)
    assert torch.equal(predictor(x, 0.5).dense(), predictor(problem.states[:8], 0.5).dense().reshape(2, 4, 2, 3))


def test_predictor_falls_back_on_the_base_where_the_condition_is_already_impossible():
    problem = table(tt.Masking, 3, 2)

    def impossible(x, t):
        return torch.full(x.shape[:-1], -torch.inf, dtype=torch.float64)

    base = problem.model().base
    got = tt.Predictor(problem.process, base, impossible)(problem.states, 0.5).dense()
    assert torch.equal(got, base(problem.states, 0.5).dense())


@either
def test_guides_accept_scores_that_share_no_rows(guide):
    problem = table(tt.Masking, 3, 2)
    model, x, t = problem.model(), problem.states, 0.5
    dense = tt.SiteLogits.of(model.conditional(x, t).dense())
    mixed = guide(problem.process, model.base(x, t), dense, 2.5, (x, t)).dense()
    shared = guide(problem.process, model.base(x, t), model.conditional(x, t), 2.5, (x, t)).dense()
    close(mixed[meaningful(problem)], shared[meaningful(problem)])


# Strength.


@timed
def test_a_beta_schedule_is_read_at_the_time_given(t):
    problem = table(tt.Masking, 3, 2)
    base, given = base_and_conditional_rates(problem, t)
    got = rates(problem, guided(problem, lambda time: 1 + 6 * time), t)
    close(got, torch.where(base > 0, base * (given / base) ** (1 + 6 * t), 0.0))


@pytest.mark.parametrize("beta", BAD)
def test_a_bad_beta_is_rejected_by_name(beta):
    with pytest.raises(tt.InvalidInput, match=f"beta is {beta}"):
        guided(table(tt.Masking, 3, 2), beta)


@pytest.mark.parametrize("beta", BAD)
@pytest.mark.parametrize("end", [0.0, 1.0])
def test_a_schedule_bad_at_an_end_is_rejected_at_construction(beta, end):
    with pytest.raises(tt.InvalidInput, match=f"beta is {beta} at t = {end}"):
        guided(table(tt.Masking, 3, 2), lambda t: beta if t == end else 1.0)


@pytest.mark.parametrize("beta", BAD)
def test_a_schedule_bad_in_between_is_rejected_when_it_shows(beta):
    problem = table(tt.Masking, 3, 2)
    score = guided(problem, lambda t: beta if t == 0.5 else 1.0)
    with pytest.raises(tt.InvalidInput, match=rf"beta is {beta} at t = 0\.5"):
        score(problem.states, 0.5)


@both
def test_tempered_rejects_a_bad_beta_too(process):
    with pytest.raises(tt.InvalidInput, match=r"beta is -1\.0"):
        tt.Tempered(table(process, 3, 2).model(), 2.0, beta=-1.0)


def test_left_out_the_strength_is_one_and_ramps_are_the_usual():
    model = table(tt.Masking, 3, 2).model()
    usual = {
        tt.Tempered(model, 2.0): tt.Tempered(model, 2.0, 1.0, tt.rate_level, kernel=tt.euler),
        tt.Tilted(model, 2.0): tt.Tilted(model, 2.0, tt.Power(2.0), kernel=tt.euler),
        tt.Steered(model, model.potential): tt.Steered(model, model.potential, 1.0, tt.Power(1.0), kernel=tt.euler),
        tt.AnyOrder(model, 2.0): tt.AnyOrder(model, 2.0, None, None, tt.Power(0.0)),
    }
    assert len(usual) == 4
    for short, long in usual.items():
        assert short == long
