"""Metrics of images against values known by hand, and contact sheets."""

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from truetilt.core.errors import InvalidInput
from truetilt.metrics.images import accuracy, coverage, diversity_ratio, mean_distance, surviving_roots
from truetilt.viz.sheets import sheet, tiled


def images(*values, levels=4):
    """Images of four equal pixels: those of levels a and b are at distance 2 |a - b| / (levels - 1)."""
    return torch.tensor(values)[:, None].expand(-1, 4)


def test_accuracy_is_the_weighted_share_of_the_right_class():
    log_probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]).log()
    assert accuracy(log_probs, 0) == 0.5
    assert accuracy(log_probs, 1, torch.tensor([0.1, 0.5, 0.1, 0.3])) == pytest.approx(0.8)
    with pytest.raises(InvalidInput, match="class 2 of a judge that knows 2"):
        accuracy(log_probs, 2)


def test_distance_is_over_pairs_of_different_images():
    x = images(0, 1, 3)
    assert mean_distance(x, levels=4) == pytest.approx(2 * (1 + 3 + 2) / 3 / 3)
    assert mean_distance(images(2, 2, 2), levels=4) == 0
    assert mean_distance(images(0, 1, 3), torch.tensor([0.0, 1.0, 0.0]), levels=4) == 0  # all weight on one


def test_weights_act_as_copies_would():
    weights = torch.tensor([3, 1, 2]) / 6
    weighted = mean_distance(images(0, 1, 3), weights, levels=4)
    copies = images(0, 0, 0, 1, 3, 3)
    among_all = mean_distance(copies, levels=4) * (1 - 1 / 6)  # pairs of draws, a draw with itself among them
    assert weighted * (1 - 1 / 3) == pytest.approx(among_all)


def test_wrong_diversity_that_forgets_the_weights_hides_a_collapse():
    x, weights = images(0, 1, 2, 3), torch.tensor([1 - 3e-9, 1e-9, 1e-9, 1e-9])
    real = mean_distance(x, levels=4)
    assert diversity_ratio(x, real, levels=4) == pytest.approx(1)
    assert diversity_ratio(x, real, weights, levels=4) < 0.1
    drawn = x[torch.multinomial(weights, 64, replacement=True, generator=torch.Generator().manual_seed(0))]
    assert diversity_ratio(drawn, real, levels=4) < 0.1


def test_many_images_are_compared_in_blocks():
    x = torch.randint(256, (1100, 9), generator=torch.Generator().manual_seed(1))
    plain = torch.cdist(x.double() / 255, x.double() / 255).sum() / (1100 * 1099)
    assert mean_distance(x) == pytest.approx(float(plain), rel=1e-6)


def test_coverage_counts_balls_that_hold_a_sample():
    real = images(0, 1, 5, 6, 20, 21, levels=256)
    assert coverage(real, images(0), neighbours=1) == pytest.approx(2 / 6)  # 0 and 1 reach each other
    assert coverage(real, images(0, 6, 20), neighbours=1) == 1
    assert coverage(real, images(12), neighbours=1) == 0
    assert coverage(real, real[:0], neighbours=1) == 0
    assert coverage(real, real, neighbours=5) == 1
    with pytest.raises(InvalidInput, match="6 neighbours among 6"):
        coverage(real, real, neighbours=6)


def test_wrong_coverage_with_the_image_as_its_own_neighbour_finds_nothing():
    real, near = images(0, 2, 4, 6, levels=256), images(1, 3, 5, levels=256)
    assert coverage(real, near, neighbours=1) == 1
    assert not bool((torch.cdist(near.float(), real.float()).amin(1) <= 0).any())  # a ball of radius 0


def test_roots_are_counted_over_populations():
    ancestors = torch.tensor([[[0, 1, 2], [0, 1, 2]], [[0, 0, 1], [2, 2, 2]]])
    assert surviving_roots(ancestors) == 2 + 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mean_distance(images(1)), "1 images have no pairs"),
        (lambda: mean_distance(images(0, 256)), "tokens run from 0 to 256"),
        (lambda: mean_distance(images(0, 1)[:, None]), "give tokens"),
        (lambda: diversity_ratio(images(0, 1), 0.0), "must be positive"),
        (lambda: diversity_ratio(images(0, 1), math.nan), "must be positive"),
        (lambda: mean_distance(images(0, 1), torch.ones(3)), "weights for 2 images"),
        (lambda: tiled(np.zeros((2, 5)), 2), "square images"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_a_sheet_tiles_images_row_by_row():
    x = np.arange(1, 4)[:, None] * np.ones((1, 4)) / 4
    picture = tiled(x, 2)
    assert picture.shape == (6, 6)  # two rows and columns of 2 pixels, and gaps of 2
    np.testing.assert_array_equal(picture[[0, 0, 4, 4], [0, 4, 0, 4]], [0.25, 0.5, 0.75, 0])
    ax = Figure().subplots()
    sheet(ax, x, 2, "title", [False, True, False])
    assert len(ax.patches) == 1
    assert ax.get_title() == "title"
