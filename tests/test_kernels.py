"""One reverse step: proper laws, the right limits, the base's support."""

import pytest
import torch

import truetilt as tt
from problems import conditional, hard_table, meaningful, reverse_rates, site_noise, table
from truetilt.testing.kernels import INTERVALS, check_kernel, site_probabilities

PROCESSES = [tt.Masking, tt.Uniform]
KERNELS = [tt.euler, tt.tweedie, tt.tau_leaping]

both = pytest.mark.parametrize("process", PROCESSES)
each = pytest.mark.parametrize("kernel", KERNELS)
each_pair = pytest.mark.parametrize(("process", "kernel"), [(p, k) for p in PROCESSES for k in KERNELS])


def step(problem, kernel, score, t, s):
    return kernel(problem.process, score(problem.states, t), problem.states, t, s)


def scores(problem):
    model = problem.model()
    return model.base, model.conditional


def guided(problem, beta, guide=tt.rate_level):
    return tt.Guided(problem.process, *scores(problem), beta, guide)


def site_log_probs(law, problem):
    """log P(site d becomes v) for every state of a site [K, D, states]."""
    return site_probabilities(law, problem).log()


def assert_proper(law, problem):
    log_probs = site_log_probs(law, problem)
    assert not log_probs.isnan().any()
    assert (log_probs <= 1e-12).all()
    assert (log_probs.exp().sum(-1) - 1).abs().max() < 1e-12


@each
def test_a_kernel_keeps_what_kernels_promise(kernel):
    """Proper laws, with zeros and under strong guidance; draws; no mask at the end; revealed sites stay; the limit."""
    check_kernel(kernel)


@each
@pytest.mark.parametrize("schedule", [tt.Cosine(), tt.Geometric(1e-4, 20.0)], ids=repr)
@both
def test_laws_are_proper_on_every_schedule(process, kernel, schedule):
    problem = table(process, 3, 2, schedule=schedule)
    for t, s in INTERVALS:
        assert_proper(step(problem, kernel, scores(problem)[0], t, s), problem)


