"""IDX files: what is read, and that nothing doubtful is; and the batches that are made of them."""

import gzip
import struct

import numpy as np
import pytest
import torch

import truetilt as tt
from truetilt.training import batches
from truetilt.training.data import DigitImages, load_digits, subset, tokens_of

IMAGES = np.arange(5 * 3 * 3, dtype=np.uint8).reshape(5, 3, 3) * 5
LABELS = np.array([3, 0, 9, 1, 1], dtype=np.uint8)


def idx(array, magic=None):
    """The bytes of an IDX file."""
    magic = 2048 + array.ndim if magic is None else magic
    return struct.pack(f">{1 + array.ndim}i", magic, *array.shape) + array.tobytes()


def put(folder, images=None, labels=None, end="", prefix="train"):
    """Write a split; bytes are written as they are."""
    for kind, n, content in (("images", 3, images), ("labels", 1, labels)):
        default = IMAGES if kind == "images" else LABELS
        content = idx(default) if content is None else content
        path = folder / f"{prefix}-{kind}-idx{n}-ubyte{end}"
        path.write_bytes(gzip.compress(content) if end else content)


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
def test_plain_and_gzipped_files_hold_the_same(tmp_path, end, split, prefix):
    put(tmp_path, end=end, prefix=prefix)
    digits = load_digits(tmp_path, split)
    assert digits.images.dtype == torch.uint8
    assert digits.images.tolist() == IMAGES.reshape(5, 9).tolist()
    assert digits.labels.tolist() == LABELS.tolist()
    assert (digits.count, digits.side) == (5, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"images": idx(IMAGES)[:-1]}, "truncated"),
        ({"images": idx(IMAGES) + b"x"}, "damaged"),
        ({"images": b"\0\0"}, "header"),
        ({"images": idx(IMAGES, magic=2049)}, "begins with 2049"),
        ({"labels": idx(LABELS, magic=2051)}, "begins with 2051"),
        ({"labels": idx(LABELS[:4])}, "5 images"),
        ({"labels": idx(LABELS + 1)}, "the label 10"),
        ({"images": idx(IMAGES[:, :2])}, "square"),
        ({"images": idx(IMAGES[:0])}, "damaged"),
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_wrong_file_is_refused(tmp_path, change, words, end):
    put(tmp_path, end=end, **change)
    with pytest.raises(tt.InvalidInput, match=words):
        load_digits(tmp_path, "train")


@pytest.mark.parametrize("spoil", [lambda b: b[:-9], lambda b: b"no gzip" + b, lambda b: b[:30] + b"\xff" * 9 + b[39:]])
def test_a_damaged_gzip_file_is_refused(tmp_path, spoil):
    put(tmp_path, end=".gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(tt.InvalidInput, match="gzip"):
        load_digits(tmp_path, "train")


def test_a_missing_folder_file_or_split_is_named(tmp_path):
    with pytest.raises(tt.InvalidInput, match="no folder"):
        load_digits(tmp_path / "nowhere", "train")
    with pytest.raises(tt.InvalidInput, match=r"train-images-idx3-ubyte nor train-images-idx3-ubyte\.gz"):
        load_digits(tmp_path, "train")
    with pytest.raises(tt.InvalidInput, match="train and test"):
        load_digits(tmp_path, "validation")


def test_a_subset_is_the_seed_s_and_keeps_pairs_together():
    images = torch.arange(200, dtype=torch.uint8)[:, None].expand(200, 4)
    digits = DigitImages(images, images[:, 0].long() % 10)
    part = subset(digits, 0.2, 3)
    assert part.count == 40
    assert part.images.equal(subset(digits, 0.2, 3).images)
    assert not part.images.equal(subset(digits, 0.2, 4).images)
    assert part.images[:, 0].unique().numel() == 40
    assert (part.images[:, 0].long() % 10).equal(part.labels)
    assert subset(digits, 1.0, 3) is digits
    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(tt.InvalidInput, match="share"):
            subset(digits, share, 0)


def test_the_fingerprint_sees_one_pixel_and_one_label():
    digits = DigitImages(torch.zeros(3, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
    pixel, label = digits.images.clone(), digits.labels.clone()
    pixel[1, 2], label[2] = 1, 1
    assert (
        len(
            {
                digits.fingerprint(),
                DigitImages(pixel, digits.labels).fingerprint(),
                DigitImages(digits.images, label).fingerprint(),
            }
        )
        == 3
    )


def test_tokens_are_whole_grey_levels():
    assert tokens_of(torch.tensor([[0.0, 255.0]])).tolist() == [[0, 255]]
    assert tokens_of(np.array([[1, 2]], dtype=np.uint8)).dtype == torch.int64
    assert tokens_of(torch.empty(0, 4)).shape == (0, 4)


@pytest.mark.parametrize(
    ("pixels", "words"),
    [([float("nan")], "NaN"), ([float("inf")], "infinite"), ([0.5], "fractions"), ([256], "256"), ([-1], "-1")],
)
def test_pixels_that_are_no_grey_levels_are_refused(pixels, words):
    with pytest.raises(tt.InvalidInput, match=words):
        tokens_of(torch.tensor([pixels]))


def test_every_epoch_shows_every_digit_once():
    count, size = 10, 4
    seen = torch.cat([batches.order(3, count, step * size, size) for step in range(10)])
    epochs = seen.view(4, count)
    assert epochs.sort(-1).values.equal(torch.arange(count).expand(4, count))
    assert len({tuple(epoch.tolist()) for epoch in epochs}) == 4
    assert batches.order(3, count, 7, 25).equal(seen[7:32])


def test_times_are_stratified_in_zero_to_one():
    for u in (torch.zeros(8).double(), torch.full((8,), 1 - 2.0**-53, dtype=torch.float64)):
        t = batches.times(u)
        assert bool(((t > 0) & (t <= 1)).all())
    t = batches.times(torch.linspace(0, 0.9, 8, dtype=torch.float64))
    assert ((t * 8).ceil() - 1).long().tolist() == list(range(7, -1, -1))


def test_labels_are_withheld_at_their_rate_and_shifts_move_whole_images():
    digits = DigitImages(torch.arange(16, dtype=torch.uint8).expand(1000, 16), torch.zeros(1000, dtype=torch.int64))
    made = batches.Batches(digits, tt.Masking(16), 1000, 0, 3, label_dropout=0.25)
    share = float((made.at(0).told == 3).double().mean())
    assert abs(share - 0.25) < 5 * (0.25 * 0.75 / 1000) ** 0.5  # a false alarm in 1e6, and the seed is fixed
    assert made.at(0).label.eq(0).all()
    image = torch.arange(1, 17).view(1, 16)
    unmoved = batches.shifted(image, torch.tensor([[0.5, 0.5]]), 1)
    assert unmoved.equal(image)
    moved = batches.shifted(image, torch.tensor([[0.99, 0.01]]), 1).view(4, 4)  # one up, one to the right
    assert moved.tolist() == [[0, 5, 6, 7], [0, 9, 10, 11], [0, 13, 14, 15], [0, 0, 0, 0]]
