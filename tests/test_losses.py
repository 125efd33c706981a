"""Losses on enumerated toys: the minimum is known, it is at the truth, and training finds it; wrong losses do not.

No test here draws: expectations over x_0 and x_t are sums over every pair of states, by hand (`problems`).
"""

import math

import pytest
import torch

import problems
import truetilt as tt
from truetilt.training import losses
from truetilt.training.losses import Noise, Noised

BOTH = pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
TIMES = (0.2, 0.5, 0.9)
V = 3


def pairs(problem, p0, t, joint=None):
    """Every (x_0, x_t) of two sites and its probability."""
    q = problems.site_noise(problem.process, t)[:V] if joint is None else joint
    law = torch.einsum("ab,ai,bj->abij", p0, q, q).reshape(V**2, -1)
    clean, states = torch.cartesian_prod(torch.arange(V), torch.arange(V)), problem.states
    x0 = clean.repeat_interleave(len(states), 0)
    x = states.repeat(len(clean), 1)
    noise = Noise.at(problem.process, torch.full((len(x),), t, dtype=torch.float64))
    return Noised(x0, x, noise), law.reshape(-1), torch.arange(len(states)).repeat(len(clean))


def truth(problem, t, conditional=False):
    """log p_t(y)/p_t(x) [K, 2, V] by hand."""
    p0 = problems.conditional(problem) if conditional else problem.p0
    return problems.ratios(problems.law_at(problem, p0, t), V).log()


def information(problem, p0, t):
    """I(X_0; X_t) by hand."""
    q = problems.site_noise(problem.process, t)[:V]
    joint = torch.einsum("ab,ai,bj->abij", p0, q, q).reshape(V**2, -1)
    return float(torch.xlogy(joint, joint / (joint.sum(0) * joint.sum(1, keepdim=True))).nansum())


def expected(loss, problem, p0, t, answer):
    """The mean loss when each state x gets its row of `answer`."""
    noised, law, row = pairs(problem, p0, t)
    return (law * torch.where(law > 0, loss(problem.process, answer[row], noised), 0.0)).sum()


def entropy(p):
    return -float(torch.xlogy(p, p).sum())


def sensitive(problem):
    """The entries a loss reads [K, 2, V]."""
    others = problem.states[..., None] != torch.arange(V)
    return problems.meaningful(problem)[..., None] & others


def gauss(nodes=60):
    """Nodes and weights on (0, 1) that crowd at 0."""
    import numpy as np

    s, w = np.polynomial.legendre.leggauss(nodes)
    s, w = (s + 1) / 2, w / 2
    return [(float(a) ** 2, float(b * 2 * a)) for a, b in zip(s, w, strict=True)]


@BOTH
@pytest.mark.parametrize("t", TIMES)
def test_at_the_truth_the_score_entropy_is_the_loss_of_information(process, t):
    problem = problems.table(process, V, 2)
    h = 1e-5
    falls = -(information(problem, problem.p0, t + h) - information(problem, problem.p0, t - h)) / (2 * h)
    assert float(expected(losses.score_entropy, problem, problem.p0, t, truth(problem, t))) == pytest.approx(
        falls, rel=1e-7
    )


@BOTH
@pytest.mark.parametrize("t", TIMES)
def test_the_truth_is_where_the_score_entropy_is_flat_and_least(process, t):
    problem = problems.table(process, V, 2)
    answer = truth(problem, t).requires_grad_()
    least = expected(losses.score_entropy, problem, problem.p0, t, answer)
    (slope,) = torch.autograd.grad(least, answer)
    assert float(slope.abs().max()) < 1e-12
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        away = torch.randn(answer.shape, generator=generator, dtype=torch.float64) * 0.3
        moved = answer.detach() + torch.where(sensitive(problem), away, 0.0)
        assert expected(losses.score_entropy, problem, problem.p0, t, moved) > least + 1e-4


