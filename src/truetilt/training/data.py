"""Digits from IDX files, the format of MNIST, plain or gzipped, in a folder that the user names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.storage import read_unpacked
from ..core.types import Tokens
from ..smc.sampler import Stream

_PREFIX = {"train": "train", "test": "t10k"}
_LARGEST = 4 << 30  # largest size in bytes of a file, unpacked
_IMAGES, _LABELS = 2051, 2049  # the magic numbers: unsigned bytes in three dimensions, in one
_SUBSET = 7  # random stream that chooses a subset


@dataclass(frozen=True)
class DigitImages:
    """Square grey images, row by row, and their labels."""

    unit: ClassVar[str] = "images"
    used: ClassVar[None] = None
    kinds: ClassVar[Mapping[str, Tensor]] = {}
    images: Tensor  # uint8 [n, side * side]
    labels: Tensor  # int64 [n]

    @property
    def tokens(self) -> Tensor:
        return self.images

    @property
    def count(self) -> int:
        return self.images.shape[0]

    @property
    def side(self) -> int:
        return round(self.images.shape[1] ** 0.5)

    def to(self, device: torch.device | str) -> DigitImages:
        return DigitImages(self.images.to(device), self.labels.to(device))

    def take(self, chosen: Tensor) -> DigitImages:
        """The digits with these indices."""
        return DigitImages(self.images[chosen], self.labels[chosen])

    def told_instead(self, labels: Tensor, classes: int) -> Tensor:
        """The label given to a network in place of each of these when it is withheld (label dropout)."""
        return torch.full_like(labels, classes)

    def fingerprint(self) -> str:
        """A hash of these images and labels."""
        parts = (self.images.cpu().numpy().tobytes(), self.labels.cpu().numpy().tobytes())
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def load_digits(folder: Path | str, split: str, classes: int = 10) -> DigitImages:
    """The images and labels of `train` or `test`."""
    if split not in _PREFIX:
        raise InvalidInput(f"split is {split!r}; there are {' and '.join(_PREFIX)}")
    images_file = _find(Path(folder), f"{_PREFIX[split]}-images", 3)
    labels_file = _find(Path(folder), f"{_PREFIX[split]}-labels", 1)
    images, labels = _read(images_file, _IMAGES), _read(labels_file, _LABELS)
    if len(images) != len(labels):
        raise InvalidInput(
            f"{images_file} holds {len(images)} images, {labels_file} {len(labels)} labels; take both from one data set"
        )
    if images.shape[1] != images.shape[2]:
        raise InvalidInput(f"{images_file} holds images of {images.shape[1]} x {images.shape[2]}; they must be square")
    if labels.max() >= classes:
        raise InvalidInput(f"{labels_file} holds the label {labels.max()}; labels run from 0 to {classes - 1}")
    flat = torch.from_numpy(images.reshape(len(images), -1).copy())
    return DigitImages(flat, torch.from_numpy(labels.astype(np.int64)))


def subset(rows: Any, share: float, seed: int) -> Any:
    """A share of the rows, the same for the same seed, in the order of the file."""
    if not 0 < share <= 1:
        raise InvalidInput(f"share is {share}; it is the part of the data to use, above 0 and at most 1")
    if share == 1:
        return rows
    count = max(1, round(share * rows.count))
    u = Stream(seed).uniforms(0, _SUBSET, 1, rows.count)[0]
    chosen = u.argsort(stable=True)[:count].sort().values.to(rows.tokens.device)
    return rows.take(chosen)


def tokens_of(images: Tensor | np.ndarray, vocabulary: int = 256) -> Tokens:
    """Grey levels as tokens; raises for anything but whole numbers from 0 to vocabulary - 1."""
    values = torch.as_tensor(images)
    if values.is_floating_point():
        if not bool(values.isfinite().all()):
            raise InvalidInput("the images hold NaN or infinite pixels; give whole grey levels")
        if bool((values != values.round()).any()):
            raise InvalidInput(
                f"the images hold fractions; give whole grey levels from 0 to {vocabulary - 1} "
                f"(multiply images in [0, 1] by {vocabulary - 1} and round)"
            )
    low, high = (float(values.min()), float(values.max())) if values.numel() else (0, 0)
    if low < 0 or high >= vocabulary:
        raise InvalidInput(f"pixels run from {low:g} to {high:g}; grey levels are 0 to {vocabulary - 1}")
    return values.long()


def _find(folder: Path, stem: str, dimensions: int) -> Path:
    names = [f"{stem}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder; name the one that holds {names[0]}[.gz]")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise InvalidInput(f"{folder} holds neither {names[0]} nor {names[1]}; put the four IDX files of MNIST there")


def _read(path: Path, magic: int) -> np.ndarray:
    """The array of an IDX file of unsigned bytes."""
    content = _content(path)
    dimensions = magic % 256
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise InvalidInput(f"{path} has {len(content)} bytes, less than its header of {header}; fetch it again")
    words = np.frombuffer(content, dtype=">i4", count=1 + dimensions)
    if words[0] != magic:
        kind = "images" if magic == _IMAGES else "labels"
        raise InvalidInput(f"{path} begins with {words[0]}, IDX files of {kind} with {magic}; it is another file")
    shape = tuple(int(word) for word in words[1:])
    expected = int(np.prod(shape, dtype=np.int64))
    if min(shape) < 1 or len(content) - header != expected:
        raise InvalidInput(
            f"{path} announces {' x '.join(map(str, shape))} bytes and holds {len(content) - header}; "
            "it is truncated or damaged: fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _content(path: Path) -> bytes:
    try:
        return read_unpacked(path, _LARGEST)
    except (OSError, InvalidInput) as e:
        raise InvalidInput(f"{path} is no whole gzip file, or no file ({e}); fetch it again") from e
