"""Composed targets: the flow has the law p0^gamma prod_k p(zeta_k|x)^alpha_k e^(lambda r) and its Z, on tables."""

import itertools
import math
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch

import truetilt as tt
from problems import clean, table, tv, z_limit
from rewarded import NEG_INF, Rewarded, hard, rewarded
from truetilt.exact.tables import flat_index
from truetilt.targets import any_order
from truetilt.targets.any_order import token_lift
from truetilt.testing.targets import masses
from truetilt.testing.verdicts import common, z_scores

R = rewarded()
FROZEN = tt.Frozen((0.0, 0.4, 1.0), (0.3, 1.4, 1.0))  # neither from 0 nor within 1
RAMPS = [tt.Power(0.0), tt.Power(1.0), tt.Power(0.5), tt.at_end, FROZEN]
WIDE = (1.4, (2.0, -0.7), 1.5)  # gamma, alphas, strength


def assert_exact(problem, parts, grid=None, **options):
    assert problem.gap(problem.composed(*parts, **options), problem.log_target(*parts), grid=grid) < 1e-12


@pytest.mark.parametrize("ramp", RAMPS)
@pytest.mark.parametrize("parts", [WIDE, (0.6, (3.0, 0.7), -1.5), (1.0, (), 2.0), (1.0, (-1.0,), 1.0), (2.5, (), 0.7)])
def test_the_limit_is_the_target_for_any_twist_and_ramp(parts, ramp):
    for twist in (None, R.twist):
        assert_exact(R, parts, ramp=ramp, twist=twist)


@pytest.mark.parametrize("parts", [(1.7, (), 0.0), (0.5, (0.3, 4.0), 0.0), (1.0, (-2.0, -0.5), 0.0), (1.0, (), 0.0)])
def test_the_limit_is_the_target_without_a_reward(parts):
    for ramp in RAMPS:
        assert_exact(R, parts, ramp=ramp)


def masked_mean(problem):
    """The reward of a state, or the mean over its completions: a reward that understands masks, as twists do."""
    x = problem.tables[0].states
    fits = ((x[:, None] == problem.states) | (x[:, None] == problem.vocabulary)).all(-1).double()
    values = (fits @ problem.rewards.reshape(-1)) / fits.sum(-1)
    return lambda states, t: values[flat_index(states, problem.vocabulary + 1)]


@pytest.mark.parametrize("ramp", RAMPS)
def test_a_reward_that_is_its_own_twist(ramp):
    h = masked_mean(R)
    assert_exact(R, (1.2, (0.5, 2.0), 2.0), ramp=ramp, reward=h, twist=h)


@pytest.mark.parametrize("candidates", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"choose": tt.adapted_sites}, {"order": (2, 0, 1)}, {"ramp": FROZEN}])
def test_tokens_that_the_twist_is_not_asked_about_are_corrected(candidates, options):
    assert_exact(R, WIDE, twist=R.twist, candidates=candidates, **options)
    h = masked_mean(R)
    assert_exact(R, WIDE, reward=h, twist=h, candidates=candidates, **options)


def test_every_order_and_choice_of_sites():
    for order in itertools.permutations(range(3)):
        assert_exact(R, WIDE, twist=R.twist, order=order)
    for ramp in RAMPS:
        assert_exact(R, WIDE, twist=R.twist, choose=tt.adapted_sites, ramp=ramp)
        assert_exact(R, WIDE, choose=tt.adapted_sites, ramp=ramp)


def lopsided(masked, log_mass):
    """A choice of sites of one's own: the first twice as often as each other."""
    odds = masked * torch.tensor([2.0, 1.0, 1.0])
    return (odds / odds.sum(-1, keepdim=True)).double().log()


def test_sites_chosen_in_a_way_of_ones_own():
    assert_exact(R, WIDE, twist=R.twist, choose=lopsided)


def product_of_sites():
    """Independent sites under the base and both conditions; the reward and the twist are any."""
    soft, generator = rewarded(), torch.Generator().manual_seed(3)

    def outer():
        a, b, c = 0.1 + 0.8 * torch.rand(3, 3, generator=generator, dtype=torch.float64)
        return a[:, None, None] * b[:, None] * c

    p0 = outer()
    return Rewarded(p0 / p0.sum(), (outer(), outer()), soft.rewards, soft.twists)


@pytest.mark.parametrize("options", [{}, {"candidates": 2}, {"order": (1, 2, 0)}, {"ramp": FROZEN}])
def test_several_sites_a_step_are_exact_on_a_product_law(options):
    problem = product_of_sites()
    for steps in (1, 2):
        grid = tt.masked_fraction_grid(problem.process.schedule, steps)
        for twist in (problem.twist, None):
            given = {key: value for key, value in options.items() if twist is not None or key != "candidates"}
            assert_exact(problem, WIDE, grid, twist=twist, **given)
    assert R.gap(R.composed(*WIDE), R.log_target(*WIDE), grid=(1.0, 0.0)) > 0.01  # where sites hang together it is not


