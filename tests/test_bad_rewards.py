"""Rewards that are wrong, forbid everything, fail on the way or hang: clear words, nothing lost, and runs go on."""

import math
import time

import pytest
import torch

import truetilt as tt

PROCESS, LENGTH = tt.Masking(4), 6
LAW = tt.ChainLaw(torch.ones(4), torch.ones(4, 4), torch.zeros(LENGTH, 4))
MODEL = tt.Model(PROCESS, LENGTH, tt.ChainScore(PROCESS, LAW))


def ones(x):
    return (x == 1).sum(-1).double()


def of(function):
    return tt.Reward(function, vocabulary=4)


def composed(reward, **options):
    return tt.Composed(MODEL, reward=reward, **options)


@pytest.mark.parametrize(
    ("reward", "error", "words"),
    [
        (lambda x: x.double(), tt.InvalidInput, r"returned shape \(8, 6\).*one number a state"),
        (lambda x: ones(x) * math.nan, tt.InvalidWeights, "returned NaN for 8 of 8 states"),
        (lambda x: ones(x) + math.inf, tt.InvalidWeights, "weight .inf"),
        (lambda x: "good", tt.InvalidInput, "what the potential returned"),
        (of(lambda x: ones(x) * math.nan), tt.InvalidInput, "the function returned nan"),
        (of(lambda x: ones(x)[:2]), tt.InvalidInput, "returned"),
    ],
)
def test_a_reward_of_the_wrong_kind_is_named(reward, error, words):
    for fk in (composed(reward), tt.Annealed(composed(reward), 2)):
        with pytest.raises(error, match=words):
            tt.run(fk, particles=8)


@pytest.mark.parametrize("shares", [None, 4])
def test_a_reward_that_forbids_everything(shares):
    never = of(lambda x: torch.full((len(x),), -math.inf))
    fk = composed(never) if shares is None else tt.Annealed(composed(never), shares, floor=-3.0)
    with pytest.raises(tt.DegenerateWeights, match=r"every particle has weight zero.*softer likelihood or reward"):
        tt.run(fk, particles=8)
    with pytest.raises(tt.InvalidInput, match=r"-inf on all \d+ states drawn"):
        tt.learn_twist(MODEL, never, calls=200, draws=30)


def test_a_constant_reward_changes_the_constant_and_nothing_else():
    fk = composed(of(lambda x: torch.ones(len(x))), strength=2.0)
    assert tt.run(fk, particles=8, populations=2).log_z == pytest.approx(2.0, abs=1e-12)
    ladder = tt.pilot(tt.Annealed(fk, 3), particles=16)
    assert ladder.steps == 1
    result = tt.run(tt.Annealed(fk, ladder), particles=8)
    assert result.log_z == pytest.approx(2.0, abs=1e-12)
    assert tt.learn_twist(MODEL, fk.reward, 2.0, calls=200, draws=30).held_out.spread == 0


def test_a_floor_leaves_time_to_mend_what_is_forbidden():
    """Only sequences without token 0: 3/4 to the sixth of the base; exact to what 4,000 particles show (4.5 errors)."""
    fk = composed(of(lambda x: torch.where((x == 0).any(-1), -math.inf, 0.0)))
    result = tt.run(tt.Annealed(fk, 12, floor=-3.0), particles=250, populations=16)
    assert abs(result.log_z - 6 * math.log(0.75)) < 4.5 * result.log_z_stderr
    assert not (result.particles[result.log_weights > -math.inf] == 0).any()


CALLS, ANSWERED = [], []  # in no closure: what a function encloses is part of what a checkpoint compares


def flaky(x):
    """Fails at its third call, once."""
    CALLS.append(len(x))
    if len(CALLS) == 3:
        raise RuntimeError("the disk is full")
    ANSWERED.extend(map(tuple, x.tolist()))
    return ones(x)


def test_a_reward_that_raises_on_the_way_loses_nothing(tmp_path):
    CALLS.clear()
    ANSWERED.clear()

    def run(reward, folder):
        fk = tt.Annealed(composed(reward), 8)
        return tt.run(fk, particles=16, checkpoint=folder, checkpoint_every=1)

    reward = of(flaky)
    with pytest.raises(tt.InvalidInput, match="RuntimeError: the disk is full"):
        run(reward, tmp_path / "one")
    kept = len(reward.known()[0])
    again = run(reward, tmp_path / "one")
    assert kept > 0
    assert len(ANSWERED) == len(set(ANSWERED))  # no sequence was answered twice
    whole = run(of(ones), tmp_path / "two")
    assert torch.equal(again.log_weights, whole.log_weights)
    assert torch.equal(again.particles, whole.particles)


def hangs(x):
    time.sleep(60)
    return 0.0


def test_a_reward_that_hangs_is_killed_and_named():
    reward = tt.Reward(hangs, vocabulary=4, one_at_a_time=True, timeout=0.2)
    with pytest.raises(tt.InvalidInput, match=r"0\.2 s"):
        tt.run(composed(reward), particles=2)
    reward.close()


def test_a_budget_too_small_for_a_fit_is_refused_before_anything_is_asked():
    reward = of(ones)
    with pytest.raises(tt.InvalidInput, match=r"3 calls in 2 rounds.*give at least 50 calls"):
        tt.learn_twist(MODEL, reward, calls=3)
    assert reward.calls == 0


def test_a_reward_asked_about_masks_says_what_to_do():
    with pytest.raises(tt.InvalidInput, match=r"finished sequences; on the way use a twist"):
        tt.run(composed(of(ones), twist=of(ones)), particles=4)
