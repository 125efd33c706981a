"""Diffusions under the sampler of the discrete side: exact limits on a line, orders of convergence, and wrong variants.

`line_flow` gives the answer of infinitely many particles, so time error is compared without noise; where particles are
drawn, the 72 z-scores together fail by chance with probability 5e-7 (problems.z_limit).
"""

import ast
import inspect
import math
from dataclasses import dataclass, replace

import pytest
import torch

import truetilt as tt
from problems import z_limit
from test_architecture import MODULES, imports, room
from truetilt import continuous as c
from truetilt.continuous.on_clock import Increment
from truetilt.core.types import Particles
from truetilt.targets.on_clock import FULL, ClockMove, Proposal, powers

PROCESS = c.VP(1.0, 20.0)  # more noise at the end than the default, so that few points resolve a step
ALPHA = 3.0
KERNELS = (c.euler_maruyama, c.exponential, c.heun)
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def problem():
    p0 = c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5)
    return c.Observed(PROCESS, p0, c.Observation([0.8], (0,), 1.0))


def limit(fk, steps, reach=6.0):
    points = 1 + math.ceil(2 * reach / (0.9 * math.sqrt(PROCESS.beta_min / steps)))
    return c.line_flow(fk, tt.uniform_grid(steps), torch.linspace(-reach, reach, points, dtype=torch.float64))


def guided(p, beta, kernel=c.euler_maruyama):
    return c.Unweighted(p.model(), c.Guided(p.base, p.conditional, beta), kernel=kernel)


def mean_of(law):
    return float(law.moments()[0])


def identity(x):
    return x


# limits and orders

VALUES = {
    "edges": lambda p, k: (c.Tempered(p.model(), ALPHA, 1.0, kernel=k), p.log_z_tempered(ALPHA)),
    "edges, guided": lambda p, k: (c.Tempered(p.model(), ALPHA, 2.0, kernel=k), p.log_z_tempered(ALPHA)),
    "girsanov": lambda p, k: (c.Girsanov(p.model(), ALPHA, 2.0, kernel=k), p.log_z_tempered(ALPHA)),
    "tilted": lambda p, k: (c.Tilted(p.model(), ALPHA, kernel=k), p.log_z_tilted(ALPHA)),
    "tilted, whole": lambda p, k: (c.Tilted(p.model(), ALPHA, FULL, kernel=k), p.log_z_tilted(ALPHA)),
    "tilted, leaned": lambda p, k: (c.Tilted(p.model(), ALPHA, kernel=k).leaned(), p.log_z_tilted(ALPHA)),
    "steered": lambda p, k: (c.Steered(p.model(), p.potential, ALPHA, kernel=k), p.log_z(ALPHA)),
    "twisted": lambda p, k: (
        c.Steered(p.model(), p.potential, ALPHA, proposal=c.Predictor(p.base, p.potential, lambda t: 2 - t), kernel=k),
        p.log_z(ALPHA),
    ),
}


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        (name, k)
        for name in VALUES
        for k in KERNELS
        if k is not c.heun or name in {"edges, guided", "girsanov", "tilted"}
    ],
)
def test_the_mean_of_z_hat_converges_to_z_with_order_one(name, kernel):
    fk, log_z = VALUES[name](problem(), kernel)
    coarse, fine = (limit(fk, steps) for steps in ((80, 160) if kernel is c.heun else (40, 80)))
    errors = [line.log_z - log_z for line in (coarse, fine)]
    assert 0.8 < math.log2(errors[0] / errors[1]) < 1.35
    assert abs(2 * errors[1] - errors[0]) < 0.12 * abs(errors[0])  # extrapolated, what is left is of order two
    exact = mean_of(problem().target(ALPHA))
    means = [line.expectation(identity) - exact for line in (coarse, fine)]
    assert abs(2 * means[1] - means[0]) < 3e-3
    assert abs(means[1]) < 0.02


@each_kernel
def test_guidance_is_right_at_one_and_wrong_beyond(kernel):
    p = problem()
    for beta, low, high in ((1.0, 0.0, 2e-3), (ALPHA, 0.05, 0.08)):
        coarse, fine = (limit(guided(p, beta, kernel), steps) for steps in (40, 80))
        found = 2 * fine.expectation(identity) - coarse.expectation(identity)
        assert low <= abs(found - mean_of(p.target(beta))) < high


