"""The tensor operations of a step, in order: what is left for the device to do when code moves but kernels must not.

PYTHONPATH=src python benchmarks/step_ops.py [--against REVISION] [--list]

Records every operation that torch dispatches during the third step of a run (the cases of step_trace.py), with the
shapes and types of its tensors, on the CPU. --against does the same with the code of a commit and says how many
operations were added or removed, wherever in the step they stand. --list prints them. A speed is not measured here:
nearly equal operations say that an older figure of a GPU (h200.json) is still about the same kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from revisions import source_of
from step_trace import cases
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import truetilt as tt

HERE = Path(__file__).resolve()


class Operations(TorchDispatchMode):
    """A line for every operation while `on`: its name, and type and shape of every tensor it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.on = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.on:
            given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
            tensors = " ".join(f"{one.dtype}{list(one.shape)}".removeprefix("torch.") for one in given)
            self.lines.append(f"{func} {tensors}".rstrip())
        return func(*args, **(kwargs or {}))


def third_step(fk: Any, grid: tuple[float, ...]) -> list[str]:
    """The operations of the third step, told from outside by the callbacks of the second and of the third."""
    with torch.no_grad(), Operations() as operations:

        def switch(done: int, steps: int, info: Any) -> None:
            operations.on = done == 2

        tt.run(fk, grid, particles=8, seed=1, resample=tt.systematic, callback_on_step_end=switch)
    return operations.lines


def found_with(source: Path) -> dict[str, list[str]]:
    """The operations of each case with the package in this folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(HERE.parent)])}
    command = [sys.executable, str(HERE), "--json"]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def compare(before: dict[str, list[str]], now: dict[str, list[str]], listed: bool) -> None:
    """Print how many operations were added and removed, case by case."""
    for name, lines in now.items():
        here, there = Counter(lines), Counter(before[name])
        added, removed = here - there, there - here
        told = f"{added.total()} added, {removed.total()} removed"
        print(f"{name:18} {len(before[name]):5} operations before, {len(lines):5} now: {told}")
        if listed:
            print("\n".join([f"+{one}" for one in added.elements()] + [f"-{one}" for one in removed.elements()]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION", help="a commit to compare with")
    parser.add_argument("--list", action="store_true", help="print the operations, or with --against those that differ")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    given = parser.parse_args()
    if given.against is not None:
        with source_of(given.against) as before, source_of(None) as now:
            compare(found_with(before), found_with(now), given.list)
        sys.exit()
    found = {name: third_step(*case) for name, case in cases().items()}
    if given.json:
        print(json.dumps(found))
    else:
        for name, lines in found.items():
            print(name, len(lines), *(lines if given.list else ()), sep="\n" if given.list else " ")
