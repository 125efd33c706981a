"""Processes, laws, steps, mixtures and adapters of diffusions, each against quadrature, autograd or a closed form."""

import math

import pytest
import torch

import truetilt as tt
from problems import TOP
from truetilt import continuous as c
from truetilt.continuous.laws import normal_quantile
from truetilt.continuous.net_scores import own_time
from truetilt.smc.sampler import Stream

PROCESSES = (c.VP(), c.VP(0.5, 8.0), c.SubVP(), c.VE(), c.VE(0.1, 10.0))
KERNELS = (c.euler_maruyama, c.exponential, c.heun)
TIMES = (1.0, 0.7, 0.31, 0.05)
each_process = pytest.mark.parametrize("process", PROCESSES, ids=repr)
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def real(values):
    return torch.tensor(values, dtype=torch.float64)


def normals(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def observed(process=None, dimension=3, seed=0):
    """Three components with noises of their own, two coordinates seen."""
    z = normals(3, dimension + 2, seed=seed)
    p0 = c.GaussianMixture(z[:, 0].softmax(0), 1.5 * z[:, 1:-1], 0.3 + z[:, -1:].abs().expand(3, dimension))
    return c.Observed(process or c.VP(), p0, c.Observation([0.4, -0.2], (0, 2), 0.8))


def integral(f, low, high, n=20_000):
    """The midpoint rule."""
    h = (high - low) / n
    return sum(f(low + (k + 0.5) * h) for k in range(n)) * h


# processes


@each_process
def test_scale_and_noise_solve_the_forward_equation(process):
    for t in TIMES:
        log_mean = integral(process.drift, 0, t)
        assert math.log(process.mean(t)) == pytest.approx(log_mean, abs=1e-6)
        variance = integral(lambda r, t=t: process.diffusion(r) * (process.mean(t) / process.mean(r)) ** 2, 0, t)
        assert process.std(t) ** 2 == pytest.approx(variance, rel=1e-5)
    assert process.mean(0.0) == 1
    assert process.std(0.0) == 0


@each_process
def test_frozen_step_is_the_integral_it_says(process):
    for t, s in ((1.0, 0.9), (0.5, 0.1), (0.02, 0.0)):
        step = process.frozen(t, s)

        def carried(r, s=s):
            return process.mean(s) / process.mean(r)  # what a push at r has become at s

        assert step.scale == pytest.approx(carried(t), rel=1e-12)
        assert step.gain == pytest.approx(integral(lambda r: process.diffusion(r) * carried(r), s, t), rel=1e-6)
        assert step.std**2 == pytest.approx(integral(lambda r: process.diffusion(r) * carried(r) ** 2, s, t), rel=1e-6)


@each_process
def test_prior_is_what_much_noise_leaves(process):
    law = process.prior((4, 2))
    assert law.mean.shape == (4, 2)
    assert law.std == pytest.approx(process.std(1.0), rel=0.01)


def test_prior_gap_is_small_and_grows_when_noise_is_too_little():
    right, short = observed(c.VP()), observed(c.VP(0.1, 2.0))
    assert 0 < right.prior_gap(2.0) < 1e-3
    assert short.prior_gap(2.0) > 0.05


# laws


def test_extreme_uniforms_are_finite_and_symmetric():
    ends = normal_quantile(real([0.0, TOP, 0.5 - 2.0**-53, 0.5]))
    assert ends.isfinite().all()
    assert ends[0] == -ends[1]
    assert -8.4 < ends[0] < -8.2
    assert ends[2] < 0 < ends[3]
    assert ends[3] < 1e-15


def test_quantiles_invert_the_normal_distribution():
    u = real([1e-12, 1e-3, 0.2, 0.5, 0.77, 1 - 1e-9])
    assert torch.allclose(torch.special.ndtr(normal_quantile(u)), u, rtol=1e-12, atol=1e-14)


def test_gaussian_log_prob_is_torchs():
    law, y = c.Gaussian(normals(5, 3), 0.3), normals(5, 3, seed=1)
    assert torch.allclose(law.log_prob(y), torch.distributions.Normal(law.mean, 0.3).log_prob(y).sum(-1))


def test_gaussian_draws_have_its_moments():
    u = Stream(0).uniforms(0, 0, 1, 200_000).reshape(1, -1, 1)
    y = c.Gaussian(torch.full_like(u, 2.0), 0.5).sample(u)
    assert abs(float(y.mean()) - 2) < 5 * 0.5 / math.sqrt(u.numel())
    assert abs(float(y.var()) / 0.25 - 1) < 5 * math.sqrt(2 / u.numel())


def test_gaussian_takes_ancestors():
    law = c.Gaussian(normals(2, 4, 3), 0.1)
    assert torch.equal(law.take(torch.tensor([[3, 3], [0, 1]])).mean[0, 0], law.mean[0, 3])


# steps


@each_kernel
@each_process
def test_noise_of_a_step_depends_on_the_process_and_times_alone(kernel, process):
    problem, x = observed(process), 3 * normals(7, 3)
    scores = (problem.base, problem.conditional, c.Guided(problem.base, problem.conditional, 5.0))
    assert len({kernel(process, score, x, 0.6, 0.5).std for score in scores}) == 1


@each_process
def test_exponential_step_is_exact_where_there_is_no_score(process):
    x, t, s = normals(4, 2), 0.6, 0.2
    law = c.exponential(process, lambda y, r: torch.zeros_like(y), x, t, s)
    assert torch.allclose(law.mean, x * (process.mean(s) / process.mean(t)))


@each_kernel
@each_process
def test_steps_agree_with_the_exact_reverse_transition_of_a_gaussian(kernel, process):
    """x_s given x_t is Gaussian; a step's mean and variance differ from it by the square of its length."""
    p0 = c.GaussianMixture([1.0], [[0.7]], 0.6)
    x = real([[-0.4], [1.9]]) * math.hypot(0.6 * process.mean(0.5), process.std(0.5))

    def miss(t, s):
        law = kernel(process, lambda y, r: p0.noised(process.mean(r), process.std(r)).score(y), x, t, s)
        m, scale = process.mean(s), process.mean(t) / process.mean(s)
        before = m * m * 0.36 + process.std(s) ** 2
        noise = process.std(t) ** 2 - (scale * process.std(s)) ** 2
        gain = before * scale / (scale * scale * before + noise)
        mean = m * 0.7 + gain * (x - scale * m * 0.7)
        variance = before * (1 - gain * scale)
        unit = math.sqrt(variance)
        return max(float((law.mean - mean).abs().max()) / unit, abs(law.std**2 / variance - 1) * math.sqrt(t - s))

    wide, narrow = (miss(0.5, 0.5 - h) for h in (2e-3, 1e-3))
    assert narrow < 0.05
    assert 2.2 < wide / narrow < 3.5  # h^2 over the square root of h, which is the noise


def test_heun_asks_twice_and_does_not_ask_at_the_data():
    asked = []

    def score(x, t):
        asked.append(t)
        return -x

    c.heun(c.VP(), score, normals(2, 1), 0.5, 0.4)
    c.heun(c.VP(), score, normals(2, 1), 0.1, 0.0)
    assert asked == [0.5, 0.4, 0.1]


# mixtures


@pytest.mark.parametrize("t", [0.0, *TIMES])
def test_scores_and_potential_are_gradients_of_each_other(t):
    problem, x = observed(), 2 * normals(6, 3)
    law = problem.noised(problem.p0, t)
    assert torch.allclose(problem.base(x, t), c.gradient(lambda y, _: law.log_prob(y), x, t))
    slope = c.gradient(problem.potential, x, t)
    assert torch.allclose(problem.conditional(x, t), problem.base(x, t) + slope, atol=1e-9)


def test_mixture_density_is_the_sum_it_says():
    problem, x = observed(), normals(6, 3)
    normal = torch.distributions.Normal(problem.p0.means, problem.p0.std)
    by_hand = (normal.log_prob(x[:, None]).sum(-1).exp() @ problem.p0.weights).log()
    assert torch.allclose(problem.p0.log_prob(x), by_hand)


def line(low=-12.0, high=12.0, n=4801):
    return torch.linspace(low, high, n, dtype=torch.float64)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0, 8.0])
