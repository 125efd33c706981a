"""Handling of a result's populations: a subset, equal masses, unweighted draws from each or by mass."""

from __future__ import annotations

from dataclasses import fields, replace

import torch

from ..core.errors import InvalidInput
from ..core.logits import draw_from
from ..core.types import Tokens
from ..result import Result
from ..smc.sampler import OUTPUT, Stream


def part_of(result: Result, first: int, count: int) -> Result:
    """A subset of the populations of a result."""
    here = slice(first, first + count)
    others = {"particles", "log_weights", "times", "settings", "snapshot_steps"}
    paths = {f.name: getattr(result, f.name)[:, here] for f in fields(result) if f.name not in others}  # [steps, ...]
    return replace(result, particles=result.particles[here], log_weights=result.log_weights[here], **paths)


def counted_equally(result: Result) -> Result:
    """Equal mass for every living population: draws of several are independent, each biased by order 1/N."""
    log_z = result.population_log_z[:, None]
    return replace(result, log_weights=torch.where(log_z > -torch.inf, result.log_weights - log_z, -torch.inf))


def draws_of_each(result: Result, seed: int, many: int | None = None) -> Tokens:
    """`many` unweighted draws from each living population [living, many, D]; by default as many as its particles."""
    log_w, device = result.log_weights, result.log_weights.device
    alive = (result.population_log_z > -torch.inf).nonzero().squeeze(-1)
    if not len(alive):
        raise InvalidInput("every population died: there is nothing to draw; lower alpha, or take more particles")
    n = log_w.shape[1] if many is None else many
    u = Stream(seed, device=device).uniforms(3, OUTPUT, len(log_w), 1)[alive]
    cdf = log_w[alive].softmax(-1).cumsum(-1)
    chosen = draw_from(cdf, (torch.arange(n, device=device) + u) / n)
    return result.particles[alive].gather(1, chosen[..., None].expand(-1, -1, result.particles.shape[-1]))


def draws_by_mass(result: Result, seed: int, many: int) -> list[Tokens]:
    """`result.draw` of `many`, grouped by population [own, D]; populations without a draw are left out."""
    log_w, particles = result.log_weights.reshape(-1), result.log_weights.shape[1]
    u = Stream(seed, device=log_w.device).uniforms(0, OUTPUT, 1, 1)[0]
    chosen = draw_from(result.weights.reshape(-1).cumsum(0), (torch.arange(many, device=log_w.device) + u) / many)
    rows, owner = result.particles.flatten(0, 1)[chosen], chosen // particles
    return [rows[owner == number] for number in owner.unique().tolist()]
