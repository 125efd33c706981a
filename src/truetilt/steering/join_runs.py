"""Joining two runs that never resampled: their particles are independent draws, so populations just grow."""

from __future__ import annotations

import math

import torch

from ..core.model_diagnostics import worst
from ..result import Result


def joined(one: Result, other: Result) -> Result:
    """The same populations, each with the particles of both runs; weights enter only at the end, so ESS adds up."""
    n = [one.log_weights.shape[1], other.log_weights.shape[1]]
    log_z = torch.logaddexp(one.log_z_path + math.log(n[0]), other.log_z_path + math.log(n[1])) - math.log(sum(n))
    return Result(
        torch.cat([one.particles, other.particles], 1),
        torch.cat([one.log_weights, other.log_weights], 1),
        one.times,
        one.ess + other.ess,
        log_z,
        torch.cat([one.ancestors, other.ancestors + n[0]], -1),
        one.settings | {"measured": worst([each.settings.get("measured", {}) for each in (one, other)]).as_settings()},
        one.moved,
        one.accepted,
        counts=one.counts + other.counts,
    )
