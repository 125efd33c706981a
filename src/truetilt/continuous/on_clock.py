"""The Feynman-Kac models of `truetilt.targets.on_clock` for diffusions of real vectors.

Edge weights are ratios of Gaussian transition densities (`Tempered`), or Girsanov's integrals in elapsed time
(`Girsanov`); `Tilted`, `Steered` and `Unweighted` are defined as for tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..core.arguments import function, number, set_fields, shown
from ..core.errors import InvalidInput
from ..core.logits import take
from ..core.target import NO_WEIGHTS, Remedies, Target, steered, tempered
from ..core.types import Potential, Schedule, State
from ..diffusion.guidance import check_strength, strength
from ..targets.on_clock import LINEAR, SQUARE, Clockwork, Proposal, Ramp, Tilt, check_ramp, growing, powers
from ..targets.potentials import check_alpha, check_reward
from .kernels import Kernel, Score, euler_maruyama, reverse_drift
from .laws import Gaussian
from .models import Diffusion, checked


@dataclass(frozen=True)
class OnClock(Clockwork):
    """A diffusion over a time grid. A subclass defines its proposal and its tilt (the potential in its weight); this
    base makes the moves of them.
    """

    model: Diffusion
    kernel: Kernel = field(default=euler_maruyama, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.model, Diffusion):
            raise InvalidInput(
                f"continuous.{type(self).__name__} samples a continuous.Diffusion, and the model is a "
                f"{type(self.model).__name__}; models of tokens go to tt.Tilted and its like"
            )
        function("kernel", self.kernel, "(process, score, x, t, s)", "such as tt.continuous.euler_maruyama")

    def nowhere(self, shape: tuple[int, ...]) -> State:
        return torch.zeros((*shape, self.model.dimension), dtype=torch.float64, device=self.model.device)

    def prior(self, x: State) -> Gaussian:
        return self.model.process.prior(tuple(x.shape), self.model.device)

    def law(self, name: str, score: Score | None, x: State, t: float, s: float) -> Gaussian:
        """The law of one reverse step t -> s of a score, with its output checked."""
        return self.step(checked(name, score, t, s), x, t, s)

    def step(self, score: Score, x: State, t: float, s: float) -> Gaussian:
        """The kernel's step, checked to be a Gaussian law."""
        law = self.kernel(self.model.process, score, x, t, s)
        if not isinstance(law, Gaussian):
            raise InvalidInput(f"the kernel returned {shown(law)}; it must return the continuous.Gaussian of a step")
        return law


@dataclass(frozen=True)
class _Edges(OnClock):
    """pi ~ p0(x) p(zeta|x)^alpha by edge weights p/q (p_zeta/p)^alpha, proposal guided by beta."""

    alpha: float
    beta: float | Schedule = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, alpha=check_alpha(self.alpha), beta=check_strength(self.beta))
        if self.model.conditional is None:
            raise InvalidInput(
                f"{type(self).__name__} needs a conditional score; give the model one (or use Tilted or Steered)"
            )

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller alpha", "a potential (continuous.Tilted) instead of edge weights")

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, self.alpha, weights="edge ratios")

    @abstractmethod
    def propose(self, x: State, t: float, s: float) -> Proposal: ...


@dataclass(frozen=True)
class Tempered(_Edges):
    """$pi ~ p0(x) p(zeta|x)^alpha$ by ratios of transition densities: weight $p/q (p_zeta/p)^alpha$ (Prop. E.1).

    The proposal's mean moves by beta from the base step's to the conditional step's, with their common noise.

    Args:
        model: A `tt.continuous.Diffusion` with a conditional score.
        alpha: Exponent of the condition, 0 to 1e9; 0 is the base model itself.
        beta: Strength of the guided proposal, 0 to 1e9, a number or a function of time; 1, the conditional model, by
            default.
        kernel: How a step is taken: `euler_maruyama` (the default), `exponential` or `heun`.
    """

    how: ClassVar[str] = "moves as guidance does, weighs by the ratios of the two models (edge ratios)"

    def propose(self, x: State, t: float, s: float) -> Proposal:
        p = self.law("base", self.model.base, x, t, s)
        p_zeta = self.law("conditional", self.model.conditional, x, t, s)
        q = p.towards(p_zeta, strength(self.beta, t))
        if q is p_zeta:
            return Proposal(p_zeta, powers((1 - self.alpha, p), (self.alpha - 1, p_zeta)))
        return Proposal(q, powers((1 - self.alpha, p), (self.alpha, p_zeta), (-1.0, q)))


