"""A bundle of text nets that know the sayings, trained in five seconds, for the tests of text tasks."""

import shutil

import pytest

from sayings import settings
from truetilt.training import loop

TASKS = {
    "sedd": {"task": "conditional", "steps": 300, "label_dropout": 0.33},
    "deft": {"task": "deft", "steps": 150},
    "potential": {"task": "potential", "steps": 150},
    "judge": {"task": "classifier", "steps": 150},
}
ONCE = {"batch": 64, "ema": 0.95, "checkpoint_every": 300, "log_every": 300, "evaluation_passes": 1}


@pytest.fixture(scope="session")
def bundle_folder(corpus, tmp_path_factory):
    root = tmp_path_factory.mktemp("bundle")
    for name, changes in TASKS.items():
        base = root / "nets/sedd" if name == "deft" else ""
        loop.train(settings(corpus, base, **ONCE, **changes), root / "runs" / name)
        shutil.copytree(root / "runs" / name / "model", root / "nets" / name)
    return root / "nets"