def test_target_and_log_z_are_those_of_quadrature(alpha):
    p0 = c.GaussianMixture([0.2, 0.5, 0.3], [[-1.0], [0.5], [2.5]], real([[0.4], [0.7], [0.2]]))
    problem = c.Observed(c.VP(), p0, c.Observation([0.9], (0,), 0.7))
    x = line()
    log_joint = p0.log_prob(x[:, None]) + alpha * problem.seen.log_likelihood(x[:, None])
    log_z = float((log_joint.logsumexp(0)) + math.log(x[1] - x[0]))
    assert problem.log_z(alpha) == pytest.approx(log_z, abs=1e-9)
    assert torch.allclose(problem.target(alpha).log_prob(x[:, None]), log_joint - log_z, atol=1e-8)
    assert problem.log_z_tempered(1.0) == pytest.approx(0, abs=1e-12)
    assert problem.log_z_tilted(alpha) - problem.log_z_tempered(alpha) == pytest.approx(
        (alpha - 1) * problem.log_evidence
    )


@pytest.mark.parametrize("process", [c.VP(), c.SubVP(), c.VE()], ids=repr)
def test_potential_and_true_drift_are_those_of_quadrature(process):
    """p_t(zeta|x) and E[p(zeta|X0)^alpha|x] as integrals over x_0; the tempered score is a difference of the latter."""
    p0 = c.GaussianMixture([0.3, 0.7], [[-1.0], [0.5]], 0.5)
    problem = c.Observed(process, p0, c.Observation([0.9], (0,), 0.7))
    x0, t, eps = line(), 0.35, 1e-5

    def log_expected(x, alpha):
        m, s = process.mean(t), process.std(t)
        log_prior = p0.log_prob(x0[:, None]) - 0.5 * ((x - m * x0) / s) ** 2
        log_tilted = log_prior + alpha * problem.seen.log_likelihood(x0[:, None])
        return float(log_tilted.logsumexp(0) - log_prior.logsumexp(0))

    for x in (-1.1, 0.2, 2.0):
        at = real([[x]])
        assert float(problem.potential(at, t)) == pytest.approx(log_expected(x, 1.0), abs=1e-8)
        slope = (log_expected(x + eps, 3.0) - log_expected(x - eps, 3.0)) / (2 * eps)
        drift = problem.true_tempered(3.0)(at, t) - problem.base(at, t)
        assert float(drift) == pytest.approx(slope, abs=1e-6)


