"""Edge ratios as a function of the state: two scores evaluated in one fixed order, and sweeps of Gibbs moves under
them.

A move that redraws a site subtracts one ratio from the sum and adds another. If the conditionals of learned networks
disagree such sums drift upwards with the number of moves. Evaluated in a fixed order, some sites at a time, the same
two networks are laws of whole states: log p(x|zeta) - log p(x) is then a function of the state alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..core.bases import MoveKernel
from ..core.errors import InvalidInput
from ..core.evaluation import evaluate_all
from ..core.logits import Sites
from ..core.types import Model, Particles, Tokens
from ..diffusion.processes import Masking
from ..targets.accept_move import AcceptMove
from ..targets.annealed import Annealed
from ..targets.annealing_pilot import AtShare
from ..targets.any_order import AnyOrder, RevealLaw
from ..targets.composed import Composed
from ..targets.moves import Proposed, accepting, hide

STEPS = 16  # steps in which a state is evaluated: every sixteenth site at a time


def spread_order(length: int, steps: int = STEPS) -> tuple[int, ...]:
    """All sites, distant ones first: every steps-th site from each offset 0 .. steps - 1, offsets by bisection."""
    bits = max(1, (steps - 1).bit_length())
    firsts = sorted(range(steps), key=lambda first: int(f"{first:0{bits}b}"[::-1], 2))
    return tuple(site for first in firsts for site in range(first, length, steps))


@dataclass(frozen=True)
class OrderedRatio:
    """log p(x|zeta) - log p(x) of clean states, both as the two scores draw x in `STEPS` steps of the spread order."""

    model: Model

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        process, length = cast("Masking", self.model.process), self.model.length
        order = torch.tensor(spread_order(length), device=x.device)
        total, seen = torch.zeros(len(x), dtype=torch.float64, device=x.device), torch.full_like(x, process.mask)
        done = 0
        for part in order.tensor_split(min(STEPS, length)):
            now, sites = process.time_masked(length, length - done), part.expand(len(x), -1)
            scores = {"base": self.model.base, "conditional": self.model.conditional}
            here = [logits.at(Sites(sites)) for logits in evaluate_all(self.model, seen, now, **scores)]
            tokens = x.gather(-1, sites)
            base, given = (process.posterior(logits, seen, now).pick(tokens).double().sum(-1) for logits in here)
            total, seen, done = total + given - base, seen.scatter(-1, sites, tokens), done + len(part)
        return total


def by_ordered_ratio(model: Model, alpha: float) -> Composed:
    """p(x|zeta) (p(x|zeta)/p(x))^(alpha - 1), all of it in the spread order."""
    if model.conditional is None:
        raise InvalidInput("annealing by edge ratios needs a conditional score, and the model has none")
    base = replace(model, base=model.conditional, conditional=None, potential=None)
    return Composed(base, reward=OrderedRatio(model), strength=alpha - 1, order=spread_order(model.length))


@dataclass(frozen=True)
class EdgeSweep(MoveKernel):
    """Redraw every site in turn by Gibbs moves under the edge ratios at the current exponent, then value the state.

    The goal is `by_ordered_ratio`. Exact if the conditionals of both scores agree with the ordered law.
    """

    redraws: ClassVar[bool] = True
    fk: Annealed | AtShare
    model: Model

    @property
    def choices(self) -> int:
        return self.model.length

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> AcceptMove:
        fk, x, stage = self.fk, particles.x, self.fk.stage(t)
        edges = AnyOrder(self.model, 1 + stage.factors[-1])
        for k in range(self.model.length):
            site = torch.full_like(x[..., :1], k)
            hidden = hide(fk, x, site)
            laws = edges.site_laws(hidden, edges.asked_at(0.0, 1), site, fk.log)
            x = RevealLaw(hidden, site, laws.tilted(edges.stage(0.0), log=fk.log)[0]).sample(u[..., [k]])
        mine, before = fk.values(particles, t), fk.recall(particles, t)
        values = stage.values(x, fk.log)
        proposed = Proposed(x, before | {"values": values}, torch.zeros_like(particles.log_w))
        return accepting(fk, particles, t, proposed, mine)
