"""Guidance without a conditional net, by a gradient or by completions: near as guidance, exact as a proposal."""

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import nn

import truetilt as tt
from problems import clean, flow, hard_table, law_at, miss, table, tv, z_limit
from test_unbiased import z_scores
from truetilt.core.types import Particles
from truetilt.exact.flow import Limit, push_listed
from truetilt.models.monte_carlo_guidance import strata
from truetilt.targets.on_clock import Proposal

both = pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
timed = pytest.mark.parametrize("t", [0.1, 0.5, 1.0])
ALPHA = 2.0


def close(got, expected, atol=1e-12):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=atol)


def fields(states, length, seed=3):
    return torch.randn(length, states, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def taylor(problem, differentiable, dtype=torch.float64):
    return tt.Taylor(problem.process, problem.model().base, differentiable, dtype)


def curved(problem):
    """A log-value that is not linear in the one-hot of a site: h + t h^2 / 2, where h is a sum over the sites."""
    h = fields(problem.process.states, problem.length)

    def log_value(onehot, t):
        total = (onehot * h).sum((1, 2))
        return total + t * total**2 / 2

    return log_value


def completed(problem, seed=5, **options):
    """Monte-Carlo guidance by the table's own log-likelihood."""
    return tt.MonteCarloGuidance(
        problem.process, problem.model().base, problem.potential, ALPHA, seed=seed, **({"completions": 8} | options)
    )


def steered(problem, proposal, kernel=tt.euler):
    return tt.Steered(problem.model(), problem.potential, ALPHA, proposal=proposal, kernel=kernel)


# Taylor: what one gradient says.


@both
@timed
def test_of_a_linear_log_value_taylor_is_the_exact_predictor(process, t):
    problem = table(process, 3, 2)
    h = fields(problem.process.states, 2)
    guess = taylor(problem, lambda onehot, t: (onehot * h).sum((1, 2)) * (2 - t) + 5)
    exact = tt.Predictor(
        problem.process, problem.model().base, lambda x, t: (h[0, x[:, 0]] + h[1, x[:, 1]]) * (2 - t) + 5
    )
    got, expected = (score(problem.states, t).dense() for score in (guess, exact))
    close(got, expected, 1e-10)


@both
def test_of_a_curved_log_value_it_is_the_gradient_by_hand(process):
    problem, t = table(process, 3, 2), 0.5
    x, h = problem.states, fields(problem.process.states, 2)
    slope = h * (1 + t * (h[0, x[:, 0]] + h[1, x[:, 1]]))[:, None, None]
    ratio = slope[..., :3] - slope.gather(-1, x[..., None])
    close(taylor(problem, curved(problem))(x, t).dense(), problem.model().base(x, t).dense() + ratio)


def test_it_asks_the_network_once_about_all_neighbours_of_all_states():
    problem, seen = table(tt.Masking, 3, 2), []

    def watched(onehot, t):
        seen.append((tuple(onehot.shape), onehot.dtype, t))
        assert torch.equal(onehot.argmax(-1), problem.states)
        assert torch.equal(onehot.sum(-1), torch.ones(16, 2))
        return onehot[..., 0].sum(-1)

    taylor(problem, watched, torch.float32)(problem.states, 0.5)
    assert seen == [((16, 2, 4), torch.float32, 0.5)]


def test_it_answers_populations_of_particles():
    problem = table(tt.Masking, 3, 2)
    guess, x = taylor(problem, curved(problem)), problem.states[:8]
    close(guess(x.reshape(2, 4, 2), 0.5).dense().reshape(8, 2, 3), guess(x, 0.5).dense())


class Net(nn.Module):
    """A classifier that reads tokens by an embedding, with dropout, so that its mode shows."""

    def __init__(self, states, dtype):
        super().__init__()
        self.embedding = nn.Embedding(states, 8)
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 2))
        for n, weight in enumerate(self.parameters()):
            weight.data = torch.randn(weight.shape, generator=torch.Generator().manual_seed(n))
        self.to(dtype)

    def forward(self, onehot, t):
        return self.head(onehot @ self.embedding.weight).log_softmax(-1)[:, 0]


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_network_of_any_precision_under_any_switch(dtype, switch):
    """In eval mode, back in its own, and with no gradients left in it."""
    problem = table(tt.Masking, 3, 2)
    net = Net(4, dtype).train()
    guess = taylor(problem, net, dtype)
    with switch():
        got = guess(problem.states.clone(), 0.5).dense()
    assert net.training
    assert all(weight.grad is None for weight in net.parameters())
    assert not got.requires_grad
    precise = Net(4, torch.float64).eval()
    expected = taylor(problem, precise)(problem.states, 0.5).dense()
    torch.testing.assert_close(got, expected, rtol=0.0, atol={torch.bfloat16: 0.5, torch.float32: 1e-4}.get(dtype, 0))
    assert (got - problem.model().base(problem.states, 0.5).dense()).abs().max() > 1


