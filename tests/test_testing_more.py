"""What the checks once let pass: moves with stale memory, choices that leak, NaN on impossible states, wrong clocks."""

from dataclasses import replace
from functools import partial

import pytest
import torch

import truetilt as tt
from own_parts import (
    MASKING,
    TABLE,
    UNIFORM,
    AllNaN,
    Elsewhere,
    Forgetful,
    Leaking,
    NaNOnImpossible,
    Redraw,
    Rewarded,
    Stale,
    Unclamped,
    exact,
    zeros,
)
from test_testing import any_order, rejected, tempered
from truetilt.diffusion.kernels import SiteLaw, log1mexp
from truetilt.feynman_kac import AcceptMove, SiteOdds, Tilt
from truetilt.testing import check_kernel, check_move, check_potential, check_resampler, check_target


def of(kernel):
    return lambda m: kernel(Rewarded(m))


def each_step(kernel):
    return tt.Rejuvenation(kernel, each_step=1)


# moves


def test_a_move_of_ones_own_passes():
    check_move(of(Redraw), exact)
    check_target(Rewarded, exact, moves=each_step(Redraw))


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (Stale, r"log_tilt that a move returns for a state is off fk.tilt"),
        (Forgetful, r"returns nothing for its particles and no log_tilt.*at_end_only"),
        (Leaking, r"probabilities of `branches` are off 1 by 6\.3e-01"),
        (Elsewhere, "`branches` do not do what `move` does"),
        (NaNOnImpossible, "log_accept is NaN for .* where p0 forbids the particle itself"),
        (AllNaN, "log_accept is NaN for 27 of 27"),
        (Unclamped, "log_accept is above 0"),
    ],
)
def test_wrong_moves_of_ones_own(kernel, words):
    with rejected(words):
        check_move(of(kernel), exact)


def test_nan_on_impossible_states_is_seen_on_a_table_with_zeros_alone():
    """On a table without them, as the checks once were, it passes."""
    full = tt.Table(MASKING, TABLE.p0 + 0.1, TABLE.likelihood)
    check_move(of(NaNOnImpossible), exact, table=full)
    with rejected("log_accept is NaN for 2 of 9"):
        check_move(of(NaNOnImpossible), exact, table=TABLE)


def test_a_move_for_the_end_alone_may_forget():
    class Last(Forgetful):
        @property
        def target(self):
            return super().target.at_end_only()

    check_move(of(Last), exact)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (Stale, "the limit with moves on Masking.* by half as steps double"),
        (Forgetful, "carry nothing and no log_tilt"),
        (Leaking, "moves change log Z by"),
        (lambda fk: Redraw(replace(fk, ramp=tt.Power(3.0))), "differ in tilt"),
    ],
)
def test_wrong_moves_between_the_steps_of_a_time_grid(kernel, words):
    with rejected(words):
        check_target(Rewarded, exact, moves=each_step(kernel))


@pytest.mark.parametrize("kernel", [partial(tt.Gibbs, scan=tt.systematic_scan), tt.Metropolis])
def test_moves_of_ours_between_the_steps_of_a_time_grid(kernel):
    check_target(lambda m: tt.Steered(m, zeros), exact, moves=each_step(kernel))


def test_an_along_with_time_error_or_another_target_is_refused():
    for along in (lambda m: tt.Tilted(m, 3.0), lambda m: tt.AnyOrder(m, 2.9)):
        with pytest.raises(tt.InvalidInput, match=r"ends .* from the exact law: it has time error.*moves=\.\.\."):
            check_move(lambda m: tt.Gibbs(any_order(m)), tempered(3.0), along=along)


def test_a_move_that_goes_nowhere_but_loses_track_is_rejected():
    class Torn(Redraw):
        def to(self, *given):
            move = super().to(*given)
            return AcceptMove(move.x, move.y, move.log_accept[..., None], move.aux_x, move.aux_y)

    with rejected("log_accept a Tensor of shape .27, 1."):
        check_move(of(Torn), exact)


# targets


def test_log_z_is_checked_where_it_is_given():
    def log_z(table):
        return exact(table).sum().log()

    class Shifted(Rewarded):
        @property
        def tilt(self):
            return Tilt(lambda x, t: zeros(x, t) + 5.0, lambda t: self.ramp(1 - t))

    check_target(Rewarded, exact, log_z=log_z)
    check_target(lambda m: tt.Tilted(m, 2.0), tempered(2.0), log_z=lambda table: table.log_z_tilted(2.0))
    check_target(Shifted, exact)
    with rejected(r"log Z is off log_z, 1\.\d+, by 5\.0e\+00"):
        check_target(Shifted, exact, log_z=log_z)


def test_a_target_that_is_nan_where_p0_forbids_a_state():
    """-inf less -inf: only a step that reveals several sites at once on a table with zeros shows it."""

    def reward_of(m):
        p0 = getattr(m.base, "p0", TABLE.p0)

        def reward(x, t):
            possible = (x == 3).any(-1) | (p0[tuple(x.clamp(max=2).unbind(-1))] > 0)
            return torch.where(possible, zeros(x, t), torch.nan)

        return reward

    def make(m):
        return tt.Steered(m, reward_of(m))

    check_target(make, exact, table=tt.Table(MASKING, TABLE.p0 + 0.1, TABLE.likelihood))
    with rejected("returned NaN for"):
        check_target(make, exact)


