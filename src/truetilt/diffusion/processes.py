"""Forward noising processes, masking and uniform, with their noise schedules: the home of the mask token and of sigma.

A score is log p_t(y)/p_t(x) for y = x with one site set to v. For masking it is absolute (the mask's own entry counts
as 0) and only masked sites are read; for uniform only differences within a row matter (entry v less the entry at x).
SEDD networks return both kinds. Score, posterior p(x0 = v | x) and reverse rates convert in every direction.

sigma(0) = 0 for every noise schedule: time 0 is clean data, so a last step into s = 0 leaves no noise, whatever the
lower end of the schedule. Generation runs t = 1 -> 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial, wraps
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from ..core.arguments import number, reals, set_fields, shown, whole_number
from ..core.errors import InvalidInput
from ..core.logits import SiteLogits, normalised_at
from ..core.types import NEG_INF, Jumps, SiteOdds, Tokens
from .kernels import SiteLaw, log1mexp

AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])
_SOON = 1e-6  # the smallest time of a state that still has masks
_LEAST = 1e-300  # stands for a sum over other tokens that rounding made 0 or negative; too small ever to be drawn


class Sigma(NamedTuple):
    """Total noise at t and its time derivative."""

    value: Tensor
    rate: Tensor


@runtime_checkable
class NoiseSchedule(Protocol):
    """The total noise sigma(t) with its derivative, and the time at which the noise has a given value."""

    def __call__(self, t: float | Tensor) -> Sigma: ...
    def time_of(self, value: float) -> float: ...


def _time(t: float | Tensor) -> Tensor:
    t = (
        torch.tensor(t, dtype=torch.float64)
        if isinstance(t, float)
        else reals("time", t, "it must lie in [0, 1] (data at 0, noise at 1)")
    )
    if not bool(((t >= 0) & (t <= 1)).all()):
        raise InvalidInput(f"time is {t.tolist()}; it must lie in [0, 1] (data at 0, noise at 1)")
    return t


def _remembered(schedule: AnyMethod) -> AnyMethod:
    """The same method with a cache of its values, since a step calls it many times at two times."""
    known = lru_cache(maxsize=256)(schedule)

    @wraps(schedule)
    def sigma(self: Any, t: float | Tensor) -> Sigma:
        return known(self, t) if isinstance(t, float) else schedule(self, t)

    return cast("AnyMethod", sigma)


def _fraction(name: str, eps: float) -> float:
    eps = number(name, eps, "it must lie strictly between 0 and 1")
    if not 0 < eps < 1:
        raise InvalidInput(f"{name} is {eps}; it must lie strictly between 0 and 1")
    return eps


@dataclass(frozen=True)
class LogLinear:
    """$sigma(t) = -log(1 - (1 - eps) t)$: the noised fraction grows linearly in t."""

    eps: float = 1e-3

    def __post_init__(self) -> None:
        set_fields(self, eps=_fraction("eps", self.eps))

    @_remembered
    def __call__(self, t: float | Tensor) -> Sigma:
        t = _time(t)
        return Sigma(-torch.log1p(-(1 - self.eps) * t), (1 - self.eps) / (1 - (1 - self.eps) * t))

    def time_of(self, value: float) -> float:
        return min(1.0, -math.expm1(-value) / (1 - self.eps))


@dataclass(frozen=True)
class Geometric:
    """$sigma(t) = low^(1-t) high^t$ for $t > 0$, and 0 at $t = 0$.

    Args:
        low: Noise just above $t = 0$, above 0; 1e-4 by default.
        high: Noise at $t = 1$, above `low` and finite; 20 by default.
    """

    low: float = 1e-4
    high: float = 20.0

    def __post_init__(self) -> None:
        set_fields(self, low=number("low", self.low), high=number("high", self.high))
        if not 0 < self.low < self.high < math.inf:
            raise InvalidInput(f"sigma runs from {self.low} to {self.high}; need 0 < low < high < inf")

    @_remembered
    def __call__(self, t: float | Tensor) -> Sigma:
        t = _time(t)
        sigma = self.low ** (1 - t) * self.high**t
        return Sigma(torch.where(t > 0, sigma, 0.0), sigma * math.log(self.high / self.low))

    def time_of(self, value: float) -> float:
        if value < self.low:
            return 0.0
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))


@dataclass(frozen=True)
class Cosine:
    """$exp(-sigma(t)) = eps + (1 - eps) cos(pi t / 2)$."""

    eps: float = 1e-3

    def __post_init__(self) -> None:
        set_fields(self, eps=_fraction("eps", self.eps))

    @_remembered
    def __call__(self, t: float | Tensor) -> Sigma:
        t = _time(t)
        keep = self.eps + (1 - self.eps) * torch.cos(t * (math.pi / 2))
        rate = (1 - self.eps) * (math.pi / 2) * torch.sin(t * (math.pi / 2)) / keep
        # 1 - keep as a sine: exact near t = 0, where cos(t) - 1 would lose every digit
        return Sigma(-torch.log1p(-2 * (1 - self.eps) * torch.sin(t * (math.pi / 4)) ** 2), rate)

    def time_of(self, value: float) -> float:
        return 4 / math.pi * math.asin(min(math.sqrt(0.5), math.sqrt(-math.expm1(-value) / (2 * (1 - self.eps)))))


def _checked(process: Masking | Uniform) -> None:
    """Raise unless there are at least two tokens and a noise schedule."""
    set_fields(process, vocabulary=whole_number("vocabulary", process.vocabulary, 2, 2**31 - 1))
    if not isinstance(process.schedule, NoiseSchedule):
        raise InvalidInput(f"schedule is {shown(process.schedule)}; give a noise schedule such as tt.LogLinear()")


def _flat_row(x: Tokens, size: int) -> SiteLogits:
    """One row of equal log-weights that every site shares."""
    return SiteLogits(torch.zeros(1, size, dtype=torch.float64, device=x.device), torch.zeros_like(x))


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)), by functions of one argument.

    `torch.logaddexp` rounds the last few entries of a tensor unlike the others, so a chunk would change bits.
    """
    high, low = torch.maximum(a, b), torch.minimum(a, b)
    gap = torch.where(low == NEG_INF, NEG_INF, low - high)
    return high + torch.log1p(torch.exp(gap))


