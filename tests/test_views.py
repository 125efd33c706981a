"""How states look: pixels, letters and disks against what they must be, escaped, and the same after a file."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import truetilt as tt
from truetilt.viz.png import png
from truetilt.viz.view_choice import saved_view, suggested_view, view_of

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'"


def pixels(data):
    """A PNG as RGBA levels 0 .. 1, read by somebody else."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA")) / 255


def test_a_png_holds_the_levels_it_was_given():
    levels = np.linspace(0, 1, 35).reshape(5, 7)
    assert np.abs(pixels(png(levels))[..., 0] - levels).max() <= 1.5 / 255


def test_nan_is_see_through_and_nothing_else_is():
    levels = np.linspace(0, 1, 256).reshape(16, 16)
    levels[3, 4] = np.nan
    alpha = pixels(png(levels))[..., 3]
    assert alpha[3, 4] == 0
    assert (alpha == 0).sum() == 1


def test_a_picture_without_pixels_is_refused():
    with pytest.raises(tt.InvalidInput, match="height, width"):
        png(np.zeros((0, 3)))


def test_an_image_tile_is_ink_on_paper_and_masks_are_clear():
    view = tt.Images(2, 5)
    tile = view.tile(np.array([0, 4, 2, 5]), None)
    shown = pixels(base64.b64decode(tile.split("base64,")[1].split('"')[0]))
    np.testing.assert_allclose(shown[..., 0].reshape(-1)[:3], [1.0, 0.0, 0.5], atol=0.01)
    assert shown[..., 3].reshape(-1).tolist() == [1, 1, 1, 0]


def test_images_of_another_size_are_refused():
    with pytest.raises(tt.InvalidInput, match="no images of side 2"):
        tt.Images(2, 5).tile(np.zeros(9, dtype=int), None)
    with pytest.raises(tt.InvalidInput, match="side 0"):
        tt.Images(0, 5)


# Text.


def text(*pieces, mask=None):
    return tt.TextView(list(pieces).__getitem__, len(pieces), mask)


def test_text_is_escaped_marked_where_new_and_masks_are_counted():
    view = text("a", HOSTILE, mask=2)
    tile = view.tile(np.array([0, 1, 1, 2, 2]), np.array([0, 2, 1, 2, 2]))
    assert "<img" not in tile
    assert "</script" not in tile
    assert tile.startswith("<p>a<ins>&lt;/script&gt;")
    assert tile.count("<ins>") == 1
    assert 'title="2 masked"' in tile
    assert "<ins>" not in view.tile(np.array([0, 1]), None)  # nothing is new at the first look


def test_a_token_without_a_piece_is_shown_as_its_number():
    assert "⟨7⟩" in text("a").tile(np.array([7]), None)


# Logos.


def heights(x, weights, alphabet="ACGT"):
    return tt.SequenceLogo(alphabet).heights(np.array(x), np.array(weights))


def test_a_site_tells_what_it_must():
    np.testing.assert_allclose(heights([[0], [0]], [0.5, 0.5])[0], [2, 0, 0, 0], atol=1e-12)  # sure: 2 bits
    np.testing.assert_allclose(heights([[0], [1]], [0.5, 0.5])[0], [0.5, 0.5, 0, 0], atol=1e-12)  # 1 bit in two
    np.testing.assert_allclose(heights([[0], [1], [2], [3]], [0.25] * 4)[0], 0, atol=1e-12)  # nothing
    skew = 2 + 0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)
    np.testing.assert_allclose(heights([[0], [3]], [0.75, 0.25])[0], [0.75 * skew, 0, 0, 0.25 * skew], atol=1e-12)


