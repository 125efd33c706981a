"""Masking in continuous time: every particle reveals its sites at exact times of its own, drawn in closed form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import set_fields
from ...core.errors import InvalidInput
from ...core.types import NEG_INF, LogWeights, Particles, Schedule, Tokens, check_model
from ...diffusion.guidance import Guide, rate_level
from ...diffusion.processes import Masking
from ..potentials import check_alpha
from .jump_moves import JumpLaw, PathMove, PointLaw
from .rates import Generator, JumpTarget, Rates, edge


class _PathSoFar(NamedTuple):
    """Paths [N] that reveal sites in one order: their states, the sums of their log-rates, and the exit rate of each
    state they passed.
    """

    x: Tokens
    log_proposed: Tensor  # [N], sum over the reveals of the proposal's log-rates
    log_tilted: Tensor  # [N], the same of the target's
    exits: tuple[Tensor, ...] = ()  # one [N, 2] a state: exit rate of the proposal, and minus the generator's diagonal


@dataclass(frozen=True)
class FirstHitting(JumpTarget):
    """$pi ~ p0(x) p(zeta|x)^alpha$, masking: every particle reveals its sites one by one, each at its own exact time.

    Between jumps the rates are constant, so waiting times are exponential in the clock, and an interval has at most D
    jumps, all of which are drawn. Networks get the current state and the time at the start of the interval, which is
    exact for posteriors that do not depend on time, as those of masking do not. Particles are resampled between
    intervals. In the last interval the clock is infinite, and waiting times are integrated out.

    Args:
        model: A `tt.Model` on `tt.Masking` with a base and a conditional score.
        alpha: Exponent of the condition, 0 to 1e9; 0 is the base model itself.
        beta: Strength of the guided proposal, 0 to 1e9, a number or a function of time; 1 by default.
        guide: How two scores make the guided one: `tt.rate_level` (the default, the paper's) or `tt.posterior_level`.
    """

    beta: float | Schedule = 1.0
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        check_model(self.model)
        set_fields(self, alpha=check_alpha(self.alpha))
        if not isinstance(self.model.process, Masking):
            raise InvalidInput(
                f"first hitting needs hazards that stand still between jumps, and {type(self.model.process).__name__} "
                "has none; use Uniformised there"
            )
        Generator(self.model, self.alpha, self.beta, self.guide)

    def rates(self, x: Tokens, t: float, s: float) -> Rates:
        return Generator(self.model, self.alpha, self.beta, self.guide)(x, t, s)

    def start(self, shape: tuple[int, ...], t: float) -> PathMove:
        x = torch.full((*shape, self.model.length), self.model.process.states - 1, device=self.model.device)
        zeros = torch.zeros(shape, dtype=torch.float64, device=x.device)
        return PathMove(PointLaw(x), zeros, zeros)

    def choices(self, t: float, s: float) -> int:
        """Three uniforms a site: for the waiting time, the site and the token of each jump."""
        return 3 * self.model.length

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> PathMove:
        x, shape = particles.x, particles.x.shape[:-1]
        y, log_w = self._run(x.reshape(-1, x.shape[-1]), t, s, u.reshape(-1, x.shape[-1], 3))
        law, log_w = PointLaw(y.reshape(x.shape)), log_w.reshape(shape)
        zeros = torch.zeros_like(log_w)
        return PathMove(law, log_w, zeros) if s > 0 else PathMove(law, zeros, log_w)

    def branches(self, particles: Particles, t: float, s: float) -> list[tuple[Tensor, PathMove]]:
        """Every order of reveals before s, its times integrated out, for particles [N, D] of a small space."""
        zeros = torch.zeros_like(particles.log_w)
        return list(self._orders(_PathSoFar(particles.x, zeros, zeros), t, s))

    def _run(self, x: Tokens, t: float, s: float, u: Tensor) -> tuple[Tokens, LogWeights]:
        """Paths from x [M, D] from t to s: their ends and log-weights."""
        x, log_w = x.clone(), torch.zeros(len(x), dtype=torch.float64, device=x.device)
        spent, running = torch.zeros_like(log_w), self._masked(x)
        for now in u.unbind(1):  # each jump reveals a site, so there are at most D
            i = running.nonzero().squeeze(-1)
            if len(i) == 0:
                break
            rates = self.rates(x[i], t, s)
            left = rates.proposed.log_clock.exp() - spent[i]
            wait = torch.where(rates.leave > 0, -torch.log1p(-now[i, 0]) / rates.leave, torch.inf)
            jumps, elapsed = wait < left, torch.minimum(wait, left)
            y = JumpLaw(x[i], rates.proposed, torch.zeros_like(wait)).sample(now[i, 1:])
            log_jump = edge(rates.tilted, x[i], y) - edge(rates.proposed, x[i], y)
            log_w[i] += _log_held(rates, elapsed, left) + torch.where(jumps, log_jump, 0.0)
            x[i] = torch.where(jumps[:, None], y, x[i])
            spent[i] += elapsed
            running[i] = jumps & self._masked(x[i])
        return x, log_w

    def _orders(self, path: _PathSoFar, t: float, s: float) -> Iterator[tuple[Tensor, PathMove]]:
        """This order of reveals, and every order that extends it by further sites."""
        x, rates = path.x, self.rates(path.x, t, s)
        exits = (*path.exits, torch.stack([rates.leave, rates.exit], -1))
        log_time = log_chance(torch.stack(exits, -1), float(rates.proposed.log_clock.exp()))
        log_p, log_mass = (
            torch.where(e > NEG_INF, e + log_time[:, k], NEG_INF)
            for k, e in enumerate((path.log_proposed, path.log_tilted))
        )
        log_w = torch.where(log_p > NEG_INF, log_mass - log_p, NEG_INF)
        yield log_p, PathMove(PointLaw(x), log_w, torch.zeros_like(log_w))
        for d in range(self.model.length):
            for v in range(self.model.process.vocabulary):
                y = x.clone()
                y[:, d] = torch.where(rates.tilted.movable[:, d], v, x[:, d])
                log_proposed = path.log_proposed + edge(rates.proposed, x, y)
                if (log_proposed > NEG_INF).any():
                    log_tilted = path.log_tilted + edge(rates.tilted, x, y)
                    yield from self._orders(_PathSoFar(y, log_proposed, log_tilted, exits), t, s)

    def _masked(self, x: Tokens) -> Tensor:
        return (x == self.model.process.states - 1).any(-1)


def log_chance(exits: Tensor, clock: float) -> Tensor:
    """log of the integral over the times of k jumps of exp(-sum of exit rate * stay) [...], for exits [..., k + 1]."""
    if clock == math.inf:
        return torch.where(exits[..., -1] == 0, -exits[..., :-1].log().sum(-1), NEG_INF)
    ladder = torch.diag_embed(-exits) + torch.diag(torch.ones_like(exits.flatten()[: exits.shape[-1] - 1]), 1)
    return torch.linalg.matrix_exp(clock * ladder)[..., 0, -1].log()


def _log_held(rates: Rates, elapsed: Tensor, left: Tensor) -> Tensor:
    """The integral of Q(x) - exit over the wait; with an infinite clock the log of the mean of its exponential, Q(x) /
    exit.
    """
    return torch.where(left.isinf(), rates.leave.log() - rates.exit.log(), (rates.leave - rates.exit) * elapsed)
