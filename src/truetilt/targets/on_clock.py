"""What is sampled in clock time: Feynman-Kac values of tokens, which give a move for every interval and draw nothing.

In the order of the file: ramps (how an exponent grows with elapsed time u = 1 - t), tilts (the log-weight
exponent(t) * potential(x, t) that a particle carries), the lazy move over t -> s with its proposal, and the targets.
Ramps, tilts, `ClockMove` and `Clockwork` do not look inside a state: `continuous` makes targets of reals from them.
`Tempered` is the paper's target (edge ratios), `Tilted` weighs a conditional base by a potential, `Unweighted` is plain
guidance. Where the target is named there is `alpha`; how it is proposed is `beta`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, Generic, TypeVar, cast

import torch
from torch import Tensor

from ..core.arguments import called, function, listed, number, set_fields, shown
from ..core.bases import FeynmanKac
from ..core.errors import InvalidInput, InvalidWeights
from ..core.evaluation import PendingCheck, RunLog, check, evaluate_all, value_of
from ..core.logits import SiteLogits, take
from ..core.spent import Spent
from ..core.target import NO_WEIGHTS, Remedies, Target, tempered
from ..core.types import (
    NEG_INF,
    Aux,
    Law,
    LogWeights,
    Model,
    Particles,
    Potential,
    Schedule,
    Score,
    SitewiseLaw,
    State,
    Tokens,
)
from ..diffusion.guidance import Guide, NoisyState, check_guide, check_strength, guided, rate_level, strength
from ..diffusion.kernels import Kernel, SiteLaw, euler, tweedie
from ..diffusion.processes import Masking
from .advice import listed_ways
from .potentials import check_alpha, check_conditional, most_log_ratio
from .stage import SiteTarget, Stage

AnyLaw = TypeVar("AnyLaw", bound=Law)
Ramp = Callable[[float], float]
"""A function of the elapsed time u = 1 - t that returns the share of the exponent in force, 1 at u = 1."""
_ROUNDING = 1e-5  # of a log-probability in float32
FINER = "smaller steps (a finer grid)"


@dataclass(frozen=True)
class Power:
    """The exponent grows as $u^p$; $p = 0$ is the full exponent throughout."""

    p: float

    def __post_init__(self) -> None:
        set_fields(self, p=number("the power of a ramp", self.p))
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
    """A ramp through points: the share of the exponent at each elapsed time, straight lines between them.

    Args:
        elapsed: Elapsed times $1 - t$ at which the share is known, rising to 1; two or more.
        shares: Share of the exponent in force at each of these times, finite numbers; the last is 1.
        falls: What `tt.pilot` measured: the fraction of the effective sample size that each step lost. Empty by
            default.
        spent: What finding the ramp cost, a `tt.Spent`; nothing by default.
    """

    elapsed: tuple[float, ...]  # rising to 1
    shares: tuple[float, ...]  # the last is 1
    falls: tuple[float, ...] = ()  # what each step cost in rehearsal: the fraction of the effective sample it lost
    spent: Spent = field(default=Spent(), compare=False, repr=False)  # what finding it cost

    def __post_init__(self) -> None:
        for name, points in {"elapsed": self.elapsed, "shares": self.shares, "falls": self.falls}.items():
            given = listed(f"the {name} of a ramp", points, "give a list of numbers")
            set_fields(self, **{name: tuple(number(f"one of the {name} of a ramp", value) for value in given)})
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


def advise_pilot(ramp: Ramp | None, call: str) -> str:
    """Another ramp, where no pilot has found this one."""
    return "" if isinstance(ramp, Frozen) else f"an exponent that grows as tt.pilot says ({call})"


@dataclass(frozen=True)
class Tilt:
    """log-weight $exponent(t) * potential(x, t)$ that a particle carries; differences of it telescope.

    Args:
        potential: Function (x, t) of a batch of states [B, D] and a time that returns one number a state [B].
        exponent: Function of the time t, 1 for noise and 0 for data, that returns a number; where that is 0 the
            potential is not asked. A ramp is a function of the elapsed time: `lambda t: ramp(1 - t)`.
        most: Values above it are warned of, such as 1e-5 for a potential that is a log-probability. None (the default):
            any value is right.
    """

    potential: Potential
    exponent: Schedule
    most: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.potential) or not callable(self.exponent):
            raise InvalidInput(
                f"Tilt({shown(self.potential)}, {shown(self.exponent)}) is made of a function (x, t) and a function of "
                "the time t; a constant exponent is `lambda t: 2.0`"
            )

    def __call__(self, x: State, t: float, log: RunLog | None = None) -> Tensor:
        share = float(self.exponent(t))
        if share == 0:  # not evaluated: 0 * anything is 0
            return torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
        value = value_of(self.potential, x, t, log)
        if self.most is not None:
            check((value > self.most).any(), _above_zero, log)
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


@dataclass(frozen=True)
class Proposal(Generic[AnyLaw]):
    """The law that draws y and the laws whose log-probabilities weigh it: log weight = sum of $c * log law(y)$.

    Args:
        law: The law to draw from, as `OnClock.law` makes it of a score.
        ratios: Pairs (c, law) of a number and a law, as `powers` makes them; none by default, for a step that draws
            from the base itself.
    """

    law: AnyLaw
    ratios: tuple[tuple[float, AnyLaw], ...] = ()

    def __post_init__(self) -> None:
        for pair in ((1.0, self.law), *self.ratios):
            if not isinstance(pair, tuple) or len(pair) != 2 or not hasattr(pair[1], "log_prob"):
                raise InvalidInput(
                    f"a Proposal holds {shown(pair)}, and each part must be a law of a step, as `self.law(...)` of "
                    "OnClock returns, its ratios pairs (c, law): powers((1 - alpha, p), (alpha, p_zeta))"
                )

    def log_ratio(self, y: State, zero: LogWeights) -> LogWeights:
        """sum of $c * log law(y)$, added to zeros; laws over sites share which of them the draw changed."""
        changed = self.law.changed(y) if self.ratios and isinstance(self.law, SiteLaw) else None
        log_ratio = zero
        for c, law in self.ratios:
            shared = changed is not None and isinstance(law, SiteLaw)
            log_ratio = log_ratio + c * (law.log_prob(y, changed) if shared else law.log_prob(y))
        return log_ratio


def powers(*ratios: tuple[float, Any]) -> tuple[tuple[float, Any], ...]:
    """The (exponent, law) pairs without those of exponent 0, since $0 log 0$ counts as 0."""
    return tuple((c, law) for c, law in ratios if c != 0)


@dataclass(frozen=True)
class ClockMove(Generic[AnyLaw]):
    """A lazy move over $t -> s$: nothing is evaluated before `law` is read, so `take` costs no network."""

    lazy: ClassVar[bool] = True
    x: State
    log_tilt: LogWeights  # what the particle's weight already holds of the tilt
    propose: Callable[[State], Proposal[AnyLaw]]
    end: Callable[[State], LogWeights] | None  # the tilt at s
    log: RunLog | None = None  # of the run

    @property
    def uniforms(self) -> int:
        return self.x.shape[-1]

    @property
    def log_before(self) -> LogWeights:
        return torch.zeros_like(self.log_tilt)

    @property
    def labels(self) -> Tensor:
        """Whole numbers that are equal where the states are: of reals, their bits."""
        return self.x.view(torch.int64) if self.x.dtype == torch.float64 else self.x

    @cached_property
    def proposal(self) -> Proposal[AnyLaw]:
        found, checked = self.propose(self.x), None
        if not isinstance(found, Proposal):
            raise InvalidInput(f"`propose` returned {shown(found)}; it must return Proposal(law, ratios)")
        for _, law in ((1.0, found.law), *found.ratios):
            pending = law.pending if isinstance(law, SiteLaw) else None
            if pending is not None and pending is not checked:  # laws made together share one
                check(*pending, self.log)
                checked = pending
        if self.log is None or not isinstance(found.law, SiteLaw):
            return found
        return replace(found, law=replace(found.law, log=self.log))

    @property
    def law(self) -> AnyLaw:
        return self.proposal.law

    def after(self, y: State) -> tuple[LogWeights, Aux]:
        log_start = self.log_start
        log_ratio = self.proposal.log_ratio(y, torch.zeros_like(self.log_tilt))
        log_end = self.end(y) if self.end else torch.zeros_like(self.log_tilt)
        return log_ratio + log_end - log_start, {"log_tilt": log_end}

    @property
    def log_start(self) -> LogWeights:
        """The tilt to subtract; +inf for a particle of weight 0, so that its weight stays 0."""
        return torch.where(self.log_tilt == NEG_INF, torch.inf, self.log_tilt)

    def take(self, ancestors: Tensor) -> ClockMove[AnyLaw]:
        return replace(self, x=take(self.x, ancestors), log_tilt=take(self.log_tilt, ancestors))


class Clockwork(FeynmanKac):
    """A model in clock time: say where it starts, how it proposes and what tilt it carries; the moves follow."""

    @property
    def tilt(self) -> Tilt | None:
        return None

    def completed(self, target: Target | None) -> Target | None:
        return target.completed(self.model, self.tilt) if isinstance(target, Target) else target

    @abstractmethod
    def propose(self, x: Any, t: float, s: float) -> Proposal[Any]: ...

    @abstractmethod
    def nowhere(self, shape: tuple[int, ...]) -> State:
        """Blank states [*shape, D], from which the first move goes."""

    @abstractmethod
    def prior(self, x: State) -> Law:
        """The law of the first draw, whatever the blank states x."""

    def start(self, shape: tuple[int, ...], t: float) -> ClockMove[Any]:
        nowhere = self.nowhere(shape)
        zeros = torch.zeros(shape, dtype=torch.float64, device=nowhere.device)
        return ClockMove(nowhere, zeros, self._first, self._end(t))

    def _first(self, x: State) -> Proposal[Any]:
        return Proposal(self.prior(x))

    def choices(self, t: float, s: float) -> int:
        return 0

    def move(self, particles: Particles, t: float, s: float, u: Tensor | None = None) -> ClockMove[Any]:
        propose = partial(self.propose, t=t, s=s)
        return ClockMove(particles.x, _held(particles, t), propose, self._end(s), self.log)

    def _end(self, t: float) -> Callable[[State], LogWeights] | None:
        """The tilt at the time where a move ends, as a function of the states there."""
        tilt = self.tilt
        return None if tilt is None else partial(tilt, t=t, log=self.log)


def _held(particles: Particles, t: float) -> LogWeights:
    """The tilt that the weights of the particles hold."""
    if "log_tilt" not in particles.aux:
        raise InvalidInput(
            f"t = {t:.6g}: the particles carry {sorted(particles.aux) or 'nothing'} and no log_tilt, the tilt that "
            'their weights hold; a move between the steps must return it for x and for y, AcceptMove(..., {"log_tilt": '
            'fk.tilt(x, t)}, {"log_tilt": fk.tilt(y, t)}) with zeros for a value without a tilt'
        )
    return particles.aux["log_tilt"]


@dataclass(frozen=True)
class OnClock(Clockwork):
    """A model of tokens in clock time: say how it proposes and what tilt it carries; the moves follow."""

    model: Model
    kernel: Kernel = field(default=euler, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise InvalidInput(
                f"{type(self).__name__} samples a tt.Model of tokens, and the model is a {type(self.model).__name__}; "
                "diffusions of real vectors go to tt.continuous.Tilted and its like"
            )
        function("kernel", self.kernel, "(process, log_score, x, t, s)", "such as tt.euler or tt.tweedie")

    def nowhere(self, shape: tuple[int, ...]) -> Tokens:
        return torch.zeros((*shape, self.model.length), dtype=torch.int64, device=self.model.device)

    def prior(self, x: Tokens) -> SitewiseLaw:
        return self.model.process.prior(tuple(x.shape), self.model.device)

    def law(self, name: str, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SitewiseLaw:
        """One reverse step $t -> s$ of a score; the move that draws from it checks it for NaN."""
        return self.laws(x, t, s, **{name: log_score})[0]

    def laws(self, x: Tokens, t: float, s: float, **scores: SiteLogits) -> list[SitewiseLaw]:
        """One reverse step $t -> s$ of each score, by its name; the move that draws from one checks all for NaN."""
        laws, flaws, bad = [], {}, None
        for name, log_score in scores.items():
            law = self.kernel(self.model.process, log_score, x, t, s)
            if not isinstance(law, SiteLaw | SitewiseLaw):  # the first is quicker to tell
                raise InvalidInput(
                    f"the kernel returned {shown(law)}; it must return the law of a step, as tt.euler does"
                )
            laws.append(law)
            flaws[name] = (law.odds.log_hold + law.odds.log_move).isnan()
            bad = flaws[name].any() if bad is None else bad | flaws[name].any()
        pending = PendingCheck(cast("Tensor", bad), partial(_flawed, flaws, t, s))
        if set(map(type, laws)) == {SiteLaw}:
            return list(map(partial(replace, pending=pending), laws))
        check(*pending)
        return laws

    def keep(self, aux: Aux, stage: Stage) -> Aux:
        """What moves of sites (`SiteTarget`) must remember of a state: the tilt that its weight holds."""
        return {"log_tilt": stage.total(aux["values"])}

    def _moves(self, kernel: str) -> str:
        """Moves remask a site, which takes a mask."""
        return f"moves at the end ({kernel})" if self.model.process.states > self.model.process.vocabulary else ""

    def evaluate(self, name: str, score: Score | None, x: Tokens, t: float) -> SiteLogits:
        return evaluate(self.model, name, score, x, t)


def _flawed(flaws: dict[str, Tensor], t: float, s: float) -> InvalidWeights:
    """The error of the first score whose law is NaN somewhere."""
    name, bad = next((name, flaw) for name, flaw in flaws.items() if flaw.any())
    return InvalidWeights(
        f"step t = {t:.6g} -> {s:.6g}: the {name} score returned NaN or only -inf for "
        f"{int(bad.any(-1).sum())} of {bad[..., 0].numel()} particles; check the network's output there "
        "(overflow in half precision?)"
    )


def evaluate(model: Model, name: str, score: Score | None, x: Tokens, t: float) -> SiteLogits:
    """A score's answer about states [..., D], asked as one batch, with its shape checked against the process."""
    return evaluate_all(model, x, t, **{name: score})[0]


