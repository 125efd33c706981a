"""How far a debugger travels in one step: files entered, switches between files and lambdas, by `sys.setprofile`.

PYTHONPATH=src python benchmarks/step_trace.py

Counts calls of functions in the package during the third step of a run (tables, and a tiny text net), torch's left out.
A switch is a call into another file than the one before it.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import truetilt as tt

PACKAGE = str(Path(tt.__file__).parent)


class Tracer:
    """The files and functions of the package that are called, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            self.calls.append((name[len(PACKAGE) + 1 :], frame.f_code.co_name))

    def figures(self) -> dict[str, int]:
        files = [file for file, _ in self.calls]
        return {
            "files": len(set(files)),
            "switches": sum(a != b for a, b in pairwise(files)),
            "calls": len(files),
            "lambdas": sum(name == "<lambda>" for _, name in self.calls),
        }


def text_model() -> tt.Model:
    net = tt.SEDD(tt.SEDDConfig(11, 6, 32, 2, 2, 16, classes=2), seed=0).eval()
    return tt.Text(net, tt.Masking(11), batch=4).model(1)


def table_model() -> tt.Model:
    generator = torch.Generator().manual_seed(4)
    p0, likelihood = (torch.rand((3, 3, 3), generator=generator, dtype=torch.float64) for _ in range(2))
    return tt.Table(tt.Masking(3), p0, likelihood).model()


def cases() -> dict[str, tuple[Any, tuple[float, ...]]]:
    table, text, clock = table_model(), text_model(), tt.uniform_grid(6)
    return {
        "tilted, table": (tt.Tilted(table, 3.0, kernel=tt.tweedie), clock),
        "any order, table": (tt.AnyOrder(table, 3.0), tt.masked_fraction_grid(table.process.schedule, 3)),
        "tempered, text": (tt.Tempered(text, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie), clock),
        "any order, text": (tt.AnyOrder(text, 2.0), tt.masked_fraction_grid(text.process.schedule, 6)),
    }


def third_step(fk: Any, grid: tuple[float, ...]) -> dict[str, int]:
    """The figures of the third step, told from outside by the callback of the second and of the third."""
    tracer = Tracer()

    def switch(done: int, steps: int, info: Any) -> None:
        sys.setprofile(tracer if done == 2 else None)

    tt.run(fk, grid, particles=8, seed=1, resample=tt.systematic, callback_on_step_end=switch)
    return tracer.figures()


if __name__ == "__main__":
    print(json.dumps({name: third_step(*case) for name, case in cases().items()}, indent=1))
