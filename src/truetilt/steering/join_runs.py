"""Joining two runs of the same value: every population holds the particles of both.

Each population of each run estimates Z without bias, and so does the mean over the particles of both.
"""

from __future__ import annotations

import math

import torch

from ..core.model_diagnostics import worst
from ..result import Result


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