def test_a_whole_run_goes_by_a_network_and_leaves_it_alone():
    problem, net = table(tt.Masking, 3, 2), Net(4, torch.float32)
    fk = steered(problem, taylor(problem, net, torch.float32), tt.tweedie)
    result = tt.run(fk, tt.uniform_grid(5), particles=20, populations=2, seed=0)
    assert result.log_weights.isfinite().all()
    assert not result.log_weights.requires_grad
    assert all(weight.grad is None for weight in net.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_another_precision_than_the_networks_is_named(dtype):
    problem = table(tt.Masking, 3, 2)
    with pytest.raises(tt.InvalidInput, match=f"one-hot states of {dtype}.*dtype of the network's weights"):
        taylor(problem, Net(4, torch.bfloat16), dtype)(problem.states, 0.5)


def test_an_error_of_the_network_itself_is_its_own():
    problem = table(tt.Masking, 3, 2)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        taylor(problem, Net(5, torch.float64))(problem.states, 0.5)


@pytest.mark.parametrize(
    ("words", "log_value"),
    [
        (r"is a Tensor of shape \(16, 2\) .* one number a state, a tensor \[16\]", lambda o, t: o.sum(-1)),
        ("is 3.0 for one-hot states", lambda o, t: 3.0),
        ("has no gradient in the one-hot", lambda o, t: o.detach().sum((1, 2))),
        ("has no gradient in the one-hot", lambda o, t: torch.zeros(16, requires_grad=True) * 1.0),
    ],
)
def test_a_log_value_of_another_form_is_named(words, log_value):
    problem = table(tt.Masking, 3, 2)
    with pytest.raises(tt.InvalidInput, match=words):
        taylor(problem, log_value)(problem.states, 0.5)


@pytest.mark.parametrize(
    "log_value",
    [
        lambda o, t: o[:, 0, 0] * math.nan,
        lambda o, t: o[:, 0, 0] + math.nan,  # its slope is finite
        lambda o, t: o[:, 0, 0].sqrt(),  # the slope of a root at 0
        lambda o, t: o[:, 0, 0] * 1e200 * 1e200,
    ],
)
def test_ratios_that_are_not_finite_are_refused_for_they_would_lose_states(log_value):
    problem = table(tt.Masking, 3, 2)
    with pytest.raises(tt.InvalidWeights, match=r"NaN or infinite for \d+ of 16 states at t = 0.5.*lose states"):
        taylor(problem, log_value)(problem.states, 0.5)


def test_where_the_log_value_is_impossible_the_base_is_asked():
    problem = table(tt.Masking, 3, 2)
    base = problem.model().base(problem.states, 0.5).dense()
    first = problem.states[:, 0] == 0
    got = taylor(problem, lambda o, t: (1 - o[:, 0, 0]).log() + o[:, 1, 0])(problem.states, 0.5).dense()
    assert torch.equal(got[first], base[first])
    assert not torch.equal(got[~first], base[~first])
    assert got.isfinite().all()


def test_junk_is_refused_where_it_is_given():
    problem = table(tt.Masking, 3, 2)
    base = problem.model().base
    for words, call in (
        ("the base knows 3 tokens", lambda: tt.Taylor(tt.Masking(5), base, lambda o, t: o)),
        (r"give a function of \(onehot, t\)", lambda: tt.Taylor(problem.process, base, lambda o: o)),
        ("dtype is", lambda: tt.Taylor(problem.process, base, lambda o, t: o, "float32")),
        ("dtype is torch.int64", lambda: tt.Taylor(problem.process, base, lambda o, t: o, torch.int64)),
        ("process is", lambda: tt.Taylor(3, base, lambda o, t: o)),
    ):
        with pytest.raises(tt.InvalidInput, match=words):
            call()


# Monte-Carlo guidance: what completions say.


def rows(problem, score, t=0.5):
    """The law of the clean token that a score gives [K, 2, S]."""
    return problem.process.posterior(score(problem.states, t), problem.states, t).dense().exp()


def one_shot_law(problem, x):
    """E[1(x0_d = v) p(zeta|x0)^alpha | x] for masked sites drawn apart from one another, normalised [2, S]."""
    p = problem.process.posterior(problem.model().base(x[None], 0.5), x[None], 0.5).dense()[0].exp()
    for d in range(2):
        if x[d] < 3:
            p[d] = torch.eye(3, dtype=torch.float64)[x[d]]
    joint = p[0][:, None] * p[1][None] * problem.likelihood**ALPHA
    return torch.stack([joint.sum(1), joint.sum(0)]) / joint.sum()


def test_many_completions_find_the_law_they_estimate():
    problem = table(tt.Masking, 3, 2)
    got = rows(problem, completed(problem, completions=20_000, share=1e-9))
    for n, x in enumerate(problem.states):
        hidden = x == 3
        assert ((got[n] - one_shot_law(problem, x))[hidden].abs() < 0.01).all()


def test_with_one_masked_site_that_law_is_the_exact_guidance():
    problem = table(tt.Masking, 3, 2)
    last = (problem.states == 3).sum(-1) == 1
    got = rows(problem, completed(problem, completions=20_000, share=1e-9))[last]
    expected = rows(problem, problem.true_tempered(ALPHA))[last]
    hidden = problem.states[last] == 3
    assert (got[hidden] - expected[hidden]).abs().max() < 0.01


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_support_of_the_base_is_kept_and_the_ratio_bounded(share):
    problem = hard_table(tt.Masking)
    p, q = rows(problem, problem.model().base), rows(problem, completed(problem, share=share))
    hidden = problem.states == 3
    assert torch.equal(p[hidden] > 0, q[hidden] > 0)
    assert (p[hidden] <= q[hidden] / share * (1 + 1e-12)).all()
    close(q[hidden].sum(-1), torch.ones(int(hidden.sum()), dtype=torch.float64))
    assert ((p[hidden] - q[hidden]).abs().max() < 1e-12) == (share == 1)


def test_a_state_gets_the_same_answer_in_any_company():
    problem = table(tt.Masking, 3, 2)
    guess, x = completed(problem), problem.states
    whole = guess(x, 0.5).dense()
    order = torch.arange(16).flip(0)
    assert torch.equal(guess(x[order], 0.5).dense(), whole[order])
    assert all(torch.equal(guess(x[n : n + 1], 0.5).dense()[0], whole[n]) for n in range(16))
    assert torch.equal(tt.Distinct(guess)(x.repeat(2, 1), 0.5).dense(), whole.repeat(2, 1, 1))
    assert not torch.equal(completed(problem, seed=6)(x, 0.5).dense(), whole)


def test_a_run_replays_bit_for_bit_in_chunks():
    problem = table(tt.Masking, 3, 2)
    fk = steered(problem, completed(problem), tt.tweedie)
    first, again = (tt.run(fk, tt.uniform_grid(6), particles=37, chunk=chunk, seed=1) for chunk in (None, 5))
    assert torch.equal(first.particles, again.particles)
    assert torch.equal(first.log_weights, again.log_weights)


def test_strata_are_uniform_one_in_each_part_and_apart_from_site_to_site():
    x = torch.arange(4000)[:, None] * torch.tensor([1, 1]) % 7919
    u = strata(x, 0, 8)
    assert torch.equal((u * 8).long().sort(-1).values, torch.arange(8).expand(4000, 2, 8))
    z = (u[:, :, 0] - 0.5).mean(0) * math.sqrt(12 * 4000)
    assert z.abs().max() < z_limit(10)
    both_sites = ((u[:, 0] - 0.5) * (u[:, 1] - 0.5)).reshape(-1)
    assert abs(float(both_sites.mean() / both_sites.std())) * math.sqrt(len(both_sites)) < z_limit(10)
    assert not torch.equal(strata(x, 1, 8), u)
    assert not torch.equal(strata(x.flip(0), 0, 8), u)


def test_the_reward_is_asked_about_clean_states_and_only_of_those_with_masks():
    problem, seen = table(tt.Masking, 3, 2), []

    def watched(x, t):
        seen.append((tuple(x.shape), int(x.max()), t))
        return problem.potential(x, t)

    guess = tt.MonteCarloGuidance(problem.process, problem.model().base, watched, ALPHA, completions=8)
    guess(problem.states, 0.5)
    assert seen == [((7 * 8, 2), 2, 0.0)]
    close(guess(problem.states[:3], 0.5).dense(), problem.model().base(problem.states[:3], 0.5).dense())
    assert len(seen) == 1


@pytest.mark.parametrize("strength", [-1.0, 0.0, 1.0])
def test_what_the_reward_forbids_is_forbidden_at_any_strength(strength):
    problem = table(tt.Masking, 3, 2)

    def no_zeros(x, t):
        return torch.where((x == 0).any(-1), -torch.inf, 1.0)

    share = 0.25
    guess = tt.MonteCarloGuidance(problem.process, problem.model().base, no_zeros, strength, 64, share)
    last = problem.states[:, 0] == 1  # the second site is all that is open, if it is
    q, p = (rows(problem, score)[last][-1, 1] for score in (guess, problem.model().base))
    close(q[0], share * p[0])


def test_completions_that_are_all_impossible_say_nothing():
    problem = table(tt.Masking, 3, 2)
    nowhere = tt.MonteCarloGuidance(
        problem.process, problem.model().base, lambda x, t: torch.full((len(x),), -torch.inf), completions=4000
    )
    hidden = problem.states == 3
    assert (rows(problem, nowhere)[hidden] - rows(problem, problem.model().base)[hidden]).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("error", "words", "reward"),
    [
        (tt.InvalidInput, r"shape \(56, 1\) for a batch of completions", lambda x, t: torch.zeros(len(x), 1)),
        (tt.InvalidInput, "what the reward returned is 'much'", lambda x, t: "much"),
        (tt.InvalidWeights, r"NaN or \+inf for 56 of 56 completions", lambda x, t: torch.full((len(x),), math.nan)),
        (tt.InvalidWeights, r"NaN or \+inf for 56 of 56 completions", lambda x, t: torch.full((len(x),), math.inf)),
    ],
)
def test_a_reward_that_is_none_is_named(error, words, reward):
    problem = table(tt.Masking, 3, 2)
    guess = tt.MonteCarloGuidance(problem.process, problem.model().base, reward, completions=8)
    with pytest.raises(error, match=words):
        guess(problem.states, 0.5)


