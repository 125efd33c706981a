"""`python -m truetilt.training CONFIG --data DIR --out DIR`: training where typer and rich are not installed.

The same as `truetilt train`. Progress goes to stderr, the card as JSON to stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ..core.errors import InvalidInput, TruetiltError
from .command import read_plan, run_training


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    given = _parser().parse_args(arguments)
    names = ("data", "base", "steps", "batch", "max_seconds", "seed", "compile")
    changes = {name: getattr(given, name) for name in names}
    folder = given.out or Path("runs/train") / given.config.stem
    try:
        config = read_plan(given.config, changes)
        card = run_training(config, folder, given.device, given.resume, _report, given.fit_seconds)
    except (TruetiltError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, InvalidInput) else 1
    sys.stdout.write(json.dumps(card, allow_nan=False) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m truetilt.training", description="Train one network.")
    parser.add_argument("config", type=Path, help="YAML or JSON file; see configs/")
    parser.add_argument("--data", help="folder of the IDX files, plain or gzipped, or of prepared texts")
    parser.add_argument("--base", help="deft: folder of the frozen network; text: of the one to start from")
    parser.add_argument("--out", type=Path, help="folder of the run; runs/train/NAME if not given")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    parser.add_argument("--steps", type=int, help="instead of the configuration's")
    parser.add_argument("--batch", type=int, help="instead of the configuration's")
    parser.add_argument("--max-seconds", type=float, help="stop after so long, whatever the steps")
    parser.add_argument("--fit-seconds", type=float, help="time some steps first, then plan as many as fit")
    parser.add_argument("--seed", type=int, help="instead of the configuration's")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="torch.compile the networks, or not")
    return parser


def _report(step: int, loss: float) -> None:
    sys.stderr.write(f"step {step}: loss {loss:.5f}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