def test_a_grid_finer_than_the_sites_changes_nothing():
    """Steps that reveal nothing pass; a twist that knows the time is asked again there."""
    timed = R.composed(*WIDE, twist=lambda x, t: (1 + t) * R.twist(x, t))
    for grid in (tt.uniform_grid(11), (1.0, 0.9, 0.3, 0.2, 0.1, 0.0)):
        sure = tt.masked_fraction_grid(R.process.schedule, 3)
        both = tuple(sorted({*grid, *sure}, reverse=True))
        assert R.gap(timed, R.log_target(*WIDE), grid=both) < 1e-12


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hard_zeros_in_the_base_the_conditions_and_the_reward(seed):
    problem, parts = hard(seed), (1.4, (2.0, 0.5), 1.5)
    assert (problem.log_target(*parts) == NEG_INF).sum() > 10
    for options in (
        {},
        {"twist": problem.twist},
        {"choose": tt.adapted_sites},
        {"twist": problem.twist, "candidates": 1},
    ):
        assert_exact(problem, parts, **options)
        assert_exact(problem, parts, ramp=tt.Power(1.0), **options)
    assert_exact(problem, (0.8, (0.0, 0.0), -1.5), twist=problem.twist)  # what a condition forbids counts at exponent 0
    h = masked_best(problem)
    assert_exact(problem, (1.0, (), 2.0), reward=h, twist=h, choose=tt.adapted_sites)


def masked_best(problem):
    """The best reward that a state may become: -inf where all are forbidden."""
    x = problem.tables[0].states
    fits = ((x[:, None] == problem.states) | (x[:, None] == problem.vocabulary)).all(-1)
    values = torch.where(fits, problem.rewards.reshape(-1), NEG_INF).amax(-1)
    return lambda states, t: values[flat_index(states, problem.vocabulary + 1)]


def test_a_particle_that_no_site_can_go_on_from_dies_and_the_others_live():
    """With adapted sites its odds were 0/0, and the run stopped at a weight of NaN."""

    def trap(x, t):
        return torch.where((x[:, 0] == 0) & ((x < 3).sum(-1) == 2), NEG_INF, R.twist(x, t))

    law = {}
    for choose in (tt.uniform_sites, tt.adapted_sites):
        fk = R.composed(strength=1.0, twist=trap, choose=choose)
        result = tt.run(fk, R.grid, particles=200, populations=4, seed=1)
        assert result.log_weights.isfinite().any(-1).all()
        law[choose] = R.flow(fk).law
    assert tv(*law.values()) < 1e-12


def test_special_cases_are_the_any_order_clock_bit_for_bit():
    problem = table(tt.Masking, 4, 3)
    model, grid = problem.model(), tt.masked_fraction_grid(problem.process.schedule, 3)
    options = {"particles": 37, "populations": 3, "seed": 11}
    for alpha, more in itertools.product((1.0, 3.0), ({}, {"order": (1, 0, 2)}, {"choose": tt.adapted_sites})):
        for ramp in (tt.Power(0.0), tt.Power(1.0)):
            one = tt.run(tt.AnyOrder(model, alpha, ramp=ramp, **more), grid, **options)
            fk = tt.Composed(model, conditions=[(model.conditional, alpha)], ramp=ramp, **more)
            two = tt.run(fk, grid, **options)
            assert torch.equal(one.particles, two.particles)
            assert torch.equal(one.log_weights, two.log_weights)
    plain = tt.flow(tt.Composed(model), grid, 5, 3)
    assert tv(clean(plain.law, problem), problem.p0) < 1e-12
    reward = tt.Composed(model, reward=problem.potential, strength=3.0)
    assert tv(clean(tt.flow(reward, grid, 5, 3).law, problem), problem.target(3.0)) < 1e-12
    potential = tt.Composed(
        model, conditions=[(model.conditional, 1.0)], reward=problem.potential, twist=problem.potential, strength=2.0
    )
    assert tv(clean(tt.flow(potential, grid, 5, 3).law, problem), problem.target(3.0)) < 1e-12


