"""No randomness: the exact limits of the models, against the target and against each other."""

import pytest
import torch

import truetilt as tt
from problems import clean, flow, guided, hard_table, miss, table, tv
from truetilt.core.types import Particles
from truetilt.exact.ctmc import jump_generator, transition
from truetilt.exact.flow import push_factored, push_listed
from truetilt.exact.joint import JointTempered, JointTilted
from truetilt.exact.tables import flat_index, noised
from truetilt.metrics.divergences import kl

BOTH = pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
ALPHAS = pytest.mark.parametrize("alpha", [0.5, 2.0, 4.0, 8.0])


def wild_potential(problem, seed=5):
    """Any function of (x, t) that ends in log p(zeta|x)."""
    bumps = torch.randn(problem.process.states**problem.length, generator=torch.Generator().manual_seed(seed)).double()

    def h(x, t):
        return problem.potential(x, 0.0) if t == 0 else (t * (3 - t)) * bumps[flat_index(x, problem.process.states)]

    return h


@BOTH
@ALPHAS
def test_exact_joint_transitions_hit_the_target_at_any_number_of_steps(process, alpha):
    problem = table(process, 3, 2)
    for steps in (1, 2, 7):
        for fk in (
            JointTempered(problem, alpha),
            JointTilted(problem, alpha, problem.potential, tt.Power(2.0)),
            JointTilted(problem, alpha, wild_potential(problem), tt.Power(0.0)),
        ):
            limit = flow(fk, problem, steps)
            assert tv(clean(limit.law, problem), problem.target(alpha)) < 1e-12
            log_z = problem.log_z_tempered(alpha) if isinstance(fk, JointTempered) else problem.log_z_tilted(alpha)
            assert abs(float(limit.log_z - log_z)) < 1e-12


@ALPHAS
def test_one_masked_site_is_exact_at_any_number_of_steps(alpha):
    problem = table(tt.Masking, 7, 1)
    for steps in (1, 3, 20):
        assert miss(tt.Tempered(problem.model(), alpha), problem, alpha, steps) < 1e-12
        assert miss(tt.Tilted(problem.model(), alpha), problem, alpha, steps) < 1e-12
        assert miss(guided(problem, alpha), problem, alpha, steps) < 1e-12  # a single reveal disagrees with nothing


@pytest.mark.filterwarnings("ignore:the model's potential is above 0")  # a wild one is, on the way
@BOTH
@ALPHAS
def test_any_potential_that_ends_in_the_likelihood_has_the_same_limit(process, alpha):
    problem = table(process, 3, 2)
    model = problem.model()
    wild = tt.Model(model.process, 2, model.base, model.conditional, wild_potential(problem))
    for fk in (tt.Tilted(model, alpha), tt.Tilted(wild, alpha, tt.Power(0.0)), tt.Tilted(model, alpha, tt.at_end)):
        coarse, fine = miss(fk, problem, alpha, 100), miss(fk, problem, alpha, 200)
        assert fine < 0.01
        assert 1.8 < coarse / fine < 2.2
    if process is tt.Masking or alpha <= 2:
        assert miss(tt.Tempered(model, alpha), problem, alpha, 200) < 0.01


@pytest.mark.parametrize("kernel", [tt.euler, tt.tweedie, tt.tau_leaping])
@pytest.mark.parametrize("guide", [tt.rate_level, tt.posterior_level])
@BOTH
def test_the_tempered_limit_does_not_depend_on_how_it_is_proposed(process, guide, kernel):
    problem = table(process, 3, 2, seed=3)
    model = problem.model()
    reference = flow(tt.Tempered(model, 2.0, 0.0, kernel=kernel), problem, 20)
    if process is tt.Uniform and guide is tt.rate_level and kernel is tt.tweedie:
        with pytest.raises(tt.InvalidInput, match="lose states of the base"):
            tt.Tempered(model, 2.0, 2.0, guide, kernel=kernel)
        return
    for beta in (0.3, 1.0, 2.0, 8.0, lambda t: 3 * t):
        limit = flow(tt.Tempered(model, 2.0, beta, guide, kernel=kernel), problem, 20)
        assert (limit.log_mass.exp() - reference.log_mass.exp()).abs().max() < 1e-12


