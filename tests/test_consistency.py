"""Conditionals that disagree: measured, told where moves read them, and not told where none does."""

import warnings
from functools import partial

import pytest
import torch

import truetilt as tt
from problems import table
from truetilt.targets.consistency import disagreement

PROCESS, LENGTH = tt.Masking(3), 4


def one_sided(x, t):
    """A net that looks at its left neighbour alone: its answers are no conditionals of a joint law."""
    left = torch.cat([torch.full_like(x[:, :1], PROCESS.mask), x[:, :-1]], 1)
    return 1.5 * torch.nn.functional.one_hot(left, 4)[..., :3].double()


ONE_SIDED = tt.Model(PROCESS, LENGTH, tt.PosteriorScore(PROCESS, one_sided))


def ones(x):
    return (x == 1).sum(-1).double()


def test_exact_conditionals_agree():
    model = table(tt.Masking, 3, 3).model()
    fk = tt.Composed(model, conditions=[(model.conditional, 2.0)])
    x = torch.cartesian_prod(*[torch.arange(3)] * 3)
    assert disagreement(fk, x).max() < 1e-12


def test_disagreement_is_what_two_orders_make_of_a_pair():
    fk = tt.Composed(ONE_SIDED)
    x = torch.tensor([[0, 0, 1, 2]])  # the first pair: p(a) is flat, p(b|a) leans to a
    lean = torch.tensor([1.5, 0.0, 0.0], dtype=torch.float64).log_softmax(-1)[0]
    flat = -torch.tensor(3.0, dtype=torch.float64).log()
    assert disagreement(fk, x)[0] == pytest.approx(float(lean - flat), abs=1e-6)


@pytest.mark.parametrize("kernel", [tt.Gibbs, tt.Metropolis, tt.Pair, partial(tt.Block, size=2)])
def test_annealing_by_conditionals_that_disagree_is_told_once(kernel):
    fk = tt.Annealed(tt.Composed(ONE_SIDED, reward=ones), 5, kernel=kernel)
    with pytest.warns(UserWarning, match="the conditionals of this model disagree") as told:
        tt.run(fk, particles=40)
    assert len([one for one in told if "disagree" in str(one.message)]) == 1


def test_nothing_is_said_where_conditionals_agree_or_are_not_read():
    model = table(tt.Masking, 3, 3).model()
    whole = partial(tt.WholeSequence, log_prob=lambda x: torch.zeros(len(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.run(tt.Annealed(tt.Composed(model, reward=ones), 3), particles=20)
        tt.run(tt.Annealed(tt.Composed(ONE_SIDED, reward=ones), 3, kernel=whole), particles=20)
        tt.run(tt.Composed(ONE_SIDED, reward=ones, order=range(LENGTH)), particles=20)


def test_a_learned_twist_of_another_order_or_strength_is_told():
    twist = tt.learn_twist(ONE_SIDED, ones, 2.0, calls=100, draws=40, order=range(LENGTH))
    with pytest.warns(UserWarning, match="learned for order"):
        tt.Composed(ONE_SIDED, reward=ones, strength=2.0, twist=twist)
    with pytest.warns(UserWarning, match="learned for strength 2.0 and the run has 1.0"):
        tt.Composed(ONE_SIDED, reward=ones, twist=twist, order=range(LENGTH))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.Composed(ONE_SIDED, reward=ones, strength=2.0, twist=twist, order=range(LENGTH))


def test_lookahead_of_a_network_of_posteriors_leads_a_run():
    look = tt.Lookahead(ONE_SIDED, ones, completions=4)
    result = tt.run(tt.Composed(ONE_SIDED, reward=ones, twist=look, order=range(LENGTH)), particles=50)
    assert result.log_weights.isfinite().all()