@lru_cache(maxsize=256)
def log_lost(sigma: float) -> float:
    """log(1 - exp(-sigma)) as a Python number: passing it to a GPU needs no synchronisation."""
    return float((-torch.expm1(-torch.tensor(sigma, dtype=torch.float64))).log())


@lru_cache(maxsize=256)
def log_clock(sigma: float, later: float) -> Tensor:
    """log of the clock, log((1 - exp(-sigma)) / (1 - exp(-later))): the integrated rate at which a masked site is
    revealed.
    """
    return torch.tensor(log_lost(sigma) - log_lost(later), dtype=torch.float64).log()


@lru_cache(maxsize=1024)
def _share_lost(sigma: float, top: float) -> float:
    """(1 - exp(-sigma)) / (1 - exp(-top)) as a Python number.

    Passing it to a GPU then needs no device synchronisation.
    """
    lost, most = (torch.expm1(-torch.tensor(value, dtype=torch.float64)) for value in (sigma, top))
    return float(lost / most)


@dataclass(frozen=True)
class Masking:
    """The masking (absorbing) process: each site is kept with probability $exp(-sigma(t))$, else it is the mask.

    Args:
        vocabulary: Number of tokens S, 2 or more, numbered 0 .. S - 1; the mask is token S.
        schedule: The noise $sigma(t)$, such as `tt.Geometric(...)` or `tt.Cosine()`. `tt.LogLinear()` by default.
    """

    vocabulary: int
    schedule: NoiseSchedule = field(default_factory=LogLinear)
    bridge_keeps_support: ClassVar[bool] = True  # for any score
    edges_tolerate_grids: ClassVar[bool] = True  # a site is revealed once, so edge ratios stay bounded

    def __post_init__(self) -> None:
        _checked(self)

    @cached_property
    def mask(self) -> int:
        return self.vocabulary

    @cached_property
    def states(self) -> int:
        return self.vocabulary + 1

    def corrupt(self, x0: Tokens, t: float, u: Tensor) -> Tokens:
        """Draw $x_t$ given $x_0$ from uniforms of the shape of x0."""
        return torch.where(u < torch.exp(-self.schedule(t).value), x0, self.mask)

    def prior(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> SiteLaw:
        """Every site masked. Exact whatever $sigma(1)$: which sites are masked says nothing about their tokens."""
        x = torch.full(shape, self.mask, device=device)
        zeros = torch.zeros(shape, dtype=torch.float64, device=device)
        return SiteLaw(x, SiteOdds(_flat_row(x, self.vocabulary), zeros, zeros + NEG_INF))

    def sigma(self, t: float) -> float:
        """The total noise at time t as a Python number."""
        return float(self.schedule(t).value)

    def count_masked(self, length: int, t: float) -> int:
        """How many of `length` sites are masked at time t, counting from all of them at t = 1."""
        return round(length * _share_lost(self.sigma(t), self.sigma(1.0)))

    def time_masked(self, length: int, count: float) -> float:
        """A time at which `count` of `length` sites are masked: the time to give a network for such a state.

        Never 0 while any is masked, though a schedule that starts above 0 has no time with so little noise.
        """
        top = -torch.expm1(-self.schedule(1.0).value)
        time = self.schedule.time_of(-math.log1p(-float(top) * count / length))
        return max(time, _SOON) if count > 0 else time

    def log_odds_kept(self, t: float) -> float:
        """log of $exp(-sigma) / (1 - exp(-sigma))$: a score is a posterior times this."""
        return -self.sigma(t) - log_lost(self.sigma(t))

    def posterior(self, log_score: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """$p(x0 = v | x)$ at masked sites, normalised."""
        return log_score.normalised()

    def posteriors(self, sites: Tensor, log_scores: Sequence[SiteLogits]) -> list[SiteLogits]:
        """The posteriors of several scores at chosen masked sites [..., k] only, over one index."""
        return normalised_at(sites, log_scores)

    def score(self, log_posterior: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        return log_posterior.map(partial(torch.Tensor.add, other=self.log_odds_kept(t)))

    def rates(self, log_score: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """log of the reverse rate to each v, -inf at revealed sites."""
        log_rate = (log_score.dense() + self.schedule(t).rate.log()).masked_fill((x != self.mask)[..., None], NEG_INF)
        return SiteLogits.of(log_rate)

    def score_of_rates(self, log_rates: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        return log_rates.with_rows(log_rates.rows - self.schedule(t).rate.log())

    def jumps(self, log_score: SiteLogits, x: Tokens, t: float, s: float) -> Jumps:
        """The posterior is frozen at t; the schedule is integrated: the clock is $log(1-e^-sigma_t)/(1-e^-sigma_s)$."""
        hazard = log_score.map(partial(torch.Tensor.sub, other=self.log_odds_kept(t)))
        clock = log_clock(self.sigma(t), self.sigma(s))
        total = hazard.per_site(hazard.rows.logsumexp(-1))
        return Jumps(hazard, x == self.mask, torch.zeros_like(total), total, clock)

    def bridge(self, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteOdds:
        """Exact law of one site at s given x at t: still masked with $(1-e^-sigma_s)/(1-e^-sigma_t)$, else revealed."""
        stay = log_lost(self.sigma(s)) - log_lost(self.sigma(t))
        leave, fixed, posterior = log_lost(-stay), x != self.vocabulary, log_score.normalised()
        hold = (posterior.flaws() + stay).masked_fill_(fixed, 0.0)  # NaN where the score is NaN or its row all -inf
        move = torch.full_like(hold, leave).masked_fill_(fixed, NEG_INF)
        return SiteOdds(posterior, hold, move)


class RevealStep(NamedTuple):
    """A step t -> s of the any-order clock: it reveals `count` of the `masked` sites there are at its start."""

    t: float
    s: float
    masked: int
    count: int


@lru_cache(maxsize=1 << 12)
def reveal_step(process: Masking, length: int, t: float, s: float) -> RevealStep:
    """How many sites the step t -> s reveals in states of `length` sites."""
    masked = process.count_masked(length, t)
    return RevealStep(t, s, masked, masked - process.count_masked(length, s))


@dataclass(frozen=True)
class Uniform:
    """Each site is kept with probability $exp(-sigma(t))$, else it is redrawn uniformly over the vocabulary.

    Args:
        vocabulary: Number of tokens S, 2 or more.
        schedule: Noise schedule $sigma(t)$; `tt.LogLinear()` by default.
    """

    vocabulary: int
    schedule: NoiseSchedule = field(default_factory=LogLinear)
    bridge_keeps_support: ClassVar[bool] = False  # un-mixing a score that is of no law can give negative probabilities
    edges_tolerate_grids: ClassVar[bool] = False  # sites jump many times, at rates that alpha makes large

    def __post_init__(self) -> None:
        _checked(self)

    @cached_property
    def states(self) -> int:
        return self.vocabulary

    def sigma(self, t: float) -> float:
        """The total noise at time t as a Python number."""
        return float(self.schedule(t).value)

    def corrupt(self, x0: Tokens, t: float, u: Tensor) -> Tokens:
        """Draw $x_t$ given $x_0$ from uniforms of the shape of x0."""
        keep = torch.exp(-self.schedule(t).value)
        redraw = ((u - keep) / (1 - keep) * self.vocabulary).clamp(0, self.vocabulary - 1).long()
        return torch.where(u < keep, x0, redraw)

    def prior(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> SiteLaw:
        """Uniform tokens: $p_1$ itself up to the $exp(-sigma(1))$ of data that survives."""
        x = torch.zeros(shape, dtype=torch.int64, device=device)
        each = torch.full(shape, 1 / self.vocabulary, dtype=torch.float64, device=device).log()
        return SiteLaw(x, SiteOdds(_flat_row(x, self.vocabulary), each, each))

    def posterior(self, log_score: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """$p(x0 = v | x)$ is proportional to $(score - (1-e^-sigma) mean score)[v]$ times the chance of $v -> x$."""
        clean = self._unmix(log_score, self.schedule(t).value).dense()
        stay, switch = self._forward(self.schedule(t).value)
        log_forward = switch.log().expand_as(clean).scatter(-1, x[..., None], stay.log().expand(*x.shape, 1))
        return SiteLogits.of(torch.log_softmax(clean + log_forward, -1))

    def score(self, log_posterior: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """$score[v] = sum_x0 p(x0|x) q(v|x0) / q(x|x0)$."""
        keep, (stay, switch) = torch.exp(-self.schedule(t).value), self._forward(self.schedule(t).value)
        posterior = log_posterior.dense().exp()
        forward = switch.expand_as(posterior).scatter(-1, x[..., None], stay.expand(*x.shape, 1))
        weight = posterior / forward
        return SiteLogits.of((keep * weight + switch * weight.sum(-1, keepdim=True)).log())

    def score_given_others(self, log_law: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """The score of $p(x0 = v | the other sites)$: that law after the noise of its own site, over its value at x."""
        keep, (_, switch) = torch.exp(-self.schedule(t).value), self._forward(self.schedule(t).value)
        mixed = (keep * log_law.dense().exp() + switch).log()
        return SiteLogits.of(mixed - mixed.gather(-1, x[..., None]))

    def rates(self, log_score: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """log of the reverse rate to each $v != x$; -inf at $v = x$."""
        values = log_score.dense()
        here = x[..., None]
        ratio = values - values.gather(-1, here)
        scale = (self.schedule(t).rate / self.vocabulary).log()
        return SiteLogits.of((ratio + scale).scatter(-1, here, NEG_INF))

    def score_of_rates(self, log_rates: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        scale = (self.schedule(t).rate / self.vocabulary).log()
        return SiteLogits.of((log_rates.dense() - scale).scatter(-1, x[..., None], 0.0))

    def jumps(self, log_score: SiteLogits, x: Tokens, t: float, s: float) -> Jumps:
        """The score is frozen at t; the clock is $(sigma_t - sigma_s) / S$."""
        here = log_score.pick(x)
        every = log_score.per_site(log_score.rows.logsumexp(-1))
        clock = (self.schedule(t).value - self.schedule(s).value) / self.vocabulary
        others = torch.expm1(every - here).clamp(min=_LEAST)
        return Jumps(log_score, torch.ones_like(x, dtype=torch.bool), -here, others.log(), clock.log())

    def bridge(self, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteOdds:
        """Exact law of one site at s given x at t: the row un-mixed back to s, times the chance of $s -> t$."""
        noise = self.schedule(t).value - self.schedule(s).value
        earlier = self._unmix(log_score, noise)
        stay, switch = self._forward(noise)
        here = earlier.pick(x)
        every = earlier.per_site(earlier.rows.logsumexp(-1))
        others = every + log1mexp((every - here).clamp(min=_LEAST))
        log_all = log_add(here + stay.log(), others + switch.log())
        return SiteOdds(earlier, here + stay.log() - log_all, switch.log() - log_all)

    def _forward(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Chance that a site ends where it is, and at any one other token, after this much noise."""
        switch = -torch.expm1(-noise) / self.vocabulary
        return torch.exp(-noise) + switch, switch

    def _unmix(self, log_score: SiteLogits, noise: Tensor) -> SiteLogits:
        """Undo `noise` on each row, up to a constant; negative entries, which a learned score may give, become 0."""
        r = (log_score.rows - log_score.rows.amax(-1, keepdim=True)).exp()
        clean = r + torch.expm1(-noise) * r.mean(-1, keepdim=True)
        return log_score.with_rows(clean.clamp(min=0.0).log())
