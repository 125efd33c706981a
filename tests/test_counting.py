"""Counting: what a run says it asked is what its networks and its reward were asked, pilots and fits included."""

from dataclasses import dataclass, replace

import pytest
import torch

import truetilt as tt
from problems import table
from truetilt import continuous as c
from truetilt.core.bases import FeynmanKac, MoveKernel
from truetilt.core.binding import bind, rewards_of, uncounted
from truetilt.core.evaluation import RunLog
from truetilt.core.spent import Spent

PROBLEM = table(tt.Masking, 3, 3)
MODEL = PROBLEM.model()
N, D, S = 10, 3, 3
CHECK = 3  # rounds in which annealing looks whether the conditionals agree, on up to 32 particles


class Counted:
    """A score that counts by itself."""

    def __init__(self, score):
        self.score, self.states, self.rounds = score, 0, 0

    def __call__(self, x, t):
        self.states, self.rounds = self.states + len(x), self.rounds + 1
        return self.score(x, t)


def ones(x):
    return (x == 1).sum(-1).double()


def watched():
    """The model with nets that count by themselves."""
    nets = {name: Counted(getattr(MODEL, name)) for name in ("base", "conditional", "potential")}
    return replace(MODEL, **nets), nets.values()


@pytest.mark.parametrize(
    "build",
    [
        lambda m: (tt.Tilted(m, 2.0), tt.uniform_grid(5)),
        lambda m: (tt.Tempered(m, 2.0), tt.uniform_grid(5)),
        lambda m: (tt.Tempered(m, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie), tt.uniform_grid(5)),
        lambda m: (tt.AnyOrder(m, 2.0), None),
        lambda m: (tt.Unweighted(m, tt.Guided(m.process, m.base, m.conditional, 2.0)), tt.uniform_grid(5)),
        lambda m: (tt.Composed(m, conditions=[(m.conditional, 2.0)], sharpness=1.5), None),
        lambda m: (tt.Annealed(tt.Composed(m, conditions=[(m.conditional, 3.0)]), 4), None),
        lambda m: (tt.Steered(m, m.potential, 2.0), tt.uniform_grid(5)),
    ],
)
def test_a_run_counts_what_its_networks_were_asked(build):
    model, nets = watched()
    fk, grid = build(model)
    result = tt.run(fk, grid, particles=N, populations=2)
    assert result.evaluations == sum(net.states for net in nets) > 0
    assert result.spent.rounds == sum(net.rounds for net in nets)
    assert (result.spent.calls, result.spent.distinct) == (0, 0)


def test_moves_are_counted_and_no_bit_changes():
    model, nets = watched()
    fk = tt.AnyOrder(model, 2.0)
    moves = tt.Rejuvenation(tt.Gibbs(fk), each_step=2)
    result = tt.run(fk, particles=N, moves=moves)
    assert result.evaluations == sum(net.states for net in nets) == 2 * N * (D * 3 + CHECK)
    alone = tt.AnyOrder(MODEL, 2.0)
    plain = tt.run(alone, particles=N, moves=tt.Rejuvenation(tt.Gibbs(alone), each_step=2))
    assert torch.equal(plain.log_weights, result.log_weights)


def test_calls_and_distinct_calls_of_a_reward():
    reward = tt.Reward(ones, vocabulary=S)
    result = tt.run(tt.Annealed(tt.Composed(MODEL, reward=reward), 4), particles=N)
    assert result.spent == Spent(D + 4 + CHECK, N * (D + 4 + CHECK), reward.calls, reward.distinct)
    assert result.spent.calls == N + 4 * N * (S - 1)  # once each, then every other token of a site a step
    assert result.spent.distinct <= S**D
    again = tt.run(tt.Composed(MODEL, reward=reward), particles=N)
    assert again.spent.calls == N
    assert again.spent.distinct <= N
    plain = tt.run(tt.Composed(MODEL, reward=ones), particles=N)  # a plain function has no cache
    assert (plain.spent.calls, plain.spent.distinct) == (N, N)


def test_a_score_that_asks_another_is_not_counted_twice():
    net = Counted(MODEL.base)
    model = replace(MODEL, base=tt.Distinct(net), conditional=None, potential=None)
    result = tt.run(tt.Composed(model), particles=200)
    assert result.evaluations == net.states < 200 * D  # equal states are asked about once


def test_pilots_and_fits_count():
    model, nets = watched()
    fk = tt.AnyOrder(model, 3.0)
    ramp = tt.pilot(fk, fk.grid, particles=20)
    assert ramp.spent.evaluations == sum(net.states for net in nets) > 0
    result = tt.run(replace(fk, ramp=ramp), particles=N)
    assert result.evaluations == sum(net.states for net in nets)
    ladder = tt.pilot(tt.Annealed(tt.Composed(MODEL, reward=ones, strength=2.0), 5), particles=20)
    annealed = tt.run(tt.Annealed(tt.Composed(MODEL, reward=ones, strength=2.0), ladder), particles=N)
    own = Spent(D + 5 + CHECK, N * (D + 5 + CHECK), N + 5 * N * (S - 1), N + 5 * N * (S - 1))
    assert annealed.spent == ladder.spent.plus(own)
    twist = tt.learn_twist(MODEL, ones, calls=200, draws=40)
    steered = tt.run(tt.Composed(MODEL, reward=ones, twist=twist), particles=N)
    assert steered.spent == twist.spent.plus(Spent(D, N * D, N, N))


