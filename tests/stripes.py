"""Tiny digits with a known law, as IDX files, and the settings of a run that learns them in seconds."""

from pathlib import Path

import numpy as np
import pytest

from test_data import idx
from truetilt.training.config import TrainConfig, config_of
from truetilt.training.tasks import build_task

SIDE, V, CLASSES = 4, 4, 3
NET = {"side": SIDE, "vocabulary": V, "classes": CLASSES, "channels": [8], "blocks": 1, "embedding": 4, "condition": 8}
NET |= {"attention": False}
TASKS = ("unconditional", "conditional", "deft", "potential", "classifier")


def write_digits(folder: Path) -> Path:
    """Stripes: class c is grey level c + 1 in the even columns; the rest are coins from a fixed seed."""
    generator = np.random.default_rng(0)
    for prefix, count in (("train", 50), ("t10k", 30)):
        labels = generator.integers(0, CLASSES, count).astype(np.uint8)
        images = generator.integers(0, 2, (count, SIDE, SIDE)).astype(np.uint8)
        images[:, :, ::2] = labels[:, None, None] + 1
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder


def write_base(folder: Path) -> Path:
    """An untrained network, to be somebody's frozen base."""
    build_task(config_of({"task": "unconditional", "net": NET, "steps": 1, "seed": 5})).net.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    return write_base(tmp_path_factory.mktemp("base"))


def settings(data: Path | str, base: Path | str = "", **changes: object) -> TrainConfig:
    """A run of eight steps."""
    values = {"task": "unconditional", "net": NET, "steps": 8, "batch": 6, "warmup": 2, "log_every": 3}
    values |= {"checkpoint_every": 2, "data": str(data), "base": str(base), "ema": 0.9, "lr": 0.01}
    return config_of({**values, **changes})