@dataclass(frozen=True)
class Tempered(OnClock):
    """$pi ~ p0(x) p(zeta|x)^alpha$ by edge ratios: weight $p/q (p_zeta/p)^alpha$, guided by beta (Prop. E.1).

    Args:
        model: A `tt.Model` with a base and a conditional score.
        alpha: Exponent of the condition, 0 to 1e9; 0 is the base model itself.
        beta: Strength of the guided proposal, 0 to 1e9, a number or a function of time; 1, the conditional model, by
            default.
        guide: How two scores make the guided one: `tt.rate_level` (the default, the paper's) or `tt.posterior_level`.
        kernel: How a step is taken: `tt.euler` (the default), `tt.tweedie` or `tt.tau_leaping`.
    """

    how: ClassVar[str] = "moves as guidance does, weighs by the ratios of the two models (edge ratios)"
    alpha: float
    beta: float | Schedule = 1.0
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, alpha=check_alpha(self.alpha))
        set_fields(self, beta=check_strength(self.beta))
        check_guide(self.guide)
        check_conditional("Tempered", self.model)
        if self.alpha == 0 and self.beta != 0:
            raise InvalidInput(
                f"alpha = 0 targets p0 itself, and beta = {self.beta} can lose states p0 has; use beta = 0"
            )
        bridged = self.kernel is tweedie and not self.model.process.bridge_keeps_support
        if bridged and self.guide is rate_level and self.beta not in (0, 1):
            raise InvalidInput(
                f"tweedie steps of rate-level guidance (beta = {self.beta}) lose states of the base on this process; "
                "use euler or tau_leaping, posterior_level guidance, or beta = 0 or 1"
            )

    @property
    def most_log_weight(self) -> float | None:
        return most_log_ratio(self.alpha, self.model.log_p_condition)

    @property
    def remedies(self) -> Remedies:
        tilt = "the model's potential (tt.Tilted)" if self.model.potential else "a potential (tt.Tilted)"
        clock = "the any-order clock (tt.AnyOrder)" if isinstance(self.model.process, Masking) else ""
        weigh = listed_ways(f"{tilt} instead of edge ratios", clock)
        return Remedies("a smaller alpha", weigh, self._moves("tt.Gibbs"), FINER)

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, self.alpha, weights="edge ratios")

    def propose(self, x: Tokens, t: float, s: float) -> Proposal:
        base, conditional = evaluate_all(self.model, x, t, base=self.model.base, conditional=self.model.conditional)
        beta = strength(self.beta, t)
        leaning = guided(self.guide, self.model.process, base, conditional, beta, NoisyState(x, t))
        if leaning is conditional:
            p, p_zeta = self.laws(x, t, s, base=base, conditional=conditional)
            return Proposal(p_zeta, powers((1 - self.alpha, p), (self.alpha - 1, p_zeta)))
        p, p_zeta, q = self.laws(x, t, s, base=base, conditional=conditional, guided=leaning)
        return Proposal(q, powers((1 - self.alpha, p), (self.alpha, p_zeta), (-1.0, q)))


