"""What states are worth, and how much of that counts: potentials and their values, tilts, ramps of exponents.

A potential (twist, reward) is asked about a batch, and its answer checked. A move that redraws a site asks what the
state is worth with each token there: one that can answer that at once (a linear one, say) has a method `site_values`,
any other is asked about every such state. A tilt is the log-weight exponent(t) * potential(x, t) of a particle, and a
ramp maps elapsed time u = 1 - t to the share of the exponent in force, 1 at the end.
"""

from __future__ import annotations

import inspect
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..core.arguments import LARGEST, called, function, listed, number, settle, tensor_of
from ..core.errors import InvalidInput, InvalidWeights
from ..core.evaluation import Questions, check, highest_of
from ..core.spent import Spent
from ..core.types import NEG_INF, Potential, Schedule, State, Tokens
from ..core.user_functions import check_strings

Ramp = Callable[[float], float]  # elapsed time u = 1 - t to the share of the exponent in force; 1 at u = 1


@runtime_checkable
class SiteValued(Protocol):
    """A potential that also answers for all tokens of a site at once."""

    def __call__(self, x: Tokens, t: float) -> Tensor: ...
    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor: ...  # [B, D], [B] -> [B, S]


@runtime_checkable
class Noisy(Protocol):
    """A reward that says whether it may answer differently about the same state (`tt.Reward(..., noisy=True)`)."""

    @property
    def noisy(self) -> bool: ...


@runtime_checkable
class Learned(Protocol):
    """A twist that says what it was learned for, as those of `tt.learn_twist` do."""

    @property
    def twist(self) -> Potential: ...
    @property
    def held_out(self) -> Any: ...  # how good it was on draws that it was not fitted to
    @property
    def length(self) -> int | None: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def order(self) -> tuple[int, ...] | None: ...
    @property
    def strength(self) -> float: ...


@dataclass(frozen=True)
class OfFinished:
    """A function of finished states alone as a potential: the time is not asked."""

    function: Callable[[Tokens], Tensor]

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        return self.function(x)

    @property
    def highest(self) -> float | None:
        return highest_of(self.function)


@dataclass(frozen=True)
class EndsIn:
    """On the way what a twist says, at the end the reward itself."""

    twist: Potential
    reward: Potential

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.reward(x, t) if t == 0 else self.twist(x, t)


def as_potential(name: str, given: Any) -> Potential:
    """A function of (x, t) is returned unchanged; one of x alone is wrapped in a function that ignores the time."""
    takes = "of a batch of states [B, D], or of it and a time, that returns one number a state"
    called = given.forward if isinstance(given, torch.nn.Module) else given
    try:
        inspect.signature(called).bind(0, 0)
    except (TypeError, ValueError):  # of x alone; or a builtin, which does not say
        function(name, given, "(x)", takes)
        return OfFinished(given)
    if isinstance(given, type):
        function(name, given, "(x)", takes)
    return given


def check_fits(twist: object, length: int, vocabulary: int) -> None:
    """A learned twist must have been learned for states of this length and these tokens."""
    if not isinstance(twist, Learned):
        return
    for name, theirs, mine in (("length", twist.length, length), ("vocabulary", twist.vocabulary, vocabulary)):
        if theirs not in (None, mine):
            raise InvalidInput(
                f"the twist was learned for a model of {name} {theirs}, and this one has {mine}; learn one for this "
                "model with tt.learn_twist"
            )


def value_of(potential: Potential, x: Tokens, t: float, questions: Questions | None = None) -> Tensor:
    """The value of states [..., D], float64 [...]: asked as one batch, with its shape and NaN checked."""
    batch = x.reshape(-1, x.shape[-1])
    try:
        value = potential(batch, t)
    except (AttributeError, TypeError, RuntimeError) as error:
        check_strings("the potential (reward)", error, batch)
        raise
    real = isinstance(value, Tensor) and value.dtype in (torch.float64, torch.float32)
    if not real or value.requires_grad or value.layout != torch.strided or value.device != x.device:
        value = tensor_of("what the potential returned", value, "return one number a state", x.device)
    if value.shape != batch.shape[:1]:
        raise InvalidInput(
            f"the potential (reward) returned shape {tuple(value.shape)} for a batch of states "
            f"{tuple(batch.shape)}; it must return one number a state, [{len(batch)}]"
        )
    check(
        value.isnan().any(),
        lambda: InvalidWeights(
            f"the potential (reward) returned NaN for {int(value.isnan().sum())} of {value.numel()} states at "
            f"t = {t:.6g}; return -inf for an impossible state, a finite number otherwise"
        ),
        questions,
    )
    return value.double().reshape(x.shape[:-1])


def token_values(
    potential: Potential, x: Tokens, sites: Tensor, t: float, asked: Tensor, questions: Questions | None = None
) -> Tensor:
    """The value of x with each site [..., k] set to each token, float64 [..., k, S], where `asked`; 0 elsewhere."""
    if isinstance(potential, SiteValued):
        found = [_by_site(potential, x, site, t, asked.shape[-1]) for site in sites.unbind(-1)]
        return torch.where(asked, torch.stack(found, -2), 0.0)
    where = asked.nonzero(as_tuple=True)  # (*particle, site, token)
    *particle, k, token = where
    y = x[tuple(particle)]
    y = y.scatter(-1, sites[(*particle, k)][:, None], token[:, None])
    out = torch.zeros(asked.shape, dtype=torch.float64, device=x.device)
    if len(y):
        out[where] = value_of(potential, y, t, questions)
    return out


