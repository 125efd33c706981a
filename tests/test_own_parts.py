"""Targets and moves of a user's own in `run` and `flow`: what cannot be right is refused in words that name it."""

from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch

import truetilt as tt
from own_parts import GRID, TABLE, AllNaN, Forgetful, Redraw, Rewarded, Unclamped, exact, zeros
from truetilt.feynman_kac import AcceptMove, FeynmanKac, OnClock, Proposal, SiteTarget, Stage, Tilt

MODEL = TABLE.model()
OTHER = tt.Table(TABLE.process, TABLE.p0.flip(0), TABLE.likelihood).model()


def ran(fk, kernel, **often):
    return tt.run(fk, GRID, particles=40, populations=2, moves=tt.Rejuvenation(kernel, **often), seed=0)


def flowed(fk, kernel, **often):
    return tt.flow(fk, GRID, moves=tt.Rejuvenation(kernel, **often))


both = pytest.mark.parametrize("go", [ran, flowed])


# targets


@both
def test_moves_of_a_run_of_ones_own_are_made(go):
    fk = Rewarded(MODEL)
    go(fk, Redraw(fk), each_step=1, at_end=1)
    go(fk, Redraw(Rewarded(TABLE.model())), each_step=1)  # the same target, built again


@both
def test_moves_with_another_ramp_are_refused_on_the_way_though_no_way_is_named(go):
    slow, fast = Rewarded(MODEL, tt.Power(2.0)), Rewarded(MODEL, tt.Power(0.5))
    go(slow, Redraw(fast), at_end=1)
    with pytest.raises(tt.InvalidInput, match=r"different ways .*differ in tilt"):
        go(slow, Redraw(fast), each_step=1)


@both
def test_moves_on_another_model_are_refused_though_no_model_is_named(go):
    with pytest.raises(tt.InvalidInput, match="different targets: they differ in base"):
        go(Rewarded(MODEL), Redraw(Rewarded(OTHER)), at_end=1)


def test_what_a_target_names_itself_is_not_added_to():
    told = {"law": "a", "model": MODEL}

    class Named(Rewarded):
        target = tt.Target(told, {"ramp": 1})

    target = Named(MODEL).spec
    assert (dict(target.final), dict(target.way)) == (told, {"ramp": 1})


@pytest.mark.parametrize("parts", [("p0 e^r",), ({}, "ramp")])
def test_the_parts_of_a_target_have_names(parts):
    with pytest.raises(tt.InvalidInput, match=r"of a target is .*; give its parts by name"):
        tt.Target(*parts)


def test_a_constant_in_words_is_that_of_log_z():
    assert tt.run(Rewarded(MODEL), GRID, particles=8, seed=0).log_z_words == "log sum of p0(x) exp(reward(x))"


# moves


@pytest.mark.parametrize(("kernel", "words"), [(AllNaN, "NaN for"), (Unclamped, r"up to 1\.\d+ for")])
def test_acceptance_that_is_no_probability_is_refused(kernel, words):
    fk = Rewarded(MODEL)
    with pytest.raises(tt.InvalidWeights, match=f"{kernel.__name__}, a move at t = 0.*: the acceptance.*{words}"):
        ran(fk, kernel(fk), at_end=1)
    with pytest.raises(tt.InvalidWeights, match=r"flow: a move \(AcceptMove\) gives NaN"):
        flowed(fk, kernel(fk), at_end=1)


def test_rounding_above_one_is_no_error():
    class Rounded(Redraw):
        def accept(self, there, here):
            return super().accept(there, here) + 1e-15

    fk = Rewarded(MODEL)
    assert not ran(fk, Rounded(fk), at_end=1).accepted.isnan().any()


@both
def test_a_move_that_forgets_the_tilt_is_named(go):
    fk = Rewarded(MODEL)
    with pytest.raises(tt.InvalidInput, match="the particles carry nothing and no log_tilt"):
        go(fk, Forgetful(fk), each_step=1)


@pytest.mark.parametrize("kernel", [tt.Pair, lambda fk: tt.Block(fk, 2), None])
@both
def test_moves_of_finished_states_are_refused_between_the_steps_in_words(go, kernel):
    fk = tt.Steered(MODEL, zeros)
    with pytest.raises(tt.InvalidInput, match=r"moves finished states only in such a run.* at_end only"):
        go(fk, kernel(fk) if kernel else tt.Pair, each_step=1)
    go(fk, kernel(fk) if kernel else tt.Pair, at_end=1)


@pytest.mark.parametrize("kernel", [tt.Gibbs, Redraw, partial(tt.Gibbs, scan=tt.systematic_scan)])
def test_moves_are_made_from_the_value_that_is_run(kernel):
    """The same bits, settings and limit as of moves that were made from it before."""
    fk = tt.Steered(MODEL, zeros, ramp=tt.Power(2.0))
    results = [ran(fk, each, each_step=1, at_end=2) for each in (kernel, kernel(fk))]
    assert torch.equal(results[0].particles, results[1].particles)
    assert torch.equal(results[0].log_weights, results[1].log_weights)
    assert results[0].settings == results[1].settings
    limits = [flowed(fk, each, each_step=1).log_mass for each in (kernel, kernel(fk))]
    assert torch.equal(*limits)


