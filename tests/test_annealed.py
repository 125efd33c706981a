"""Annealing on clean states: its flow is the goal for every kernel, Z-hat is unbiased with shares fixed beforehand, and
a run resumes, spreads over ranks and splits into populations to the same bits.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch

import truetilt as tt
from forked import on_ranks
from problems import clean, table, tv, z_limit
from rewarded import NEG_INF, hard, rewarded
from truetilt import distributed
from truetilt.core.types import Particles
from truetilt.exact.tables import flat_index
from truetilt.smc.resampling import effective_sample_size
from truetilt.targets.moves import Gibbs
from truetilt.testing.targets import masses
from truetilt.testing.verdicts import common, z_scores

R, H = rewarded(), hard()
WIDE = (1.4, (2.0, -0.7), 1.5)
HARD = (1.4, (2.0, 0.5), 1.5)
KERNELS = {
    "gibbs": tt.Gibbs,
    "gibbs, in turn": partial(tt.Gibbs, scan=tt.systematic_scan),
    "gibbs, backward": partial(tt.Gibbs, scan=tt.backward_scan),
    "metropolis": tt.Metropolis,
    "surrogate": partial(tt.Metropolis, surrogate=R.twist),
    "block": partial(tt.Block, size=2),
    "block, surrogate": partial(tt.Block, size=2, surrogate=R.twist),
    "pair": tt.Pair,
    "pair, apart": partial(tt.Pair, scan=tt.systematic_scan, apart=2),
}


def whole(problem, **options):
    return partial(tt.WholeSequence, log_prob=problem.log_p0, **options)


def assert_exact(problem, parts, shares=3, given=None, **options):
    goal = problem.composed(*parts, **(given or {}))
    assert problem.gap(tt.Annealed(goal, shares, **options), problem.log_target(*parts)) < 1e-12


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("problem", [R, H], ids=["soft", "hard"])
def test_the_limit_is_the_goal_for_every_kernel(problem, name):
    parts = WIDE if problem is R else HARD
    assert_exact(problem, parts, kernel=KERNELS[name])
    assert_exact(problem, parts, given={"twist": problem.twist}, kernel=KERNELS[name])


@pytest.mark.parametrize("problem", [R, H], ids=["soft", "hard"])
@pytest.mark.parametrize("proposed", ["base", "conditional", None])
def test_the_limit_is_the_goal_with_whole_sequence_laws(problem, proposed):
    proposal = None if proposed is None else getattr(problem.model, proposed)
    for scan in (tt.random_scan, tt.systematic_scan):
        kernel = whole(problem, scan=scan, proposal=proposal)
        for twist in (None, problem.twist):
            assert_exact(problem, (1.4, (), 1.5), given={"twist": twist}, kernel=kernel)


@pytest.mark.parametrize("problem", [R, H], ids=["soft", "hard"])
@pytest.mark.parametrize("twisted", [False, True])
@pytest.mark.parametrize("name", ["gibbs, in turn", "surrogate", "pair"])
def test_a_floor_counts_on_the_way_only(problem, twisted, name):
    """The twist falls below the floor too: where particles come from, it counts for what it is."""
    parts = WIDE if problem is R else HARD
    for floor in (-0.5, 5.0):
        given = {"twist": problem.twist} if twisted else {}
        assert_exact(problem, parts, [0.2, 0.6, 1.0, 1.0], given, kernel=KERNELS[name], floor=floor)
    start = problem.composed(1.0, (1.0, 0.0), 0.7)  # part of the reward itself, without a floor
    assert_exact(problem, parts, kernel=KERNELS[name], floor=-0.5, start_from=start)


@pytest.mark.parametrize("shares", [1, 7, [1.0], [0.5, 0.5, 0.5, 1.0], [1e-6, 1.0, 1.0], (0.1, 0.9, 1)])
def test_any_shares_and_moves_at_one_share(shares):
    assert_exact(R, WIDE, shares, {"twist": R.twist})


STARTS = {
    "the base": R.composed(1.0, (0.0, 0.0)),
    "the goal itself": R.composed(*WIDE, twist=R.twist),
    "beyond the goal": R.composed(2.0, (3.0, 0.3), -1.0),
    "another reward": R.composed(1.0, (1.0, 0.0), reward=R.twist, strength=0.4),
    "another reward, twisted": R.composed(1.0, (1.0, 0.0), reward=R.twist, strength=0.4, twist=R.twist),
    "in an order": R.composed(1.0, (1.0, 0.5), order=(2, 0, 1)),
}


@pytest.mark.parametrize("name", STARTS)
def test_any_start(name):
    for kernel in (tt.Gibbs, KERNELS["surrogate"]):
        assert_exact(R, WIDE, start_from=STARTS[name], kernel=kernel)


def test_a_reward_whose_factor_passes_zero():
    """From strength 1 to -1: at half the way the reward counts for nothing, and is not asked; then it counts again."""
    start = R.composed(strength=1.0)
    for shares in ([0.5, 0.5, 1.0], [0.5, 1.0]):
        for kernel in (tt.Gibbs, tt.Metropolis, tt.Pair, partial(tt.Block, size=2), whole(R)):
            assert_exact(R, (1.0, (), -1.0), shares, start_from=start, kernel=kernel)


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_conditions_from_alpha_one(alpha):
    problem = table(tt.Masking, 3, 3, seed=4)
    model = problem.model()
    goal = tt.Composed(model, conditions=[(model.conditional, alpha)])
    fk = tt.Annealed(goal, 4)
    assert fk.begin.alphas == (min(alpha, 1.0),)
    found = tt.flow(fk, fk.grid, 4, 3)
    assert tv(clean(found.law, problem), problem.target(alpha)) < 1e-12
    assert abs(float(found.log_z - problem.log_z_tempered(alpha))) < 1e-12


def test_a_conditional_model_and_its_potential():
    """p(x|zeta) p(zeta|x)^(alpha - 1): a bounded potential in place of ratios, annealed on clean states."""
    problem = table(tt.Masking, 3, 3, seed=4)
    model = problem.model()
    goal = tt.Composed(model, conditions=[(model.conditional, 1.0)], reward=model.potential, strength=2.0)
    for kernel in (tt.Gibbs, tt.Metropolis, tt.Pair):
        fk = tt.Annealed(goal, 3, kernel=kernel)
        found = tt.flow(fk, fk.grid, 4, 3)
        assert tv(clean(found.law, problem), problem.target(3.0)) < 1e-12
        assert abs(float(found.log_z - problem.log_z_tilted(3.0))) < 1e-12


def test_moves_while_it_reveals_and_at_the_end():
    fk = tt.Annealed(R.composed(*WIDE, twist=R.twist), 2, floor=-1.0)
    for kernel in (tt.Gibbs(fk), tt.Metropolis(fk, surrogate=R.twist)):
        moves = tt.Rejuvenation(kernel, each_step=1, at_end=1)
        assert R.gap(fk, R.log_target(*WIDE), moves=moves) < 1e-12


# with particles


@pytest.mark.parametrize("name", ["gibbs, in turn", "metropolis", "surrogate", "block", "pair"])
def test_sampling_is_unbiased_with_shares_fixed_beforehand(name):
    """20,000 populations of 4; 27 states and the total: below 400 z-scores a kernel, false-alarm rate 5e-7."""
    parts = (1.2, (1.5, -0.3), 0.8)
    fk = tt.Annealed(R.composed(*parts), [0.4, 1.0, 1.0], kernel=KERNELS[name])
    resample = tt.adaptive(tt.systematic, 0.9)
    result = tt.run(fk, particles=4, populations=20_000, seed=3, resample=resample)
    found = masses(Particles(result.particles, result.log_weights, {}), 3)
    assert z_scores(*common(found, R.log_target(*parts).exp())).abs().max() < z_limit(400)


def test_a_population_is_annealed_as_it_would_be_alone():
    fk = tt.Annealed(R.composed(*WIDE, twist=R.twist), 4)
    settings = {"particles": 7, "seed": 5, "resample": tt.adaptive(tt.systematic, 0.9)}
    everyone = tt.run(fk, populations=4, **settings)
    for k in range(4):
        alone = tt.run(fk, first_population=k, **settings)
        assert torch.equal(everyone.particles[k], alone.particles[0])
        assert torch.equal(everyone.log_weights[k], alone.log_weights[0])
    for chunk in (1, 3):
        again = tt.run(fk, populations=4, chunk=chunk, **settings)
        assert torch.equal(everyone.particles, again.particles)
        assert torch.equal(everyone.log_weights, again.log_weights)


class Broken(Exception):
    """What ends a run in the middle."""


def annealed_by(function, kernel=tt.Gibbs):
    reward = tt.Reward(function, vocabulary=3)
    return tt.Annealed(tt.Composed(R.model, reward=reward, strength=1.5, twist=R.twist), 4, kernel=kernel)


def score(x):
    return R.rewards.reshape(-1)[flat_index(x, 3)]


@pytest.mark.parametrize("at", [2, 4, 5, 6])
def test_a_broken_run_resumes_to_the_same_bits_and_asks_nothing_twice(at, tmp_path):
    """Each process has a reward of its own; what the first asked until its last checkpoint is there for the second."""
    asked, known, options = [], {}, {"particles": 6, "populations": 2, "seed": 5, "resample": tt.systematic}
    whole_run = tt.run(annealed_by(score), **options)

    def noted(x):
        asked.extend(map(tuple, x.tolist()))
        return score(x)

    def end(done, total, info):
        known[done] = set(asked)
        if done == at + 1:
            raise Broken

    with pytest.raises(Broken):
        tt.run(annealed_by(noted), checkpoint=tmp_path, checkpoint_every=1, callback_on_step_end=end, **options)
    asked.clear()
    again = tt.run(annealed_by(noted), checkpoint=tmp_path, checkpoint_every=1, **options)
    assert torch.equal(again.particles, whole_run.particles)
    assert torch.equal(again.log_weights, whole_run.log_weights)
    assert len(set(asked)) == len(asked)
    assert not known[at] & set(asked)
    assert bool(known[at]) == (at > 3)  # three sites are revealed first, by the twist alone


def test_ranks_give_the_bits_of_one(tmp_path):
    fk = tt.Annealed(R.composed(*WIDE, twist=R.twist), 4)
    options = {"particles": 7, "populations": 2, "seed": 5, "resample": tt.systematic}
    alone = tt.run(fk, **options)

    def work(rank):
        for how in (distributed.run_sharded, distributed.run_populations):
            result = how(fk, **options)
            assert torch.equal(result.particles, alone.particles)
            assert torch.equal(result.log_weights, alone.log_weights)

    on_ranks(2, work, tmp_path)


# wrong variants


@dataclass(frozen=True)
class LateGibbs(Gibbs):
    """Moves by the target of the share before: forgets what the step has just weighed by."""

    def at(self, particles, t, site, draw=None):
        earlier = self.fk.grid[self.fk.grid.index(t) - 1]
        move = super().at(particles, earlier, site, draw)
        return replace(move, ends=self.fk.stage(t))


@dataclass(frozen=True)
class Unrefreshed(Gibbs):
    """Moves, and remembers the values of where it was."""

    def at(self, particles, t, site, draw=None):
        move = super().at(particles, t, site, draw)
        values = self.fk.recall(particles, t)["values"]
        return replace(move, known=values[..., None, None, :].expand_as(move.known))


def test_wrong_kernels_of_an_annealed_value_are_caught():
    goal, target = R.composed(*WIDE, twist=R.twist), R.log_target(*WIDE)
    right, late, stale = (
        R.gap(tt.Annealed(goal, 4, kernel=kernel), target) for kernel in (tt.Gibbs, LateGibbs, Unrefreshed)
    )
    assert right < 1e-12
    assert late > 0.01
    assert stale > 0.01


RARE = torch.tensor([0.6, 0.3, 0.08, 0.02], dtype=torch.float64)
STRENGTH = 3.0


def rare():
    """One site of four tokens, each rarer and worth more: sum of p0 e^(3 r) is 201, of which the rarest holds 162."""
    problem = tt.Table(tt.Masking(4), RARE, torch.ones(4))
    reward = torch.arange(4, dtype=torch.float64)
    return tt.Composed(problem.model(), reward=lambda x, t: reward[x[:, 0]], strength=STRENGTH)


def next_share(r, share, keep):
    """The largest share at which the increment alone keeps this part of the effective sample, for each population."""
    low, high = share.clone(), torch.ones_like(share)
    for _ in range(40):
        middle = (low + high) / 2
        kept = effective_sample_size((middle - share)[:, None] * STRENGTH * r) / r.shape[-1]
        low, high = torch.where(kept >= keep, middle, low), torch.where(kept >= keep, high, middle)
    done = effective_sample_size((1 - share)[:, None] * STRENGTH * r) / r.shape[-1] >= keep
    return torch.where(done, 1.0, low)


def adaptive_annealing(populations, keep, seed, shares=None):
    """Z-hat of populations of 4, each with shares by the ESS of its own particles, or with the shares given.

    Gibbs moves at one site are independent draws from the target at hand. Who has arrived stays at share 1.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.multinomial(RARE, populations * 4, replacement=True, generator=generator).reshape(-1, 4)
    share, log_z = torch.zeros(populations, dtype=torch.float64), torch.zeros(populations, dtype=torch.float64)
    for k in range(100):
        r = x.double()
        after = next_share(r, share, keep) if shares is None else torch.full_like(share, shares[k])
        log_w = (after - share)[:, None] * STRENGTH * r
        log_z = log_z + log_w.logsumexp(-1) - math.log(4)
        law = RARE * (after[:, None] * STRENGTH * torch.arange(4)).exp()
        x = torch.multinomial(law, 4, replacement=True, generator=generator)  # resampled, and moved: the Gibbs law
        share = after
        if bool((share == 1).all()):
            return log_z.exp()
    raise AssertionError("the ladder does not end")


