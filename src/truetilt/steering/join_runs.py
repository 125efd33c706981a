"""Joining what was drawn: two runs of the same value, or a run with draws of other laws beside it.

Each population of each run estimates Z without bias, and so does the mean over the particles of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..core.model_diagnostics import worst
from ..result import Result
from ..smc.resampling import log_mean_exp
from ..twists.pool import Sample, pooled


def joined(one: Result, other: Result) -> Result:
    """The same populations, each with the particles of both runs; the record of steps is that of both side by side."""
    n = [one.log_weights.shape[1], other.log_weights.shape[1]]
    moved, accepted = (
        (n[0] * a + n[1] * b) / sum(n) for a, b in ((one.moved, other.moved), (one.accepted, other.accepted))
    )
    log_z = torch.logaddexp(one.log_z_path + math.log(n[0]), other.log_z_path + math.log(n[1])) - math.log(sum(n))
    return Result(
        torch.cat([one.particles, other.particles], 1),
        torch.cat([one.log_weights, other.log_weights], 1),
        one.times,
        one.ess + other.ess,
        log_z,
        torch.cat([one.ancestors, other.ancestors + n[0]], -1),
        one.settings | {"measured": worst([each.settings.get("measured", {}) for each in (one, other)]).as_settings()},
        moved,
        accepted,
        counts=one.counts + other.counts,
    )


def with_draws_beside(result: Result, samples: Sequence[Sample]) -> Result:
    """An answer by independent draws of p0 with those of other laws beside them: all are weighed as one sample of their
    mixture (`twists/pool`), and each population gets an equal part of every sample that has enough."""
    populations, count = result.log_weights.shape
    value = result.log_weights.reshape(-1).cpu()
    base = Sample(result.particles.flatten(0, 1).cpu(), value, torch.zeros_like(value))
    parts = [one.first(len(one.x) // populations * populations) for one in samples if len(one.x) >= populations]
    every, sizes = pooled([base, *parts]), [count, *(len(one.x) // populations for one in parts)]

    def by_population(column: Tensor) -> Tensor:
        split = column.split([size * populations for size in sizes])
        return torch.cat([part.unflatten(0, (populations, -1)) for part in split], 1).to(result.particles.device)

    more, log_w = sum(sizes) - count, by_population(every.log_w + math.log(len(every.x)))
    added = torch.arange(count, sum(sizes), dtype=result.ancestors.dtype, device=result.ancestors.device)
    log_z = torch.cat([result.log_z_path[:-1], log_mean_exp(log_w)[None].to(result.log_z_path)])
    return replace(
        result,
        particles=by_population(every.x),
        log_weights=log_w,
        ess=result.ess + more,
        log_z_path=log_z,
        ancestors=torch.cat([result.ancestors, added.expand(*result.ancestors.shape[:2], more)], -1),
    )