def test_mixture_draws_have_its_moments():
    law, n = observed().target(2.0), 100_000
    x = law.draw(Stream(1).uniforms(0, 0, 1, 4 * n).reshape(n, 4))
    mean, covariance = law.moments()
    assert ((x.mean(0) - mean).abs() / (covariance.diagonal() / n).sqrt()).max() < 5.5
    assert torch.allclose(x.T.cov(), covariance, atol=0.05)
    assert law.draw(real([[0.0] * 4, [TOP] * 4])).isfinite().all()


# adapters


def net_of(problem, kind):
    """A network that is right: E[eps|x], E[v|x] or E[x_0|x] from the exact score, in float32 images."""

    def net(images, times, label=None):
        x, t = images.flatten(1).double(), float(times[0])
        m, s = problem.process.mean(t), problem.process.std(t)
        eps = -s * problem.base(x, t)
        x0 = (x - s * eps) / m
        return {"noise": eps, "data": x0, "velocity": m * eps - s * x0}[kind].float().reshape(images.shape)

    return net


@pytest.mark.parametrize("reads", [c.noise, c.velocity, c.data])
@pytest.mark.parametrize("process", [c.VP(), c.SubVP(), c.VE(0.1, 10.0)], ids=repr)
@pytest.mark.parametrize("batch", [None, 2])
def test_every_prediction_gives_the_same_score(reads, process, batch):
    problem, x = observed(process, 4), normals(2, 5, 4)
    score = c.NetScore(process, net_of(problem, reads.__name__), reads, (1, 2, 2), batch=batch)
    for t in (0.9, 0.3):
        assert torch.allclose(score(x, t), problem.base(x, t), rtol=1e-4, atol=1e-4)


def test_a_wrong_reading_gives_another_score():
    problem, x = observed(dimension=4), normals(5, 4)
    wrong = c.NetScore(problem.process, net_of(problem, "velocity"), c.noise)
    assert (wrong(x, 0.5) - problem.base(x, 0.5)).abs().max() > 0.1


