"""How far a debugger travels in one step: files entered, switches between them, lambdas, calls of `getattr`.

PYTHONPATH=src python benchmarks/step_trace.py [--calls]

Counts calls of functions in the package during the third step of a run (tables, and a tiny text net), torch's left out,
by `sys.setprofile`. A switch is a call into another file than the one before it. `--calls` lists the calls instead, in
order and indented by their depth, one line for each stay in a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import truetilt as tt

PACKAGE = str(Path(tt.__file__).parent)


class Tracer:
    """The files and functions of the package that are called, in order, and how deep in the package each is."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.depths: list[int] = []
        self.looked_up = 0

    def __call__(self, frame: FrameType, event: str, builtin: Any) -> None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE) and event == "call":
            self.calls.append((name[len(PACKAGE) + 1 :], frame.f_code.co_qualname))
            self.depths.append(depth(frame))
        self.looked_up += name.startswith(PACKAGE) and event == "c_call" and builtin is getattr

    def figures(self) -> dict[str, int]:
        files = [file for file, _ in self.calls]
        return {
            "files": len(set(files)),
            "switches": sum(a != b for a, b in pairwise(files)),
            "calls": len(files),
            "lambdas": sum(name.endswith("<lambda>") for _, name in self.calls),
            "getattr": self.looked_up,
        }

    def listed(self) -> str:
        """A line for each stay in a file: the file, and the functions called there."""
        lines, at = [], 0
        for file, stay in groupby(self.calls, key=lambda call: call[0]):
            names = [name for _, name in stay]
            lines.append(f"{'  ' * self.depths[at]}{file}: {', '.join(names)}")
            at += len(names)
        return "\n".join(lines)


def depth(frame: FrameType | None) -> int:
    """How many functions of the package stand above this one."""
    above = 0
    while frame := frame.f_back if frame else None:
        above += frame.f_code.co_filename.startswith(PACKAGE)
    return above


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


def third_step(fk: Any, grid: tuple[float, ...]) -> Tracer:
    """What is called in the third step, told from outside by the callback of the second and of the third."""
    tracer = Tracer()

    def switch(done: int, steps: int, info: Any) -> None:
        sys.setprofile(tracer if done == 2 else None)

    tt.run(fk, grid, particles=8, seed=1, resample=tt.systematic, callback_on_step_end=switch)
    return tracer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How far a debugger travels in one step.")
    parser.add_argument("--calls", action="store_true", help="list what is called, in order")
    calls = parser.parse_args().calls
    traced = {name: third_step(*case) for name, case in cases().items()}
    if calls:
        print("\n\n".join(f"{name}\n{tracer.listed()}" for name, tracer in traced.items()))
    else:
        print(json.dumps({name: tracer.figures() for name, tracer in traced.items()}, indent=1))