def test_a_table_of_ones_own():
    table = tt.Table(UNIFORM, TABLE.p0, TABLE.likelihood)
    check_target(lambda m: tt.Tilted(m, 2.0), tempered(2.0), table=table)
    check_move(lambda m: tt.Gibbs(any_order(m)), tempered(3.0), table=TABLE)
    for junk, words in (
        (3, "table is 3"),
        (tt.Table(MASKING, torch.ones([3] * 5), torch.ones([3] * 5)), "1024 noised"),
    ):
        with pytest.raises(tt.InvalidInput, match=words):
            check_target(lambda m: tt.Tilted(m, 2.0), tempered(2.0), table=junk)


def test_the_probe_with_nan_is_named_where_make_cannot_use_its_model():
    with rejected(r"make, on a model whose base is a plain function that returns NaN, raised AttributeError.*'p0'"):
        check_target(lambda m: tt.Tilted(replace(m, length=m.base.p0.dim()), 2.0), tempered(2.0))


# kernels


def scaled(c):
    """Euler with rates off by a factor."""

    def kernel(process, log_score, x, t, s):
        j = process.jumps(log_score, x, t, s)
        rate = c * (j.log_clock + j.log_total).exp()
        leave = torch.where(rate.isinf(), 0.0, log1mexp(rate)) + j.log_reference - j.log_total
        return SiteLaw(
            x, SiteOdds(j.logits, torch.where(j.movable, -rate, 0.0), torch.where(j.movable, leave, -torch.inf))
        )

    return kernel


def clamped(process, log_score, x, t, s):
    """Leaves with the rate itself, at most 1."""
    j = process.jumps(log_score, x, t, s)
    rate = (j.log_clock + j.log_total).exp().clamp(max=1.0)
    leave = rate.log() + j.log_reference - j.log_total
    hold = torch.where(j.movable, torch.log1p(-rate), 0.0)
    return SiteLaw(x, SiteOdds(j.logits, hold, torch.where(j.movable, leave, -torch.inf)))


@pytest.mark.parametrize("process", [MASKING, UNIFORM])
def test_rates_that_are_those_of_the_process_pass(process):
    for kernel in (scaled(1.0), tt.euler, tt.tweedie, tt.tau_leaping):
        check_kernel(kernel, process)


@pytest.mark.parametrize("factor", [0.5, 0.995, 1.005, 1.05, 2.0])
@pytest.mark.parametrize("process", [MASKING, UNIFORM])
def test_rates_off_by_half_a_percent_are_noticed(process, factor):
    with rejected("the rates are not those of the process|by half as steps double"):
        check_kernel(scaled(factor), process)


def test_clamped_rates_are_noticed_on_the_uniform_process_too():
    with rejected(r"Uniform.*step 0.9 -> 0.05: \d+ things .* never clamp"):
        check_kernel(clamped, UNIFORM)


def test_single_precision_is_named():
    def single(process, log_score, x, t, s):
        odds = tt.euler(process, log_score, x, t, s).odds
        return SiteLaw(x, odds._replace(log_hold=odds.log_hold.float(), log_move=odds.log_move.float()))

    def coarse(log_w, u):
        out = tt.systematic(log_w, u)
        return out._replace(log_w=out.log_w.float())

    with rejected("looks like float32"):
        check_kernel(single)
    with rejected(r"apart \(1e-12 are allowed\); looks like float32"):
        check_resampler(coarse)


# every rejection is a Rejected


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (lambda: check_resampler(lambda log_w, u: log_w), tt.InvalidInput),
        (lambda: check_kernel(lambda process, score, x, t, s: x), tt.InvalidInput),
        (lambda: check_target(lambda m: None, exact), tt.InvalidInput),
        (lambda: check_move(lambda m: None, exact), tt.InvalidInput),
        (lambda: check_potential(lambda x, t: torch.full(x.shape[:1], torch.nan), MASKING, 2), tt.InvalidWeights),
        (
            lambda: check_target(lambda m: tt.Steered(m, lambda x, t: zeros(x, t) - torch.inf), exact),
            tt.DegenerateWeights,
        ),
    ],
)
def test_what_is_rejected_is_caught_as_such_and_as_before(check, kind):
    with pytest.raises(tt.testing.Rejected) as found:
        check()
    assert isinstance(found.value, kind)


# potentials


def test_a_reward_of_states_alone_is_checked_and_one_of_clean_states():
    def of_clean(x):
        assert (x < 3).all()
        return x.double().sum(-1)

    check_potential(lambda x: (x == 0).sum(-1), MASKING, 3)
    check_potential(of_clean, MASKING, 3, clean_only=True)
    with rejected("asked one by one"):
        check_potential(lambda x: x.sum(-1) - x.double().mean(), MASKING, 3, clean_only=True)
