"""Weak scaling: twice the particles on two ranks against one rank with its share, in turn and in one job.

OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 benchmarks/ranks.py [--rounds 3]

The problem is bound by computing: a network at every site. One rank works alone while the others wait, then all work
together on as many particles each, resampling at every step. Efficiency is the first time over the second. Ranks that
share a core, or a core's memory, lose what they share; where neighbours keep the cores busy, the clock tells of them,
and the processor's own seconds tell what the ranks do twice or say to each other.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import torch
import torch.distributed as dist
from machine import keep
from text_step import net_of

import truetilt as tt
from truetilt import distributed

EACH, STEPS, LENGTH = 16, 4, 64
CONFIG = tt.SEDDConfig(vocabulary=1000, length=LENGTH, hidden=256, blocks=4, heads=4, classes=2)


def cost(fk: object, particles: int, how: object) -> tuple[float, float]:
    """Seconds on the clock, and of this process alone."""
    begin, own = time.perf_counter(), time.process_time()
    how(fk, tt.uniform_grid(STEPS), particles=particles, resample=tt.systematic)
    return time.perf_counter() - begin, time.process_time() - own


def efficiency(alone: list[tuple[float, float]], together: list[tuple[float, float]]) -> dict[str, float]:
    """The least time alone over the least together: on the clock, and of the first rank's processor."""
    least = [[min(times) for times in zip(*runs, strict=True)] for runs in (alone, together)]
    return {"clock": least[0][0] / least[1][0], "processor": least[0][1] / least[1][1]}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    world = distributed.world()
    net = net_of(CONFIG, distributed.device(), torch.float32, False)
    model = tt.Text(net, tt.Masking(CONFIG.vocabulary), batch=EACH).model(1)
    values = {
        "clock": tt.Tempered(model, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie),
        "any order": tt.AnyOrder(model, 2.0),
    }
    rows = []
    for name, fk in values.items():
        alone, shared, spread = [], [], []
        for _ in range(rounds):
            dist.barrier()
            if world.first:
                alone.append(cost(fk, EACH, tt.run))
            dist.barrier()
            shared.append(cost(fk, EACH * world.size, distributed.run_sharded))
            dist.barrier()
            spread.append(cost(fk, EACH, partial(distributed.run_populations, populations=world.size)))
        if world.first:
            row = {"model": name, "ranks": world.size, "seconds alone": min(alone)[0]}
            row |= {"sharded particles": efficiency(alone, shared), "spread populations": efficiency(alone, spread)}
            rows.append(row)
            print(row, flush=True)
    if world.first:
        keep("ranks", {"particles a rank": EACH, "steps": STEPS, "rounds": rounds, "rows": rows})
    distributed.leave()


if __name__ == "__main__":
    main()