def test_lookahead_is_counted():
    model, nets = watched()
    reward = tt.Reward(ones, vocabulary=S)
    twist = tt.Lookahead(model, reward, completions=3)
    result = tt.run(tt.Composed(model, reward=reward, twist=twist), particles=N)
    assert result.evaluations == sum(net.states for net in nets) > N * D
    assert result.spent.calls == reward.calls


def test_unions_and_saved_results_keep_their_counts(tmp_path):
    twist = tt.learn_twist(MODEL, ones, calls=200, draws=40)
    fk = tt.Composed(MODEL, reward=ones, twist=twist)
    one, two = (tt.run(fk, particles=N, seed=seed) for seed in (0, 1))
    united = tt.Result.union([one, two])
    assert united.evaluations == one.evaluations + two.evaluations - twist.spent.evaluations  # one fit for both
    one.save(tmp_path)
    assert tt.Result.load(tmp_path).spent == one.spent


def test_a_resumed_run_counts_as_a_whole_one(tmp_path):
    def stop(done, particles, info):
        if done == 3:
            raise KeyboardInterrupt

    fk = tt.Annealed(tt.Composed(MODEL, reward=tt.Reward(ones, vocabulary=S)), 4)
    with pytest.raises(KeyboardInterrupt):
        tt.run(fk, particles=N, checkpoint=tmp_path, checkpoint_every=1, watch=stop)
    fresh = tt.Annealed(tt.Composed(MODEL, reward=tt.Reward(ones, vocabulary=S)), 4)
    resumed = tt.run(fresh, particles=N, checkpoint=tmp_path, checkpoint_every=1)
    whole = tt.run(tt.Annealed(tt.Composed(MODEL, reward=tt.Reward(ones, vocabulary=S)), 4), particles=N)
    assert resumed.spent == whole.spent


def test_real_vectors_are_counted():
    mixture = c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5)
    model = c.Observed(c.VP(), mixture, c.Observation([0.8], (0,), 1.0)).model()
    result = tt.run(c.Tilted(model, 2.0), tt.uniform_grid(4), particles=N)
    assert result.evaluations == 4 * N + 4 * N  # the conditional score, and the potential once its share is above 0


def test_what_is_bound_is_a_copy():
    log = RunLog()
    fk = tt.Annealed(tt.Composed(MODEL, reward=ones), 2)
    copy = bind(fk, log)
    assert fk.model.log is fk.log is None
    assert copy.model.log is copy.log is log
    assert copy.goal.model is copy.begin.model
    assert copy.grid == fk.grid
    assert bind(MODEL.process, log) is MODEL.process


# what is found, and what is told


class Inner(FeynmanKac):
    """A value that is asked through another, whose moves it makes."""

    @property
    def grid(self):
        return self.inner.grid

    @property
    def target(self):
        return self.inner.target

    def start(self, shape, t):
        return self.inner.start(shape, t)

    def choices(self, t, s):
        return self.inner.choices(t, s)

    def move(self, *where):
        return self.inner.move(*where)


@dataclass(frozen=True)
class WithBonus(Inner):
    """A target with a reward that is called by another name."""

    inner: tt.Composed
    bonus: object

    def move(self, *where):
        self.bonus(where[0].x.flatten(0, -2).clamp(max=S - 1))
        return self.inner.move(*where)


class Plain(Inner):
    """No dataclass."""

    def __init__(self, inner):
        self.inner = inner


class PlainKernel(MoveKernel):
    choices = 1

    def __init__(self, inner):
        self.inner = inner

    @property
    def target(self):
        return self.inner.target

    def move(self, *where):
        return self.inner.move(*where)


def test_a_reward_is_counted_in_a_field_of_any_name():
    bonus = tt.Reward(ones, vocabulary=S)
    fk = WithBonus(tt.Composed(MODEL), bonus)
    result = tt.run(fk, particles=N)
    assert result.spent == Spent(D, N * D, bonus.calls, bonus.distinct)
    assert result.spent.calls == N * D
    assert rewards_of(fk) == [bonus]


def test_what_cannot_be_counted_is_told():
    with pytest.warns(UserWarning, match=r"`inner` of this Plain asks is not counted.*@dataclass\(frozen=True\)"):
        result = tt.run(Plain(tt.Composed(MODEL)), particles=N)
    assert result.spent == Spent()
    moves = tt.Rejuvenation(PlainKernel(tt.Gibbs(tt.Composed(MODEL))), at_end=1)
    with pytest.warns(UserWarning, match="`inner` of this PlainKernel asks"):
        tt.run(tt.Composed(MODEL), particles=N, moves=moves)


def test_what_can_be_counted_or_asks_nothing_is_not_told(recwarn):
    tt.run(tt.Composed(MODEL), particles=N, moves=tt.Rejuvenation(tt.Gibbs(tt.Composed(MODEL)), at_end=1))
    for value in (RunLog(), ones, None, WithBonus(tt.Composed(MODEL), ones)):
        assert uncounted(value) == []
    assert not recwarn.list