@each_kernel
def test_the_true_tempered_drift_hits_the_target_without_weights(kernel):
    p = problem()
    fk = c.Unweighted(p.model(), p.true_tempered(ALPHA), kernel=kernel)
    coarse, fine = (limit(fk, steps).expectation(identity) for steps in (40, 80))
    assert abs(2 * fine - coarse - mean_of(p.target(ALPHA))) < 2e-3


def gaussian(observation=0.9):
    return c.Observed(PROCESS, c.GaussianMixture([1.0], [[0.3]], 0.8), c.Observation([observation], (0,), 0.6))


def reverse_moments(p, beta, steps=400):
    """Mean and variance of the guided diffusion of a Gaussian, by the ordinary equations they solve (Runge-Kutta)."""
    laws = ((1 - beta, p.p0), (beta, p.conditional_law))

    def slope(t, mean, variance):
        inverse = [(w, law.noised(PROCESS.mean(t), PROCESS.std(t))) for w, law in laws]
        rate = sum(w / float(law.variances) for w, law in inverse)
        pull = sum(w * float(law.means / law.variances) for w, law in inverse)
        g2 = PROCESS.diffusion(t)
        back = -PROCESS.drift(t) - g2 * rate
        return back * mean + g2 * pull, 2 * back * variance + g2

    state, h = (0.0, 1.0), 1 / steps
    for k in range(steps):
        t = 1 - k * h
        k1 = slope(t, *state)
        k2 = slope(t - h / 2, *(v + h / 2 * d for v, d in zip(state, k1, strict=True)))
        k3 = slope(t - h / 2, *(v + h / 2 * d for v, d in zip(state, k2, strict=True)))
        k4 = slope(max(0.0, t - h), *(v + h * d for v, d in zip(state, k3, strict=True)))
        each = zip(state, k1, k2, k3, k4, strict=True)
        state = tuple(v + h / 6 * (a + 2 * b + 2 * e + d) for v, a, b, e, d in each)
    return state


@pytest.mark.parametrize("alpha", [1.0, 2.0, 4.0])
def test_guidance_of_a_gaussian_misses_by_the_amount_the_moment_equations_give(alpha):
    p = gaussian()
    mean, variance = reverse_moments(p, alpha)
    lines = [limit(guided(p, alpha), steps) for steps in (60, 120)]
    means = [line.expectation(identity) for line in lines]
    squares = [line.expectation(torch.square) for line in lines]
    assert 2 * means[1] - means[0] == pytest.approx(mean, abs=1e-3)
    assert 2 * squares[1] - squares[0] - (2 * means[1] - means[0]) ** 2 == pytest.approx(variance, abs=2e-3)
    target_mean, target_variance = (float(v) for v in p.target(alpha).moments())
    if alpha == 1:
        assert (mean, variance) == pytest.approx((target_mean, target_variance), abs=1e-3)
    else:
        assert abs(variance / target_variance - 1) > 0.1 * (alpha - 1)  # guidance is wrong, and so far


@pytest.mark.parametrize("beta", [0.0, 0.5, 2.0, lambda t: 2 - t])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@each_kernel
def test_ratios_of_densities_have_mean_one_on_any_grid(alpha, beta, kernel):
    """alpha = 0 weighs by p/q and alpha = 1 by p_zeta/q: probability densities both, at any number of steps."""
    fk = c.Tempered(problem().model(), alpha, beta, kernel=kernel)
    assert limit(fk, 10, reach=12.0).log_z == pytest.approx(0, abs=1e-6)


def test_the_limit_does_not_depend_on_the_proposal():
    p = problem()
    edges = [limit(c.Tempered(p.model(), ALPHA, beta), 30).log_z for beta in (0.0, 1.0, 2.5)]
    assert edges == pytest.approx([edges[0]] * 3, abs=1e-6)
    rewards = [limit(c.Steered(p.model(), p.potential, ALPHA, proposal=q), 30).log_z for q in (None, p.conditional)]
    assert rewards[0] == pytest.approx(rewards[1], abs=1e-6)
    tilted = [limit(fk, 30).log_z for fk in (c.Tilted(p.model(), ALPHA), c.Tilted(p.model(), ALPHA).leaned())]
    assert tilted[0] == pytest.approx(tilted[1], abs=1e-6)


