"""A target and a move as a user would write them, by the names of tt.feynman_kac alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

import truetilt as tt
from truetilt.feynman_kac import AcceptMove, MoveKernel, OnClock, Proposal, Tilt, evaluate

MASKING, UNIFORM = tt.Masking(3), tt.Uniform(3)
P0 = torch.tensor([[0.3, 0.1, 0.0], [0.1, 0.2, 0.1], [0.0, 0.1, 0.1]])
LIKELIHOOD = torch.tensor([[0.1, 0.9, 0.5], [0.6, 0.2, 0.8], [0.5, 0.4, 0.7]])
TABLE = tt.Table(MASKING, P0, LIKELIHOOD)
LINEAR = tt.Power(1.0)
GRID = tt.uniform_grid(12)


def zeros(x, t):
    """The reward: how many tokens are 0."""
    return (x == 0).sum(-1).double()


@dataclass(frozen=True)
class Rewarded(OnClock):
    """p0(x) exp(reward(x)), as the page on extending writes a target: neither model nor way are named."""

    ramp: Callable[[float], float] = LINEAR

    @property
    def target(self):
        return tt.Target({"law": "p0 e^r", "reward": zeros}, constant="log sum of p0(x) exp(reward(x))")

    @property
    def tilt(self):
        return Tilt(zeros, lambda t: self.ramp(1 - t))

    def propose(self, x, t, s):
        return Proposal(self.law("base", self.evaluate("base", self.model.base, x, t), x, t, s))


def exact(table):
    """The law of `Rewarded` on the clean states of a table, up to a constant."""
    clean = torch.cartesian_prod(*[torch.arange(3)] * table.length)
    return table.p0 * zeros(clean, 0.0).exp().reshape(table.p0.shape)


@dataclass(frozen=True)
class Redraw(MoveKernel):
    """For `Rewarded`, at any time: a site of a scan, a token proposed evenly, Metropolis; it lists its choices."""

    fk: Rewarded
    choices: int = 1

    def move(self, particles, t, number, u):
        return self.to(particles, t, number, (u * 3).long())

    def branches(self, particles, t, number):
        token = torch.zeros_like(particles.x[..., :1])
        return [(self.log_chance(particles), self.to(particles, t, number, token + v)) for v in range(3)]

    def log_chance(self, particles):
        return torch.full_like(particles.log_w, 1 / 3).log()

    def to(self, particles, t, number, token):
        x, model, site = particles.x, self.fk.model, torch.full_like(particles.x[..., :1], number % 2)
        hidden, now = x.scatter(-1, site, model.process.mask), max(t, model.process.time_masked(model.length, 1))
        score = evaluate(model, "base", model.base, hidden, now)
        law = model.process.posterior(score, hidden, now).dense().gather(-2, site[..., None].expand(*site.shape, 3))
        old = x.gather(-1, site)
        masked = (old == model.process.mask)[..., 0]
        y = torch.where(masked[..., None], x, x.scatter(-1, site, token))
        log_p = [law[..., 0, :].gather(-1, v.clamp(max=2))[..., 0] for v in (old, token)]
        accept = self.accept(log_p[1] + self.fk.tilt(y, t), log_p[0] + self.fk.tilt(x, t))
        return AcceptMove(x, y, torch.where(masked, 0.0, accept).double(), self.kept(x, x, t), self.kept(x, y, t))

    def accept(self, there, here):
        """0 where the particle itself is impossible."""
        return torch.where(here > -torch.inf, there - torch.where(here > -torch.inf, here, 0.0), 0.0).clamp(max=0.0)

    def kept(self, x, y, t):
        """What is remembered of y, proposed from x."""
        return {"log_tilt": self.fk.tilt(y, t)}


class NaNOnImpossible(Redraw):
    """-inf + inf where the particle is impossible."""

    def accept(self, there, here):
        return (there - here).clamp(max=0.0)


class Unclamped(Redraw):
    """Probabilities above 1."""

    def accept(self, there, here):
        return super().accept(there, here) + 0.4


class AllNaN(Redraw):
    """No number at all."""

    def accept(self, there, here):
        return there * torch.nan


class Stale(Redraw):
    """It remembers of y the tilt of x."""

    def kept(self, x, y, t):
        return {"log_tilt": self.fk.tilt(x, t)}


class Forgetful(Redraw):
    """It remembers nothing."""

    def kept(self, x, y, t):
        return {}


class Leaking(Redraw):
    """The probabilities of its choices sum to 1/e."""

    def log_chance(self, particles):
        return super().log_chance(particles) - 1.0


class Elsewhere(Redraw):
    """What it lists is not what it does: a smaller chance to accept."""

    def branches(self, particles, t, number):
        return tt.Gibbs(tt.Steered(self.fk.model, zeros, ramp=self.fk.ramp), tt.systematic_scan).branches(
            particles, t, number
        )