@BOTH
def test_a_jump_that_is_certain_costs_nothing(process):
    """With one clean state s = r everywhere, and every term is 0: the constant is right."""
    p0 = torch.zeros(V, V, dtype=torch.float64)
    p0[1, 2] = 1.0
    problem = tt.Table(process(V), p0, torch.ones(V, V))
    law = problems.law_at(problem, p0, 0.4)
    answer = problems.ratios(law, V).log()
    noised, weight, row = pairs(problem, p0, 0.4)
    real = (weight > 0) & answer[row].isfinite().flatten(1).all(1)
    if process is tt.Masking:  # a token that never was has score 0, and 0 log 0 = 0
        real = weight > 0
        answer = answer.clamp(min=-700)
    value = losses.score_entropy(problem.process, answer[row], noised)[real]
    assert len(value) > 2
    assert float(value.abs().max()) < 1e-12


@BOTH
def test_a_free_table_learns_the_true_rates(process):
    problem, t = problems.table(process, V, 2), 0.6
    answer = torch.zeros(truth(problem, t).shape, dtype=torch.float64, requires_grad=True)
    fit(answer, lambda: expected(losses.score_entropy, problem, problem.p0, t, answer))
    found = answer.detach()
    if process is tt.Uniform:  # only differences within a row are read
        found = found - found.gather(-1, problem.states[..., None])
    miss = torch.where(sensitive(problem), found - truth(problem, t), 0.0)
    assert float(miss.abs().max()) < 1e-5


def fit(parameter, loss):
    """Minimise by L-BFGS in doubles."""
    optimizer = torch.optim.LBFGS(
        [parameter], max_iter=300, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)


@BOTH
def test_posterior_logits_learn_the_true_rates(process):
    problem, t = problems.table(process, V, 2, seed=3), 0.6
    logits = torch.zeros(len(problem.states), 2, V, dtype=torch.float64, requires_grad=True)
    row_noise = Noise.at(problem.process, torch.full((len(problem.states),), t, dtype=torch.float64))
    here = Noised(problem.states, problem.states, row_noise)

    def loss():
        if process is tt.Masking:
            return expected(losses.posterior_cross_entropy, problem, problem.p0, t, logits)
        return expected(losses.score_entropy, problem, problem.p0, t, losses.log_scores(problem.process, logits, here))

    fit(logits, loss)
    found = losses.log_scores(problem.process, logits.detach(), here)
    assert float(torch.where(sensitive(problem), found - truth(problem, t), 0.0).abs().max()) < 1e-5


