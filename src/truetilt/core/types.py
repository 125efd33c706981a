"""Shapes, records and protocols that all other modules use.

Leading dimensions are independent populations; the particle axis is the last axis of a log-weight. A record is
immutable. A class is an abstract base with defaults (`core/bases`), final, or a Protocol where users bring a plain
function or a value of any make (`Score`, `Resampler`, `Law`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from .arguments import FINITE, bounded, device_here, function, has, set_fields, whole_number
from .errors import InvalidInput
from .evaluation import RunLog
from .logits import SiteLogits, take

State = Tensor  # any dtype; [..., N, D] tokens (int64) or reals: the sampler never looks inside
Tokens = Tensor  # int64 [..., D]
LogWeights = Tensor  # float64 [..., N], unnormalised
Aux = dict[str, Tensor]
"""What a model remembers of each particle: its auxiliary values, tensors [..., N, ...] by name."""

NEG_INF = -torch.inf


class Particles(NamedTuple):
    """A weighted population: states, log-weights and what the model remembers of each state."""

    x: State
    log_w: LogWeights
    aux: Aux


class Resampled(NamedTuple):
    """The ancestor of each particle after resampling, and its new weight; a population's total mass is unchanged."""

    ancestors: Tensor  # int64 [..., N]
    log_w: LogWeights


class Step(NamedTuple):
    """A step of a run: its number, counting from 1 (the first draw is 0), and the interval t -> s that it crosses."""

    number: int
    t: float
    s: float

    def __str__(self) -> str:
        return f"step {self.number} (t = {self.t:.6g} -> {self.s:.6g})"


class StepInfo(NamedTuple):
    """The record of a step: effective sample size, log Z, ancestors, what moves did and what it cost."""

    t: float
    s: float
    ess: Tensor  # [...], of the weights the resampler saw
    log_z: Tensor  # [...], after the step
    ancestors: Tensor  # int64 [..., N]
    moved: Tensor  # [...], share of the particles that a rejuvenating move changed
    accepted: Tensor  # [...], chance that such a move was accepted; 0 where none was made
    spent: Tensor = torch.zeros(4, dtype=torch.int64)  # rounds, evaluations, calls, distinct calls of the step


class Law(Protocol):
    """What a step may draw. Uniforms in, states out; and the exact probability of each."""

    def sample(self, u: Tensor) -> State: ...
    def log_prob(self, y: State) -> Tensor: ...
    def take(self, ancestors: Tensor) -> Law: ...


@runtime_checkable
class ListedLaw(Law, Protocol):
    """A law that can list what it draws: states [N, m, D] and log-probabilities [N, m]."""

    def support(self) -> tuple[Tokens, Tensor]: ...


@runtime_checkable
class SitewiseLaw(Law, Protocol):
    """A law that is a product over sites; `frozen` says which states it cannot change."""

    @property
    def x(self) -> Tokens: ...
    @property
    def odds(self) -> SiteOdds: ...
    def frozen(self) -> Tensor: ...


class Move(Protocol):
    """A law and its weight, never a draw. `log_before` is known before the draw, `after` once y is drawn.

    `lazy` says that no network is asked before `law` is read: such a move is cheap to make again elsewhere.
    """

    @property
    def lazy(self) -> bool: ...
    @property
    def uniforms(self) -> int: ...  # how many uniforms a particle needs
    @property
    def log_before(self) -> LogWeights: ...
    @property
    def labels(self) -> Tensor: ...  # [..., N, m]: particles with equal labels have the same law
    @property
    def law(self) -> Law: ...
    def after(self, y: State) -> tuple[LogWeights, Aux]: ...
    def take(self, ancestors: Tensor) -> Move: ...


class Redraw(Move, Protocol):
    """A move of a Markov kernel: no weight, and the chance that what it proposes is accepted."""

    @property
    def log_accept(self) -> LogWeights: ...


@runtime_checkable
class ByKernel(Protocol):
    """The move of a step that weighs, and then moves by a Markov kernel: `redraw` is that kernel's move."""

    @property
    def redraw(self) -> Redraw: ...


class Resampler(Protocol):
    """Properly weighted: $E[sum_i w~_i phi(x_(a_i))] = sum_i w_i phi(x_i)$ for every phi. u is uniform [..., N]."""

    def __call__(self, log_w: LogWeights, u: Tensor) -> Resampled: ...


class Score(Protocol):
    """$log p_t(y) / p_t(x)$ for every y that differs from x at one site (up to a constant a row, see `processes`).

    A sampler asks about a batch of states x [B, D]; all its particles of all populations are in one batch.
    """

    def __call__(self, x: Tokens, t: float) -> SiteLogits: ...


class Potential(Protocol):
    """A log-value of each state at time t: $log p_t(zeta|x)$, a reward, a noisy classifier; [B] for a batch x [B, D].

    Between the ends it may be any finite number. -inf kills a particle for good, so on the way it must be the truth: a
    hard constraint on clean states goes with the ramp `at_end`.
    """

    def __call__(self, x: Tokens, t: float) -> Tensor: ...


