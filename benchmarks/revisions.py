"""The package of another commit, unpacked for a benchmark that compares it with this one."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def source_of(revision: str | None) -> Iterator[Path]:
    """The folder `src` of a commit while the context lasts; None for that of the working tree."""
    if revision is None:
        yield ROOT / "src"
        return
    packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)
        yield Path(folder) / "src"