def test_posterior_form_and_score_entropy_coincide_for_a_normalised_posterior():
    problem, t = problems.table(tt.Masking, V, 2), 0.3
    noised, _, _ = pairs(problem, problem.p0, t)
    logits = torch.randn(len(noised.x), 2, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    score = losses.score_entropy(problem.process, losses.log_scores(problem.process, logits, noised), noised)
    assert score.allclose(losses.posterior_cross_entropy(problem.process, logits, noised), rtol=1e-12, atol=1e-12)


@BOTH
def test_scores_of_logits_are_the_process_s_own(process):
    made = process(V)
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(4, 2, V, generator=generator, dtype=torch.float64)
    x = torch.randint(0, made.states, (4, 2), generator=generator)
    t = torch.tensor([0.1, 0.4, 0.7, 1.0], dtype=torch.float64)
    found = losses.log_scores(made, logits, Noised(x, x, Noise.at(made, t)))
    for i in range(4):
        row = tt.SiteLogits.of(torch.log_softmax(logits[i : i + 1], -1))
        assert found[i : i + 1].allclose(made.score(row, x[i : i + 1], float(t[i])).dense(), rtol=1e-12)


@BOTH
def test_noise_at_a_time_for_each_sample_is_the_process_s_own(process):
    made = process(V)
    generator = torch.Generator().manual_seed(3)
    x0 = torch.randint(0, V, (5, 40), generator=generator)
    u = torch.rand(5, 40, generator=generator, dtype=torch.float64)
    t = torch.tensor([1e-6, 0.1, 0.5, 0.9, 1.0], dtype=torch.float64)
    noised = losses.corrupt(made, x0, Noise.at(made, t), u)
    for i in range(5):
        assert noised.x[i].equal(made.corrupt(x0[i], float(t[i]), u[i]))


def whole_bound(problem, loss=losses.bound):
    """The bound at the truth, the time integrated; masking counts from all sites at t = 1."""
    total = 0.0
    for t, weight in gauss():
        joint = problems.site_noise(problem.process, t)[:V]
        if isinstance(problem.process, tt.Masking):
            share = -math.expm1(-float(problem.process.schedule(t).value)) / (1 - 1e-3)
            joint = torch.cat([(1 - share) * torch.eye(V), share * torch.ones(V, 1)], 1).double()
        noised, law, row = pairs(problem, problem.p0, t, joint)
        total += weight * float((law * loss(problem.process, truth(problem, t)[row], noised)).sum())
    return total


def test_for_masking_the_bound_at_the_truth_is_the_entropy():
    problem = problems.table(tt.Masking, V, 2)
    assert whole_bound(problem) == pytest.approx(entropy(problem.p0) / 2, rel=1e-6)


def test_for_uniform_the_bound_at_the_truth_is_the_entropy_and_the_prior_s_miss():
    problem = problems.table(tt.Uniform, V, 2)
    last = problems.law_at(problem, problem.p0, 1.0)
    miss = float(torch.xlogy(last, last * V**2).sum())
    assert whole_bound(problem) == pytest.approx((entropy(problem.p0) + miss) / 2, rel=1e-4)


def test_masks_counted_from_all_sites_hide_everything_at_time_one():
    made = tt.Masking(V)
    x0 = torch.zeros(1, 10_000, dtype=torch.int64)
    u = (torch.arange(10_000, dtype=torch.float64)[None] + 0.5) / 10_000
    for t, share in ((1.0, 1.0), (0.25, 0.25)):
        noise = Noise.at(made, torch.tensor([t], dtype=torch.float64))
        assert float((losses.corrupt_from_all(made, x0, noise, u).x == made.mask).double().mean()) == share
    assert float((losses.corrupt(made, x0, Noise.at(made, torch.ones(1).double()), u).x == made.mask).sum()) == 9990


@BOTH
def test_the_guide_learns_the_conditional_rates_over_the_base(process):
    problem, t = problems.table(process, V, 2), 0.5
    given = problems.conditional(problem)
    base = problem.process.posterior(problem.model().base(problem.states, t), problem.states, t).dense()
    wanted = truth(problem, t, conditional=True) - truth(problem, t)
    guide = torch.zeros_like(wanted, requires_grad=True)
    noised, law, row = pairs(problem, given, t)

    def cost(values):
        return (law * losses.deft_edges(problem.process, base[row], values[row], noised)).sum()

    fit(guide, lambda: cost(guide))
    found = guide.detach()
    if process is tt.Uniform:
        found = found - found.gather(-1, problem.states[..., None])
    assert float(torch.where(sensitive(problem), found - wanted, 0.0).abs().max()) < 1e-5
    least = expected(losses.score_entropy, problem, given, t, truth(problem, t, conditional=True))
    assert cost(guide).item() == pytest.approx(float(least), abs=1e-9)


def test_the_base_of_a_guide_stays_frozen():
    problem = problems.table(tt.Masking, V, 2)
    noised, _, _ = pairs(problem, problem.p0, 0.5)
    base = torch.zeros(len(noised.x), 2, V, requires_grad=True)
    guide = torch.zeros(len(noised.x), 2, V, requires_grad=True)
    losses.deft_edges(problem.process, base, guide, noised).sum().backward()
    assert base.grad is None
    assert guide.grad is not None


@BOTH
def test_the_potential_learns_the_law_of_the_label(process):
    problem, t = problems.table(process, V, 2), 0.5
    log_odds = torch.zeros(len(problem.states), 2, dtype=torch.float64, requires_grad=True)
    each = [pairs(problem, problem.p0 * f, t) for f in (problem.likelihood, 1 - problem.likelihood)]

    def cost():
        parts = [
            (law * losses.potential_cross_entropy(log_odds[row], torch.full_like(row, label))).sum()
            for label, (_, law, row) in enumerate(each)
        ]
        return torch.stack(parts).sum()

    fit(log_odds, cost)
    exact = problem.potential(problem.states, t)
    assert float((torch.log_softmax(log_odds.detach(), -1)[:, 0] - exact).abs().max()) < 1e-6
    p, weight = exact.exp(), problems.law_at(problem, problem.p0, t).flatten()
    least = -(weight * (torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p))).sum()
    assert cost().item() == pytest.approx(float(least), abs=1e-10)