def test_what_makes_no_moves_is_refused_in_words():
    fk = tt.Steered(MODEL, zeros)
    with pytest.raises(tt.InvalidInput, match=r"kernel is .*Steered.*; give moves, such as tt.Gibbs"):
        tt.Rejuvenation(fk, at_end=1)
    for go in (ran, flowed):
        with pytest.raises(tt.InvalidInput, match=r"what kernel made is .*Steered.*; give moves, such as tt.Gibbs"):
            go(fk, lambda fk: fk, at_end=1)
        with pytest.raises(tt.InvalidInput, match=r"kernel cannot be called with .*size"):
            go(fk, tt.Block, at_end=1)


def test_no_moves_at_all_are_refused():
    with pytest.raises(tt.InvalidInput, match="each_step, after_resampling and at_end are all 0"):
        tt.Rejuvenation(tt.Gibbs(tt.AnyOrder(MODEL, 2.0)))


# parts of the wrong kind

X, NUMBER = torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4, dtype=torch.float64)
LAW = TABLE.process.prior((4, 2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AcceptMove(X, X, NUMBER[:, None], {}, {}), r"log_accept .* of shape \(4, 1\).*each particle, \(4,\)"),
        (lambda: AcceptMove(X, X[:2], NUMBER, {}, {}), "y has the shape of x"),
        (lambda: AcceptMove(X, X, 0.0, {}, {}), "log_accept 0.0"),
        (lambda: AcceptMove(X, X, NUMBER, {}, {"log_tilt": NUMBER}), r"\['log_tilt'\] of y and not of x"),
        (lambda: Tilt(zeros, 2.0), r"2.0\) is made of .* `lambda t: 2.0`"),
        (lambda: Tilt(NUMBER, abs), "is made of a function"),
        (lambda: Proposal(X), "each part must be a law of a step"),
        (lambda: Proposal(LAW, ((LAW, 2.0),)), r"pairs \(c, law\)"),
        (lambda: Proposal(LAW, (2.0,)), "a Proposal holds 2.0"),
    ],
)
def test_parts_of_the_wrong_kind_are_refused_where_they_are_made(make, words):
    with pytest.raises(tt.InvalidInput, match=words):
        make()


def test_a_law_in_place_of_a_proposal_is_named():
    class Bare(Rewarded):
        def propose(self, x, t, s):
            return super().propose(x, t, s).law

    with pytest.raises(tt.InvalidInput, match=r"(?s)`propose` returned SiteLaw.* it must return Proposal"):
        tt.run(Bare(MODEL), GRID, particles=4, seed=0)


# a target by stages, for the library's moves


@dataclass(frozen=True)
class Staged(OnClock, SiteTarget):
    """Rewarded, known site by site; `keep` is that of OnClock."""

    ramp = tt.Power(1.0)
    target, tilt, propose = Rewarded.target, Rewarded.tilt, Rewarded.propose

    @property
    def scores(self):
        return {"base": self.model.base}

    def stage(self, t):
        return Stage(t, potentials=(zeros,), factors=(self.ramp(1 - t),))


def test_moves_of_ours_between_the_steps_of_a_target_by_stages():
    fk, law = Staged(MODEL), exact(TABLE) / exact(TABLE).sum()
    gaps = []
    for steps in (16, 32, 64):
        moves = tt.Rejuvenation(tt.Gibbs(fk, tt.systematic_scan), each_step=1)
        limit = tt.flow(fk, tt.uniform_grid(steps), moves=moves)
        gaps.append(float((limit.law.reshape(4, 4)[:3, :3] - law).abs().sum()))
    assert gaps[2] < 0.6 * gaps[1] < 0.36 * gaps[0]
    assert abs(float(limit.log_z - exact(TABLE).sum().log())) < 0.01


# the size of the space


def test_flow_knows_the_space_from_the_model():
    fk = tt.Tilted(MODEL, 2.0)
    assert torch.equal(tt.flow(fk, GRID).log_mass, tt.flow(fk, GRID, 4, 2).log_mass)
    with pytest.raises(tt.InvalidInput, match="model has 2 of 4"):
        tt.flow(fk, GRID, length=3)

    class NoModel(FeynmanKac):
        start, choices, move, branches = fk.start, fk.choices, fk.move, fk.branches

    with pytest.raises(tt.InvalidInput, match="fk has no model, so give size and length"):
        tt.flow(NoModel(), GRID)
    assert torch.equal(tt.flow(NoModel(), GRID, 4, 2).log_mass, tt.flow(fk, GRID).log_mass)


def test_metered_models_are_the_same_target():
    """A run counts on a copy of its model; moves that were built before are still moves of its target."""
    fk = Rewarded(replace(MODEL, potential=None))
    assert ran(fk, Redraw(fk), each_step=1).log_z > -torch.inf
