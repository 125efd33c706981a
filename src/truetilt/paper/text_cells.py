"""Many cases of a grid in one run: guidance and the SMC of edge ratios, by nets that are not told the time.

What such a net answers about a state has no time in it, and a step changes few particles, one in sixteen of 1,000
steps: so a particle is evaluated when it has changed, and all cases share the batches, whatever their alpha and beta.
Particles and weights are those that `text_samplers` draws case by case, up to the rounding of the nets: the same
targets, the same uniforms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from ..core.logits import draw_by_row, take
from ..core.types import Resampler
from ..diffusion.kernels import log1mexp
from ..diffusion.processes import Masking, log_clock, log_lost
from ..models.text_bundle import Reviews
from ..models.text_score import Padded
from ..models.transformer import wide_product
from ..result import Result
from ..smc.resampling import effective_sample_size, log_mean_exp, never
from ..smc.sampler import DRAW, RESAMPLE, Stream
from .populations import part_of

SITES = 1 << 14  # rows of the vocabulary that are in memory at once


def has_no_time(nets: Reviews, form: str) -> bool:
    """Whether the nets of this form answer the same about a state at any time, up to the scale that noise sets."""
    sedd, guide = (cast("Any", nets.nets.get(name)) for name in ("sedd", "deft"))
    known = form == "cfg" or (guide is not None and guide.config.timeless and not guide.config.scale_by_sigma)
    return form in ("cfg", "deft") and sedd.config.timeless and sedd.config.scale_by_sigma and known


@dataclass(frozen=True)
class Cell:
    """A case: its classes, the strength of its proposal, and the exponent of its target; None for plain guidance."""

    conditions: tuple[str, ...]
    alpha: float | None
    beta: float


@dataclass(frozen=True)
class Joint:
    """What the cases of a run share; `euler`: rate-level guidance and Euler steps, else posterior-level and tweedie."""

    form: str
    grid: Sequence[float]
    shape: tuple[int, int]  # populations and particles of a class
    resample: Resampler
    euler: bool
    seed: int = 0


@dataclass
class Answers:
    """The nets, and what they answered about every particle [n]: features of all sites, and logs of total rates."""

    nets: Reviews
    form: str
    told: Tensor  # [2, n], the labels of base and conditional
    totals: Tensor  # float64 [3, n, D] of base, conditional and proposal: log of the sum of a site's row
    beta: Tensor  # [n]
    features: list[Tensor] = field(default_factory=list)  # [n, D, width] of base and conditional or guide
    evaluated: int = 0

    @property
    def _parts(self) -> tuple[Any, Any]:
        return self.nets.nets["sedd"], self.nets.nets["sedd" if self.form == "cfg" else "deft"]

    @torch.no_grad()
    def ask(self, x: Tensor, chosen: Tensor, totals: bool) -> None:
        """Evaluate the chosen particles [k] of x [n, D]."""
        states, labels = x[chosen], self.told[:, chosen]
        for features, made in zip(self.features, self._trunks(states, labels), strict=True):
            features[chosen] = made
        self.evaluated += 2 * len(chosen)
        which, site = (states == self.nets.process.mask).nonzero(as_tuple=True) if totals else (chosen[:0], chosen[:0])
        for part, where in zip(chosen[which].split(SITES), site.split(SITES), strict=True):
            for total, rows in zip(self.totals, self.rows(part, where), strict=True):
                total[part, where] = rows.logsumexp(-1).double()

    def _trunks(self, states: Tensor, labels: Tensor) -> list[Tensor]:
        """Features of base and conditional; one net under two labels shares its batches."""
        base, other = self._parts
        if base is other:
            return list(self._trunk(base, states.repeat(2, 1), labels.flatten()).chunk(2))
        return [self._trunk(net, states, own) for net, own in zip((base, other), labels, strict=True)]

    def _trunk(self, net: Any, states: Tensor, labels: Tensor) -> Tensor:
        batches = Padded(net, self.nets.batch, self.nets.dtype, net.trunk)(states, 0.5, labels)
        return torch.cat([made.to(self.features[0].dtype, copy=True) for made in batches])

    def start(self, x: Tensor, totals: bool) -> None:
        """All particles alike but for labels and beta: one of each kind is evaluated."""
        kinds, which = torch.stack([*self.told.double(), self.beta], -1).unique(dim=0, return_inverse=True)
        first = torch.full((len(kinds),), len(x), device=x.device).scatter_reduce(
            0, which, torch.arange(len(x), device=x.device), "amin"
        )
        kind = self.nets.dtype or torch.float32
        widths = [net.config.hidden for net in self._parts]
        self.features = [torch.empty(*x.shape, width, dtype=kind, device=x.device) for width in widths]
        self.ask(x, first, totals)
        for features in self.features:
            features.copy_(features[first][which])
        self.totals.copy_(self.totals[:, first][:, which])
        self.evaluated += 2 * (len(x) - len(first))  # as if each had been asked

    def rows(self, part: Tensor, site: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-rates over the vocabulary [k, V] of base, conditional and proposal, up to one number for all three."""
        base, other = (
            self._head(net, features[part, site]) for net, features in zip(self._parts, self.features, strict=True)
        )
        high, beta = other if self.form == "cfg" else base + other, self.beta[part, None]
        leaning = torch.where(beta == 1, high, base + beta.float() * (high - base))
        return base, high, torch.where(beta == 0, base, leaning)

    @torch.no_grad()
    def _head(self, net: Any, hidden: Tensor) -> Tensor:
        linear, dtype, size = net.output_layer.linear, self.nets.dtype, self.nets.process.vocabulary
        with torch.autocast(hidden.device.type, dtype, enabled=dtype is not None):
            return wide_product(hidden, linear.weight[:size]).add_(linear.bias[:size].float())

    def take(self, moved: Tensor, ancestors: Tensor) -> None:
        """Ancestors' answers [populations, N, ...] for the populations that were resampled."""
        for values in (*self.features, *self.totals):
            grouped = values.view(-1, ancestors.shape[-1], *values.shape[1:])
            grouped[moved] = take(grouped[moved], ancestors[moved])


