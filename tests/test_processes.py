"""Masking and uniform noise against sums written out on two sites of three tokens."""

import pytest
import torch

import truetilt as tt
from problems import conditional, law_at, meaningful, ratios, reverse_rates, site_noise, table

PROCESSES = [tt.Masking, tt.Uniform]
SCHEDULES = [tt.LogLinear(), tt.Cosine(), tt.Geometric(0.01, 5.0)]
TIMES = [0.05, 0.3, 0.7, 1.0]

both = pytest.mark.parametrize("process", PROCESSES)
scheduled = pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
timed = pytest.mark.parametrize("t", TIMES)


def close(got, expected, tolerance=1e-12):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def log_score(problem, t):
    """The score by hand, as the library takes it."""
    return tt.SiteLogits.of(ratios(law_at(problem, problem.p0, t), problem.process.vocabulary).log())


def posterior(problem, t):
    """p(x0^d = v | x_t = x) by hand [K, 2, V]."""
    q = site_noise(problem.process, t)[: problem.process.vocabulary]
    joint = torch.einsum("ab,ai,bj->abij", problem.p0, q, q)
    first, second = joint.sum(1).permute(1, 2, 0), joint.sum(0).permute(1, 2, 0)
    given = torch.stack([first, second], -2).flatten(0, 1)
    return given / given.sum(-1, keepdim=True)


def spoken(problem, values):
    return values[meaningful(problem)]


# The forward process.


@both
@timed
def test_corrupt_has_the_law_of_the_forward_process(process, t):
    made, m = process(3), 30_000
    u = (torch.arange(m, dtype=torch.float64) + 0.5) / m
    for a in range(3):
        drawn = made.corrupt(torch.full((m,), a), t, u)
        frequency = torch.bincount(drawn, minlength=made.states).double() / m
        assert (frequency - site_noise(made, t)[a]).abs().max() <= 2.5 / m


@both
def test_corrupt_at_time_zero_changes_nothing(process):
    x = torch.tensor([[0, 1, 2], [2, 2, 1]])
    for u in (0.0, 0.5, 1 - 2.0**-53):
        assert torch.equal(process(3).corrupt(x, 0.0, torch.full(x.shape, u, dtype=torch.float64)), x)


@both
def test_corrupt_treats_sites_independently(process):
    made, m = process(3), 300
    u = (torch.arange(m, dtype=torch.float64) + 0.5) / m
    pairs = torch.cartesian_prod(u, u)
    drawn = made.corrupt(torch.tensor([0, 2]).expand(m * m, 2), 0.4, pairs)
    frequency = torch.bincount(drawn[:, 0] * made.states + drawn[:, 1], minlength=made.states**2).double() / m**2
    expected = torch.outer(site_noise(made, 0.4)[0], site_noise(made, 0.4)[2]).reshape(-1)
    assert (frequency - expected).abs().max() <= 5 / m


def test_masking_prior_is_all_mask():
    law = tt.Masking(3).prior((5, 2))
    u = torch.linspace(0, 1 - 2.0**-53, 10, dtype=torch.float64).reshape(5, 2)
    assert (law.sample(u) == 3).all()
    assert (law.log_prob(torch.full((5, 2), 3)) == 0).all()
    assert (law.log_prob(torch.tensor([[3, 0]]).expand(5, 2)) == -torch.inf).all()


def test_uniform_prior_gives_every_state_the_same_chance():
    states = table(tt.Uniform, 3, 2).states
    log_prob = tt.Uniform(3).prior((9, 2)).log_prob(states)
    close(log_prob.exp(), torch.full((9,), 1 / 9, dtype=torch.float64))
    u = ((torch.arange(9_000, dtype=torch.float64) + 0.5) / 9_000)[:, None]
    drawn = tt.Uniform(3).prior((9_000, 1)).sample(u)
    assert (torch.bincount(drawn[:, 0], minlength=3) - 3_000).abs().max() <= 1


@both
def test_prior_is_the_noised_law_up_to_the_data_that_survives(process):
    problem = table(process, 3, 2)
    law = problem.process.prior(tuple(problem.states.shape)).log_prob(problem.states).exp()
    assert 0.5 * (law - law_at(problem, problem.p0, 1.0).reshape(-1)).abs().sum() < 2 * 1e-3