def test_wrong_shares_chosen_on_the_runs_own_weights():
    """Z-hat is low, by about a quarter, where the rarest state holds most of Z; with a ladder that was fixed it is not.

    40,000 populations of 4 each; the z-test of the fixed ladder has false-alarm rate 5e-7. A ladder in 12 equal steps
    has bounded weights: e^(3 (3 - 0) / 12) is their largest ratio.
    """
    exact = float((RARE * (STRENGTH * torch.arange(4)).exp()).sum())
    own = adaptive_annealing(40_000, 0.9, seed=0) / exact
    fixed = adaptive_annealing(40_000, 0.9, seed=1, shares=[(k + 1) / 12 for k in range(12)]) / exact
    assert 0.7 < float(own.mean()) < 0.78
    assert float((own.mean() - 1) / (own.std() / 200)) < -20
    assert abs(float((fixed.mean() - 1) / (fixed.std() / 200))) < z_limit(1)


def test_the_library_is_unbiased_there():
    """The same table, run by the library with 12 equal shares, 40,000 populations of 4; false-alarm rate 5e-7."""
    fk = tt.Annealed(rare(), 12)
    result = tt.run(fk, particles=4, populations=40_000, seed=1, resample=tt.systematic)
    exact = float((RARE * (STRENGTH * torch.arange(4)).exp()).sum())
    ratio = result.population_log_z.exp() / exact
    assert abs(float((ratio.mean() - 1) / (ratio.std() / 200))) < z_limit(1)