def test_without_masks_there_is_nothing_to_complete():
    with pytest.raises(tt.InvalidInput, match=r"Uniform has no mask; take tt\.Taylor"):
        completed(table(tt.Uniform, 3, 2))


@pytest.mark.parametrize(
    ("words", "junk"),
    [
        ("share is 0", {"share": 0}),
        ("share is 1.5", {"share": 1.5}),
        ("share is nan", {"share": math.nan}),
        ("completions is 1", {"completions": 1}),
        ("completions is 2.5", {"completions": 2.5}),
        ("seed is -1", {"seed": -1}),
        ("strength is inf", {"strength": math.inf}),
        (r"give a function of \(x, t\)", {"reward": lambda x: x}),
    ],
)
def test_junk_settings_are_refused_by_name(words, junk):
    problem = table(tt.Masking, 3, 2)
    given = {"process": problem.process, "base": problem.model().base, "reward": problem.potential} | junk
    with pytest.raises(tt.InvalidInput, match=words):
        tt.MonteCarloGuidance(**given)


# As proposals: exact, whatever they guess.


def summed(fk, problem, steps):
    """The flow of a value, pair of states by pair: drawn by its law, weighed by what it says after the draw.

    `tt.flow` multiplies laws by their powers, where q * p / q is p before any number is looked at.
    """
    states, size, grid = problem.states, problem.process.states, tt.uniform_grid(steps)
    log_mass, aux = push_listed(fk.start((1,), grid[0]), torch.zeros(1, dtype=torch.float64), states, size)
    for t, s in pairwise(grid):
        alive = (log_mass > -torch.inf).nonzero().squeeze(-1)
        particles = Particles(states[alive], log_mass[alive], {k: v[alive] for k, v in aux.items()})
        log_mass, aux = push_listed(fk.move(particles, t, s), particles.log_w, states, size)
    return Limit(states, log_mass)


