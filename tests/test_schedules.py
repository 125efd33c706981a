"""Noise schedules and time grids."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import truetilt as tt
from problems import FIXED
from truetilt.diffusion.grids import check_grid

SCHEDULES = [
    tt.LogLinear(),
    tt.LogLinear(0.3),
    tt.Geometric(),
    tt.Geometric(0.1, 3.0),
    tt.Cosine(),
    tt.Cosine(0.2),
]
every = pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
nan = math.nan


def sigma(schedule, t):
    return float(schedule(t).value)


def noised_fraction(schedule, t):
    return -math.expm1(-sigma(schedule, t))


def names(value):
    """A pattern that finds the value in a message."""
    return rf"(?<![\d.]){re.escape(str(value))}(?![\d])"


@every
@FIXED
@given(t=st.floats(0.01, 0.95))
def test_rate_is_the_numerical_derivative_of_sigma(schedule, t):
    h = 1e-3
    five_point = (
        8 * (sigma(schedule, t + h) - sigma(schedule, t - h)) - sigma(schedule, t + 2 * h) + sigma(schedule, t - 2 * h)
    ) / (12 * h)
    assert float(schedule(t).rate) == pytest.approx(five_point, rel=1e-6)


@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        (tt.LogLinear(0.01), lambda t: -math.log(1 - 0.99 * t)),
        (tt.Geometric(0.01, 5.0), lambda t: 0.01 ** (1 - t) * 5.0**t),
        (tt.Cosine(0.01), lambda t: -math.log(0.01 + 0.99 * math.cos(math.pi * t / 2))),
    ],
    ids=["log-linear", "geometric", "cosine"],
)
def test_sigma_is_the_stated_formula(schedule, formula):
    for t in (0.1, 0.4, 0.75, 1.0):
        assert sigma(schedule, t) == pytest.approx(formula(t), rel=1e-12)


@every
def test_sigma_is_exactly_zero_at_time_zero(schedule):
    assert sigma(schedule, 0.0) == 0.0


@every
@FIXED
@given(t=st.floats(0, 1), s=st.floats(0, 1))
def test_sigma_is_monotone(schedule, t, s):
    low, high = sorted((t, s))
    assert sigma(schedule, low) <= sigma(schedule, high)
    if high - low > 1e-6:
        assert sigma(schedule, low) < sigma(schedule, high)


@every
def test_noise_is_finite_at_both_ends(schedule):
    for t in (0.0, 1.0):
        assert math.isfinite(sigma(schedule, t))
        assert math.isfinite(float(schedule(t).rate))


@every
@FIXED
@given(t=st.floats(1e-3, 1))
def test_time_of_inverts_sigma(schedule, t):
    assert schedule.time_of(sigma(schedule, t)) == pytest.approx(t, abs=1e-12)


@pytest.mark.parametrize("schedule", [tt.LogLinear(), tt.Cosine()], ids=repr)
@FIXED
@given(t=st.floats(1e-7, 1e-3))
def test_time_of_keeps_its_digits_near_zero(schedule, t):
    assert schedule.time_of(sigma(schedule, t)) == pytest.approx(t, rel=1e-9)


@every
def test_a_tensor_of_times_gives_a_tensor_of_noise(schedule):
    t = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    got = schedule(t)
    assert got.value.tolist() == [sigma(schedule, float(v)) for v in t]
    assert got.rate.tolist() == [float(schedule(float(v)).rate) for v in t]


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_uniform_grid_has_equal_steps_from_one_to_zero(steps):
    grid = tt.uniform_grid(steps)
    assert (grid[0], grid[-1], len(grid)) == (1.0, 0.0, steps + 1)
    assert grid == pytest.approx([(steps - i) / steps for i in range(steps + 1)], abs=1e-15)


@every
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_masked_fraction_falls_by_equal_amounts(schedule, steps):
    grid = tt.masked_fraction_grid(schedule, steps)
    assert (grid[0], grid[-1], len(grid)) == (1.0, 0.0, steps + 1)
    top = noised_fraction(schedule, 1.0)
    fractions = [noised_fraction(schedule, t) for t in grid]
    assert fractions == pytest.approx([top * (steps - i) / steps for i in range(steps + 1)], abs=1e-12)


@pytest.mark.parametrize("kind", [tt.LogLinear, tt.Cosine])
@pytest.mark.parametrize("eps", [0.0, 1.0, -0.25, 2.5, nan])
def test_bad_eps_is_rejected_by_name(kind, eps):
    with pytest.raises(tt.InvalidInput, match=names(eps)):
        kind(eps)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.5), (2.5, 1.5), (1.5, 1.5), (-1.5, 2.5), (1.5, math.inf), (nan, 1)])
def test_bad_sigma_range_is_rejected_by_name(low, high):
    with pytest.raises(tt.InvalidInput, match=f"{names(low)}.*{names(high)}"):
        tt.Geometric(low, high)


@pytest.mark.parametrize("steps", [0, -3])
def test_bad_steps_are_rejected_by_name(steps):
    with pytest.raises(tt.InvalidInput, match=f"steps is {steps}"):
        tt.uniform_grid(steps)
    with pytest.raises(tt.InvalidInput, match=f"steps is {steps}"):
        tt.masked_fraction_grid(tt.LogLinear(), steps)


@pytest.mark.parametrize(
    ("grid", "named"),
    [
        ((1.0, 0.25, 0.75, 0.0), "0.25 to 0.75 at step 1"),
        ((1.0, 0.5, 0.5, 0.0), "0.5 to 0.5 at step 1"),
        ((1.5, 0.0), "1.5 to 0.0 at step 0"),
        ((1.0, -0.5), "1.0 to -0.5 at step 0"),
        ((1.0, nan, 0.0), "1.0 to nan at step 0"),
        ((1.0,), "1 points"),
        ((), "0 points"),
    ],
)
def test_bad_grid_is_rejected_by_name(grid, named):
    with pytest.raises(tt.InvalidInput, match=named):
        check_grid(grid)


@every
@pytest.mark.parametrize("t", [-0.125, 1.125, nan])
def test_time_outside_zero_to_one_is_rejected_by_name(schedule, t):
    with pytest.raises(tt.InvalidInput, match=names(t)):
        schedule(t)
