"""Reference figures of real MNIST digits that ship with the package: how far apart two digits of a class are, and how
well 64 of them cover the rest. No image is stored. `python -m truetilt.commands.real_digits --data DIR` recomputes
them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.storage import write_json
from ..metrics.images import coverage, mean_distance
from ..smc.sampler import OUTPUT, Stream

REFERENCE = "checkpoints/mnist/reference.json"
COMMAND = "python -m truetilt.commands.real_digits"
CLASSES = tuple(range(10))
_SAMPLE = 64  # training digits whose coverage of the test set is measured


@lru_cache(maxsize=1)
def reference() -> dict[int, dict[str, Any]]:
    """The shipped figures, by class."""
    try:
        found = json.loads(resources.files("truetilt").joinpath(REFERENCE).read_text(encoding="utf-8"))
        return {entry["digit"]: entry for entry in found["classes"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InvalidInput(f"{REFERENCE} is missing or damaged ({e}); make it again: {COMMAND} --data DIR") from e


def make_reference(folder: str, to: Path) -> None:
    """Compute the figures from the IDX files in a folder, and write them."""
    from ..training.data import load_digits

    train, test = load_digits(folder, "train"), load_digits(folder, "test")
    entries = []
    for digit in CLASSES:
        sets = {name: d.images[d.labels == digit].long() for name, d in (("train", train), ("test", test))}
        order = Stream(digit).uniforms(0, OUTPUT, 1, len(sets["train"]))[0].argsort()
        entry = {name: {"count": len(x), "distance": round(mean_distance(x), 5)} for name, x in sets.items()}
        covered = coverage(sets["test"], sets["train"][order[:_SAMPLE]])
        entries.append({"digit": digit, **entry, "coverage_of_real": round(covered, 5)})
    about = {
        "source": "MNIST, the real digits; no image is held here",
        "distance": "mean Euclidean distance of two digits of the class, grey levels on 0..1, over all pairs",
        "coverage_of_real": f"share of test digits covered by {_SAMPLE} real training digits (5 nearest neighbours)",
        "command": f"{COMMAND} --data DIR",
    }
    write_json(to, about | {"classes": entries})


def main(words: Sequence[str] | None = None) -> None:
    """The command line: --data DIR, and --out FILE to write elsewhere than to the shipped file."""
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--data", required=True, help="folder with the four IDX files of MNIST")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / REFERENCE)
    given = parser.parse_args(words)
    make_reference(given.data, given.out)
    print(f"written: {given.out}")


if __name__ == "__main__":
    main()