@dataclass(frozen=True)
class Uncorrected(tt.Steered):
    """A wrong variant: the guided draw weighed as if the base had made it."""

    def propose(self, x, t, s):
        return Proposal(super().propose(x, t, s).law)


CASES = [
    (process, kernel, name)
    for process in (tt.Masking, tt.Uniform)
    for kernel in (tt.euler, tt.tau_leaping, tt.tweedie)
    for name in ("taylor", "completions")
    if process is tt.Masking or (name == "taylor" and kernel is not tt.tweedie)
]


def proposal_of(name, problem):
    return taylor(problem, curved(problem)) if name == "taylor" else completed(problem)


@pytest.mark.parametrize(("process", "kernel", "name"), CASES)
def test_steered_with_a_guessed_proposal_has_the_flow_of_the_base(process, kernel, name):
    problem = table(process, 3, 2, seed=6)
    proposal = proposal_of(name, problem)
    plain = flow(steered(problem, None, kernel), problem, 5).log_mass
    close(flow(steered(problem, proposal, kernel), problem, 5).log_mass, plain)
    close(summed(steered(problem, None, kernel), problem, 5).log_mass, plain)
    close(summed(steered(problem, proposal, kernel), problem, 5).log_mass, plain)
    wrong = Uncorrected(problem.model(), problem.potential, ALPHA, proposal=proposal, kernel=kernel)
    assert tv(summed(wrong, problem, 5).law, plain.softmax(0)) > 0.03