def _by_site(potential: SiteValued, x: Tokens, site: Tensor, t: float, size: int) -> Tensor:
    batch = x.reshape(-1, x.shape[-1])
    need = "return a number for each token"
    found = tensor_of("what site_values returned", potential.site_values(batch, site.reshape(-1), t), need, x.device)
    if tuple(found.shape) != (len(batch), size):
        raise InvalidInput(
            f"site_values of the {type(potential).__name__} returned shape {tuple(found.shape)} for a batch of states "
            f"{tuple(batch.shape)}; it must return one number for each of {size} tokens, [{len(batch)}, {size}]"
        )
    return found.double().reshape(*x.shape[:-1], size)


@dataclass(frozen=True)
class Power:
    """The exponent grows as $u^p$; $p = 0$ is the full exponent throughout."""

    p: float

    def __post_init__(self) -> None:
        settle(self, p=number("the power of a ramp", self.p))
        if not 0 <= self.p < math.inf:
            raise InvalidInput(f"the exponent grows as u^{self.p}; the power must be finite and at least 0")

    def __call__(self, u: float) -> float:
        return u**self.p


FULL = Power(0.0)  # the whole exponent from the start
LINEAR, SQUARE = Power(1.0), Power(2.0)


def at_end(u: float) -> float:
    """Nothing until the data are reached: a reward defined on clean states only."""
    return 1.0 if u == 1 else 0.0


@dataclass(frozen=True)
class Frozen:
    """A ramp through points: the share of the exponent at each elapsed time, straight lines between them."""

    elapsed: tuple[float, ...]  # rising to 1
    shares: tuple[float, ...]  # the last is 1
    falls: tuple[float, ...] = ()  # what each step cost in rehearsal: the fraction of the effective sample it lost
    spent: Spent = field(default=Spent(), compare=False, repr=False)  # what finding it cost

    def __post_init__(self) -> None:
        for name, points in {"elapsed": self.elapsed, "shares": self.shares, "falls": self.falls}.items():
            given = listed(f"the {name} of a ramp", points, "give a list of numbers")
            settle(self, **{name: tuple(number(f"one of the {name} of a ramp", value) for value in given)})
        rising = all(a < b for a, b in pairwise(self.elapsed))
        if len(self.elapsed) != len(self.shares) or len(self.elapsed) < 2 or not rising or self.elapsed[-1] != 1:
            raise InvalidInput("a frozen ramp needs a share for each of two or more elapsed times, rising to 1")
        if not all(math.isfinite(share) for share in self.shares):
            raise InvalidInput(f"the shares of a ramp are {self.shares}; they must be finite")
        if self.shares[-1] != 1:
            raise InvalidInput(f"the last share is {self.shares[-1]}; a ramp that does not end at 1 misses the target")

    def __call__(self, u: float) -> float:
        right = min(max(bisect_right(self.elapsed, u), 1), len(self.elapsed) - 1)
        (a, b), (low, high) = self.elapsed[right - 1 : right + 1], self.shares[right - 1 : right + 1]
        return high if u >= b else low + (high - low) * max(0.0, u - a) / (b - a)


def check_ramp(ramp: Ramp) -> None:
    """A ramp that does not end at 1 would miss the target."""
    function("ramp", ramp, "(u)", "the share of the exponent at elapsed time u")
    first, last = (
        number("the exponent's share", called("ramp", ramp, u), "a ramp must return numbers") for u in (0.0, 1.0)
    )
    if last != 1 or not math.isfinite(first):
        raise InvalidInput(f"the exponent's share runs from {first} to {last}; it must be finite and end at 1")


@dataclass(frozen=True)
class Tilt:
    """log-weight $exponent(t) * potential(x, t)$ that a particle carries; differences of it telescope.

    A potential that is a log-probability is at most 0: `most` is what rounding allows, and a larger value is warned of.
    """

    potential: Potential
    exponent: Schedule
    most: float | None = None

    def __call__(self, x: State, t: float, questions: Questions | None = None) -> Tensor:
        share = float(self.exponent(t))
        if share == 0:  # not evaluated: 0 * anything is 0
            return torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
        value = value_of(self.potential, x, t, questions)
        if self.most is not None:
            check((value > self.most).any(), _above_zero, questions)
        return torch.where(value == NEG_INF, NEG_INF, share * value)


def _above_zero() -> UserWarning:
    return UserWarning(
        "the model's potential is above 0 for some states, and log p(zeta|x, t) of a class never is: it may return "
        "probabilities, or raw logits, where their log_softmax is due, and then another law is sampled. For a density "
        "or a reward this is as it should be"
    )


def growing(potential: Potential, height: float, ramp: Ramp) -> Tilt:
    """A tilt whose exponent grows with elapsed time, up to `height`."""
    return Tilt(potential, Growing(height, ramp))


@dataclass(frozen=True)
class Growing:
    """An exponent in clock time: height * ramp(elapsed time)."""

    height: float
    ramp: Ramp

    def __call__(self, t: float) -> float:
        return self.height * self.ramp(1 - t)


def most_reward(reward: Potential | None, strength: float, potential: Potential | None) -> float | None:
    """The largest strength * reward(x), where it is known: of a reward with a bound, or of log p(zeta|x) <= 0."""
    if strength <= 0:
        return None
    highest = 0.0 if reward is potential else highest_of(reward)
    return None if highest is None else strength * float(highest)


def check_reward(reward: Potential, strength: float) -> float:
    """The reward is a function of (x, t); its strength as a plain number."""
    function("the reward", reward, "(x, t)", "of states [..., D] and a time, that returns one number a state")
    need = f"it must be finite, at most {LARGEST:.0e}"
    strength = number("the reward's strength", strength, need)
    if not abs(strength) <= LARGEST:
        raise InvalidInput(f"the reward's strength is {strength}; {need}")
    return strength
