"""Draws on the any-order clock that remember what the base said: from p0 itself, or led by a twist.

One Feynman-Kac value for the library's own sampler. At each step it keeps the masked states, the site that is revealed
and the base's likely tokens there, which is all that a fit needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..core.spent import Spent
from ..core.types import (
    Aux,
    Batch,
    InvalidInput,
    InvalidWeights,
    LogWeights,
    Model,
    Particles,
    Potential,
    Remedies,
    SiteLogits,
    Target,
    Tokens,
    ask,
    batch_of,
    check,
    shown,
    take,
)
from ..diffusion.processes import Masking
from ..diffusion.schedules import masked_fraction_grid
from ..smc.resampling import adaptive, systematic
from ..smc.sampler import Source, trace
from ..smc.stream import Stream
from ..targets.reveal_move import RevealLaw
from .lessons import Steps

TOKENS = 256  # likeliest tokens of a site that a step remembers
_NUMBERS = 1 << 23  # and probabilities that are remembered in all: of longer draws, those of fewer
_APART = 1 << 40  # populations that no run draws from


@dataclass(frozen=True)
class Reveal:
    """One site of each particle revealed from given rows; the weight is known before the draw."""

    lazy: ClassVar[bool] = False
    law: RevealLaw
    log_before: LogWeights

    @property
    def uniforms(self) -> int:
        return self.law.sites.shape[-1]

    @property
    def labels(self) -> Tensor:
        return torch.cat([self.law.x, self.law.sites], -1)

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        return torch.zeros_like(self.log_before), {}

    def take(self, ancestors: Tensor) -> Reveal:
        return Reveal(self.law.take(ancestors), take(self.log_before, ancestors))


@dataclass(frozen=True)
class Revealing:
    """p0 exp(twist), revealed one site a step in an order or at random; `kept` gathers the steps."""

    how: ClassVar[str] = "reveals sites of the base, and remembers what it said"
    model: Model
    twist: Potential | None
    order: tuple[int, ...] | None
    most: int  # draws whose steps are kept
    target: ClassVar[Target | None] = None
    remedies: ClassVar[Remedies] = Remedies()
    kept: list[Steps] = field(default_factory=list, compare=False)

    @property
    def device(self) -> torch.device | str:
        return self.model.device

    def start(self, shape: tuple[int, ...], t: float) -> Reveal:
        process, device = self.model.process, self.model.device
        x = torch.full((*shape, self.model.length), process.states - 1, device=device)
        sites = torch.zeros((*shape, 0), dtype=torch.int64, device=device)
        row = torch.zeros(1, process.vocabulary, dtype=torch.float64, device=device)
        return Reveal(
            RevealLaw(x, sites, SiteLogits(row, sites)), torch.zeros(shape, dtype=torch.float64, device=device)
        )

    def choices(self, t: float, s: float) -> int:
        return int(self.order is None)

    def branches(self, particles: Particles, t: float, s: float) -> Sequence[tuple[Tensor, Reveal]]:
        raise InvalidInput("draws that a twist is fitted to have no exact flow; use tt.AnyOrder")

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> Reveal:
        x, mask = particles.x, self.model.process.states - 1
        masked = x == mask
        if self.order is None:
            site = _nth(masked, u)
        else:
            number = self.model.length - int(masked[0, 0].sum())
            site = torch.full_like(x[..., :1], self.order[number])
        logits = ask(self.model.base, Batch(batch_of(x)), t)
        if not isinstance(logits, SiteLogits) or logits.vocabulary != self.model.process.vocabulary:
            size = self.model.process.vocabulary
            raise InvalidInput(f"the base score returned {shown(logits)}; return tt.SiteLogits of {size} tokens a site")
        logits = SiteLogits(logits.store, logits.index.reshape(x.shape)).at(site)
        log_p = self.model.process.posterior(logits, x, t).dense().double()[..., 0, :]
        check(log_p.isnan().any(), lambda: InvalidWeights(f"t = {t:.6g}: the base score returned NaN or only -inf"))
        self.kept.append(_likely(x[0, : self.most], site[0, : self.most, 0], log_p[0, : self.most]))
        rows, log_mass = log_p, torch.zeros_like(particles.log_w)
        if self.twist is not None:
            flat, here = batch_of(x), site.reshape(-1)
            gain = token_values(self.twist, flat, here, t, log_p.shape[-1]) - self.twist(flat, t)[:, None]
            rows = log_p + gain.reshape(log_p.shape)
            log_mass = rows.logsumexp(-1)
            rows = rows - log_mass[..., None]
        return Reveal(RevealLaw(x, site, SiteLogits.of(rows[..., None, :])), log_mass)


def draws(
    model: Model, count: int, twist: Potential | None, order: tuple[int, ...] | None, seed: int, number: int
) -> tuple[Tokens, Steps, Spent]:
    """Clean states of p0 exp(twist), of p0 where there is none, the steps that made them, and what they cost."""
    width = model.length * min(model.process.vocabulary, TOKENS)
    fk = Revealing(model, twist, order, max(_NUMBERS // width, 64))
    grid = masked_fraction_grid(cast("Masking", model.process).schedule, model.length)
    source = Source(Stream(seed, first_population=_APART + number, device=model.device))
    for particles, _ in trace(fk, grid, (1, count), adaptive(systematic, 0.5), source):
        x = particles.x[0]
    steps = Steps(*(torch.cat(column) for column in zip(*fk.kept, strict=True)))
    return x, steps, Spent(len(grid) - 1, count * (len(grid) - 1))


def token_values(twist: Potential, x: Tokens, site: Tensor, t: float, size: int) -> Tensor:
    """The value of x [B, D] with a site [B] set to every token, float64 [B, S]: asked at once where a twist can."""
    at_once = getattr(twist, "site_values", None)
    if at_once is not None:
        return at_once(x, site, t).double()
    tokens = torch.arange(size, device=x.device)
    where, what = site[:, None, None].expand(-1, size, 1), tokens[:, None].expand(len(x), size, 1)
    every = x[:, None].expand(-1, size, -1).scatter(-1, where, what)
    return twist(every.reshape(-1, x.shape[-1]), t).double().reshape(len(x), size)


def _nth(masked: Tensor, u: Tensor) -> Tensor:
    """One masked site of each particle [..., 1], any alike, by a uniform [..., 1]."""
    count = masked.sum(-1, keepdim=True)
    number = (u * count).long().clamp(max=count - 1)
    return (masked & (masked.cumsum(-1) == number + 1)).long().argmax(-1, keepdim=True)


def _likely(x: Tokens, site: Tensor, log_p: Tensor) -> Steps:
    """A step, on the host, with the likeliest tokens of its site, renormalised where some are left out."""
    x, site, log_p = x.cpu(), site.cpu(), log_p.cpu()
    number = torch.arange(len(x))
    if log_p.shape[-1] <= TOKENS:
        tokens = torch.arange(log_p.shape[-1]).expand(log_p.shape)
        return Steps(x, site, tokens, log_p, number)
    top = log_p.topk(TOKENS, -1)
    return Steps(x, site, top.indices, top.values.log_softmax(-1), number)
