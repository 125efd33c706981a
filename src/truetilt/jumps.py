"""Exact jumps in continuous time: no time grid is left, but for where to resample. The weights are those of Prop. 4.1.

Mass moves by the generator A, in elapsed time: R g^alpha off the diagonal, -R(x) + alpha (R(x) - R1(x)) on it. A
proposal Q only decides which paths are drawn. `FirstHitting` (masking) runs every particle's own jumps in closed form.
`Uniformised` (uniform) lets particles jump or stay at the points of a Poisson process, each a step I + A / bound: the
mean over the points is the exponential of A, with no quadrature. Rates are per unit of the process's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, cast

import torch
from torch import Tensor

from .feynman_kac import ClockMove, Proposal, check_alpha, evaluate
from .guidance import Guide, check_strength, rate_level, strength
from .laws import SiteLaw
from .processes import Masking, Uniform
from .schedules import Grid, check_grid
from .smc.stream import Stream
from .types import (
    NEG_INF,
    Aux,
    InvalidInput,
    InvalidWeights,
    Jumps,
    LogWeights,
    Model,
    Particles,
    Schedule,
    SiteOdds,
    Tokens,
    take,
)

_TIMES = 15  # the stream's purpose for candidate times: none of the sampler's
_PIECES = 64  # of a bound that changes with time


class Rates(NamedTuple):
    """Rates out of each state, a unit of the clock."""

    proposed: Jumps  # Q
    tilted: Jumps  # R g^alpha
    leave: Tensor  # [...], Q(x)
    exit: Tensor  # [...], R(x) - alpha (R(x) - R1(x)): the generator's diagonal, less its sign


@dataclass(frozen=True)
class Generator:
    """How mass moves (alpha), and how particles do (beta; None for R g^alpha itself)."""

    model: Model
    alpha: float
    beta: float | Schedule | None
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if self.beta is not None:
            check_strength(self.beta)
        if self.model.conditional is None:
            raise InvalidInput("jumps in continuous time need a conditional score; give the model one")
        if self.alpha == 0 and self.beta not in (0, None):
            raise InvalidInput(
                f"alpha = 0 targets p0 itself, and beta = {self.beta} can lose states p0 has; use beta = 0"
            )

    def __call__(self, x: Tokens, t: float, s: float) -> Rates:
        """The rates out of x with the networks read at t; s only sets the clock of the interval."""
        process, at = self.model.process, (x, t)
        base = evaluate(self.model, "base", self.model.base, x, t)
        conditional = evaluate(self.model, "conditional", self.model.conditional, x, t)
        r = _sum("base", process.jumps(base, x, t, s), t)
        r1 = _sum("conditional", process.jumps(conditional, x, t, s), t)
        tilted = process.jumps(rate_level(process, base, conditional, self.alpha, at), x, t, s)
        proposed = tilted
        if self.beta is not None:
            guided = self.guide(process, base, conditional, strength(self.beta, t), at)
            proposed = process.jumps(guided, x, t, s)
        return Rates(proposed, tilted, site_rates(proposed).sum(-1), r - self.alpha * (r - r1))


@dataclass(frozen=True)
class JumpLaw:
    """Stay at x, or jump at one site: in proportion to `stay` and to the rates of the jumps."""

    x: Tokens
    jumps: Jumps
    stay: Tensor  # [...], in the units of the rates

    def sample(self, u: Tensor) -> Tokens:
        """Two uniforms [..., 2]: one says whether and where, the other to which token."""
        top = torch.nextafter(self.total, torch.zeros_like(self.total))
        height = torch.minimum(u[..., 0] * self.total, top)[..., None]
        site = (self._cdf <= height).sum(-1, keepdim=True).clamp(max=self.x.shape[-1] - 1)
        here, leaves = self.x.gather(-1, site), torch.full_like(height, NEG_INF)
        v = SiteLaw(here, SiteOdds(self.jumps.logits.at(site), leaves, leaves)).sample(u[..., 1:])
        return torch.where(height < self._cdf[..., -1:], self.x.scatter(-1, site, v), self.x)

    def log_prob(self, y: Tokens) -> Tensor:
        changed = (y != self.x).sum(-1)
        jump = torch.where(changed == 1, edge(self.jumps, self.x, y), NEG_INF)
        return torch.where(changed == 0, self.stay.log(), jump) - self.total.log()

    def support(self) -> tuple[Tokens, Tensor]:
        """x itself and all its neighbours, for flat particles [N, D]: y [N, 1 + D S, D] and its log-probability."""
        (n, length), size = self.x.shape, self.jumps.logits.vocabulary
        y = self.x[:, None, None].repeat(1, length, size, 1)
        for d in range(length):
            y[:, d, :, d] = torch.arange(size, device=y.device)
        y = torch.cat([self.x[:, None], y.flatten(1, 2)], 1)
        parent = torch.arange(n, device=y.device).repeat_interleave(y.shape[1])
        log_q = self.take(parent).log_prob(y.flatten(0, 1)).reshape(n, -1)
        again = (y == self.x[:, None]).all(-1)  # a "jump" to x is staying, and counts once
        again[:, 0] = False
        return y, log_q.masked_fill(again, NEG_INF)

    def take(self, ancestors: Tensor) -> JumpLaw:
        return JumpLaw(take(self.x, ancestors), _take(self.jumps, ancestors), take(self.stay, ancestors))

    @cached_property
    def total(self) -> Tensor:
        return self.stay + self._cdf[..., -1]

    @cached_property
    def _cdf(self) -> Tensor:
        return site_rates(self.jumps).cumsum(-1)


@dataclass(frozen=True)
class JumpMove:
    """A candidate event: the step I + A / bound, drawn by `law` and weighed by what is left of it."""

    law: JumpLaw
    log_before: LogWeights
    log_stay: LogWeights
    tilted: Jumps | None  # None where the law is adapted: nothing is left to weigh
    uniforms: int = 2

    @property
    def labels(self) -> Tensor:
        return self.law.x

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        if self.tilted is None:
            return torch.zeros_like(self.log_stay), {}
        x = self.law.x
        log_jump = edge(self.tilted, x, y) - edge(self.law.jumps, x, y)
        return torch.where((y == x).all(-1), self.log_stay, log_jump), {}

    def take(self, ancestors: Tensor) -> JumpMove:
        tilted = None if self.tilted is None else _take(self.tilted, ancestors)
        before, stay = take(self.log_before, ancestors), take(self.log_stay, ancestors)
        return JumpMove(self.law.take(ancestors), before, stay, tilted)


@dataclass(frozen=True)
class PointLaw:
    """One state, for sure."""

    x: Tokens

    def sample(self, u: Tensor) -> Tokens:
        return self.x

    def log_prob(self, y: Tokens) -> Tensor:
        return torch.where((y == self.x).all(-1), 0.0, NEG_INF).double()

    def support(self) -> tuple[Tokens, Tensor]:
        return self.x[:, None], torch.zeros(len(self.x), 1, dtype=torch.float64, device=self.x.device)

    def take(self, ancestors: Tensor) -> PointLaw:
        return PointLaw(take(self.x, ancestors))


@dataclass(frozen=True)
class PathMove:
    """A path that its choices have settled: the law is its end, the weight that of the whole path."""

    law: PointLaw
    log_before: LogWeights
    log_after: LogWeights
    uniforms: int = 0

    @property
    def labels(self) -> Tensor:
        return self.law.x

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        return self.log_after, {}

    def take(self, ancestors: Tensor) -> PathMove:
        before, after = take(self.log_before, ancestors), take(self.log_after, ancestors)
        return PathMove(self.law.take(ancestors), before, after)


@dataclass(frozen=True)
class FirstHitting:
    """pi ~ p0(x) p(zeta|x)^alpha, masking: every particle reveals its sites one by one, each at its own exact time.

    Hazards stand still between jumps, so waiting times are exponential in the clock, and an interval has at most D
    jumps: nothing is cut off. Networks see the current state but the time of the interval's start; where posteriors do
    not depend on time, as they should not, that is exact. Every interval ends in resampling but the last, which keeps
    its weights; its clock is infinite, so its waiting times do not matter and are integrated out.
    """

    model: Model
    alpha: float
    beta: float | Schedule = 1.0
    guide: Guide = rate_level

    def __post_init__(self) -> None:
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
        """When, where and to what, for each site there is."""
        return 3 * self.model.length

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> PathMove:
        x, shape = particles.x, particles.x.shape[:-1]
        y, log_w = self._run(x.reshape(-1, x.shape[-1]), (t, s), u.reshape(-1, x.shape[-1], 3))
        law, log_w = PointLaw(y.reshape(x.shape)), log_w.reshape(shape)
        zeros = torch.zeros_like(log_w)
        return PathMove(law, log_w, zeros) if s > 0 else PathMove(law, zeros, log_w)

    def branches(self, particles: Particles, t: float, s: float) -> list[tuple[Tensor, PathMove]]:
        """Every order of reveals before s, its times integrated out, for particles [N, D] of a small space."""
        zeros = torch.zeros_like(particles.log_w)
        return list(self._orders(particles.x, (t, s), (zeros, zeros), ()))

    def _run(self, x: Tokens, interval: tuple[float, float], u: Tensor) -> tuple[Tokens, LogWeights]:
        """Paths from x [M, D] over an interval: their ends and log-weights."""
        x, log_w = x.clone(), torch.zeros(len(x), dtype=torch.float64, device=x.device)
        spent, running = torch.zeros_like(log_w), self._masked(x)
        for now in u.unbind(1):  # each jump reveals a site: there are no more than D
            i = running.nonzero().squeeze(-1)
            if len(i) == 0:
                break
            rates = self.rates(x[i], *interval)
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

    def _orders(
        self, x: Tokens, interval: tuple[float, float], log_edges: tuple[Tensor, Tensor], exits: tuple[Tensor, ...]
    ) -> Iterator[tuple[Tensor, PathMove]]:
        """This order of reveals and those that go on from it; exits are [N, 2] a state, proposed and of mass."""
        rates = self.rates(x, *interval)
        exits = (*exits, torch.stack([rates.leave, rates.exit], -1))
        log_time = log_chance(torch.stack(exits, -1), float(rates.proposed.log_clock.exp()))
        log_p, log_mass = (torch.where(e > NEG_INF, e + log_time[:, k], NEG_INF) for k, e in enumerate(log_edges))
        log_w = torch.where(log_p > NEG_INF, log_mass - log_p, NEG_INF)
        yield log_p, PathMove(PointLaw(x), log_w, torch.zeros_like(log_w))
        for d in range(self.model.length):
            for v in range(self.model.process.vocabulary):
                y = x.clone()
                y[:, d] = torch.where(rates.tilted.movable[:, d], v, x[:, d])
                further = log_edges[0] + edge(rates.proposed, x, y), log_edges[1] + edge(rates.tilted, x, y)
                if (further[0] > NEG_INF).any():
                    yield from self._orders(y, interval, further, exits)

    def _masked(self, x: Tokens) -> Tensor:
        return (x == self.model.process.states - 1).any(-1)


@dataclass(frozen=True)
class Candidates:
    """Times at which particles may jump, and the bound on rates in force at each; see `poisson_times`."""

    grid: Grid  # a start, the candidates, an end
    bounds: tuple[float, ...]  # one a candidate

    def __post_init__(self) -> None:
        check_grid(self.grid)
        if len(self.bounds) != len(self.grid) - 2:
            raise InvalidInput(
                f"{len(self.bounds)} bounds for a grid of {len(self.grid)} times; give one for each time but the first "
                "and the last"
            )
        for t, bound in zip(self.grid[1:-1], self.bounds, strict=True):
            _bound_at(bound, t)

    def bound(self, t: float, s: float) -> float | None:
        """The bound at candidate t; None on the way to the first."""
        if (t, s) not in self._bounds:
            raise InvalidInput(
                f"the run goes from t = {t:.6g} to {s:.6g}, which are not successive candidate times; "
                "run it on the grid of its candidates"
            )
        return self._bounds[t, s]

    @cached_property
    def _bounds(self) -> dict[tuple[float, float], float | None]:
        return dict(zip(pairwise(self.grid), (None, *self.bounds), strict=True))


def poisson_times(process: Uniform, bound: float | Schedule, seed: int) -> Candidates:
    """A Poisson process of candidate times, at rate `bound` a unit of the clock sigma(t) / S, exact for any seed.

    A bound that changes with time is held over each of 64 pieces of the clock at the larger of its values at the ends.
    """
    if not isinstance(process, Uniform):
        raise InvalidInput(
            f"{type(process).__name__} has an infinite clock, with no end of candidates; use FirstHitting"
        )
    end = float(process.schedule(1.0).value)
    noise = [end * (1 - k / _PIECES) for k in range(_PIECES + 1)]
    at = [_bound_at(bound, process.schedule.time_of(n)) for n in noise]
    height = torch.tensor([max(pair) for pair in pairwise(at)], dtype=torch.float64)
    mass = height * (end / process.vocabulary / _PIECES)
    point = _arrivals(float(mass.sum()), seed)
    piece = torch.searchsorted(mass.cumsum(0), point, right=True).clamp(max=_PIECES - 1)
    inside = (point - (mass.cumsum(0) - mass)[piece]) / mass[piece]
    sigma = (end * (1 - (piece + inside) / _PIECES)).tolist()
    found = [(process.schedule.time_of(value), b) for value, b in zip(sigma, height[piece].tolist(), strict=True)]
    found = [(t, b) for t, b in found if t > 0]  # a schedule that jumps at 0 keeps that noise
    return Candidates((1.0, *(t for t, _ in found), 0.0), tuple(b for _, b in found))


@dataclass(frozen=True)
class Uniformised:
    """pi ~ p0(x) p(zeta|x)^alpha, uniform process: at each candidate a particle jumps at one site, or stays.

    Run it on `grid`. Given its candidates this is an ordinary model in discrete time; over their law the mean of its
    mass is that of continuous time, whatever the bound. All populations of a run share the candidates: their spread
    does not show how mass scatters from grid to grid (as 1 / sqrt(bound)), and more particles do not lessen it. Run
    several grids and weigh them by mass, or raise the bound. `beta` is how jumps are proposed: None for the adapted
    law, known before the draw, a number for rates R g^beta.
    """

    model: Model
    alpha: float
    candidates: Candidates
    beta: float | Schedule | None = None
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        if not isinstance(self.model.process, Uniform):
            raise InvalidInput(f"{type(self.model.process).__name__} has an infinite clock; use FirstHitting")
        Generator(self.model, self.alpha, self.beta, self.guide)

    @property
    def grid(self) -> Grid:
        return self.candidates.grid

    def rates(self, x: Tokens, t: float, s: float) -> Rates:
        return Generator(self.model, self.alpha, self.beta, self.guide)(x, t, s)

    def start(self, shape: tuple[int, ...], t: float) -> ClockMove:
        if t != self.grid[0]:
            raise InvalidInput(f"the run starts at t = {t:.6g}, the candidates at {self.grid[0]:.6g}; run it on `grid`")
        device, process = self.model.device, self.model.process
        nowhere = torch.zeros((*shape, self.model.length), dtype=torch.int64, device=device)
        zeros = torch.zeros(shape, dtype=torch.float64, device=device)
        return ClockMove(nowhere, zeros, lambda x: Proposal(process.prior(tuple(x.shape), device)), None)

    def choices(self, t: float, s: float) -> int:
        return 0

    def move(self, particles: Particles, t: float, s: float, u: Tensor | None = None) -> PathMove | JumpMove:
        """At a candidate t: P(y) = A / bound and P(stay) = 1 - exit / bound, drawn by Q or adapted."""
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

    def branches(self, particles: Particles, t: float, s: float) -> list[tuple[Tensor, PathMove | JumpMove]]:
        return [(torch.zeros_like(particles.log_w), self.move(particles, t, s))]


def least_bound(
    model: Model, alpha: float, x: Tokens, t: float, beta: float | Schedule | None = None, guide: Guide = rate_level
) -> float:
    """What a bound must exceed for `Uniformised` to run through these states at time t."""
    rates = Generator(model, alpha, beta, guide)(x, t, 0.0)
    return float(_needed(rates, beta is None).max())


def site_rates(jumps: Jumps) -> Tensor:
    """The rate at which each site jumps [..., D]."""
    return torch.where(jumps.movable, jumps.log_total.exp(), 0.0).double()


def edge(jumps: Jumps, x: Tokens, y: Tokens) -> Tensor:
    """log of the rate x -> y for y that differs from x at one site [...]; -inf where there is no such jump."""
    site = (x != y).long().argmax(-1, keepdim=True)
    v = y.gather(-1, site)
    possible = (v != x.gather(-1, site)) & (v < jumps.logits.vocabulary) & jumps.movable.gather(-1, site)
    log_rate = jumps.log_reference.gather(-1, site) + jumps.logits.at(site).pick(torch.where(possible, v, 0))
    return torch.where(possible, log_rate, NEG_INF).double().squeeze(-1)


def log_chance(exits: Tensor, clock: float) -> Tensor:
    """log of the integral over the times of k jumps of exp(-sum of exit rate * stay) [...], for exits [..., k + 1]."""
    if clock == math.inf:
        return torch.where(exits[..., -1] == 0, -exits[..., :-1].log().sum(-1), NEG_INF)
    ladder = torch.diag_embed(-exits) + torch.diag(torch.ones_like(exits.flatten()[: exits.shape[-1] - 1]), 1)
    return torch.linalg.matrix_exp(clock * ladder)[..., 0, -1].log()


def _log_held(rates: Rates, elapsed: Tensor, left: Tensor) -> Tensor:
    """The integral of Q(x) - exit; where the clock has no end, its exponential's mean over the wait, Q(x) / exit."""
    return torch.where(left.isinf(), rates.leave.log() - rates.exit.log(), (rates.leave - rates.exit) * elapsed)