@dataclass(frozen=True)
class Girsanov(_Edges):
    """$pi ~ p0(x) p(zeta|x)^alpha$ as in `Tempered`, by path integrals in elapsed time (Prop. D.1, signs corrected),
    for any kernel.

    $log dP/dQ = int (f - b) dY / g^2 - 1/2 int (|f|^2 - |b|^2) du / g^2$, taken at the start of each step. For
    Euler-Maruyama that is the ratio of densities; for other kernels both have the same limit.

    Args:
        model: A `tt.continuous.Diffusion` with a conditional score.
        alpha: Exponent of the condition, 0 to 1e9; 0 is the base model itself.
        beta: Strength of the guided proposal, 0 to 1e9, a number or a function of time; 1, the conditional model, by
            default.
        kernel: How a step is taken: `euler_maruyama` (the default), `exponential` or `heun`.
    """

    def propose(self, x: State, t: float, s: float) -> Proposal:
        base = _once(checked("base", self.model.base, t, s))
        conditional = _once(checked("conditional", self.model.conditional, t, s))
        p, p_zeta = (self.step(score, x, t, s) for score in (base, conditional))
        f, f_zeta = (reverse_drift(self.model.process, score, x, t) for score in (base, conditional))
        beta, g2 = strength(self.beta, t), self.model.process.diffusion(t)
        b = f + beta * (f_zeta - f)
        weights = ((1 - self.alpha, f), (self.alpha, f_zeta), (-1.0, b))
        return Proposal(p.towards(p_zeta, beta), powers(*((c, Increment(x, drift, g2, t - s)) for c, drift in weights)))


@dataclass(frozen=True)
class Increment:
    """log-density of a step y - x with this drift, relative to drift 0: (f dY - |f|^2 du / 2) / g^2."""

    x: State
    drift: Tensor
    diffusion: float  # g^2
    elapsed: float  # du

    def log_prob(self, y: State) -> Tensor:
        return (self.drift * (y - self.x - 0.5 * self.elapsed * self.drift)).sum(-1) / self.diffusion

    def take(self, ancestors: Tensor) -> Increment:
        return replace(self, x=take(self.x, ancestors), drift=take(self.drift, ancestors))


@dataclass(frozen=True)
class GrowingGuidance:
    """Guidance that grows with the exponent: 1 + (alpha - 1) ramp(u) at time t = 1 - u."""

    alpha: float
    ramp: Ramp

    def __call__(self, t: float) -> float:
        return 1 + (self.alpha - 1) * self.ramp(1 - t)


@dataclass(frozen=True)
class Tilted(OnClock):
    """$pi ~ p(x|zeta) p(zeta|x)^(alpha-1)$: the conditional diffusion as base and proposal, weighed by a potential.

    The increment $(a_s - 1) h(y, s) - (a_t - 1) h(x, t)$ telescopes: it does not depend on the path, and is exact at
    the end for any finite h in between. A particle that h kills on the way stays dead: for hard constraints only
    `tt.at_end` is exact. Proposals guided by beta other than 1 are corrected by $p_zeta/q$; with `leaned` the guidance
    grows with the exponent, towards where the weights will be.

    Args:
        model: A `tt.continuous.Diffusion` with a conditional score and a potential.
        alpha: Exponent of the condition, 0 to 1e9; 1 is the conditional model itself.
        ramp: How the exponent grows with elapsed time, a function from [0, 1] that ends at 1. The square,
            `tt.Power(2.0)`, by default.
        beta: Strength of the guided proposal, 0 to 1e9, a number or a function of time; 1, the conditional model, by
            default.
        kernel: How a step is taken: `euler_maruyama` (the default), `exponential` or `heun`.
    """

    how: ClassVar[str] = "moves by the conditional model, weighs by a potential whose exponent grows"
    alpha: float
    ramp: Ramp = SQUARE
    beta: float | Schedule = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, alpha=check_alpha(self.alpha), beta=check_strength(self.beta))
        check_ramp(self.ramp)
        if self.model.conditional is None or self.model.potential is None:
            raise InvalidInput("Tilted needs a conditional score and a potential log p(zeta|x, t); give the model both")

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller alpha", "a proposal that leans as the exponent grows (Tilted.leaned)")

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, 1.0, weights="potential", ramp=self.ramp)

    @property
    def tilt(self) -> Tilt | None:
        h = self.model.potential
        return None if h is None else growing(h, self.alpha - 1, self.ramp)

    def leaned(self, share: float = 0.5) -> Tilted:
        """The same target, proposed by guidance of strength $1 + share (alpha - 1) ramp$; it evaluates the base score
        too.

        With share 1 few particles reach some modes, and $p_zeta/q$ compensates by a few heavy weights, which the
        effective sample size does not show. With a share of one half guidance does half of the way, the weights of the
        potential the rest.
        """
        share = number("the share of guidance", share)
        if not 0 <= share <= 1:
            raise InvalidInput(f"the share of guidance is {share}; give 0 (none) to 1 (all of the exponent)")
        return replace(self, beta=GrowingGuidance(1 + share * (self.alpha - 1), self.ramp))

    def propose(self, x: State, t: float, s: float) -> Proposal:
        p_zeta, beta = self.law("conditional", self.model.conditional, x, t, s), strength(self.beta, t)
        if beta == 1:
            return Proposal(p_zeta)
        q = self.law("base", self.model.base, x, t, s).towards(p_zeta, beta)
        return Proposal(q, ((1.0, p_zeta), (-1.0, q)))