# Girsanov


def three_coordinates():
    z = torch.randn(3, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    p0 = c.GaussianMixture(z[:, 0].softmax(0), 1.5 * z[:, 1:], 0.5)
    return c.Observed(c.VP(), p0, c.Observation([0.4, -0.2], (0, 2), 0.8))


def one_step(fk, n=50, interval=(0.5, 0.48)):
    """The log-weights of a step from and to given states."""
    x, y = (torch.randn(1, n, 3, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in (1, 2))
    zeros = torch.zeros(1, n, dtype=torch.float64)
    return fk.move(Particles(x, zeros, {"log_tilt": zeros}), *interval).after(x + 0.1 * y)[0]


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.5, lambda t: 1 + t])
def test_girsanov_is_the_ratio_of_densities_for_euler_maruyama_and_only_then(beta):
    model = three_coordinates().model()
    ratios, integrals = (one_step(value(model, ALPHA, beta)) for value in (c.Tempered, c.Girsanov))
    assert torch.allclose(ratios, integrals, atol=1e-9)
    assert ratios.abs().max() > 0.05
    other = one_step(c.Tempered(model, ALPHA, beta, kernel=c.exponential))
    assert not torch.allclose(other, integrals, atol=1e-4)


def test_girsanov_asks_each_score_once_a_step():
    p, asked = three_coordinates(), []

    def counted(score):
        def ask(x, t):
            asked.append(t)
            return score(x, t)

        return ask

    model = replace(p.model(), base=counted(p.base), conditional=counted(p.conditional))
    one_step(c.Girsanov(model, ALPHA, 2.0))
    assert len(asked) == 2


# wrong variants: each must miss by far more than what it is compared with


@dataclass(frozen=True)
class PrintedIncrement(Increment):
    """Prop. D.1 as printed: plus one half of the squared drift."""

    def log_prob(self, y):
        return (self.drift * (y - self.x + 0.5 * self.elapsed * self.drift)).sum(-1) / self.diffusion


@dataclass(frozen=True)
class BackwardIncrement(Increment):
    """Time runs the wrong way: dY as the path is read from the data up, against drifts in elapsed time."""

    def log_prob(self, y):
        return (self.drift * (self.x - y - 0.5 * self.elapsed * self.drift)).sum(-1) / self.diffusion


@dataclass(frozen=True)
class WrongIntegrals(c.Girsanov):
    increment: type = Increment

    def propose(self, x, t, s):
        right = super().propose(x, t, s)
        wrong = ((k, self.increment(i.x, i.drift, i.diffusion, i.elapsed)) for k, i in right.ratios)
        return Proposal(right.law, tuple(wrong))


@pytest.mark.parametrize("increment", [PrintedIncrement, BackwardIncrement])
def test_girsanov_as_printed_or_backwards_fails(increment):
    """dP/dQ must have mean one; these miss it by nats, and the right one by 1e-6."""
    model = problem().model()
    assert limit(WrongIntegrals(model, 0.0, 0.5), 40).log_z == pytest.approx(0, abs=1e-6)
    assert abs(limit(WrongIntegrals(model, 0.0, 0.5, increment), 40).log_z) > 0.3


@dataclass(frozen=True)
class AlphaInProposal(c.Tempered):
    """alpha leans the proposal, and nothing is left to weigh."""

    def propose(self, x, t, s):
        right = super().propose(x, t, s)
        (_, p), *_ = right.ratios
        return Proposal(p.towards(self.law("conditional", self.model.conditional, x, t, s), self.alpha))


@dataclass(frozen=True)
class NoBaseOverProposal(c.Tempered):
    """The weight (p_zeta/p)^alpha without p/q."""

    def propose(self, x, t, s):
        right = super().propose(x, t, s)
        return Proposal(right.law, tuple((k, law) for k, law in right.ratios if law is not right.law))


