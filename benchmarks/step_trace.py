"""How far a debugger travels in one step: files entered, switches between them, lambdas, calls of `getattr`.

PYTHONPATH=src python benchmarks/step_trace.py [--calls]

Counts calls of functions in the package during the third step of a run (tables, and a tiny text net), torch's left out,
by `sys.setprofile`. A switch is a call into another file than the one before it. `--calls` lists the calls instead, in
order and indented by their depth, one line for each stay in a file. The four cases of `cases` can be traced with the
package of any commit (by PYTHONPATH); one of `more_cases` that an old package lacks is named on stderr and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import truetilt as tt

PACKAGE = str(Path(tt.__file__).parent)
Case = tuple[Any, tuple[float, ...], dict[str, Any]]  # a model, its grid and options of `tt.run`


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


def table() -> tt.Table:
    generator = torch.Generator().manual_seed(4)
    p0, likelihood = (torch.rand((3, 3, 3), generator=generator, dtype=torch.float64) for _ in range(2))
    return tt.Table(tt.Masking(3), p0, likelihood)


def table_model() -> tt.Model:
    return table().model()


def cases() -> dict[str, tuple[Any, tuple[float, ...]]]:
    table, text, clock = table_model(), text_model(), tt.uniform_grid(6)
    return {
        "tilted, table": (tt.Tilted(table, 3.0, kernel=tt.tweedie), clock),
        "any order, table": (tt.AnyOrder(table, 3.0), tt.masked_fraction_grid(table.process.schedule, 3)),
        "tempered, text": (tt.Tempered(text, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie), clock),
        "any order, text": (tt.AnyOrder(text, 2.0), tt.masked_fraction_grid(text.process.schedule, 6)),
    }


def total(x: torch.Tensor) -> torch.Tensor:
    """A reward: the sum of a state's tokens."""
    return x.sum(-1).double()


def log_p0(p0: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The log-probability of clean states [B, D] of a table."""
    return p0[tuple(x.unbind(-1))].log()


def annealed(kernel: Callable[..., Any]) -> Case:
    """Annealing to a reward by moves of this kernel; one step reveals, so the third one anneals."""
    fk = tt.Annealed(tt.Composed(table_model(), reward=tt.Reward(total)), 4, kernel=kernel, reveal_steps=1)
    return fk, fk.grid, {}


def moved(fk: Any, grid: tuple[float, ...]) -> Case:
    """A run with a Gibbs move after each step."""
    return fk, grid, {"moves": tt.Rejuvenation(tt.Gibbs(fk), each_step=1)}


def with_base(wrap: Callable[[Any], Any], text: tt.Model) -> Case:
    """A text net whose base score is wrapped."""
    model = tt.Model(text.process, text.length, wrap(text.base), text.conditional)
    return tt.Tempered(model, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie), tt.uniform_grid(6), {}


def rewarded_gibbs() -> Case:
    fk = tt.Composed(table_model(), reward=tt.Reward(total), twist=tt.Reward(total))
    return moved(fk, fk.grid)


def adapted_sites() -> Case:
    fk = tt.AnyOrder(table_model(), 3.0, choose=tt.adapted_sites)
    return fk, fk.grid, {}


class Unaware(torch.nn.Module):
    """A masked language model that looks at no context, with its own mask as token 10."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(11, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows(x)


def masked_lm() -> Case:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nets = [tt.MaskedLM(Unaware().eval(), 10, vocabulary=11, length=6) for _ in range(2)]
    process = tt.Masking(11)
    fk = tt.AnyOrder(tt.Model(process, 6, *(tt.TextScore(net, process) for net in nets)), 2.0)
    return fk, fk.grid, {}


def more_cases() -> dict[str, Callable[[], Case]]:
    """What makes a case with moves, a reward, chosen sites or a wrapped score; an older commit may lack it."""
    text, p0 = text_model(), table().p0
    return {
        "annealed by Gibbs": lambda: annealed(tt.Gibbs),
        "annealed by Metropolis": lambda: annealed(tt.Metropolis),
        "annealed by blocks": lambda: annealed(partial(tt.Block, size=2)),
        "annealed by pairs": lambda: annealed(tt.Pair),
        "annealed by whole sequences": lambda: annealed(partial(tt.WholeSequence, log_prob=partial(log_p0, p0))),
        "any order with a reward and moves": rewarded_gibbs,
        "tilted with moves": lambda: moved(tt.Tilted(table_model(), 3.0, kernel=tt.tweedie), tt.uniform_grid(6)),
        "adapted sites": adapted_sites,
        "local temperature, text": lambda: with_base(partial(tt.LocalTemperature, text.process, temperature=0.8), text),
        "lazy evaluation, text": lambda: with_base(tt.LazyScore, text),
        "masked language model": masked_lm,
    }


def traced() -> dict[str, Tracer]:
    """The third step of every case that this package can run."""
    found = {name: third_step(*case) for name, case in cases().items()}
    for name, make in more_cases().items():
        try:
            found[name] = third_step(*make())
        except (AttributeError, TypeError, tt.InvalidInput) as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def third_step(fk: Any, grid: tuple[float, ...], options: dict[str, Any] | None = None) -> Tracer:
    """What is called in the third step, told from outside by the callback of the second and of the third."""
    tracer = Tracer()

    def switch(done: int, steps: int, info: Any) -> None:
        sys.setprofile(tracer if done == 2 else None)

    options = {"resample": tt.systematic, "callback_on_step_end": switch} | (options or {})
    tt.run(fk, grid, particles=8, seed=1, **options)
    return tracer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How far a debugger travels in one step.")
    parser.add_argument("--calls", action="store_true", help="list what is called, in order")
    calls = parser.parse_args().calls
    if calls:
        print("\n\n".join(f"{name}\n{tracer.listed()}" for name, tracer in traced().items()))
    else:
        print(json.dumps({name: tracer.figures() for name, tracer in traced().items()}, indent=1))
