"""Draws on the any-order clock that record the base's probabilities: from p0 itself, or led by a twist.

Each step records the masked states, the site revealed and the base's likely tokens there: all that a fit needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..core.arguments import reals
from ..core.bases import FeynmanKac
from ..core.binding import bind
from ..core.evaluation import RunLog
from ..core.spent import Spent
from ..core.twists import SiteValued
from ..core.types import Model, Particles, Potential, Tokens
from ..diffusion.processes import Masking
from ..smc.resampling import adaptive, systematic
from ..smc.sampler import OUTPUT, Source, Stream, run_steps
from ..targets.any_order import RevealMove
from ..targets.composed import Composed
from .lessons import Steps
from .network import NetworkTwist
from .tables import TableTwist

TOKENS = 256  # likeliest tokens that are recorded at a site
_NUMBERS = 1 << 23  # probabilities recorded in all; with longer sequences, fewer draws are recorded
_PATHS = 1 << 21  # random stream of the orders in which given states are told step by step
_APART = 1 << 40  # first population number of learning, above those of any run


@dataclass(frozen=True)
class RecordedDraws(FeynmanKac):
    """The moves of `inner`, which reveals one site per step; `kept` collects the steps of the first `most` draws."""

    inner: Composed
    most: int
    kept: list[Steps] = field(default_factory=list, compare=False)

    def start(self, shape: tuple[int, ...], t: float) -> RevealMove:
        return self.inner.start(shape, t)

    def choices(self, t: float, s: float) -> int:
        return self.inner.choices(t, s)

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> RevealMove:
        move, first = self.inner.move(particles, t, s, u), slice(self.most)
        sites, base = move.law.sites[0, first, 0], move.laws.base.dense()[0, first, 0]
        self.kept.append(_likely(particles.x[0, first], sites, base.double()))
        return move


class RevealedDraws(NamedTuple):
    """Clean states [n, D] of p0 exp(twist), their log-weights [n], the steps that made them, what they cost, and
    whether they are independent of one another: none was resampled.

    The mean of exp(log_w) is an estimate of the normaliser of p0 exp(twist); weights are 1 without a twist.
    """

    x: Tokens
    log_w: Tensor
    steps: Steps
    spent: Spent
    independent: bool = True


def draws(
    model: Model, count: int, twist: Potential | None, order: tuple[int, ...] | None, seed: int, number: int
) -> tuple[Tokens, Steps, Spent]:
    """Clean states of p0 exp(twist) (of p0 without a twist), the steps that made them, and what they cost."""
    found = weighed_draws(model, count, twist, order, seed, number)
    return found.x, found.steps, found.spent


def weighed_draws(
    model: Model, count: int, twist: Potential | None, order: tuple[int, ...] | None, seed: int, number: int
) -> RevealedDraws:
    """Draws of p0 exp(twist) (of p0 without a twist) with their weights."""
    width, log = model.length * min(model.process.vocabulary, TOKENS), RunLog()
    asked = bind(model, log)  # values come from the twist; the reward is not called
    goal = Composed(asked, reward=twist, twist=twist, order=order)
    fk = RecordedDraws(goal, max(_NUMBERS // width, 64))
    source = Source(Stream(seed, first_population=_APART + number, device=model.device))
    parents = []
    for particles, info in run_steps(fk, goal.grid, (1, count), adaptive(systematic, 0.5), source):
        x, log_w = particles.x[0], particles.log_w[0]
        parents.append(info.ancestors[0].cpu())
    steps = Steps(*(torch.cat(column) for column in zip(*_lines(fk.kept, parents[1:]), strict=True)))
    independent = all(torch.equal(each, torch.arange(count)) for each in parents)
    return RevealedDraws(x, log_w.cpu(), steps, Spent(log.rounds, log.evaluations), independent)


def steps_of(model: Model, x: Tokens, order: tuple[int, ...] | None, seed: int) -> tuple[Steps, Spent]:
    """The steps that could have made clean states [n, D], in this order or in a random one each, and what they cost.

    The network is asked at every partly masked state on the way; no reward is.
    """
    count, length = x.shape
    log, process = RunLog(), cast("Masking", model.process)
    goal = bind(Composed(model, order=order), log)
    if order is None:
        u = Stream(seed, device=x.device).uniforms(_PATHS, OUTPUT, count, length)
        sites = u.argsort(-1)
    else:
        sites = torch.tensor(order, device=x.device).expand(count, length)
    seen, kept = torch.full_like(x, process.mask), []
    for done in range(length):
        at = sites[:, done : done + 1]
        laws = goal.site_laws(seen, process.time_masked(length, length - done), at)
        kept.append(_likely(seen, at[:, 0], laws.base.dense()[:, 0].double()))
        seen = seen.scatter(-1, at, x.gather(-1, at))
    steps = Steps(*(torch.cat(column) for column in zip(*kept, strict=True)))
    return steps, Spent(log.rounds, log.evaluations)


def _lines(kept: list[Steps], parents: list[Tensor]) -> list[Steps]:
    """The steps along each draw's ancestral line: those of particles lost in resampling are left out, those of copied
    ones repeated."""
    found, now = [], torch.arange(len(parents[-1]))
    for steps, before in zip(reversed(kept), reversed(parents), strict=True):
        now = before[now]
        draw = (now < len(steps.x)).nonzero().squeeze(-1)
        found.append(Steps(*(column[now[draw]] for column in steps))._replace(draw=draw))
    return found[::-1]


def token_values(twist: Potential, x: Tokens, site: Tensor, t: float, size: int) -> Tensor:
    """The value of x [B, D] with a site [B] set to every token, float64 [B, S]; one call if the twist has
    `site_values`."""
    if isinstance(twist, TableTwist | NetworkTwist | SiteValued):  # the first two are quicker to tell
        return twist.site_values(x, site, t).double()
    tokens = torch.arange(size, device=x.device)
    where, what = site[:, None, None].expand(-1, size, 1), tokens[:, None].expand(len(x), size, 1)
    every = x[:, None].expand(-1, size, -1).scatter(-1, where, what)
    found = reals("what the twist returned", twist(every.reshape(-1, x.shape[-1]), t), "return one number a state")
    return found.reshape(len(x), size)


def _likely(x: Tokens, site: Tensor, log_p: Tensor) -> Steps:
    """A step on the CPU with the likeliest tokens of its site; their probabilities are renormalised if others are left
    out."""
    x, site, log_p = x.cpu(), site.cpu(), log_p.cpu()
    number = torch.arange(len(x))
    if log_p.shape[-1] <= TOKENS:
        tokens = torch.arange(log_p.shape[-1]).expand(log_p.shape)
        return Steps(x, site, tokens, log_p, number)
    top = log_p.topk(TOKENS, -1)
    return Steps(x, site, top.indices, top.values.log_softmax(-1), number)