def test_masked_mass_tells_nothing():
    np.testing.assert_allclose(heights([[0], [4]], [0.3, 0.7])[0], [2 * 0.3, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(heights([[4], [4]], [0.3, 0.7])[0], 0, atol=1e-12)


def test_a_logo_that_forgets_the_weights_is_another():
    x, w = [[0], [0], [1]], [0.1, 0.1, 0.8]
    assert np.abs(heights(x, w) - heights(x, [1 / 3] * 3)).max() > 0.1


def test_letters_of_a_logo_stand_as_high_as_they_weigh():
    picture = tt.SequenceLogo("ACGT").picture(np.array([[0, 3], [1, 3]]), np.array([0.5, 0.5]))
    assert picture.count("<path") == 3
    assert "T at site 2: 2.000 bits" in picture
    assert "A at site 1: 0.500 bits" in picture


def test_hostile_letters_are_escaped():
    view = tt.SequenceLogo("<&")
    drawn = view.tile(np.array([0, 1]), None) + view.picture(np.array([[0, 1]]), np.ones(1))
    assert "&lt;" in drawn
    assert "<<" not in drawn


@pytest.mark.parametrize("alphabet", ["", "A", "AA"])
def test_an_alphabet_needs_different_letters(alphabet):
    with pytest.raises(tt.InvalidInput, match="alphabet"):
        tt.SequenceLogo(alphabet)


# Disks and points.


def test_disks_have_the_weighted_law_and_leave_out_what_is_masked():
    x, w = np.array([[0, 1], [2, 2], [0, 1], [3, 0]]), np.array([0.1, 0.2, 0.3, 0.4])
    law = tt.Disks(3).law(x, w)
    assert law.shape == (3, 3)
    np.testing.assert_allclose([law[0, 1], law[2, 2], law.sum()], [0.4, 0.2, 0.6])
    picture = tt.Disks(3).picture(x, w)
    assert "40.0% of the mass still masked" in picture
    assert picture.count("<circle") == 9


def test_disks_show_two_sites_and_few_tokens():
    with pytest.raises(tt.InvalidInput, match="have 3"):
        tt.Disks(3).law(np.zeros((1, 3), dtype=int), np.ones(1))
    with pytest.raises(tt.InvalidInput, match="2 to 16"):
        tt.Disks(17)


def test_the_area_of_a_point_is_its_weight():
    view = tt.Points()
    _, _, radii = view._seen(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0.8, 0.2]))
    assert (radii[0] / radii[1]) ** 2 == pytest.approx(4)
    assert view.picture(np.random.default_rng(0).normal(size=(900, 3)), np.full(900, 1 / 900)).count("<circle") == 600
    with pytest.raises(tt.InvalidInput, match="coordinates \\(0, 5\\)"):
        tt.Points((0, 5)).picture(np.zeros((1, 2)), np.ones(1))


# Which view.

VIEWS = [
    tt.Images(2, 5),
    text("a", HOSTILE, mask=2),
    tt.SequenceLogo("ACGT"),
    tt.Disks(3),
    tt.Points((1, 0)),
    tt.Numbers(),
]
STATES = [[0, 4, 2, 5], [0, 1, 2], [0, 1, 3], [0, 2], [0.5, -1.0], [1, 2, 3]]


@pytest.mark.parametrize(("view", "state"), [*zip(VIEWS, STATES, strict=True)], ids=lambda v: type(v).__name__)
def test_a_view_is_the_same_after_a_file(view, state, tmp_path):
    (tmp_path / "view.json").write_text(json.dumps(view.described()), encoding="utf-8")
    again, x = saved_view(tmp_path), np.array(state)
    assert type(again) is type(view)
    assert again.tile(x, x * 0) == view.tile(x, x * 0)
    assert again.picture(x[None], np.ones(1)) == view.picture(x[None], np.ones(1))


DAMAGED = {
    "{": "is not JSON",
    '{"kind": "smell"}': "a view of kind 'smell'; known are",
    '{"kind": "images"}': "the view of kind 'images' is not whole",
    '{"kind": "text", "mask": 1}': "the view of kind 'text' is not whole",
    "[]": "a view of kind 'none'; known are",
}


@pytest.mark.parametrize("found", DAMAGED)
def test_a_damaged_view_is_refused(found, tmp_path):
    (tmp_path / "view.json").write_text(found)
    with pytest.raises(tt.InvalidInput, match=DAMAGED[found]):
        saved_view(tmp_path)


def test_without_a_view_the_states_suggest_one():
    assert saved_view(Path("/nowhere")) is None
    assert suggested_view(torch.tensor([[[0, 2], [1, 1]]])) == tt.Disks(3)
    assert suggested_view(torch.zeros(1, 4, 784, dtype=torch.int64)) == tt.Numbers()
    assert suggested_view(torch.full((1, 4, 2), 99)) == tt.Numbers()
    assert suggested_view(torch.zeros(1, 4, 2)) == tt.Points()
    assert suggested_view(torch.zeros(1, 4, 1)) == tt.Numbers()


def test_numbers_show_what_changed_and_count_the_rest():
    tile = tt.Numbers().tile(np.arange(100), np.array([9, *range(1, 100)]))
    assert tile.count("<ins>") == 1
    assert "36 more" in tile


def test_the_embedded_digits_know_their_view():
    assert tt.load("mnist").view == tt.Images(28, 256)
    assert view_of(tt.Images(28, 256).described()) == tt.Images(28, 256)
