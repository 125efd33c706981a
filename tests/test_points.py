"""Distances between clouds of points against closed forms, assignment by hand and what weights must mean."""

import itertools
import math

import pytest
import torch

import truetilt as tt
from truetilt.metrics.cloud_distances import median_distance, mmd, sliced_wasserstein, sphere, wasserstein


def normals(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_equal_counts_are_matched_in_order(power):
    x, y = normals(7), normals(7, seed=1)
    best = min(float((x - y[list(p)]).abs().pow(power).mean() ** (1 / power)) for p in itertools.permutations(range(7)))
    assert float(wasserstein(x, y, power=power)) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_a_weight_is_as_many_copies(power):
    x, y, counts = normals(5), normals(8, seed=1), torch.tensor([3, 1, 0, 4, 2])
    weighted = wasserstein(x, y, wx=counts.double() / 10, power=power)
    assert float(weighted) == pytest.approx(float(wasserstein(x.repeat_interleave(counts), y, power=power)), rel=1e-12)


def test_one_is_the_area_between_distribution_functions():
    x, y = normals(40), normals(30, seed=1)
    w = normals(40, seed=2).softmax(0)
    at = torch.linspace(-6, 6, 600_001, dtype=torch.float64)
    order = x.argsort()
    f = torch.cat([torch.zeros(1).double(), w[order].cumsum(0)])[torch.searchsorted(x[order], at, right=True)]
    g = torch.searchsorted(y.sort().values, at, right=True) / 30
    assert float(wasserstein(x, y, w, power=1.0)) == pytest.approx(float((f - g).abs().mean() * 12), abs=1e-4)


def test_a_shift_moves_each_shadow_by_its_share():
    x, shift, lines = normals(50, 3), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), sphere(200, 3)
    expected = float((lines @ shift).square().mean().sqrt())
    assert sliced_wasserstein(x, x + shift, lines) == pytest.approx(expected, rel=1e-10)
    assert expected == pytest.approx(float(shift.norm()) / math.sqrt(3), rel=0.15)
    assert sliced_wasserstein(x, x, lines) == 0


def test_directions_are_unit_and_replay():
    assert torch.allclose(sphere(10, 4).norm(dim=-1), torch.ones(10).double())
    assert torch.equal(sphere(10, 4, 1), sphere(10, 4, 1))
    assert not torch.equal(sphere(10, 4, 1), sphere(10, 4, 2))


def test_mmd_is_the_double_sum():
    x, y, w = normals(4, 2), normals(5, 2, seed=1), normals(4, seed=2).softmax(0)

    def k(a, b):
        return torch.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * 0.7**2))

    v = torch.full((5,), 0.2).double()
    by_hand = w @ k(x, x) @ w - 2 * w @ k(x, y) @ v + v @ k(y, y) @ v
    assert mmd(x, y, 0.7, w) == pytest.approx(math.sqrt(by_hand), rel=1e-6)
    assert mmd(x, x, 0.7) < 1e-7


def test_mmd_of_gaussians_is_the_closed_form():
    """N(0, I) and N(d, I): 2 (b^2 / (b^2 + 2))^(D/2) (1 - exp(-|d|^2 / (2 (b^2 + 2)))), plus 1/n of sampling."""
    n, shift = 4000, 1.5
    x, y = normals(n, 2), normals(n, 2, seed=1)
    y[:, 0] += shift
    exact = math.sqrt(2 * (1 / 3) * (1 - math.exp(-(shift**2) / 6)))
    assert mmd(x, y, 1.0) == pytest.approx(exact, abs=0.02)


def test_median_distance_is_that():
    assert median_distance(torch.tensor([[0.0], [1.0], [3.0]])) == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: wasserstein(normals(3), normals(3), power=0.5), "power"),
        (lambda: wasserstein(normals(3), normals(3), normals(2).softmax(0)), "2,. weights for 3 points"),
        (lambda: wasserstein(normals(3), normals(3), torch.ones(3)), "sum to one"),
        (lambda: mmd(normals(3, 2), normals(3, 1), 1.0), "same dimension"),
        (lambda: mmd(normals(3, 2), normals(3, 2), 0.0), "bandwidth"),
        (lambda: mmd(normals(3, 2) * math.nan, normals(3, 2), 1.0), "NaN"),
        (lambda: sliced_wasserstein(normals(3, 2), normals(3, 2), sphere(4, 3)), "2 dimensions"),
        (lambda: median_distance(normals(1, 2)), "two or more"),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(tt.InvalidInput, match=words):
        make()