@pytest.mark.parametrize(
    "options",
    [{}, {"candidates": 1}, {"choose": tt.adapted_sites}, {"ramp": tt.Power(1.0)}],
    ids=["plain", "candidates", "adapted sites", "ramp"],
)
def test_sampling_is_unbiased(options):
    """20,000 populations of 4; 27 states and the total: below 400 z-scores, false-alarm rate 5e-7."""
    tame = replace(R, twists=R.twists / 2)  # bounded weights, so that means of 20,000 are normal
    parts = (1.2, (1.5, -0.3), 0.5)
    fk = tame.composed(*parts, twist=tame.twist, **options)
    resample = tt.adaptive(tt.systematic, 0.9)
    result = tt.run(fk, tame.grid, particles=4, populations=20_000, seed=2, resample=resample)
    found = masses(tt.feynman_kac.Particles(result.particles, result.log_weights, {}), 3)
    assert z_scores(*common(found, tame.log_target(*parts).exp())).abs().max() < z_limit(400)


# wrong variants


@dataclass(frozen=True)
class NotClosed(tt.Composed):
    """The twist in place of the reward to the end."""

    def stage(self, t):
        return self._stage(t, self.twist)


@dataclass(frozen=True)
class NoFirstWeight(tt.Composed):
    """Starts at weight 1, though the empty state is worth e^(lambda h) from the start."""

    def start(self, shape, t):
        first = super().start(shape, t)
        return replace(first, log_before=torch.zeros_like(first.log_before))


def remainder_dropped(guide, particles, laws, sites, fewest, log):
    """Tokens that the twist is not asked about are left out."""
    lift, values = token_lift(guide, particles, laws, sites, fewest, log)
    rows = laws.base.rows
    likely = torch.zeros_like(rows, dtype=torch.bool).scatter(-1, rows.topk(fewest, -1).indices, value=True)
    return lift.masked_fill(~likely[laws.base.index], NEG_INF), values


def error(kind, log_z=False, **options):
    """How far the flow of a variant is from the target: in its law, or in log Z."""
    gamma, alphas, strength = WIDE
    scores = list(zip((R.model.conditional, R.other), alphas, strict=True))
    given = {"sharpness": gamma, "conditions": scores, "reward": R.reward, "strength": strength, "twist": R.twist}
    limit, target = R.flow(kind(R.model, **given, **options)), R.log_target(*WIDE)
    if log_z:
        return abs(float(limit.log_z - target.logsumexp(0)))
    mass = limit.law[(limit.states < 3).all(-1)]
    return tv(mass, target.softmax(0))


def test_wrong_twist_left_in_the_target():
    assert error(tt.Composed) < 1e-12
    assert error(NotClosed) > 0.2


def test_wrong_initial_weight_dropped():
    """The law is right, and Z is off by e^(lambda h) of the empty state."""
    worth = WIDE[2] * float(R.twist(torch.full((1, 3), 3), 1.0))
    assert error(tt.Composed, log_z=True) < 1e-12
    assert error(NoFirstWeight) < 1e-12
    assert error(NoFirstWeight, log_z=True) == pytest.approx(abs(worth), abs=1e-12)
    assert abs(worth) > 0.5
    assert error(NoFirstWeight, log_z=True, ramp=tt.Power(1.0)) < 1e-12  # nothing is held at the start


def test_wrong_remainder_of_candidates(monkeypatch):
    assert error(tt.Composed, candidates=1) < 1e-12
    monkeypatch.setattr(any_order, "token_lift", remainder_dropped)
    assert error(tt.Composed, candidates=1) > 0.2


# bad input


def test_bad_input():
    problem = table(tt.Masking, 3, 2)
    model = problem.model()
    with pytest.raises(tt.InvalidInput, match="has no mask"):
        tt.Composed(table(tt.Uniform, 3, 2).model())
    for sharpness in (0, -1.0, math.nan, math.inf, "2", 1e10):
        with pytest.raises(tt.InvalidInput, match="sharpness"):
            tt.Composed(model, sharpness=sharpness)
    for strength in (math.nan, math.inf, 1e10, None):
        with pytest.raises(tt.InvalidInput, match="strength"):
            tt.Composed(model, reward=problem.potential, strength=strength)
    for conditions in (model.conditional, [model.conditional], [(model.conditional,)], [(model.conditional, 1.0, 2.0)]):
        with pytest.raises(tt.InvalidInput, match="conditions"):
            tt.Composed(model, conditions=conditions)
    with pytest.raises(tt.InvalidInput, match="exponent of a condition"):
        tt.Composed(model, conditions=[(model.conditional, math.nan)])
    with pytest.raises(tt.InvalidInput, match="the score of a condition"):
        tt.Composed(model, conditions=[(None, 2.0)])
    with pytest.raises(tt.InvalidInput, match="give the reward too"):
        tt.Composed(model, twist=problem.potential)
    for name in ("reward", "twist"):
        with pytest.raises(tt.InvalidInput, match=f"the {name}"):
            tt.Composed(model, **{"reward": problem.potential, name: 3.0})
    for candidates in (0, 4, 1.5, True):
        with pytest.raises(tt.InvalidInput, match="candidates"):
            tt.Composed(model, reward=problem.potential, twist=problem.potential, candidates=candidates)
    with pytest.raises(tt.InvalidInput, match="end at 1"):
        tt.Composed(model, ramp=lambda u: 0.5 * u)
    with pytest.raises(tt.InvalidInput, match="names each of the 2 sites"):
        tt.Composed(model, order=(0, 0))
    with pytest.raises(tt.InvalidInput, match="give `order` or `choose`"):
        tt.Composed(model, order=(1, 0), choose=tt.adapted_sites)