class OnClockSites(OnClock, SiteTarget):
    """A model in clock time whose weight is a value of the state: its target is known site by site."""

    def stage(self, t: float) -> Stage:
        tilt = self.tilt
        return Stage(t) if tilt is None else Stage(t, potentials=(tilt.potential,), factors=(float(tilt.exponent(t)),))


@dataclass(frozen=True)
class Tilted(OnClockSites):
    """$pi ~ p(x|zeta) p(zeta|x)^(alpha-1)$: the conditional model as base and proposal, weighed by a potential.

    The increment $(a_s - 1) h(y, s) - (a_t - 1) h(x, t)$ telescopes: bounded, free of the path, exact at the end
    whatever finite h is in between.

    Args:
        model: A `tt.Model` with a conditional score and a potential $log p_t(zeta|x)$.
        alpha: Exponent of the condition, 0 to 1e9; 1 is the conditional model itself.
        ramp: How the exponent grows with elapsed time, a function from [0, 1] that ends at 1. The square,
            `tt.Power(2.0)`, by default.
        kernel: How a step is taken: `tt.euler` (the default), `tt.tweedie` or `tt.tau_leaping`.
    """

    how: ClassVar[str] = "moves by the conditional model, weighs by a potential whose exponent grows"
    alpha: float
    ramp: Ramp = SQUARE

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, alpha=check_alpha(self.alpha))
        check_ramp(self.ramp)
        check_conditional("Tilted", self.model)
        if self.model.potential is None:
            raise InvalidInput("Tilted needs a conditional score and a potential log p(zeta|x, t); give the model both")

    @property
    def most_log_weight(self) -> float | None:
        """$p(zeta|x)^(alpha - 1)$ is at most 1."""
        return 0.0 if self.alpha > 1 else None

    @property
    def remedies(self) -> Remedies:
        weigh = advise_pilot(self.ramp, "ramp=tt.pilot(fk, grid)")
        return Remedies("a smaller alpha", weigh, self._moves("tt.Metropolis"), FINER)

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, 1.0, weights="potential", ramp=self.ramp)

    @cached_property
    def tilt(self) -> Tilt | None:
        h = self.model.potential
        return None if h is None else Tilt(h, Growing(self.alpha - 1, self.ramp), _ROUNDING)

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return {"conditional": self.model.conditional}

    def propose(self, x: Tokens, t: float, s: float) -> Proposal:
        (log_score,) = evaluate_all(self.model, x, t, conditional=self.model.conditional)
        return Proposal(self.law("conditional", log_score, x, t, s))


@dataclass(frozen=True)
class Unweighted(OnClock):
    """No weights: what a score samples by itself. With a `Guided` score, the guidance baselines.

    Args:
        model: A `tt.Model`; its process, length and device are used.
        score: What is sampled: a score such as `model.base`, or a `tt.Guided` one.
        kernel: How a step is taken: `tt.euler` (the default), `tt.tweedie` or `tt.tau_leaping`.
    """

    how: ClassVar[str] = "plain guidance without weights"
    score: Score

    def __post_init__(self) -> None:
        super().__post_init__()
        function("score", self.score, "(x, t)")

    @property
    def target(self) -> Target:
        return NO_WEIGHTS

    def propose(self, x: Tokens, t: float, s: float) -> Proposal:
        (given,) = evaluate_all(self.model, x, t, given=self.score)
        return Proposal(self.law("given", given, x, t, s))
