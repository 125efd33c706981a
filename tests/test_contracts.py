"""What a user's functions are given, and what is said when their answers cannot be what is due."""

import functools
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import truetilt as tt
from problems import table
from truetilt import continuous as c
from truetilt.baselines.relaxation import relaxed
from truetilt.core.binding import cost_of
from truetilt.core.twists import (
    Learned,
    Relaxable,
    SiteValued,
    candidates_of,
    words_of,
)
from truetilt.models.infilling import Around
from truetilt.steering.candidates import _of_twist

PROBLEM = table(tt.Masking, 3, 2, seed=1)
MODEL, GRID = PROBLEM.model(), tt.uniform_grid(4)
SIZES = {"particles": 5, "populations": 3}


def warnings_of(work):
    """The words of every warning, however often it is given."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        work()
    return [str(one.message) for one in told]


def shapes_seen(function, seen):
    """The function, with the shapes of the states it is given noted."""

    def noting(x, t):
        seen.append(tuple(x.shape))
        return function(x, t)

    return noting


# one batch [B, D]


def every_sampler(watched):
    model = tt.Model(PROBLEM.process, 2, *(watched(f) for f in (MODEL.base, MODEL.conditional, MODEL.potential)))
    reveals = tt.masked_fraction_grid(PROBLEM.process.schedule, 2)
    moves = tt.Rejuvenation(tt.Metropolis(tt.Tilted(model, 2.0)), each_step=1)
    tt.run(tt.Tempered(model, 2.0, 1.5), GRID, **SIZES)
    tt.run(tt.Tilted(model, 2.0), GRID, moves=moves, **SIZES)
    tt.run(tt.Steered(model, watched(MODEL.potential), proposal=watched(MODEL.conditional)), GRID, **SIZES)
    tt.run(tt.Unweighted(model, tt.Guided(model.process, model.base, model.conditional, 2.0)), GRID, **SIZES)
    any_order = tt.AnyOrder(model, 2.0)
    tt.run(any_order, reveals, moves=tt.Rejuvenation(tt.Gibbs(any_order), at_end=1), **SIZES)
    tt.run(tt.FirstHitting(model, 2.0), GRID, **SIZES)
    predicted = tt.Predictor(model.process, model.base, watched(MODEL.potential))
    tt.run(tt.Unweighted(model, predicted), GRID, **SIZES)
    completing = tt.MonteCarloGuidance(model.process, model.base, watched(MODEL.potential), completions=4)
    tt.run(tt.Steered(model, watched(MODEL.potential), proposal=completing), GRID, **SIZES)
    tt.run(tt.Tilted(model, 2.0), GRID, chunk=2, **SIZES)


def test_every_function_of_a_users_sees_a_batch_of_states():
    seen = []
    every_sampler(lambda function: shapes_seen(function, seen))
    assert len(seen) > 50
    assert {len(shape) for shape in seen} == {2}
    assert {shape[-1] for shape in seen} == {2}


def test_functions_of_real_vectors_see_a_batch_too():
    seen = []
    mixture = c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5)
    exact = c.Observed(c.VP(), mixture, c.Observation([0.8], (0,), 1.0)).model()
    watched = [shapes_seen(f, seen) for f in (exact.base, exact.conditional, exact.potential)]
    model = c.Diffusion(exact.process, 1, *watched)
    for fk in (c.Tilted(model, 2.0).leaned(), c.Tempered(model, 2.0), c.Girsanov(model, 2.0, kernel=c.heun)):
        tt.run(fk, GRID, **SIZES)
    assert set(seen) == {(15, 1)}


def test_an_expectation_is_of_a_function_of_a_batch():
    result, seen = tt.run(tt.Tilted(MODEL, 2.0), GRID, **SIZES), []

    def first_site(x):
        seen.append(tuple(x.shape))
        return x[:, 0].double()

    assert float(result.expectation(first_site)) == pytest.approx(
        float((result.weights * result.particles[..., 0]).sum()), abs=1e-15
    )
    assert seen == [(15, 2)]


@pytest.mark.parametrize(
    ("potential", "shape"),
    [
        (lambda x, t: x.double().sum(), "()"),
        (lambda x, t: x.double().sum(-1, keepdim=True), "(15, 1)"),
        (lambda x, t: torch.zeros(3, 5), "(3, 5)"),
        (lambda x, t: torch.zeros(1), "(1,)"),
    ],
)
def test_a_potential_of_another_shape_is_named(potential, shape):
    with pytest.raises(tt.InvalidInput) as error:
        tt.run(tt.Steered(MODEL, potential), GRID, **SIZES)
    assert f"returned shape {shape} for a batch of states (15, 2); it must return one number a state, [15]" in str(
        error.value
    )


@pytest.mark.parametrize("shape", [(3, 5, 2, 3), (15, 2, 4), (15, 3, 3), (1, 2, 3)])
def test_a_score_of_another_shape_is_named(shape):
    model = tt.Model(PROBLEM.process, 2, lambda x, t: tt.SiteLogits.of(torch.zeros(shape)))
    with pytest.raises(tt.InvalidInput, match=r"for a batch of states \(15, 2\).*return \[15, 2, 3\]"):
        tt.run(tt.Unweighted(model, model.base), GRID, **SIZES)


def test_a_classifier_of_another_shape_is_named():
    predictor = tt.Predictor(PROBLEM.process, MODEL.base, lambda x, t: torch.zeros(len(x), 1))
    with pytest.raises(tt.InvalidInput, match=r"classifier returned shape .* one log-probability a state"):
        tt.run(tt.Unweighted(MODEL, predictor), GRID, **SIZES)


# what cannot be what is due


def tilted_by(potential):
    return tt.Tilted(tt.Model(PROBLEM.process, 2, MODEL.base, MODEL.conditional, potential), 3.0)


def log_likelihood(x, t):
    return MODEL.potential(x, t)


@pytest.mark.parametrize("wrong", [lambda h: h.exp(), lambda h: h + 2.0], ids=["a probability", "a raw logit"])
def test_a_potential_above_zero_is_told_once_and_never_refused(wrong):
    fk = tilted_by(lambda x, t: wrong(log_likelihood(x, t)))
    told = warnings_of(lambda: tt.run(fk, GRID, **SIZES))
    assert len(told) == 1
    assert "potential is above 0" in told[0]


def test_log_probabilities_rewards_and_densities_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.run(tilted_by(log_likelihood), GRID, **SIZES)
        tt.run(tt.Steered(MODEL, lambda x, t: x.sum(-1) + 5.0), GRID, **SIZES)
        certain = tt.Table(PROBLEM.process, PROBLEM.p0, torch.ones(3, 3)).model()  # log p(zeta|x) = 0 but for rounding
        tt.run(tt.Tilted(certain, 3.0), GRID, **SIZES)


class Net(nn.Module):
    """Logits [B, D, 3] of the clean token, half of them dropped in train mode."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, t):
        return self.drop(self.table(x))


