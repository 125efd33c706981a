"""Every GPU figure in one call: the text step against its trunks, waits a step, digits against plain guidance.

PYTHONPATH=src python benchmarks/h200.py [--out FILE] [--tiny --device cpu]

At full size (sedd-medium, 50 x 1024, bf16, compiled; 1,024 digits) it takes under nine minutes on an H200, compiling
included. --tiny is for trying it out anywhere. Figures are ratios of pieces timed in turn, on the same compiled net.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from machine import RESULTS, in_turn, named, wait
from text_step import ALPHA, FULL, TINY, Bench, compared, crowds, figures, net_of, weights_of
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import truetilt as tt
from truetilt.core.storage import write_json
from truetilt.models.text_score import Padded
from truetilt.smc.sampler import Source, run_steps

_CUDA = DeviceType.CUDA
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def text_net(tiny: bool, device: str) -> tt.SEDD:
    gpu = device.startswith("cuda")
    return net_of(TINY if tiny else FULL, device, torch.bfloat16 if gpu else torch.float32, gpu)


def text_step(net: tt.SEDD, tiny: bool, rounds: int) -> dict[str, Any]:
    """A step over the two trunk passes in it and under a dense one, compiled all; and the trunk's own speed."""
    rows, config = figures(net, not tiny, rounds), net.config
    tokens = (8 if tiny else 50) * config.length
    flops = 2 * tokens * config.blocks * (24 * config.hidden**2 + 4 * config.length * config.hidden)
    speed = {"trunk TFLOP/s": flops / rows["two trunks"]["seconds"] / 1e12}
    rows |= crowds(net, not tiny, dense=False)  # a dense step of so many is out of memory, or compiles anew
    return {"rows": rows} | compared(rows, weights_of(net)) | speed


def waits(value: Any, grid: tuple[float, ...], particles: int, device: str) -> dict[str, Any]:
    """How often the host waits for the device in a step: by torch's own warnings, and by the profiler."""
    path = run_steps(value, grid, (1, particles), tt.adaptive(tt.systematic, 0.5), Source(tt.Stream(0, device=device)))
    for _ in range(4):
        next(path)
    if not device.startswith("cuda"):
        return {"note": "no device to wait for"}
    wait(device)
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        next(path)
    torch.cuda.set_sync_debug_mode("default")
    where = Counter(f"{Path(w.filename).name}:{w.lineno}" for w in told if "synchroniz" in str(w.message))
    wait(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        next(path)
    events = Counter(event.name for event in seen.events())
    return {
        "warned": sum(where.values()),
        "where": dict(where),
        "profiled": {name: events[name] for name in WAITS if events[name]},
        "kernels": events["cudaLaunchKernel"] + events["cuLaunchKernel"] + events["cuLaunchKernelEx"],
        "copies to the host": sum(n for name, n in events.items() if "Memcpy DtoH" in name),
    } | work_of(seen)


def work_of(seen: profile) -> dict[str, Any]:
    """How long the device worked in a profiled step, how long it stood still, and at what it worked longest."""
    spans = sorted((e.time_range.start, e.time_range.end, e.name) for e in seen.events() if e.device_type == _CUDA)
    busy, still, end, each = 0.0, 0.0, spans[0][0], Counter()
    for begin, until, name in spans:
        busy, still = busy + max(0.0, until - max(begin, end)), still + max(0.0, begin - end)
        end = max(end, until)
        each[name[:80]] += until - begin
    longest = {name: round(took / 1e3, 3) for name, took in each.most_common(24)}
    return {"busy ms": busy / 1e3, "still ms": still / 1e3, "ms at": longest}


def passes_of(work: Callable[[], object], nets: Mapping[str, torch.nn.Module]) -> dict[str, int]:
    """How many batches each network was asked; counted outside of what is compiled."""
    calls, ask = Counter(), Padded._ask
    names = {id(net): name for name, net in nets.items()}

    def counted(self: Padded, *inputs: torch.Tensor) -> torch.Tensor:
        calls.update([names[id(self.net)]])
        return ask(self, *inputs)

    Padded._ask = counted
    try:
        work()
    finally:
        Padded._ask = ask
    return dict(calls)


def digits(particles: int, steps: int, device: str) -> dict[str, Any]:
    """Samples a second of the tilted sampler over plain guidance, raw and for each pass of a network."""
    gpu = device.startswith("cuda")
    bundle = tt.load("mnist", device, batch=min(256, particles), dtype=torch.bfloat16 if gpu else None, compile=gpu)
    model, grid = bundle.model(4), tt.uniform_grid(steps)
    plain = tt.Unweighted(model, tt.Guided(model.process, model.base, model.conditional, 3.0))
    values = {
        "guidance": (plain, tt.never),
        "conditional": (tt.Unweighted(model, model.conditional), tt.never),
        "tilted": (tt.Tilted(model, 3.0), None),
    }
    pieces = {k: lambda fk=fk, r=r: tt.run(fk, grid, particles=particles, resample=r) for k, (fk, r) in values.items()}
    in_turn(pieces, 1, device)  # compiles
    passes = {name: passes_of(work, bundle.nets) for name, work in pieces.items()}
    seconds = in_turn(pieces, 2, device)
    rate = {name: particles / value for name, value in seconds.items()}
    each = {name: seconds[name] / max(1, sum(passes[name].values())) for name in seconds}
    return {
        "particles": particles,
        "steps": steps,
        "samples a second": rate,
        "network passes": passes,
        "tilted over guidance": rate["tilted"] / rate["guidance"],
        "tilted over conditional": rate["tilted"] / rate["conditional"],
        "tilted over guidance, for each pass": each["guidance"] / each["tilted"],
    }


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "h200.json")
    asked = parser.parse_args()
    began = time.perf_counter()
    facts: dict[str, Any] = {"machine": named(asked.device), "tiny": asked.tiny}

    def note(name: str, answer: dict[str, Any]) -> None:
        facts[name] = answer
        print(f"[{time.perf_counter() - began:6.1f} s] {name}: {answer}", flush=True)
        write_json(asked.out, facts)  # what is there stays, should the time run out

    net = text_net(asked.tiny, asked.device)
    bench = Bench(net, 8 if asked.tiny else 50)
    note("text step", text_step(net, asked.tiny, asked.rounds))
    steps = net.config.length // 10
    note("waits, clock", waits(bench.clock(), tt.uniform_grid(steps), bench.batch, asked.device))
    grid = tt.masked_fraction_grid(bench.process.schedule, net.config.length)
    note("waits, any order", waits(tt.AnyOrder(bench.model, ALPHA), grid, bench.batch, asked.device))
    del bench, net
    note("digits", digits(4 if asked.tiny else 1024, 3 if asked.tiny else 50, asked.device))
    print(f"written: {asked.out}")


if __name__ == "__main__":
    main()
