"""One SMC step of a text model: its lazy head against the two trunk passes in it, and against a dense step.

PYTHONPATH=src python benchmarks/text_step.py [--full] [--compile] [--out FILE]

A tiny size runs on any CPU; --full is sedd-medium's (24 x 1024, V = 50,257 and a mask, L = 1024, 50 particles, about 10
reveals a particle) on a GPU. Weights are random: no figure hangs on what they say. Everything is timed in one run on
the same net, the pieces in turn, each a few times in a row as a run makes its steps; a figure is the median of its
rounds. The dense step is made as released code makes it: both heads at every site, softmaxes, a Gumbel draw and the
weights over all positions.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import named
from torch import Tensor

import truetilt as tt
from truetilt.core.bases import FeynmanKac
from truetilt.core.storage import write_json
from truetilt.core.types import Particles
from truetilt.smc.sampler import Begun, Source, run_steps
from truetilt.targets.stage import nothing_known

TIME, REVEALS, ALPHA, BETA, LABEL = 0.5, 10, 2.0, 1.5, 1
TINY = tt.SEDDConfig(vocabulary=2000, length=128, hidden=64, blocks=2, heads=2, classes=2)
FULL = tt.SEDDConfig(hidden=1024, blocks=24, heads=16, classes=2)  # sedd-medium, and two labels


@dataclass(frozen=True)
class Bench:
    """A labelled net, how many states it is asked about at a time, and how many steps are made in a row."""

    net: tt.SEDD
    batch: int
    row: int = 4

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    @property
    def process(self) -> tt.Masking:
        return tt.Masking(self.net.config.vocabulary)

    @property
    def model(self) -> tt.Model:
        return tt.Text(self.net, self.process, self.batch).model(LABEL)

    @property
    def grid(self) -> tuple[float, ...]:
        """Times from the middle on, so many reveals apart."""
        return tuple(TIME - k * REVEALS / self.net.config.length for k in range(self.row + 1))

    def states(self, particles: int) -> Tensor:
        """Half the sites of each state masked."""
        length, generator = self.net.config.length, torch.Generator().manual_seed(0)
        x = torch.randint(0, self.net.config.vocabulary, (particles, length), generator=generator)
        hidden = torch.rand(particles, length, generator=generator).argsort(-1) < length // 2
        return x.masked_fill(hidden, self.net.config.vocabulary).to(self.device)

    def ours(self, particles: int, value: FeynmanKac, chunk: int | None = None) -> Callable[[], Tensor]:
        """Steps of the sampler as a run makes them; returns the states they end in."""
        x = self.states(particles)[None]
        zeros = torch.zeros(1, particles, dtype=torch.float64, device=self.device)
        before = Particles(x, zeros, {"log_tilt": zeros} | nothing_known(x, 1))
        source = Source(tt.Stream(0, device=self.device), chunk=chunk)
        resample = tt.adaptive(tt.systematic, 0.5)
        begin, shape = Begun(0, before), tuple(zeros.shape)
        return lambda: [p.x for p, _ in run_steps(value, self.grid, shape, resample, source, begin=begin)][-1]

    def clock(self) -> FeynmanKac:
        return tt.Tempered(self.model, ALPHA, BETA, tt.posterior_level, kernel=tt.tweedie)

    def trunks(self, particles: int) -> Callable[[], None]:
        """The two passes that a step cannot do without, of as many steps."""
        x = self.states(particles)
        sigma, label = self.noise(particles), torch.full((particles,), LABEL, device=self.device)

        def work() -> None:
            for _ in range(self.row):
                self.net.trunk(x, sigma)
                self.net.trunk(x, sigma, label)

        return work

    def dense(self, particles: int) -> Callable[[], Tensor]:
        """As many steps with both heads everywhere; returns the log-weights."""
        x, sigma = self.states(particles), self.noise(particles)
        label, (t, s) = torch.full((particles,), LABEL, device=self.device), self.grid[:2]
        stay = float(torch.expm1(-self.process.schedule(s).value) / torch.expm1(-self.process.schedule(t).value))

        def once() -> Tensor:
            p = transition(self.net(x, sigma), x, stay)
            p_zeta = transition(self.net(x, sigma, label), x, stay)
            # guided as a whole, staying included: rate-level, as released code has it
            q = ((1 - BETA) * p.log() + BETA * p_zeta.log()).softmax(-1)
            y = (q / -torch.rand_like(q).log()).argmax(-1, keepdim=True)
            log_p, log_zeta, log_q = (law.gather(-1, y).log().sum((-1, -2)) for law in (p, p_zeta, q))
            return log_p - log_q + ALPHA * (log_zeta - log_p)

        return lambda: [once() for _ in range(self.row)][-1]

    def noise(self, particles: int) -> Tensor:
        return self.process.schedule(TIME).value.float().expand(particles).to(self.device)


def transition(log_score: Tensor, x: Tensor, stay: float) -> Tensor:
    """Chances of every token and of the mask at every site [N, L, V + 1]: revealed sites keep what they have."""
    law = log_score[..., :-1].softmax(-1) * (1 - stay)
    law = torch.nn.functional.pad(law, (0, 1), value=stay)
    law[x < law.shape[-1] - 1] = 1e-30
    return law.scatter_(-1, x[..., None], torch.where(x == law.shape[-1] - 1, stay, 1.0)[..., None])


def measured(pieces: dict[str, Callable[[], Any]], bench: Bench, rounds: int) -> dict[str, dict[str, Any]]:
    """Seconds a step (median) and peak memory of each piece, in turn; a piece out of memory says so."""
    cuda = bench.device.type == "cuda"
    rows: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in pieces}
    for turn in range(rounds + 1):  # the first is for warming up
        for name, work in pieces.items():
            if rows[name].get("out_of_memory"):
                continue
            if cuda:
                torch.cuda.reset_peak_memory_stats()
                torch.cuda.synchronize()
            begin = time.perf_counter()
            try:
                work()
                if cuda:
                    torch.cuda.synchronize()
            except torch.cuda.OutOfMemoryError:
                rows[name]["out_of_memory"] = True
                continue
            if turn:
                rows[name]["seconds"].append((time.perf_counter() - begin) / bench.row)
            rows[name]["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
    for row in rows.values():
        row["seconds"] = statistics.median(row["seconds"]) if row["seconds"] else None
    return rows


def net_of(config: tt.SEDDConfig, device: str, dtype: torch.dtype, compile_blocks: bool) -> tt.SEDD:
    """Random weights of a sensible size, everywhere."""
    net = tt.SEDD(config, seed=None).to(device=device, dtype=dtype).eval()
    generator = torch.Generator(device).manual_seed(0)
    for name, parameter in net.named_parameters():
        parameter.normal_(generator=generator).mul_(parameter.shape[-1] ** -0.5)
        if "norm" in name:
            parameter.fill_(1.0)
    for block in net.blocks if compile_blocks else ():
        block.compile()
    return net


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the size of sedd-medium, on a GPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of the weights; bfloat16 on a GPU")
    parser.add_argument("--compile", action="store_true", help="compile the trunk's blocks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    wish = parser.parse_args()
    dtype = getattr(torch, wish.dtype or ("bfloat16" if wish.device.startswith("cuda") else "float32"))
    net = net_of(FULL if wish.full else TINY, wish.device, dtype, wish.compile)
    rows = figures(net, wish.full, wish.rounds) | crowds(net, wish.full)
    for name, row in rows.items():
        took = "out of memory" if row.get("out_of_memory") else f"{1e3 * row['seconds']:10.2f} ms"
        peak = "" if row.get("peak_gib") is None else f"  peak {row['peak_gib']:7.2f} GiB"
        print(f"{name:32s}{took:>16s}{peak}")
    ratios = compared(rows, weights_of(net))
    for name, ratio in ratios.items():
        print(f"{name:32s}{ratio:13.3f}")
    if wish.out:
        facts = {"machine": named(wish.device), "full": wish.full, "compile": wish.compile}
        write_json(wish.out, {**facts, "weights_gib": weights_of(net), "rows": rows, "ratios": ratios})


def figures(net: tt.SEDD, full: bool, rounds: int) -> dict[str, dict[str, Any]]:
    """Every piece, at one size and on one net."""
    bench = Bench(net, *((50, 8) if full else (8, 4)))  # of the tiny size's masks eight steps would leave none
    pieces = {
        "two trunks": bench.trunks(bench.batch),
        "step, clock": bench.ours(bench.batch, bench.clock()),
        "step, any-order": bench.ours(bench.batch, tt.AnyOrder(bench.model, ALPHA)),
        "step, dense": bench.dense(bench.batch),
    }
    return measured(pieces, bench, rounds)


def crowds(net: tt.SEDD, full: bool, dense: bool = True) -> dict[str, dict[str, Any]]:
    """A step of many particles, ours a chunk at a time, once."""
    bench, many = Bench(net, 50 if full else 8, 1), (128, 1024) if full else (20,)
    pieces = {f"step, clock, {n} particles": bench.ours(n, bench.clock(), bench.batch) for n in many}
    others = {f"step, dense, {n} particles": bench.dense(n) for n in many if dense}
    return measured(pieces | others, bench, 1)


def weights_of(net: tt.SEDD) -> float:
    """Memory of the weights in GiB."""
    return sum(p.numel() * p.element_size() for p in net.parameters()) / 2**30


def compared(rows: dict[str, dict[str, Any]], weights: float) -> dict[str, float]:
    """The steps against the trunks in them and against the dense step."""
    trunks, ours, other, dense = (rows[name] for name in list(rows)[:4])
    ratios = {
        "step over two trunks": ours["seconds"] / trunks["seconds"],
        "any-order step over two trunks": other["seconds"] / trunks["seconds"],
    }
    if dense["seconds"]:
        ratios["dense over step"] = dense["seconds"] / ours["seconds"]
        if ours["peak_gib"]:
            ratios["dense memory over step's"] = dense["peak_gib"] / ours["peak_gib"]
            ratios["the same beyond the weights"] = (dense["peak_gib"] - weights) / (ours["peak_gib"] - weights)
    return ratios


if __name__ == "__main__":
    main()