def test_a_network_behind_posterior_score_is_asked_in_eval_mode():
    torch.manual_seed(0)
    net = Net()
    model = tt.Model(tt.Masking(3), 2, tt.PosteriorScore(tt.Masking(3), net))
    first, second = (tt.sample(model, 0.0, num_inference_steps=4, seed=1, **SIZES) for _ in range(2))
    assert torch.equal(first.particles, second.particles)
    assert net.training  # and is given back as it was


GLOBAL_NET = Net()


class Holder:
    def __init__(self, net):
        self.net = net

    def __call__(self, x, t):
        return self.net(x, t)

    def asked(self, x, t):
        return self.net(x, t)


def hiding(net):
    """Functions that call a net nobody can switch."""

    def closure(x, t):
        return net(x, t)

    def ask(net, x, t):
        return net(x, t)

    return {
        "a closure": closure,
        "a partial": functools.partial(ask, net),
        "an object": Holder(net),
        "a method": Holder(net).asked,
        "a global": lambda x, t: GLOBAL_NET(x, t),
    }


@pytest.mark.parametrize("name", hiding(None))
def test_a_network_in_train_mode_inside_a_function_is_told(name):
    process, net = tt.Masking(3), Net().train()
    GLOBAL_NET.train()
    model = tt.Model(process, 2, tt.PosteriorScore(process, hiding(net)[name]))
    with pytest.warns(UserWarning, match="calls a Net in train mode"):
        tt.sample(model, 0.0, num_inference_steps=2, **SIZES)
    GLOBAL_NET.eval()
    net.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.sample(model, 0.0, num_inference_steps=2, **SIZES)