@dataclass(frozen=True)
class AnotherNoise(c.Tempered):
    """The conditional step has five percent more noise than the base step."""

    def propose(self, x, t, s):
        p = self.law("base", self.model.base, x, t, s)
        near = self.law("conditional", self.model.conditional, x, t, s)
        p_zeta = c.Gaussian(near.mean, 1.05 * near.std)
        return Proposal(p_zeta, powers((1 - self.alpha, p), (self.alpha - 1, p_zeta)))


def test_alpha_in_the_proposal_is_guidance_and_fails():
    p, exact = problem(), mean_of(problem().target(ALPHA))
    wrong = limit(AlphaInProposal(p.model(), ALPHA, 2.0), 80)
    assert wrong.expectation(identity) == pytest.approx(limit(guided(p, ALPHA), 80).expectation(identity), abs=1e-9)
    right = limit(c.Tempered(p.model(), ALPHA, 2.0), 80)
    assert abs(right.expectation(identity) - exact) < 0.01 < 0.05 < abs(wrong.expectation(identity) - exact)


def test_a_weight_without_base_over_proposal_fails():
    p = problem()
    wrong = limit(NoBaseOverProposal(p.model(), ALPHA, 2.0), 40)
    assert abs(wrong.log_z - p.log_z_tempered(ALPHA)) > 1


def test_two_noises_over_one_step_have_no_limit():
    p = problem()
    errors = [limit(AnotherNoise(p.model(), ALPHA), steps).log_z - p.log_z_tempered(ALPHA) for steps in (80, 160)]
    assert abs(errors[1]) > 1.5 * abs(errors[0]) > 1  # it grows with the number of steps

    def uneven(process, score, x, t, s):
        law = c.euler_maruyama(process, score, x, t, s)
        return c.Gaussian(law.mean, law.std * (1 + 0.01 * float(law.mean.mean())))

    with pytest.raises(tt.InvalidInput, match="a kernel's noise must depend"):
        tt.run(c.Tempered(p.model(), ALPHA, kernel=uneven), tt.uniform_grid(4), particles=4)


def test_dropping_the_final_weights_fails():
    p = problem()
    result = tt.run(c.Tilted(p.model(), ALPHA), tt.uniform_grid(80), particles=20_000, resample=tt.never)
    exact, spread = (float(v) for v in p.target(ALPHA).moments())
    error = math.sqrt(spread / float(result.final_ess))
    assert abs(float(result.expectation(lambda x: x[..., 0])) - exact) < 5 * error + 2e-3  # and the grid's own error
    assert abs(float(result.particles.mean()) - exact) > 20 * error


# particles


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("resample", [tt.never, tt.adaptive(tt.systematic, 0.5), tt.partial(tt.multinomial, 3)])
def test_particles_estimate_the_limit_without_bias(name, resample):
    """E[Z-hat h] is the flow's on the same grid, for any number of particles: h = 1, x and x^2."""
    fk, _ = VALUES[name](problem(), c.euler_maruyama)
    steps, populations = 12, 1500
    line = limit(fk, steps)
    result = tt.run(fk, tt.uniform_grid(steps), particles=8, populations=populations, resample=resample, seed=3)
    for h in (torch.ones_like, identity, torch.square):
        each = (result.log_weights.exp() * h(result.particles[..., 0])).mean(-1)
        exact = math.exp(line.log_z) * line.expectation(h)
        z = float((each.mean() - exact) / (each.std() / math.sqrt(populations)))
        assert abs(z) < z_limit(3 * 24)


@pytest.mark.parametrize("process", [c.SubVP(), c.VE(0.02, 15.0)], ids=repr)
@pytest.mark.parametrize("kernel", [c.euler_maruyama, c.exponential])
def test_other_processes_reach_the_target_as_steps_grow(process, kernel):
    """Two numbers of steps extrapolated to none left: three means and log Z, with Student t over 24 populations.

    16 comparisons of |t| < 7 at 23 degrees of freedom raise a false alarm with probability 6e-6.
    """
    p = replace(three_coordinates(), process=process)
    fk, exact = c.Tilted(p.model(), 4.0, kernel=kernel).leaned(), p.target(4.0).moments()[0]
    found = []
    for seed, steps in ((0, 40), (1, 80)):
        result = tt.run(fk, tt.uniform_grid(steps), particles=200, populations=24, seed=seed)
        means, log_z = result.expectation_interval(identity), result.log_z_interval()
        found.append((means.estimate - exact, means.stderr, log_z.estimate - p.log_z_tilted(4.0), log_z.stderr))
    (m1, s1, z1, e1), (m2, s2, z2, e2) = found
    assert ((2 * m2 - m1).abs() < 7 * (4 * s2**2 + s1**2).sqrt()).all()
    assert abs(2 * z2 - z1) < 7 * math.hypot(2 * e2, e1)