@torch.no_grad()
def run_together(nets: Reviews, cells: Sequence[Cell], how: Joint) -> tuple[list[list[Result]], float, float]:
    """A result for each class of each cell; network evaluations a particle, and seconds, of the whole run."""
    begun, process, device = time.perf_counter(), nets.process, nets.device
    (runs, size), length, parts = how.shape, nets.length, len(cells[0].conditions)
    own = parts * runs  # populations of a cell

    def spread(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device).repeat_interleave(own)[:, None]

    alpha, beta = spread([1.0 if cell.alpha is None else cell.alpha for cell in cells]), spread([c.beta for c in cells])
    weighs = spread([cell.alpha is not None for cell in cells]).bool()
    shape = (len(alpha), size, length)
    x = torch.full((shape[0] * size, length), process.mask, device=device)
    log_w = torch.zeros(shape[:2], dtype=torch.float64, device=device)
    asked = Answers(nets, how.form, _labels(nets, cells, runs * size), torch.zeros(3, *x.shape, device=device).double(),
                    beta.expand(shape[:2]).flatten())  # fmt: skip
    asked.start(x, how.euler)
    stream, nobody = Stream(how.seed, device=device), never(log_w, log_w).ancestors
    ess, log_z, ancestors = [effective_sample_size(log_w)], [log_mean_exp(log_w)], [nobody.int()]
    for number, (t, s) in enumerate(pairwise(how.grid), 1):
        u = stream.uniforms(number, RESAMPLE, own, size).repeat(len(cells), 1)
        ess.append(effective_sample_size(log_w))
        drawn, log_w = how.resample(log_w, u)
        drawn = torch.where(weighs, drawn, nobody)
        moved = (drawn != nobody).any(-1).nonzero().squeeze(-1)
        if len(moved):
            grouped = x.view(shape)
            grouped[moved] = take(grouped[moved], drawn[moved])
            asked.take(moved, drawn)
        log_leave, log_hold = _odds(process, asked.totals, (t, s), how.euler)
        u = stream.uniforms(number, DRAW, own, size * length).repeat(len(cells), 1).view(x.shape)
        held, masked = log_hold[2].exp(), x == process.mask
        leaves = masked & (u >= held)
        c = torch.stack([1 - alpha, alpha, -torch.ones_like(alpha)]).expand(3, *shape[:2]).flatten(1)
        log_ratio = torch.where(masked & ~leaves, (c[..., None] * log_hold).sum(0), 0.0).sum(-1)
        which, site = leaves.nonzero(as_tuple=True)
        for part, where in zip(which.split(SITES), site.split(SITES), strict=True):
            rows = asked.rows(part, where)
            rest = (u[part, where] - held[part, where]) / (1 - held[part, where])
            masses = (rows[2] - rows[2].amax(-1, keepdim=True).double()).exp_().cumsum(-1)
            token = draw_by_row(masses, torch.arange(len(part), device=device), rest)
            picked = [row.gather(-1, token[:, None])[:, 0].double() - row.logsumexp(-1).double() for row in rows]
            gained = (c[:, part] * (torch.stack(picked) + log_leave[:, part, where])).sum(0)
            log_ratio.index_add_(0, part, gained)
            x[part, where] = token
        log_w = log_w + torch.where(weighs, log_ratio.view(shape[:2]), 0.0)
        if s > 0 and len(which):
            asked.ask(x, which.unique(), how.euler)
        log_z.append(log_mean_exp(log_w))
        ancestors.append(drawn.int())
    times = torch.tensor(how.grid, dtype=torch.float64)
    whole = Result(x.view(shape), log_w, times, torch.stack(ess), torch.stack(log_z), torch.stack(ancestors))
    found = [part_of(whole, first, runs) for first in range(0, shape[0], runs)]
    return (
        [found[k : k + parts] for k in range(0, len(found), parts)],
        asked.evaluated / len(x),
        time.perf_counter() - begun,
    )


def _labels(nets: Reviews, cells: Sequence[Cell], each: int) -> Tensor:
    """The labels of base and conditional of every particle [2, n]."""
    numbers = [nets.facts.number(condition) for cell in cells for condition in cell.conditions]
    told = [[nets.facts.withheld[number] for number in numbers], numbers]
    return torch.tensor(told, device=nets.device).repeat_interleave(each, 1)


def _odds(process: Masking, totals: Tensor, times: tuple[float, float], euler: bool) -> tuple[Tensor, Tensor]:
    """log-probabilities to leave and to stay masked [3, n, D] over t -> s, of base, conditional and proposal."""
    (t, s), size = map(process.sigma, times), process.vocabulary
    if not euler:
        stay = torch.full_like(totals, log_lost(s) - log_lost(t))
        return log1mexp(-stay), stay
    rate = (log_clock(t, s) - math.log(size) + totals).exp()  # a rate is the score, scaled by the noise, over its odds
    return log1mexp(rate), -rate