# bad input


def test_bad_input():
    goal = R.composed(*WIDE)
    with pytest.raises(tt.InvalidInput, match=r"the goal is a AnyOrder; give tt\.Composed"):
        tt.Annealed(tt.AnyOrder(R.model, 2.0), 4)
    for shares in ([], [0.5], [0.5, 0.4, 1.0], [0.0, 1.0], [-0.5, 1.0], [-1.0, 1.0], [0.5, 1.0, 1.5], [1.5, 1.0]):
        with pytest.raises(tt.InvalidInput, match="never falling"):
            tt.Annealed(goal, shares)
    for shares in (0, -1, True, None, 1.5, "4", [None, 1.0], [math.nan, 1.0]):
        with pytest.raises(tt.InvalidInput, match="share"):
            tt.Annealed(goal, shares)
    with pytest.raises(tt.InvalidInput, match="the start is a AnyOrder"):
        tt.Annealed(goal, 4, start_from=tt.AnyOrder(R.model, 1.0))
    for start in (R.composed(1.0, (1.0,)), rewarded().composed(1.0, (1.0, 0.0))):
        with pytest.raises(tt.InvalidInput, match="differ in their model or in the scores"):
            tt.Annealed(goal, 4, start_from=start)
    for steps in (0, 4, 1.5, -1):
        with pytest.raises(tt.InvalidInput, match="reveal_steps"):
            tt.Annealed(goal, 4, reveal_steps=steps)
    for floor in ("low", math.nan, math.inf, -math.inf):
        with pytest.raises(tt.InvalidInput, match="floor"):
            tt.Annealed(goal, 4, floor=floor)
    for kernel in (3, lambda fk: None):
        with pytest.raises(tt.InvalidInput, match="kernel"):
            tt.Annealed(goal, 4, kernel=kernel)
    fk = tt.Annealed(goal, 4)
    with pytest.raises(tt.InvalidInput, match=r"run it as tt\.run\(fk\)"):
        tt.run(fk, tt.uniform_grid(5), particles=4)


def test_a_negative_exponent_that_loses_support_is_named():
    with pytest.raises(tt.InvalidInput, match="a condition with a negative exponent rules out a token"):
        H.flow(tt.Annealed(H.composed(1.0, (2.0, -0.5)), 4))


def test_a_floor_mends_what_is_forbidden_on_the_way():
    """One site of the reward allows a single token: without a floor most particles die at the first share."""
    reward = torch.where(torch.arange(3) == 2, 0.0, NEG_INF).double()
    goal = tt.Composed(R.model, reward=lambda x, t: reward[x[:, 0]])
    settings = {"particles": 64, "seed": 1, "resample": tt.systematic}
    hard_way, mended = (
        tt.run(tt.Annealed(goal, [k / 12 for k in range(1, 13)], floor=floor), **settings) for floor in (None, -6.0)
    )
    assert (mended.particles[mended.log_weights > NEG_INF][:, 0] == 2).all()
    assert float(mended.ess[-1]) > 0
    assert float(hard_way.ess.min()) < float(mended.ess.min())