# Score, posterior and rates: each from each other, all by hand.


@both
@scheduled
@timed
def test_posterior_of_score(process, schedule, t):
    problem = table(process, 3, 2, schedule=schedule)
    got = problem.process.posterior(log_score(problem, t), problem.states, t).dense().exp()
    close(spoken(problem, got), spoken(problem, posterior(problem, t)), 1e-11)


@both
@scheduled
@timed
def test_score_of_posterior(process, schedule, t):
    problem = table(process, 3, 2, schedule=schedule)
    given = tt.SiteLogits.of(posterior(problem, t).log())
    got = problem.process.score(given, problem.states, t).dense()
    expected = log_score(problem, t).dense()
    close(spoken(problem, up_to_a_constant(problem, got)), spoken(problem, up_to_a_constant(problem, expected)))


def up_to_a_constant(problem, values):
    """A uniform score means its differences only: take off the entry at x."""
    if isinstance(problem.process, tt.Masking):
        return values
    return values - values.gather(-1, problem.states[..., None])


@both
@scheduled
@timed
def test_rates_of_score_are_the_time_reversal(process, schedule, t):
    problem = table(process, 3, 2, schedule=schedule)
    got = problem.process.rates(log_score(problem, t), problem.states, t).dense().exp()
    close(got, reverse_rates(problem, problem.p0, t))


@both
@scheduled
@timed
def test_score_of_rates(process, schedule, t):
    problem = table(process, 3, 2, schedule=schedule)
    rates = tt.SiteLogits.of(reverse_rates(problem, problem.p0, t).log())
    got = problem.process.score_of_rates(rates, problem.states, t).dense()
    close(spoken(problem, got), spoken(problem, log_score(problem, t).dense()))


@timed
def test_a_constant_in_a_uniform_score_changes_nothing(t):
    problem = table(tt.Uniform, 3, 2)
    score = log_score(problem, t)
    shifted = score.with_rows(score.rows + 1.7)
    for convert in (problem.process.rates, problem.process.posterior):
        close(convert(shifted, problem.states, t).dense(), convert(score, problem.states, t).dense(), 1e-11)


@both
@timed
def test_conversions_round_trip(process, t):
    problem = table(process, 3, 2)
    p, x, score = problem.process, problem.states, log_score(problem, t)
    there_and_back = [
        p.score(p.posterior(score, x, t), x, t),
        p.score_of_rates(p.rates(score, x, t), x, t),
        p.score(p.posterior(p.score_of_rates(p.rates(score, x, t), x, t), x, t), x, t),
    ]
    expected = spoken(problem, up_to_a_constant(problem, score.dense()))
    for got in there_and_back:
        close(spoken(problem, up_to_a_constant(problem, got.dense())), expected, 1e-11)


# The table's own scores speak the same language.


@both
@scheduled
@timed
@pytest.mark.parametrize("condition", [False, True], ids=["base", "conditional"])
def test_table_scores_give_the_time_reversal(process, schedule, t, condition):
    problem = table(process, 3, 2, schedule=schedule)
    model = problem.model()
    score, p0 = (model.conditional, conditional(problem)) if condition else (model.base, problem.p0)
    got = problem.process.rates(score(problem.states, t), problem.states, t).dense().exp()
    close(got, reverse_rates(problem, p0, t))


@pytest.mark.parametrize(
    "process",
    [tt.Masking, tt.Uniform],
)
def test_table_scores_keep_their_digits_at_small_times(process):
    problem = table(process, 3, 2)
    problem = tt.Table(problem.process, torch.eye(3), problem.likelihood)
    t = 1e-9
    got = problem.process.rates(problem.model().base(problem.states, t), problem.states, t).dense().exp()
    expected = reverse_rates(problem, problem.p0, t)
    torch.testing.assert_close(spoken(problem, got), spoken(problem, expected), rtol=1e-10, atol=0)


@both
@pytest.mark.parametrize("size", [1, 0, -2])
def test_bad_vocabulary_is_rejected_by_name(process, size):
    with pytest.raises(tt.InvalidInput, match=f"vocabulary is {size}"):
        process(size)
