"""What a step may draw: SiteLaw and the inversion of its CDF."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import truetilt as tt
from problems import FIXED, TOP
from truetilt.core.logits import draw_by_row, draw_from, invert_cdf, pick_at
from truetilt.core.types import SiteOdds
from truetilt.diffusion.kernels import SiteLaw, skip_mass

INF = math.inf
V = 4  # tokens; token V is the mask
logit = st.one_of(st.just(-INF), st.floats(-15, 15))
row = st.lists(logit, min_size=V, max_size=V)
token = st.integers(0, V)
chance = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))


def chances(row, x, hold):
    """Probability of every state of a site [V + 1]: hold at x, the rest over the other tokens of the row."""
    mass = [math.exp(value) if v != x else 0.0 for v, value in enumerate(row)]
    out = [(1 - hold) * m / sum(mass) for m in mass] + [0.0]
    out[x] = hold
    return out


def law_of(row, x, hold, copies):
    """The same law as the library holds it, in many copies [copies, 1]."""
    rows = torch.tensor([row], dtype=torch.float64)
    others = [value for v, value in enumerate(row) if v != x]
    total = torch.tensor(others, dtype=torch.float64).logsumexp(0)
    log_hold, log_leave = torch.tensor([hold, 1 - hold], dtype=torch.float64).log()
    log_move = torch.where(log_leave > -INF, log_leave - total, -INF)
    state = torch.full((copies, 1), x)
    shared = tt.SiteLogits(rows, torch.zeros_like(state))
    return SiteLaw(state, SiteOdds(shared, log_hold.expand(copies, 1), log_move.expand(copies, 1)))


def possible(row, x, hold):
    """A law needs somewhere to go, or to stay for sure."""
    return hold == 1 or any(value > -INF for v, value in enumerate(row) if v != x)


def two_sites():
    """A law over two sites, four tokens and a mask, with its probabilities by hand."""
    rows = [[0.3, -INF, 1.0, -2.0], [0.0, 0.5, -INF, -INF]]
    x, hold = [2, V], [0.25, 0.4]
    by_hand = torch.tensor([chances(*site) for site in zip(rows, x, hold, strict=True)], dtype=torch.float64)
    sites = [law_of(*site, copies=1) for site in zip(rows, x, hold, strict=True)]
    logits = tt.SiteLogits(torch.tensor(rows, dtype=torch.float64), torch.tensor([[0, 1]]))
    odds = SiteOdds(
        logits,
        torch.cat([s.odds.log_hold for s in sites], -1),
        torch.cat([s.odds.log_move for s in sites], -1),
    )
    return SiteLaw(torch.tensor([x]), odds), by_hand


def grid(m):
    """m equally spaced uniforms [m, 1]."""
    return ((torch.arange(m, dtype=torch.float64) + 0.5) / m)[:, None]


def test_probabilities_of_all_states_sum_to_one():
    law, by_hand = two_sites()
    states = torch.cartesian_prod(torch.arange(V + 1), torch.arange(V + 1))
    got = law.take(torch.zeros(len(states), dtype=torch.int64)).log_prob(states).exp()
    assert float(got.sum()) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(got, torch.outer(*by_hand).reshape(-1), rtol=1e-12, atol=1e-12)


@FIXED
@given(row=row, x=token, hold=chance)
def test_site_probabilities_are_those_stated(row, x, hold):
    assume(possible(row, x, hold))
    got = law_of(row, x, hold, V + 1).site_log_prob(torch.arange(V + 1)[:, None]).exp()[:, 0]
    expected = chances(row, x, hold) if hold < 1 else [float(v == x) for v in range(V + 1)]
    assert got.tolist() == pytest.approx(expected, abs=1e-12)


@FIXED
@given(row=row, x=token, hold=chance)
def test_a_grid_of_uniforms_reproduces_the_probabilities(row, x, hold):
    assume(possible(row, x, hold))
    m = 2_000
    law = law_of(row, x, hold, m)
    frequency = torch.bincount(law.sample(grid(m))[:, 0], minlength=V + 1).double() / m
    states = torch.arange(V + 1)[:, None]
    expected = law.take(torch.zeros(V + 1, dtype=torch.int64)).site_log_prob(states).exp()[:, 0]
    assert (frequency - expected).abs().max() <= 2.01 / m  # a token owns at most two intervals of u


@FIXED
@given(row=row, x=token, hold=chance, u=st.floats(0, TOP))
def test_an_impossible_token_is_never_drawn(row, x, hold, u):
    assume(possible(row, x, hold))
    edges = torch.tensor([0.0, u, hold * (1 - 2.0**-53), min(hold, TOP), TOP], dtype=torch.float64)
    law = law_of(row, x, hold, len(edges))
    y = law.sample(edges[:, None])
    assert (law.site_log_prob(y) > -INF).all()


@FIXED
@given(row=row, x=token, hold=st.floats(0, 0.999), u=st.floats(0, TOP))
def test_a_jump_never_lands_on_the_current_token(row, x, hold, u):
    assume(possible(row, x, hold))
    edges = torch.tensor([hold, hold + u * (1 - hold), TOP], dtype=torch.float64).clamp(max=TOP)
    law = law_of(row, x, hold, len(edges))
    held = edges < law.odds.log_hold[:, 0].exp()
    assert ((law.sample(edges[:, None])[:, 0] == x) == held).all()


@pytest.mark.parametrize("x", range(V + 1))
def test_a_certain_hold_never_moves(x):
    law = law_of([0.0] * V, x, 1.0, 3)
    u = torch.tensor([[0.0], [0.5], [TOP]], dtype=torch.float64)
    assert (law.sample(u) == x).all()
    assert law.frozen().all()


def test_a_site_that_may_move_is_not_frozen():
    law, _ = two_sites()
    assert not law.frozen().any()


def test_a_jump_back_to_the_mask_is_impossible():
    law = law_of([0.0] * V, 1, 0.5, 1)
    assert float(law.site_log_prob(torch.tensor([[V]]))) == -INF


def test_particles_that_share_a_row_draw_as_if_alone():
    u = grid(50)
    together = law_of([0.1, 0.7, -INF, 0.2], 0, 0.3, 50).sample(u)
    alone = [int(law_of([0.1, 0.7, -INF, 0.2], 0, 0.3, 1).sample(v[None])) for v in u]
    assert together[:, 0].tolist() == alone


@FIXED
@given(ancestors=st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_take_gathers_the_laws_of_the_ancestors(ancestors):
    generator = torch.Generator().manual_seed(3)
    states = torch.tensor([[0, 3], [3, 3], [3, 1]])
    logits = tt.SiteLogits.of(torch.randn(3, 2, 3, generator=generator, dtype=torch.float64))
    index = torch.tensor(ancestors)
    taken = tt.euler(tt.Masking(3), logits, states, 0.6, 0.4).take(index)
    rebuilt = tt.euler(tt.Masking(3), tt.SiteLogits.of(logits.dense()[index]), states[index], 0.6, 0.4)
    u = torch.rand(len(ancestors), 2, generator=generator, dtype=torch.float64)
    y = rebuilt.sample(u)
    assert torch.equal(taken.x, states[index])
    assert torch.equal(taken.sample(u), y)
    assert torch.equal(taken.log_prob(y), rebuilt.log_prob(y))


def test_take_works_within_each_population():
    x = torch.tensor([[[0], [1]], [[2], [0]]])
    logits = tt.SiteLogits.of(torch.zeros(2, 2, 1, 3, dtype=torch.float64))
    law = tt.euler(tt.Uniform(3), logits, x, 0.6, 0.4).take(torch.tensor([[1, 1], [0, 1]]))
    assert law.x.tolist() == [[[1], [1]], [[2], [0]]]


# Inverting a CDF.


@FIXED
@given(masses=st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=17), fraction=st.floats(0, TOP))
def test_invert_cdf_is_the_first_entry_above_the_height(masses, fraction):
    assume(sum(masses) > 0)
    cdf = torch.tensor(masses, dtype=torch.float64).cumsum(0)
    height = fraction * float(cdf[-1])
    padded = torch.cat([torch.full((5,), 9.0, dtype=torch.float64), cdf])  # a row that does not begin at 0
    got = invert_cdf(padded, torch.tensor([5]), len(masses), torch.tensor([height], dtype=torch.float64))
    assert int(got) == next(v for v, c in enumerate(cdf.tolist()) if c > height)


def test_what_is_picked_at_a_height_is_the_first_entry_that_reaches_it_or_the_last():
    cdf = torch.tensor([[0.0, 0.25, 0.25, 1.0], [0.5, 0.5, 0.75, 0.75]], dtype=torch.float64)
    heights = torch.tensor([[0.1, 0.25, 0.3, 1.5], [0.1, 0.5, 0.6, 0.75]], dtype=torch.float64)
    assert pick_at(cdf, heights).tolist() == [[1, 1, 3, 3], [0, 0, 2, 2]]
    assert pick_at(cdf[0], heights[0]).tolist() == [1, 1, 3, 3]  # one row


def test_invert_cdf_past_the_end_is_the_last_entry():
    cdf = torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64)
    assert int(invert_cdf(cdf, torch.tensor([0]), 3, torch.tensor([2.0], dtype=torch.float64))) == 2


@FIXED
@given(
    below=st.sampled_from([0.0, 1e-9, 1.0, 7.0]),
    own=st.sampled_from([0.0, 1e-9, 1.0, 1e6]),
    beyond=st.sampled_from([0.0, 1e-9, 1.0, 7.0]),
    u=st.one_of(st.sampled_from([0.0, TOP]), st.floats(0, TOP)),
)
def test_skip_mass_stays_out_of_the_cut(below, own, beyond, u):
    assume(below + beyond > 0)
    above, total = below + own, below + own + beyond
    assume(total > above or below > 0)
    args = [torch.tensor(value, dtype=torch.float64) for value in (u, below, above, total)]
    height = float(skip_mass(*args))
    assert 0 <= height < below or above <= height < total


def test_skip_mass_covers_both_sides_in_proportion():
    u = grid(1_000)[:, 0]
    height = skip_mass(u, *(torch.tensor(v, dtype=torch.float64) for v in (1.0, 5.0, 8.0)))
    assert int((height < 1).sum()) == 250
    assert float(height[250:].min()) == pytest.approx(5, abs=0.01)
    assert float(height.max()) == pytest.approx(8, abs=0.01)


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_no_uniform_draws_what_has_no_mass(scale):
    cdf = (torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0], [0.1, 0.2, 0.3, 0.0, 0.0]]).double() * scale).cumsum(-1)
    for u, drawn in ((0.0, [1, 0]), (TOP, [3, 2])):
        heights = torch.full((2,), u, dtype=torch.float64)
        assert draw_from(cdf, heights[:, None]).squeeze(-1).tolist() == drawn
        assert draw_by_row(cdf, torch.arange(2), heights).tolist() == drawn
        assert [int(draw_from(row, heights[0])) for row in cdf] == drawn
