"""Shapes, records and protocols that all other modules use.

Leading dimensions are independent populations; the particle axis is the last axis of a log-weight. A record is
immutable. A class is an abstract base with defaults (`FeynmanKac`, `MoveKernel`), final, or a Protocol where users
bring a plain function or a value of any make (`Score`, `Resampler`, `Law`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from .arguments import FINITE, bounded, device_here, function, has, set_fields, shown, whole_number
from .errors import InvalidInput
from .evaluation import Meter, StepWork
from .logits import SiteLogits, take
from .target import UNKNOWN, Remedies, Target

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
    work: StepWork | None = None  # where checks of their step wait for the device; None: asked at once


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


class FeynmanKac(ABC):
    """What is sampled: a first move out of nothing, then a move for each interval $t -> s$.

    A subclass writes `start` and `move`; all else has a default. Make it a frozen dataclass, with what it samples in a
    field `model`: a run counts the networks and rewards that it finds through fields.
    """

    how: ClassVar[str] = ""  # how it samples, in a few words for the report

    if TYPE_CHECKING:

        @property
        def model(self) -> Any:
            """What it samples; a value may have none (`model_of`)."""

    @abstractmethod
    def start(self, shape: tuple[int, ...], t: float) -> Move:
        """The first move, of particles [*shape], at the time t where the grid begins."""

    @abstractmethod
    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> Move:
        """The move over $t -> s$; u are the uniforms of the choices that come before its weight [..., N, choices]."""

    def choices(self, t: float, s: float) -> int:
        """How many uniforms a particle takes for choices that come before the weight (which site to reveal)."""
        return 0

    def branches(self, particles: Particles, t: float, s: float) -> Sequence[tuple[Tensor, Move]]:
        """All that a step may choose, with log-probabilities [..., N], for exact answers: without choices one move."""
        if self.choices(t, s):
            raise InvalidInput(
                f"{shown(self)} does not list what it may choose, and exact answers sum over that; give it a method "
                "`branches(particles, t, s)`: pairs of a log-probability and a move"
            )
        none = torch.zeros_like(particles.log_w)
        return [(none, self.move(particles, t, s, none.new_empty(*none.shape, 0)))]

    @property
    def target(self) -> Target | None:
        """What the weighted particles aim at; None where a value does not say, and then no moves are checked."""
        return None

    @property
    def remedies(self) -> Remedies:
        """What may help where its weights are bad; by default general advice."""
        return UNKNOWN

    @property
    def most_log_weight(self) -> float | None:
        """log of the most that a state can weigh, where that is known."""
        return None

    @property
    def grid(self) -> Sequence[float] | None:
        """The time grid of its own, if it has one, which `tt.run(fk)` takes."""
        return None

    @property
    def tilt(self) -> Any:
        """The log-weight that particles carry, where that is a function of state and time."""
        return None

    @property
    def moves(self) -> MoveKernel | None:
        """The Markov kernel that steps of its own move by, as those of `tt.Annealed` do."""
        return None

    @property
    def device(self) -> torch.device | str:
        """Where its tensors are: by default where its model's are, else on the CPU."""
        return getattr(model_of(self), "device", "cpu")

    @property
    def spec(self) -> Target | None:
        """The target, with the model and the tilt where it names neither; a run compares it with that of its moves."""
        target = self.target
        return target.completed(model_of(self), self.tilt) if isinstance(target, Target) else target


def model_of(fk: object) -> Any:
    """The model that a value samples, its field `model`; None where it has none."""
    return getattr(fk, "model", None)


class Redraw(Move, Protocol):
    """A move of a Markov kernel: no weight, and the chance that what it proposes is accepted."""

    @property
    def log_accept(self) -> LogWeights: ...


@runtime_checkable
class ByKernel(Protocol):
    """The move of a step that weighs, and then moves by a Markov kernel: `redraw` is that kernel's move."""

    @property
    def redraw(self) -> Redraw: ...


class MoveKernel(ABC):
    """A Markov kernel on particles at time t that leaves a target alone: that of the value in its field `fk`.

    A subclass writes `move`; all else has a default. `number` counts the moves of a run from 0: a systematic scan takes
    its site from it.
    """

    redraws: ClassVar[bool] = False  # whether it redraws sites from the conditionals of `fk`, a `SiteTarget`

    @abstractmethod
    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> Redraw:
        """The move; u are the uniforms of its choices [..., N, choices]. The acceptance draws from one of its own."""

    @property
    def choices(self) -> int:
        """How many uniforms a particle takes for the choices of a move (which site it redraws)."""
        return 0

    def branches(self, particles: Particles, t: float, number: int) -> Sequence[tuple[Tensor, Redraw]]:
        """All that a move may choose, with log-probabilities [..., N] that sum to 1, for exact answers."""
        raise InvalidInput(f"{shown(self)} does not list what it may choose; {_NEEDS_BRANCHES}")

    @property
    def target(self) -> Target | None:
        """What it leaves alone, by default the target of `fk`; None where nobody says, and a run warns of that."""
        return getattr(made_from(self), "target", None)

    @property
    def spec(self) -> Target | None:
        """The target, with the model and the tilt of `fk` where it names neither."""
        target, fk = self.target, made_from(self)
        return target.completed(model_of(fk), getattr(fk, "tilt", None)) if isinstance(target, Target) else target


MakeMoves = Callable[[Any], MoveKernel]
"""What makes a Markov kernel of moves from the value whose target it leaves alone, such as `tt.Gibbs`."""

_NEEDS_BRANCHES = "give it a method `branches(particles, t, number)`: pairs of a log-probability and a move"


def made_from(kernel: object) -> Any:
    """The value that a kernel is made from, its field `fk`; None where it has none."""
    return getattr(kernel, "fk", None)


def lists_choices(kernel: object) -> bool:
    """Whether a kernel lists all that it may choose."""
    return isinstance(kernel, MoveKernel) and type(kernel).branches is not MoveKernel.branches


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
    meter: Meter | None = field(default=None, init=False, repr=False, compare=False)  # a run's own, which counts

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


def check_sampled(fk: object) -> None:
    """What a run can sample."""
    if isinstance(fk, FeynmanKac):
        return
    need = "give what to sample, such as tt.Tilted(model, alpha) or tt.AnyOrder(model, alpha)"
    more = "; or call tt.sample" if isinstance(fk, Model) else ""
    own = "; a class of your own derives from tt.feynman_kac.FeynmanKac" if hasattr(fk, "move") else ""
    raise InvalidInput(f"fk is {shown(fk)}; {need}{more}{own}")


def check_kernel_of_moves(kernel: object, need: str, name: str = "kernel") -> MoveKernel:
    """A Markov kernel of moves."""
    if isinstance(kernel, MoveKernel):
        return kernel
    own = "; a class of your own derives from tt.feynman_kac.MoveKernel" if hasattr(kernel, "move") else ""
    raise InvalidInput(f"{name} is {shown(kernel)}; {need}{own}")


def check_listed(name: str, kernel: MoveKernel, need: str) -> MoveKernel:
    """The same kernel, if it lists its choices."""
    if not lists_choices(kernel):
        raise InvalidInput(f"{name} is {shown(kernel)}; {need}")
    return kernel


def check_process(process: object) -> None:
    """A noising process of tokens."""
    has("process", process, ("vocabulary", "states", "prior", "jumps"), "give tt.Masking(S) or tt.Uniform(S)")


Schedule = Callable[[float], float]
"""A function of the time t, 1 for noise and 0 for data, that returns a number."""