@pytest.mark.parametrize("name", ["taylor", "completions"])
def test_hard_zeros_of_base_and_reward_are_kept(name):
    problem = hard_table(tt.Masking)
    plain = flow(steered(problem, None, tt.tweedie), problem, 5).log_mass
    close(summed(steered(problem, proposal_of(name, problem), tt.tweedie), problem, 5).log_mass, plain)


@pytest.mark.parametrize("steps", [1, 7])
def test_on_one_site_the_law_is_the_target_itself(steps):
    """One masked site has no time error: what is left is the proposal's, and there is none."""
    problem = table(tt.Masking, 5, 1)
    h = fields(6, 1)
    for proposal in (taylor(problem, lambda o, t: ((o * h).sum((1, 2)) + 1) ** 2), completed(problem)):
        found = summed(steered(problem, proposal, tt.tweedie), problem, steps)
        close(clean(found.law, problem), problem.target(ALPHA))
        close(found.log_z, problem.log_z(ALPHA))


@pytest.mark.parametrize("name", ["taylor", "completions"])
def test_on_two_sites_only_the_time_error_of_the_base_is_left(name):
    problem = table(tt.Masking, 3, 2, seed=6)
    errors = [
        tv(clean(summed(steered(problem, proposal_of(name, problem), tt.tweedie), problem, n).law, problem),
           problem.target(ALPHA))
        for n in (25, 50)
    ]  # fmt: skip
    assert errors[1] < 0.005
    assert 1.8 < errors[0] / errors[1] < 2.2


@pytest.mark.parametrize("name", ["taylor", "completions"])
def test_the_sampler_draws_from_them_without_bias(name):
    problem = table(tt.Masking, 3, 2, seed=6)
    fk = steered(problem, proposal_of(name, problem), tt.tweedie)
    assert z_scores(fk, problem, tt.adaptive(tt.systematic, 0.9), populations=5_000).abs().max() < z_limit(400)


def test_a_leaning_by_a_multiple_is_guided_by_it():
    problem = table(tt.Masking, 3, 2)
    guess = taylor(problem, curved(problem))
    base, x = problem.model().base, problem.states
    leaning = tt.Guided(problem.process, base, guess, 2.5)(x, 0.5).dense()
    close(leaning, base(x, 0.5).dense() + 2.5 * (guess(x, 0.5).dense() - base(x, 0.5).dense()))


# As the conditional of a model: part of the target.


def relaxed_likelihood(problem, linear):
    """log p_t(zeta|x), exact at every state: interpolated between them linearly, or as the log of what is linear."""

    def log_value(onehot, t):
        joint, law = (law_at(problem, p, t) for p in (problem.p0 * problem.likelihood, problem.p0))
        value = (joint / law).log() if linear else joint / law
        between = torch.einsum("bi,bj,ij->b", onehot[:, 0], onehot[:, 1], value)
        return between if linear else between.log()

    return log_value


def tempered(problem, conditional):
    model = problem.model()
    return tt.Tempered(tt.Model(model.process, 2, model.base, conditional), ALPHA, kernel=tt.tweedie)


def test_as_a_conditional_it_is_the_exact_predictor_where_the_log_value_is_linear_in_each_site():
    problem = table(tt.Masking, 3, 2, seed=6)
    exact = tt.Predictor(problem.process, problem.model().base, problem.potential)
    guess = taylor(problem, relaxed_likelihood(problem, linear=True))
    close(*(flow(tempered(problem, score), problem, 9).log_mass for score in (guess, exact)))


def test_as_a_conditional_a_guess_changes_the_target_and_as_a_proposal_it_does_not():
    """At the states both know the same classifier; only its slopes between them differ."""
    problem = table(tt.Masking, 3, 2, seed=6)
    guess = taylor(problem, relaxed_likelihood(problem, linear=False))
    exact = tt.Predictor(problem.process, problem.model().base, problem.potential)
    assert miss(tempered(problem, exact), problem, ALPHA, 100) < 0.005
    assert miss(tempered(problem, guess), problem, ALPHA, 100) > 0.02
    assert miss(steered(problem, guess, tt.tweedie), problem, ALPHA, 100) < 0.005