def test_functions_that_hold_one_another_many_times_are_looked_into_once():
    inner = Holder(None)
    for _ in range(60):  # 2^60 ways lead to the innermost
        inner = functools.partial(Holder(inner).asked, inner)
    process = tt.Masking(3)
    model = tt.Model(process, 2, tt.PosteriorScore(process, lambda x, t: inner and torch.zeros(len(x), 2, 3)))
    tt.sample(model, 0.0, num_inference_steps=2, **SIZES)


class Probabilities(Net):
    def forward(self, x, t):
        return super().forward(x, t).softmax(-1)


def test_probabilities_where_logits_are_due_are_told_once():
    process = tt.Masking(3)
    model = tt.Model(process, 2, tt.PosteriorScore(process, Probabilities().eval()))
    told = warnings_of(lambda: tt.sample(model, 0.0, num_inference_steps=4, **SIZES))
    assert len(told) == 1
    assert "return probabilities" in told[0]


def test_probabilities_of_a_denoiser_are_told_too():
    net = tt.Denoiser(Probabilities().eval(), 3, 2)
    with pytest.warns(UserWarning, match="where logits are due"):
        net.trunk(torch.zeros(1, 2, dtype=torch.int64), torch.ones(1))


# unconditional sampling, and probabilities with error bars


def test_a_model_of_p0_alone_is_sampled_at_alpha_zero():
    model = tt.Model(PROBLEM.process, 2, MODEL.base)
    result = tt.sample(model, 0.0, particles=4000, num_inference_steps=30, seed=1)
    state = (result.particles @ torch.tensor([3, 1]))[0]
    found = torch.zeros(9, dtype=torch.float64).scatter_add(0, state, result.weights[0])
    assert float(result.log_weights.abs().max()) == 0
    assert float((found.reshape(3, 3) - PROBLEM.p0 / PROBLEM.p0.sum()).abs().sum()) / 2 < 0.04  # floor .019
    with pytest.raises(tt.InvalidInput, match="alpha=0"):
        tt.sample(model, 1.0)


def test_an_interval_of_a_probability_stays_within_zero_and_one():
    result = tt.run(tt.Tilted(MODEL, 2.0), GRID, particles=4, populations=4)
    rare = result.expectation_interval(lambda x: (x == result.particles[0, 0]).all(-1))
    most = result.expectation_interval(lambda x: 1.0 - (x == result.particles[0, 0]).all(-1).double())
    plain = result.expectation_interval(lambda x: 2.0 * (x == result.particles[0, 0]).all(-1))
    assert 0 <= rare.low <= rare.estimate <= rare.high <= 1
    assert 0 <= most.low <= most.estimate <= most.high <= 1
    assert plain.low < 0 or plain.high > 1  # a mean of something else is not cut


# what a twist says of itself (docs/twists.md)


class SaysAll:
    """A twist that says all that it may; `held_out` and the rest of what a learned one says are `tt.learn_twist`'s."""

    candidates, told, spent = 2, "a count", tt.Spent(1, 2, 3, 4)

    def __call__(self, x, t):
        return x.sum(-1).double()

    def relaxed(self, onehot, t):
        return onehot.argmax(-1).sum(-1).double()


def plainly(x, t):
    return x.sum(-1).double()


@pytest.mark.parametrize(("twist", "few", "words"), [(SaysAll(), 2, "a count"), (plainly, None, None)])
def test_a_twist_says_of_itself_what_it_has_and_may_leave_all_of_it_out(twist, few, words):
    around = Around(twist, tt.prompted(MODEL.base, 2, [0]))
    assert [candidates_of(twist), candidates_of(around)] == [few, few]
    assert [words_of(twist), words_of(around)] == [words, words]
    assert cost_of(twist) == (tt.Spent(0, 0, 0, 0) if few is None else SaysAll.spent)
    assert relaxed(twist) == (twist if few is None else twist.relaxed)
    assert _of_twist(twist) == "the twist is given" + (f": {words}" if words else "")
    assert not isinstance(twist, Learned)


def test_the_table_of_what_a_twist_may_say_names_the_protocols_with_their_parts():
    page = (Path(__file__).parents[1] / "docs/twists.md").read_text()
    for protocol in (SiteValued, Learned, Relaxable):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{protocol.__name__}` |"))
        parts = {name for name in vars(protocol) if not name.startswith("_")}
        assert all(f"`{name}" in row for name in parts), (protocol, parts)