def _needed(rates: Rates, adapted: bool) -> Tensor:
    return rates.exit if adapted else torch.maximum(rates.leave, rates.exit)


def _check_rates(rates: Rates, adapted: bool, bound: float, t: float) -> None:
    needed = _needed(rates, adapted).max()
    if not needed < bound:
        raise InvalidWeights(
            f"t = {t:.6g}: a particle leaves its state at rate {float(needed):.6g} a unit of the clock, and the bound "
            f"is {bound:.6g}; raise the bound there (see least_bound) and draw new candidate times"
        )


def _bound_at(bound: float | Schedule, t: float) -> float:
    value = float(cast("Schedule", bound)(t)) if callable(bound) else float(bound)
    if not 0 < value < math.inf:
        raise InvalidInput(f"the bound on rates is {value} at t = {t:.6g}; it must be finite and above 0")
    return value


def _arrivals(end: float, seed: int) -> Tensor:
    """The points of a Poisson process of rate 1 on [0, end): gaps are drawn until they pass the end."""
    stream, count = Stream(seed), math.ceil(end + 6 * math.sqrt(end)) + 16
    point = torch.zeros(1, dtype=torch.float64)
    while float(point[-1]) <= end:
        gaps = -torch.log1p(-stream.uniforms(0, _TIMES, 1, (len(point) - 1, len(point) - 1 + count))[0])
        point = torch.cat([point, point[-1] + gaps.cumsum(0)])
    return point[1:][point[1:] < end]


def _sum(name: str, jumps: Jumps, t: float) -> Tensor:
    """The exit rate of a score [...], with NaN caught where it appears."""
    bad = jumps.movable & (jumps.log_total.isnan() | (jumps.log_total == NEG_INF))
    if bad.any():
        raise InvalidWeights(
            f"t = {t:.6g}: the {name} score returned NaN or only -inf for {int(bad.any(-1).sum())} of "
            f"{bad[..., 0].numel()} particles; check the network's output there (overflow in half precision?)"
        )
    return site_rates(jumps).sum(-1)


def _take(jumps: Jumps, ancestors: Tensor) -> Jumps:
    return Jumps(
        jumps.logits.take(ancestors),
        take(jumps.movable, ancestors),
        take(jumps.log_reference, ancestors),
        take(jumps.log_total, ancestors),
        jumps.log_clock,
    )