def test_trained_steps_match_the_noise_and_not_the_time():
    process, steps = c.VP(), 1000
    table = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps, dtype=torch.float64), 0)
    clock = c.trained_steps(table)
    for t in (1.0, 0.5, 0.1):
        # this table is that process in a thousand steps, which lose log(1 - b) + b: 3.3 numbers by t = 1
        assert abs(clock(t, process) - (1000 * t - 1)) < 4
    slow = c.trained_steps(table**0.5)
    assert slow(0.2, process) > clock(0.2, process) + 50
    level = process.mean(0.2) ** 2
    assert abs(float(table[int(clock(0.2, process))]) - level) < 2e-3
    assert own_time(0.3, process) == 0.3


def test_a_diffusers_style_network_gets_numbers_conditions_and_a_record():
    class Answer:
        def __init__(self, sample):
            self.sample = sample

    seen = []

    def net(images, times, class_labels):
        seen.append((images.dtype, tuple(images.shape), times.tolist(), class_labels.tolist()))
        return Answer(0 * images)

    table = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)
    score = c.NetScore(c.VP(), net, c.noise, (1, 2, 2), c.trained_steps(table), {"class_labels": 7})
    assert torch.equal(score(normals(1, 2, 4), 0.5), torch.zeros(1, 2, 4).double())
    assert seen == [(torch.float32, (2, 1, 2, 2), [seen[0][2][0]] * 2, [7, 7])]
    assert abs(seen[0][2][0] - 499) < 3


def plane():
    """Two components in the plane, the first coordinate seen."""
    p0 = c.GaussianMixture([0.3, 0.7], [[-1.0, 2.0], [1.0, -1.0]], 0.5)
    return c.Observed(c.VP(), p0, c.Observation([0.2], (0,), 1.0))