def test_half_precision_answers_are_weighed_in_single():
    problem = problems.table(tt.Masking, V, 2)
    noised, _, _ = pairs(problem, problem.p0, 0.5)
    logits = torch.zeros(len(noised.x), 2, V, dtype=torch.bfloat16)
    assert losses.posterior_cross_entropy(problem.process, logits, noised).dtype == torch.float32
    assert losses.score_entropy(problem.process, logits, noised).dtype == torch.float32
    assert losses.potential_cross_entropy(logits[:, 0], noised.x0[:, 0]).dtype == torch.float32


def test_the_posterior_form_is_refused_for_uniform():
    problem = problems.table(tt.Uniform, V, 2)
    noised, _, _ = pairs(problem, problem.p0, 0.5)
    with pytest.raises(tt.InvalidInput, match="score entropy"):
        losses.posterior_cross_entropy(problem.process, torch.zeros(len(noised.x), 2, V), noised)


def test_wrong_without_its_weight_the_loss_is_no_bound():
    def unweighted(process, log_score, noised):
        noise = noised.noise
        return losses.bound(process, log_score, noised) / (noise.rate * noise.keep / noise.lost)

    problem = problems.table(tt.Masking, V, 2)
    assert abs(whole_bound(problem, unweighted) - entropy(problem.p0) / 2) > 0.1


@BOTH
def test_wrong_without_the_normalising_sum_the_truth_is_not_flat(process):
    def no_sum(made, log_score, noised):
        here = noised.x[..., None]
        total = log_score.exp() if process is tt.Masking else (log_score - log_score.gather(-1, here)).exp()
        total = total if process is tt.Masking else total.scatter(-1, here, 0.0)
        masked = (noised.x == V)[..., None] if process is tt.Masking else torch.ones_like(here, dtype=torch.bool)
        scale = noised.noise.rate if process is tt.Masking else noised.noise.rate / V
        return losses.score_entropy(made, log_score, noised) - torch.where(masked, total, 0.0).sum((1, 2)) * scale

    problem, t = problems.table(process, V, 2), 0.5
    answer = truth(problem, t).requires_grad_()
    (slope,) = torch.autograd.grad(expected(no_sum, problem, problem.p0, t, answer), answer)
    assert float(slope.abs().max()) > 1e-3


def test_wrong_with_revealed_sites_counted_the_minimum_is_missed():
    def everywhere(process, log_score, noised):
        """Every site counts as masked."""
        blind = noised._replace(x=torch.full_like(noised.x, process.mask))
        return losses.score_entropy(process, log_score, blind)

    problem, t = problems.table(tt.Masking, V, 2), 0.5
    right = expected(losses.score_entropy, problem, problem.p0, t, truth(problem, t))
    wrong = expected(everywhere, problem, problem.p0, t, truth(problem, t))
    assert abs(float(wrong) - float(right)) > 0.1