def test_the_result_is_that_of_the_discrete_side(tmp_path):
    p = three_coordinates()
    fk, grid = c.Tilted(p.model(), 4.0), tt.uniform_grid(20)
    result = tt.run(fk, grid, particles=64, populations=16, seed=5)
    assert type(result) is tt.Result
    assert result.particles.shape == (16, 64, 3)
    assert isinstance(result.trust(), tt.Trust)
    assert result.log_z_interval(0.999).low < p.log_z_tilted(4.0) + 0.1
    assert result.draw(10).shape == (10, 3)
    assert result.draw_independent().shape == (16, 3)
    assert result.settings["model"]["name"] == "Tilted"
    again = tt.Result.load(result.save(tmp_path))
    assert torch.equal(again.particles, result.particles)


def test_no_chunk_population_or_repetition_changes_a_bit():
    fk, grid = c.Tempered(three_coordinates().model(), 2.0, 1.5), tt.uniform_grid(10)
    whole = tt.run(fk, grid, particles=20, populations=3, seed=1)
    chunked = tt.run(fk, grid, particles=20, populations=3, seed=1, chunk=7)
    alone = tt.run(fk, grid, particles=20, seed=1, first_population=2)
    assert torch.allclose(whole.log_weights, chunked.log_weights, atol=1e-12)  # matrix products differ with the batch
    assert torch.allclose(whole.particles[2], alone.particles[0], atol=1e-12)
    assert torch.equal(whole.particles, tt.run(fk, grid, particles=20, populations=3, seed=1).particles)


def test_systematic_draws_spread_the_first_draw_evenly():
    fk = c.Unweighted(three_coordinates().model(), lambda x, t: torch.zeros_like(x))
    start = fk.start((1, 64), 1.0)
    u, spare = (tt.Stream(k).uniforms(0, 0, 1, 64 * 3).reshape(1, 64, 3) for k in (0, 1))
    y = start.law.sample(tt.systematic_draws(u, start.labels, spare))
    ranks = (torch.special.ndtr(y) * 64).floor().sort(1).values
    assert torch.equal(ranks[0], torch.arange(64).double()[:, None].expand(64, 3))
    result = tt.run(c.Tilted(problem().model(), 2.0), tt.uniform_grid(20), particles=500, couple=tt.systematic_draws)
    assert abs(result.log_z - problem().log_z_tilted(2.0)) < 0.2


def test_labels_are_equal_where_states_are():
    x = torch.tensor([[[0.1, 2.0], [0.1, 2.0], [0.2, 2.0]]], dtype=torch.float64)
    zeros = torch.zeros(1, 3, dtype=torch.float64)
    labels = ClockMove(x, zeros, lambda y: Proposal(c.Gaussian(y, 1.0)), None).labels
    assert torch.equal(labels[0, 0], labels[0, 1])
    assert not torch.equal(labels[0, 0], labels[0, 2])


# bad input


def broken(at, value=math.nan, shape=None):
    def score(x, t):
        out = torch.full_like(x, value) if t <= at else -x
        return out[..., :shape] if shape is not None and t <= at else out

    return score


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("which", ["base", "conditional", "given", "proposal"])
def test_a_score_that_returns_nan_is_named_with_its_step(which, value):
    p, bad = three_coordinates(), broken(0.5, value)
    model = p.model()
    values = {
        "base": lambda: c.Tempered(replace(model, base=bad), 2.0),
        "conditional": lambda: c.Tilted(replace(model, conditional=bad), 2.0),
        "given": lambda: c.Unweighted(model, bad),
        "proposal": lambda: c.Steered(model, p.potential, proposal=bad),
    }
    words = rf"step t = 0.5 -> 0.25: the {which} score returned NaN or infinite values for 6 of 6"
    with pytest.raises(tt.InvalidWeights, match=words):
        tt.run(values[which](), tt.uniform_grid(4), particles=6)