def test_a_condition_is_that_of_one_state_and_the_network_is_asked_as_it_will_be_used():
    """Labels, token sequences and dropout as real networks have them; no split of the rows changes a bit."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.labels, self.dropout = torch.nn.Embedding(10, 4), torch.nn.Dropout(0.5)
            self.attention = torch.nn.MultiheadAttention(4, 1, batch_first=True)

        def forward(self, x, time, class_labels, encoder_hidden_states):
            asked = (x + self.labels(class_labels))[:, None]
            return (self.dropout(self.attention(asked, encoder_hidden_states, encoder_hidden_states)[0][:, 0]),)

    net = Net().train()
    told = {"class_labels": 3, "encoder_hidden_states": torch.ones(5, 4)}
    x = normals(2, 7, 4)
    found = [c.NetScore(c.VP(), net, condition=told, batch=4)(x[:, :n], 0.5)[:, :3] for n in (7, 3)]
    assert torch.equal(found[0], found[1])
    assert found[0].isfinite().all()
    assert net.training


def test_predictors_say_what_a_potential_must_return():
    x = normals(3, 2)
    layer = torch.nn.Linear(2, 5).double()
    with pytest.raises(tt.InvalidInput, match=r"returned \(3, 5\) for states \(3, 2\)"):
        c.Predictor(lambda x, t: 0 * x, lambda x, t: layer(x))(x, 0.5)
    with pytest.raises(tt.InvalidInput, match="returned float"):
        c.Predictor(lambda x, t: 0 * x, lambda x, t: 0.0)(x, 0.5)
    with pytest.raises(tt.InvalidInput, match="no gradient in x"):
        c.Predictor(lambda x, t: 0 * x, lambda x, t: layer(x.detach())[..., 0])(x, 0.5)


def test_the_two_sides_are_not_mixed():
    p = plane()
    tokens = tt.Model(tt.Masking(3), 2, p.base, p.base, p.potential)
    with pytest.raises(tt.InvalidInput, match=r"continuous.Tilted samples a continuous.Diffusion.*Model.*tt.Tilted"):
        c.Tilted(tokens, 2.0)
    with pytest.raises(tt.InvalidInput, match=r"Tilted samples a tt.Model of tokens.*Diffusion.*tt.continuous.Tilted"):
        tt.Tilted(p.model(), 2.0)
    with pytest.raises(tt.InvalidInput, match=r"tt\.continuous\.Tilted"):
        tt.sample(p.model(), alpha=2.0)
    with pytest.raises(tt.InvalidInput, match=r"not yet those of tt\.continuous"):
        tt.pilot(c.Tilted(p.model(), 2.0), tt.uniform_grid(3))


def test_a_score_of_another_dimension_names_the_step():
    p = plane()
    model = c.Diffusion(c.VP(), 3, p.base, p.conditional, lambda x, t: x.sum(-1))
    with pytest.raises(tt.InvalidInput, match=r"step t = 1 -> 0.5: the conditional score failed on states"):
        tt.run(c.Tilted(model, 2.0), tt.uniform_grid(2), particles=2)


def test_numbered_steps_need_variance_preserving_noise():
    clock = c.trained_steps([0.9, 0.5, 0.1])
    for process, t in ((c.VE(0.01, 50.0), 0.5), (c.SubVP(), 0.1)):
        with pytest.raises(tt.InvalidInput, match="use VP"):
            clock(t, process)


@pytest.mark.parametrize(
    ("grid", "words"), [((1.0, 0.5, 0.7, 0.0), "from 0.5 to 0.7 at step 1"), ((0.5, 0.2), "starts from noise")]
)
def test_a_limit_on_a_line_needs_a_whole_grid(grid, words):
    p = c.Observed(c.VP(), c.GaussianMixture([1.0], [[0.0]], 1.0), c.Observation([0.0], (0,), 1.0))
    with pytest.raises(tt.InvalidInput, match=words):
        c.line_flow(c.Tilted(p.model(), 2.0), grid, torch.linspace(-6, 6, 200))


def test_half_the_share_of_guidance_is_half_way():
    fk = c.Tilted(plane().model(), 5.0)
    assert [fk.leaned(share).beta(0.0) for share in (0.0, 0.5, 1.0)] == [1.0, 3.0, 5.0]
    with pytest.raises(tt.InvalidInput, match="share of guidance"):
        fk.leaned(1.5)


# bad input


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: c.VP(0.0, 20.0), "beta runs from 0.0"),
        (lambda: c.SubVP(2.0, 1.0), "beta runs from 2.0 to 1.0"),
        (lambda: c.VE(1.0, 0.5), "sigma runs from 1.0"),
        (lambda: c.VP().mean(1.5), "time is 1.5"),
        (lambda: c.Gaussian(torch.zeros(2), 0.0), "noise of a step is 0.0"),
        (lambda: c.Gaussian(torch.zeros(2), 0.1).towards(c.Gaussian(torch.zeros(2), 0.2), 1.0), "noises 0.1 and 0.2"),
        (lambda: c.GaussianMixture([1.0], [[0.0]], 0.0), "positive"),
        (lambda: c.GaussianMixture([1.0, -1.0], [[0.0], [1.0]], 1.0), "none negative"),
        (lambda: c.GaussianMixture([1.0], [0.0], 1.0), r"\[K, D\]"),
        (lambda: c.GaussianMixture([1.0], [[0.0, 1.0]], [1.0, 1.0, 1.0]), "standard deviations"),
        (lambda: c.Observation([0.0], (0, 1), 1.0), "one for each"),
        (lambda: c.Observation([0.0, 1.0], (1, 1), 1.0), "none twice"),
        (lambda: c.Observation([0.0], (0,), 0.0), "positive error"),
        (lambda: c.Observed(c.VP(), c.GaussianMixture([1.0], [[0.0]], 1.0), c.Observation([0.0], (1,), 1.0)), "count"),
        (lambda: observed().target(-1.0), "alpha is -1"),
        (lambda: c.Diffusion(c.VP(), 0, lambda x, t: x), "dimension is 0"),
        (lambda: c.Guided(None, None, -1.0), "beta is -1"),
        (lambda: c.trained_steps([0.1, 0.5]), "falls strictly"),
        (lambda: c.NetScore(c.VP(), lambda x, t: x)(normals(2, 3), 0.0), "no score at t = 0"),
        (lambda: c.NetScore(c.VP(), lambda x, t: x, shape=(2, 2))(normals(2, 3), 0.5), "holds 4 numbers, a state 3"),
        (lambda: c.NetScore(c.VP(), lambda x, t: x[:, :1])(normals(2, 3), 0.5), "returned .2, 1. for .2, 3."),
        (lambda: c.gradient(lambda x, t: x.detach().sum(-1), normals(2, 3), 0.5), "no gradient"),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(tt.InvalidInput, match=words):
        make()