@dataclass(frozen=True)
class Steered(OnClock):
    """$pi ~ p0(x) exp(strength * reward(x))$: the base weighed by a reward whose share grows as `ramp`.

    A `proposal` score other than the base is corrected by $p/q$; `Predictor(base, reward, beta)` climbs the reward.

    Args:
        model: A `tt.continuous.Diffusion`; only its base score is used.
        reward: Function (x, t) of states [B, D] and a time that returns one number a state [B]. Its value at $t = 0$
            defines the target.
        strength: Factor of the reward, finite, -1e9 to 1e9; 1 by default.
        ramp: How the reward's share grows with elapsed time, a function from [0, 1] that ends at 1; linear by default.
        proposal: Score to draw steps from in place of the base. None (the default): the base.
        kernel: How a step is taken: `euler_maruyama` (the default), `exponential` or `heun`.
    """

    how: ClassVar[str] = "moves by the base model, weighs by a reward whose share grows"
    reward: Potential
    strength: float = 1.0
    ramp: Ramp = LINEAR
    proposal: Score | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, strength=check_reward(self.reward, self.strength))
        if self.proposal is not None:
            function("proposal", self.proposal, "(x, t)")
        check_ramp(self.ramp)

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller strength", "a proposal that climbs the reward (continuous.Predictor)")

    @property
    def target(self) -> Target:
        return steered(self.model, self.reward, self.strength, weights="reward", ramp=self.ramp)

    @property
    def tilt(self) -> Tilt:
        return growing(self.reward, self.strength, self.ramp)

    def propose(self, x: State, t: float, s: float) -> Proposal:
        p = self.law("base", self.model.base, x, t, s)
        if self.proposal is None:
            return Proposal(p)
        q = p.towards(self.law("proposal", self.proposal, x, t, s), 1.0)
        return Proposal(q, ((1.0, p), (-1.0, q)))


@dataclass(frozen=True)
class Unweighted(OnClock):
    """No weights: the samples of a score alone. With a `Guided` score, plain guidance.

    Args:
        model: A `tt.continuous.Diffusion`; its process, dimension and device are used.
        score: What is sampled: a score such as `model.base`, or a `tt.continuous.Guided` one.
        kernel: How a step is taken: `euler_maruyama` (the default), `exponential` or `heun`.
    """

    how: ClassVar[str] = "plain guidance without weights"
    score: Score

    def __post_init__(self) -> None:
        super().__post_init__()
        function("score", self.score, "(x, t)")

    @property
    def target(self) -> Target:
        return NO_WEIGHTS

    def propose(self, x: State, t: float, s: float) -> Proposal:
        return Proposal(self.law("given", self.score, x, t, s))


def _once(score: Score) -> Score:
    """The score with a cache by state and time, because kernel and drift evaluate it on the same states."""
    answers: dict[tuple[int, float], tuple[State, Tensor]] = {}

    def ask(x: State, t: float) -> Tensor:
        if (id(x), t) not in answers:
            answers[id(x), t] = (x, score(x, t))
        return answers[id(x), t][1]

    return ask