def test_a_score_of_another_shape_is_named_with_its_step():
    model = replace(three_coordinates().model(), base=broken(0.5, 0.0, 2))
    words = r"step t = 0.5 -> 0.25: the base score returned \(6, 2\) for states \(6, 3\)"
    with pytest.raises(tt.InvalidInput, match=words):
        tt.run(c.Girsanov(model, 2.0), tt.uniform_grid(4), particles=6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: tt.run(c.Tilted(m, 2.0), (1.0, 0.5, 0.6, 0.0)), "from 0.5 to 0.6 at step 1"),
        (lambda m: tt.run(c.Tilted(m, 2.0), (1.0, 0.5)), "ends in data"),
        (lambda m: c.Tilted(m, -1.0), "alpha is -1"),
        (lambda m: c.Tempered(m, math.nan), "alpha is nan"),
        (lambda m: c.Tempered(m, 2.0, -1.0), "beta is -1"),
        (lambda m: c.Tilted(m, 2.0, beta=math.nan), "beta is nan"),
        (lambda m: c.Tempered(replace(m, conditional=None), 2.0), "Tempered needs a conditional"),
        (lambda m: c.Girsanov(replace(m, conditional=None), 2.0), "Girsanov needs a conditional"),
        (lambda m: c.Tilted(replace(m, potential=None), 2.0), "needs a conditional score and a potential"),
        (lambda m: c.Steered(m, m.potential, math.inf), "strength is inf"),
        (lambda m: c.Steered(m, m.potential, 1.0, lambda u: 0.5), "end at 1"),
        (lambda m: tt.run(c.Tilted(replace(m, potential=lambda x, t: x), 2.0), (1.0, 0.0)), "one number a state"),
        (lambda m: c.line_flow(c.Tilted(m, 2.0), (1.0, 0.0), torch.linspace(-1, 1, 5)), "a line has one"),
        (lambda m: c.line_flow(c.Tilted(m, 2.0), (1.0, 0.0), torch.zeros(5)), "rising in equal steps"),
        (
            lambda m: c.line_flow(c.Tilted(problem().model(), 2.0), tt.uniform_grid(50), torch.linspace(-6, 6, 9)),
            "take more points",
        ),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(tt.InvalidInput, match=words):
        make(three_coordinates().model())


# one core for both


def test_smc_result_and_trust_know_nothing_of_diffusions():
    core = {"core", "diffusion", "smc", "runtime", "targets", "result", "api", "feynman_kac"}
    found = [module for module in MODULES if room(module) in core]
    assert {room(module) for module in found} == core
    for module in found:
        assert not any(name.split(".")[0] == "continuous" for name in imports(module)), module


def test_diffusions_bring_no_sampler_of_their_own():
    """No particle is resampled, counted or judged in `continuous/`: it makes values that `trace` runs."""
    allowed = {"core", "diffusion", "targets", "continuous"}
    for module in (name for name in MODULES if room(name) == "continuous"):
        assert {room(name) for name in imports(module)} <= allowed, module
        called = {ast.unparse(n.func).split(".")[-1] for n in ast.walk(MODULES[module]) if isinstance(n, ast.Call)}
        assert not called & {"trace", "advance", "Result", "Trust", "systematic", "multinomial", "adaptive"}


def test_both_sides_are_built_of_the_same_parts():
    for value in (c.Tempered, c.Tilted, c.Steered, c.Unweighted, c.Girsanov):
        assert issubclass(value, tt.Tempered.__mro__[2])
        assert "move" not in vars(value)
        assert "start" not in vars(value)
    assert tt.Tempered.__mro__[2].__name__ == "Clockwork"
    assert "isinstance" not in inspect.getsource(tt.run)


def test_every_public_name_resolves_and_says_what_it_is():
    for name in c.__all__:
        assert getattr(c, name).__doc__
        assert not getattr(c, name).__doc__.startswith(f"{name}(")
    assert set(dir(c)) == set(c.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = c.no_such_name
