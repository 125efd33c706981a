"""The uniform process in continuous time: particles jump or stay at the points of a Poisson process.

At each point the step is I + A / bound, with A the generator: averaged over the points that gives the exponential of A,
without time error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.arguments import number, set_fields, shown
from ...core.errors import InvalidInput, InvalidWeights
from ...core.types import Model, Particles, Schedule, Tokens, check_model
from ...diffusion.grids import Grid
from ...diffusion.guidance import Guide, rate_level
from ...diffusion.processes import Uniform
from ..on_clock import ClockMove, Proposal
from ..potentials import check_alpha
from .candidate_times import Candidates
from .jump_moves import JumpLaw, JumpMove, PathMove, PointLaw
from .rates import Generator, JumpTarget, Rates


@dataclass(frozen=True)
class Uniformised(JumpTarget):
    """$pi ~ p0(x) p(zeta|x)^alpha$, uniform process: at each candidate a particle jumps at one site, or stays.

    Run it on `grid`. Given its candidates this is an ordinary model in discrete time; over their law the mean of its
    mass is that of continuous time, whatever the bound. All populations of a run share the candidates: their spread
    does not show how mass scatters from grid to grid (as $1 / sqrt(bound)$), and more particles do not lessen it. Run
    several grids and weigh them by mass, or raise the bound.

    Args:
        model: A `tt.Model` on `tt.Uniform` with a base and a conditional score.
        alpha: Exponent of the condition, 0 to 1e9; 0 is the base model itself.
        candidates: Times at which particles may jump, from `tt.poisson_times(process, bound, seed)`.
        beta: Strength of the guided proposal, a number or a function of time, for rates $R g^beta$. None (the default)
            proposes from the adapted law, whose weight is known before the draw.
        guide: How two scores make the guided one: `tt.rate_level` (the default, the paper's) or `tt.posterior_level`.
    """

    candidates: Candidates
    beta: float | Schedule | None = None
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        check_model(self.model)
        set_fields(self, alpha=check_alpha(self.alpha))
        if not isinstance(self.model.process, Uniform):
            raise InvalidInput(f"{type(self.model.process).__name__} has an infinite clock; use FirstHitting")
        if not isinstance(self.candidates, Candidates):
            raise InvalidInput(
                f"candidates is {shown(self.candidates)}; give those of tt.poisson_times(process, bound)"
            )
        Generator(self.model, self.alpha, self.beta, self.guide)

    @property
    def grid(self) -> Grid:
        return self.candidates.grid

    def rates(self, x: Tokens, t: float, s: float) -> Rates:
        return Generator(self.model, self.alpha, self.beta, self.guide)(x, t, s)

    def start(self, shape: tuple[int, ...], t: float) -> ClockMove:
        if t != self.grid[0]:
            raise InvalidInput(f"the run starts at t = {t:.6g}, the candidates at {self.grid[0]:.6g}; run it on `grid`")
        device = self.model.device
        nowhere = torch.zeros((*shape, self.model.length), dtype=torch.int64, device=device)
        zeros = torch.zeros(shape, dtype=torch.float64, device=device)
        return ClockMove(nowhere, zeros, self._first, None)

    def _first(self, x: Tokens) -> Proposal:
        return Proposal(self.model.process.prior(tuple(x.shape), self.model.device))

    def move(self, particles: Particles, t: float, s: float, u: Tensor | None = None) -> PathMove | JumpMove:
        """The step at candidate t: weights $A / bound$ for a jump and $1 - exit / bound$ for staying, drawn by Q or by
        the adapted law.
        """
        bound, x, zeros = self.candidates.bound(t, s), particles.x, torch.zeros_like(particles.log_w)
        if bound is None:
            return PathMove(PointLaw(x), zeros, zeros)
        rates = self.rates(x, t, s)
        _check_rates(rates, self.beta is None, bound, t)
        stay = bound - rates.exit
        if self.beta is None:
            law = JumpLaw(x, rates.tilted, stay)
            return JumpMove(law, law.total.log() - math.log(bound), zeros, None)
        held = bound - rates.leave
        return JumpMove(JumpLaw(x, rates.proposed, held), zeros, stay.log() - held.log(), rates.tilted)


def least_bound(
    model: Model, alpha: float, x: Tokens, t: float, beta: float | Schedule | None = None, guide: Guide = rate_level
) -> float:
    """The bound on rates that candidates must exceed for `Uniformised` to run through these states at time t.

    Args:
        model: A `tt.Model` on `tt.Uniform` with a base and a conditional score.
        alpha: Exponent of the condition, 0 to 1e9.
        x: States int64 [..., D].
        t: The time, above 0 and at most 1.
        beta: Strength of the guided proposal, a number or a function of time. None (the default): the adapted law.
        guide: How two scores make the guided one: `tt.rate_level` (the default) or `tt.posterior_level`.
    """
    generator, t = Generator(model, alpha, beta, guide), number("t", t)
    if not isinstance(x, Tensor) or x.dtype != torch.int64 or x.shape[-1:] != (model.length,) or not 0 < t <= 1:
        raise InvalidInput(f"x is {shown(x)} at t = {t}; give int64 states [..., {model.length}], at a time in (0, 1]")
    if x.numel() and not 0 <= int(x.min()) <= int(x.max()) < model.process.states:
        raise InvalidInput(f"x holds tokens outside 0 to {model.process.states - 1}; give states of this process")
    rates = generator(x, t, 0.0)
    return float(_needed(rates, beta is None).max())


def _needed(rates: Rates, adapted: bool) -> Tensor:
    return rates.exit if adapted else torch.maximum(rates.leave, rates.exit)


def _check_rates(rates: Rates, adapted: bool, bound: float, t: float) -> None:
    needed = _needed(rates, adapted).max()
    if not needed < bound:
        raise InvalidWeights(
            f"t = {t:.6g}: a particle leaves its state at rate {float(needed):.6g} a unit of the clock, and the bound "
            f"is {bound:.6g}; raise the bound there (see least_bound) and draw new candidate times"
        )