@pytest.mark.parametrize("alpha", [2.0, 4.0, 8.0])
@pytest.mark.parametrize(
    ("process", "fk"), [(tt.Masking, tt.Tempered), (tt.Masking, tt.Tilted), (tt.Uniform, tt.Tilted)]
)
def test_time_error_halves_when_steps_double(process, fk, alpha):
    problem = table(process, 4, 2, seed=1)
    misses = [miss(fk(problem.model(), alpha), problem, alpha, steps) for steps in (50, 100, 200)]
    assert 1.8 < misses[0] / misses[1] < 2.2
    assert 1.8 < misses[1] / misses[2] < 2.2


@pytest.mark.parametrize("alpha", [4.0, 8.0])
def test_edge_ratios_fail_on_the_uniform_process_at_high_alpha(alpha):
    """The paper's weights under a time grid are worse than guidance there; the potential form is not."""
    problem = table(tt.Uniform, 10, 2)
    target = problem.target(alpha)
    edge, tilted, guidance = (
        float(kl(target, clean(flow(fk, problem, 100).law, problem)))
        for fk in (tt.Tempered(problem.model(), alpha), tt.Tilted(problem.model(), alpha), guided(problem, alpha))
    )
    assert edge > 10 * guidance
    assert tilted < guidance / 100


@BOTH
def test_steered_hits_the_reward_tilt_whatever_it_proposes(process):
    problem = table(process, 3, 2)
    model = problem.model()
    reward = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)

    def r(x, t):
        return problem.lookup(torch.nn.functional.pad(reward, (0, process is tt.Masking) * 2, value=0.3), x)

    target = problem.p0 * (2.0 * reward).exp()
    proposals = (None, tt.Guided(problem.process, model.base, model.conditional, 1.5))
    for ramp in (tt.Power(1.0), tt.at_end):
        for proposal in proposals:
            limit = flow(tt.Steered(model, r, 2.0, ramp, proposal), problem, 300)
            assert tv(clean(limit.law, problem), target / target.sum()) < 0.005
            assert abs(float(limit.log_z - target.sum().log())) < 0.01


def start(problem, given=False):
    """The law generation starts from: all masked, or exactly p_1 (given zeta)."""
    if isinstance(problem.process, tt.Masking):
        return torch.eye(problem.process.states**problem.length, dtype=torch.float64)[-1]
    return (problem.conditional_marginal(1.0) if given else problem.marginal(1.0)).reshape(-1)


def kfe(problem, score, begin, steps=200):
    return clean(tt.forward_equation(problem.process, score, begin, tt.uniform_grid(steps)), problem)


@BOTH
def test_guidance_with_alpha_one_hits_the_conditional_and_higher_alpha_misses(process):
    problem = table(process, 3, 2, seed=2)
    model = problem.model()
    misses = {}
    for alpha in (1.0, 2.0, 4.0, 8.0):
        score = tt.Guided(problem.process, model.base, model.conditional, alpha)
        misses[alpha] = tv(kfe(problem, score, start(problem)), problem.target(alpha))
    assert misses[1.0] < (1e-12 if process is tt.Masking else 1e-3)
    assert all(misses[alpha] > 0.02 for alpha in (2.0, 4.0, 8.0))


def test_corollary_condition_is_necessary():
    """If p_1 depends on zeta, guidance at alpha = 1 misses the conditional; from p_1(x|zeta) it would hit."""
    problem = table(tt.Uniform, 3, 2, seed=2, schedule=tt.LogLinear(0.6))
    model = problem.model()
    conditional = problem.target(1.0)
    assert tv(kfe(problem, model.conditional, start(problem)), conditional) > 0.02
    assert tv(kfe(problem, model.conditional, start(problem, given=True)), conditional) < 1e-4


@BOTH
@ALPHAS
def test_true_tempered_rates_hit_the_target(process, alpha):
    problem = table(process, 3, 2, seed=2)
    begin = start(problem)
    if process is tt.Uniform:
        begin = noised(problem.process, problem.target(alpha), 1.0).reshape(-1)
    errors = [
        tv(kfe(problem, problem.true_tempered(alpha), begin, steps), problem.target(alpha)) for steps in (200, 400)
    ]
    assert errors[1] < (1e-12 if process is tt.Masking else 2.5e-4)
    if process is tt.Uniform:
        assert errors[0] / errors[1] > 1.9  # it goes on falling with the grid: the limit is the target