@each_pair
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_low_precision_network_still_gives_a_law_that_sums_to_one(process, kernel, dtype):
    problem = table(process, 3, 2)
    generator = torch.Generator().manual_seed(0)
    rough = torch.randn(len(problem.states), 2, 3, generator=generator) * 0.1
    law = kernel(problem.process, tt.SiteLogits.of(rough.to(dtype)), problem.states, 0.5, 0.45)
    assert (site_log_probs(law, problem).exp().sum(-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize(("t", "s"), [(1.0, 0.9), (0.7, 0.3), (0.4, 0.0), (0.05, 0.01), (1.0, 0.0)])
@both
def test_tweedie_is_the_exact_law_of_a_site_given_the_state(process, t, s):
    problem = table(process, 3, 2)
    now, then, between = (site_noise(problem.process, *interval) for interval in ((t,), (s,), (t, s)))
    now, then = now[:3], then[:3]
    first = torch.einsum("ab,av,vi,bj->ijv", problem.p0, then, between, now)
    second = torch.einsum("ab,ai,bv,vj->ijv", problem.p0, now, then, between)
    joint = torch.stack([first, second], -2).flatten(0, 1)
    expected = joint / joint.sum(-1, keepdim=True)
    got = site_log_probs(step(problem, tt.tweedie, scores(problem)[0], t, s), problem).exp()
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


def jump_probabilities(law, problem):
    """P(x -> y), the whole state, for y = x with site d set to v [K, 2, V]; 0 for y = x."""
    x, size = problem.states, problem.process.vocabulary
    out = torch.zeros(len(x), 2, size, dtype=torch.float64)
    for d in range(2):
        for v in range(size):
            y = x.clone()
            y[:, d] = v
            out[:, d, v] = torch.where(x[:, d] != v, law.log_prob(y).exp(), 0.0)
    return out


@pytest.mark.parametrize("condition", [False, True], ids=["base", "conditional"])
@pytest.mark.parametrize("t", [0.2, 0.5, 0.9])
@each_pair
def test_short_steps_jump_at_the_reverse_rate_to_first_order(process, kernel, t, condition):
    problem = table(process, 3, 2)
    p0 = conditional(problem) if condition else problem.p0
    rate = reverse_rates(problem, p0, t)

    def error(h):
        law = step(problem, kernel, scores(problem)[condition], t, t - h)
        return float((jump_probabilities(law, problem) / h - rate).abs().max() / rate.max())

    assert error(1e-4) < 5e-3
    assert 1.8 < error(2e-4) / error(1e-4) < 2.2


@pytest.mark.parametrize(("t", "s"), INTERVALS)
def test_masking_euler_of_the_base_is_tweedie(t, s):
    problem = table(tt.Masking, 3, 2)
    euler, tweedie = (
        site_log_probs(step(problem, kernel, scores(problem)[0], t, s), problem).exp()
        for kernel in (tt.euler, tt.tweedie)
    )
    torch.testing.assert_close(euler, tweedie, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("t", [0.2, 0.7])
def test_euler_holds_with_exp_of_minus_the_integrated_rate(t):
    problem = table(tt.Uniform, 3, 2)
    s = t - 0.1
    rate = reverse_rates(problem, problem.p0, t).sum(-1) / float(problem.process.schedule(t).rate)
    noise = float(problem.process.schedule(t).value - problem.process.schedule(s).value)
    law = step(problem, tt.euler, scores(problem)[0], t, s)
    torch.testing.assert_close(law.odds.log_hold, -noise * rate, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("t", [0.2, 0.7])
def test_tau_leaping_moves_when_exactly_one_jump_arrives(t):
    problem = table(tt.Uniform, 3, 2)
    s = t - 0.1
    noise = float(problem.process.schedule(t).value - problem.process.schedule(s).value)
    each_jump = noise * reverse_rates(problem, problem.p0, t) / float(problem.process.schedule(t).rate)
    expected = each_jump * torch.exp(-each_jump.sum(-1, keepdim=True))
    got = site_log_probs(step(problem, tt.tau_leaping, scores(problem)[0], t, s), problem).exp()
    here = problem.states[..., None]
    torch.testing.assert_close(got.scatter(-1, here, 0.0), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("process", "kernel"), [(p, k) for p in PROCESSES for k in KERNELS if p.bridge_keeps_support or k is not tt.tweedie]
)
def test_rate_level_guidance_keeps_the_support_of_the_base(process, kernel):
    problem = table(process, 3, 2)
    for t, s in ((1.0, 0.9), (0.5, 0.4), (0.2, 0.05), (0.5, 0.0)):
        base = site_log_probs(step(problem, kernel, scores(problem)[0], t, s), problem)
        proposal = site_log_probs(step(problem, kernel, guided(problem, 8.0), t, s), problem)
        assert ((base > -torch.inf) == (proposal > -torch.inf)).all()


def test_a_proposal_that_would_lose_the_support_of_the_base_is_refused():
    model = table(tt.Uniform, 3, 2).model()
    with pytest.raises(tt.InvalidInput, match=r"beta = 8\.0.*lose states of the base"):
        tt.Tempered(model, 2.0, beta=8.0, kernel=tt.tweedie)


@each
def test_guidance_never_reaches_what_the_base_cannot(kernel):
    problem = hard_table(tt.Masking)
    for t, s in ((1.0, 0.9), (0.5, 0.4), (0.5, 0.0)):
        base = site_log_probs(step(problem, kernel, scores(problem)[0], t, s), problem)
        proposal = site_log_probs(step(problem, kernel, guided(problem, 8.0), t, s), problem)
        assert (proposal[base == -torch.inf] == -torch.inf).all()


def test_masking_euler_waits_by_the_guided_total_rate():
    problem = table(tt.Masking, 3, 2)
    masked = meaningful(problem)
    slow = step(problem, tt.euler, scores(problem)[0], 0.5, 0.4).odds.log_hold[masked]
    fast = step(problem, tt.euler, guided(problem, 8.0), 0.5, 0.4).odds.log_hold[masked]
    base, given = (reverse_rates(problem, p0, 0.5)[masked] for p0 in (problem.p0, conditional(problem)))
    ratio = (base * (given / base) ** 8).sum(-1) / base.sum(-1)
    torch.testing.assert_close(fast / slow, ratio, rtol=1e-12, atol=1e-12)


@each_pair
def test_a_score_of_nan_is_an_error_that_names_the_step(process, kernel):
    def broken(x, t):
        return tt.SiteLogits.of(torch.full((*x.shape, 3), torch.nan, dtype=torch.float64))

    model = tt.Model(process(3), 2, broken)
    with pytest.raises(tt.InvalidWeights, match=r"t = 1 -> 0\.75"):
        tt.run(tt.Unweighted(model, broken, kernel=kernel), tt.uniform_grid(4))