def ran(**options):
    return tt.run(tt.Composed(R.model, **options), R.grid, particles=8, seed=1)


def test_a_negative_exponent_that_loses_support_is_named():
    problem = hard()
    grid, words = problem.grid, "a condition with a negative exponent rules out a token"
    with pytest.raises(tt.InvalidInput, match=words):
        problem.flow(problem.composed(1.0, (2.0, -0.5)))
    with pytest.raises(tt.InvalidInput, match=words):
        tt.run(problem.composed(1.0, (-0.5,)), grid, particles=64)
    both = [(problem.other, 2.0), (problem.other, -1.0)]  # 0^2 / 0: not a number, and not a state that may pass
    with pytest.raises(tt.InvalidInput, match=words):
        problem.flow(tt.Composed(problem.model, conditions=both))


def test_a_state_that_was_lost_before_the_exponent_fell_is_named_too():
    """With the exponent at 0 until the end a state may be one that the condition rules out: it died without a word."""
    never_first = R.likelihoods[0].clone()
    never_first[0] = 0.0
    problem = replace(R, likelihoods=(never_first, R.likelihoods[1]))
    late = problem.composed(1.0, (-0.5,), ramp=tt.at_end, order=(0, 1, 2))
    words = "a condition with a negative exponent rules out a token"
    with pytest.raises(tt.InvalidInput, match=words):
        problem.flow(late)
    with pytest.raises(tt.InvalidInput, match=words):
        tt.run(late, problem.grid, particles=16)
    with pytest.raises(tt.InvalidInput, match=words):
        tt.run(tt.Annealed(problem.composed(1.0, (-0.5,)), 3), particles=16)


def test_values_of_the_wrong_kind_are_named():
    with pytest.raises(tt.InvalidInput, match=r"returned shape \(8, 1\)|returned shape \(1, 1\)"):
        ran(reward=lambda x, t: R.reward(x, t)[:, None])
    with pytest.raises(tt.InvalidInput, match="returned shape"):
        ran(reward=R.reward, twist=lambda x, t: R.twist(x, t).sum())
    with pytest.raises(tt.InvalidWeights, match="returned NaN"):
        ran(reward=R.reward, twist=lambda x, t: R.twist(x, t) * torch.nan)
    with pytest.raises(tt.InvalidWeights, match="returned NaN"):
        ran(reward=lambda x, t: R.reward(x, t) * torch.nan)
    nothing = torch.full((3, 3), torch.nan, dtype=torch.float64)
    with pytest.raises(tt.InvalidWeights, match="the condition 1 score returned NaN"):
        ran(conditions=[(lambda x, t: tt.SiteLogits.of(nothing.expand(*x.shape, 3)), 2.0)])


@dataclass(frozen=True)
class Additive:
    """A twist that answers for all tokens of a site at once."""

    sites: torch.Tensor  # [D, S + 1]
    short: int = 0

    def __call__(self, x, t):
        return self.sites[torch.arange(x.shape[-1]), x].sum(-1)

    def site_values(self, x, site, t):
        others = self(x, t) - self.sites[site, x.gather(-1, site[:, None]).squeeze(-1)]
        return (others[:, None] + self.sites[site, :-1])[:, self.short :]


def test_a_twist_that_answers_by_site_gives_the_same_and_its_shape_is_checked():
    sites = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    quick, slow = Additive(sites), lambda x, t: Additive(sites)(x, t)
    for options in ({}, {"candidates": 2}, {"choose": tt.adapted_sites}):
        assert_exact(R, WIDE, twist=quick, **options)
        one, two = (R.flow(R.composed(*WIDE, twist=h, **options)).log_mass.softmax(0) for h in (quick, slow))
        assert tv(one, two) < 1e-12
    with pytest.raises(tt.InvalidInput, match=r"site_values of the Additive returned shape \(\d+, 2\)"):
        ran(reward=R.reward, twist=Additive(sites, short=1))


def test_the_reward_is_called_once_a_particle_and_never_on_the_way():
    asked = []

    def reward(x, t):
        asked.append(len(x))
        return R.reward(x, t)  # which refuses masks

    tt.run(tt.Composed(R.model, reward=reward, twist=R.twist), R.grid, particles=16, populations=2)
    assert asked == [32]
    assert len(list(pairwise(R.grid))) == 3