@BOTH
def test_true_tempered_rates_are_those_of_proposition_3_1(process):
    """R times E[p(zeta|X0)^alpha | y] / E[p(zeta|X0)^alpha | x]."""
    problem = table(process, 3, 2, seed=2)
    alpha, t = 4.0, 0.6
    x = problem.states
    by_ratio = tt.Predictor(
        problem.process, problem.model().base, lambda y, t: problem.lookup(problem.expected(alpha, t), y)
    )
    mine, theirs = (
        problem.process.rates(score(x, t), x, t).dense().exp() for score in (by_ratio, problem.true_tempered(alpha))
    )
    assert (mine - theirs).abs().max() < 1e-11


@pytest.mark.parametrize("alpha", [8.0, 16.0])
@BOTH
def test_forward_equation_is_not_afraid_of_stiffness(process, alpha):
    problem = table(process, 3, 2, seed=4)
    model = problem.model()
    law = tt.forward_equation(
        problem.process,
        tt.Guided(problem.process, model.base, model.conditional, alpha),
        start(problem),
        tt.uniform_grid(50),
    )
    assert law.min() >= 0
    assert abs(float(law.sum()) - 1) < 1e-12


def test_transition_of_a_two_state_process_is_known():
    rates = torch.tensor([[0.0, 3.0], [1.0, 0.0]], dtype=torch.float64)
    for clock in (1e-9, 0.1, 2.0, 500.0):
        p = transition(rates, clock)
        stay = 0.25 + 0.75 * torch.exp(torch.tensor(-4.0 * clock, dtype=torch.float64))
        assert abs(float(p[0, 0] - stay)) < 1e-13
    assert abs(float(transition(rates, float("inf"))[0, 0]) - 0.25) < 1e-13


@BOTH
def test_generator_holds_the_reverse_rates(process):
    problem = table(process, 3, 2)
    t, x = 0.4, problem.states
    generator, clock = jump_generator(problem.process, problem.model().base, t, t, t - 1e-7, 2)
    rates = problem.process.rates(problem.model().base(x, t), x, t).dense().exp().sum((-2, -1))
    assert torch.allclose(generator.sum(-1) * clock / 1e-7, rates, rtol=1e-5)


@BOTH
@pytest.mark.parametrize("make", [lambda m: tt.Tempered(m, 3.0, 2.0), lambda m: tt.Tilted(m, 3.0)])
def test_flow_by_matrix_products_equals_flow_pair_by_pair(process, make):
    for problem in (table(process, 3, 2), table(process, 2, 3), hard_table(process)):
        fk = make(problem.model())
        states = problem.states
        generator = torch.Generator().manual_seed(0)
        log_mass = torch.rand(len(states), generator=generator, dtype=torch.float64).log()
        tilt = torch.rand(len(states), generator=generator, dtype=torch.float64)
        move = fk.move(Particles(states, log_mass, {"log_tilt": tilt}), 0.5, 0.3)
        by_products, aux = push_factored(move, log_mass, states, problem.process.states)
        by_pairs, aux_pairs = push_listed(move, log_mass, states, problem.process.states)
        alive = by_pairs > -torch.inf
        assert torch.equal(alive, by_products > -torch.inf)
        assert (by_products - by_pairs)[alive].abs().max() < 1e-10
        assert torch.allclose(aux["log_tilt"][alive], aux_pairs["log_tilt"][alive])


@BOTH
@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_hard_constraints_are_legal(process, alpha):
    """Zeros in p0 and in p(zeta|x): the limit converges, never visits them, and nothing is NaN."""
    problem = hard_table(process)
    for fk in (tt.Tilted(problem.model(), alpha), tt.Tempered(problem.model(), alpha, 0.0)):
        if process is tt.Uniform and isinstance(fk, tt.Tempered):
            continue  # edge ratios of a hard constraint are unbounded there
        coarse, fine = (clean(flow(fk, problem, steps).law, problem) for steps in (100, 200))
        forbidden = problem.target(alpha) == 0
        assert fine.isfinite().all()
        assert tv(fine, problem.target(alpha)) < 0.02
        assert tv(fine, problem.target(alpha)) < 0.6 * tv(coarse, problem.target(alpha))
        if isinstance(fk, tt.Tilted) and alpha > 1:  # the potential ends at -inf there; elsewhere it is time error
            assert float(fine[forbidden & (problem.likelihood == 0)].max()) == 0