class Process(Protocol):
    """A forward noising process on tokens; see `processes`."""

    bridge_keeps_support: ClassVar[bool]
    edges_tolerate_grids: ClassVar[bool]

    @property
    def vocabulary(self) -> int: ...
    @property
    def states(self) -> int: ...
    def prior(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> SitewiseLaw: ...
    def jumps(self, log_score: SiteLogits, x: Tokens, t: float, s: float) -> Jumps: ...
    def bridge(self, log_score: SiteLogits, x: Tokens, t: float, s: float) -> SiteOdds: ...
    def posterior(self, log_score: SiteLogits, x: Tokens, t: float) -> SiteLogits: ...
    def score(self, log_posterior: SiteLogits, x: Tokens, t: float) -> SiteLogits: ...


class Jumps(NamedTuple):
    """Integrated intensity of each jump over $t -> s$: $exp(log_clock + log_reference + logits[v])$ to $v != x$."""

    logits: SiteLogits
    movable: Tensor  # bool [..., D]; where it is false, the other fields of the site have no meaning
    log_reference: Tensor  # [..., D]
    log_total: Tensor  # [..., D], log of the sum over v != x of exp(log_reference + logits[v])
    log_clock: Tensor  # scalar; +inf when the step must leave


class SiteOdds(NamedTuple):
    """Per site: $P(stay) = exp(log_hold)$, $P(v) = exp(log_move + logits[v])$ for $v != x$.

    Args:
        logits: Log of the relative probability of each token at each site; the entry of the present token is not read.
        log_hold: Log of the probability to stay [..., D], float64: probabilities of a site must sum to 1 within 1e-12.
        log_move: What is added to the logits [..., D], float64; -inf where the site cannot change.
    """

    logits: SiteLogits
    log_hold: Tensor
    log_move: Tensor

    def take(self, ancestors: Tensor) -> SiteOdds:
        return SiteOdds(self.logits.take(ancestors), take(self.log_hold, ancestors), take(self.log_move, ancestors))


@dataclass(frozen=True, repr=False)
class Model:
    """A diffusion model of tokens under one condition zeta: a noising process with its networks.

    Args:
        process: The noising process: `tt.Masking(S)` or `tt.Uniform(S)`.
        length: Number of sites D of a state, 1 or more.
        base: Score of the unconditional model, a function (x, t) of a batch [B, D] of tokens and a time that returns
            `tt.SiteLogits`; `tt.PosteriorScore` makes one of a network of posteriors.
        conditional: Score of the model given zeta, of the same form. None (the default): only rewards (`tt.Steered`)
            and unconditional samples ($alpha = 0$) are possible.
        potential: $log p_t(zeta|x)$, a function (x, t) that returns one number a state [B], at most 0. None (the
            default): `tt.sample` weighs by edge ratios.
        device: Where states live, "cpu" (the default), "cuda", ...: the device of the networks.
        log_p_condition: $log p(zeta)$, at most 0: how common the condition is among draws of the base; $-log K$ for one
            of K equal classes. Nothing is sampled by it: $log p(x|zeta)/p(x)$ cannot exceed its negative, so that
            `Result.trust` can tell a ratio of networks that broke down. None (the default): not known.
    """

    counted: ClassVar[tuple[str, ...]] = ("potential",)
    process: Process
    length: int
    base: Score
    conditional: Score | None = None
    potential: Potential | None = None
    device: torch.device | str = "cpu"
    log_p_condition: float | None = None
    log: RunLog | None = field(default=None, init=False, repr=False, compare=False)  # of the run it is bound to

    def __post_init__(self) -> None:
        check_process(self.process)
        set_fields(self, length=whole_number("length", self.length, 1))
        for name, net in (("base", self.base), ("conditional", self.conditional), ("potential", self.potential)):
            if net is not None:
                function(f"the model's {name}", net, "(x, t)")
        device_here(self.device)
        if self.log_p_condition is not None:
            need = "give the log of a probability, at most 0, or None"
            set_fields(self, log_p_condition=bounded("log_p_condition", self.log_p_condition, need, -FINITE, 0))

    def __repr__(self) -> str:
        parts = {name: getattr(self, name) for name in ("base", "conditional", "potential")}
        named = [f"{name} {_named(part)}" for name, part in parts.items() if part is not None]
        kind = f"{type(self.process).__name__}({self.process.vocabulary:,})"
        return f"<Model: {kind}, {self.length:,} sites; {', '.join(named)}; on {self.device}>"


def _named(part: object) -> str:
    """The name of a function, or of a value's type."""
    return getattr(part, "__name__", type(part).__name__)


def check_model(model: object) -> None:
    """A model of tokens."""
    if not isinstance(model, Model):
        raise InvalidInput(
            f"model is a {type(model).__name__}; wrap it, tt.Model(process, length, base, conditional, potential), or "
            "run a diffusion of real vectors, tt.run(tt.continuous.Tilted(model, alpha), tt.uniform_grid(steps))"
        )


def check_process(process: object) -> None:
    """A noising process of tokens."""
    has("process", process, ("vocabulary", "states", "prior", "jumps"), "give tt.Masking(S) or tt.Uniform(S)")


Schedule = Callable[[float], float]
"""A function of the time t, 1 for noise and 0 for data, that returns a number."""
