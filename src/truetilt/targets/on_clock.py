"""What is sampled: Feynman-Kac values. Each gives a first move and a move for every interval, and draws nothing.

`Tempered` is the paper's (edge ratios), `Tilted` weighs a conditional base by a potential, `Steered` weighs the base
by a reward, `Unweighted` is plain guidance. Where the target is named there is `alpha`; how it is proposed is `beta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core.target import NO_WEIGHTS, Remedies, steered, tempered
from ..core.types import (
    Aux,
    InvalidInput,
    InvalidWeights,
    Model,
    Potential,
    Schedule,
    Score,
    SiteLogits,
    SitewiseLaw,
    Target,
    Tokens,
    check,
    function,
    settle,
    shown,
)
from ..diffusion.guidance import Guide, check_guide, check_strength, guided, rate_level, strength
from ..diffusion.kernels import Kernel, euler, tweedie
from .base import Clockwork, Proposal, Tilt, check_alpha, check_reward, growing, powers
from .evaluate import evaluate, evaluate_all
from .ramps import LINEAR, SQUARE, Ramp, check_ramp
from .stage import SiteTarget, Stage

_ROUNDING = 1e-5  # of a log-probability in float32


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
        if not callable(self.kernel):
            raise InvalidInput(f"kernel is {self.kernel!r}; give tt.euler, tt.tweedie or tt.tau_leaping")
        function("kernel", self.kernel, "(process, log_score, x, t, s)", "such as tt.euler or tt.tweedie")

    @property
    def device(self) -> torch.device | str:
        return self.model.device

    def nowhere(self, shape: tuple[int, ...]) -> Tokens:
        return torch.zeros((*shape, self.model.length), dtype=torch.int64, device=self.model.device)

    def prior(self, x: Tokens) -> SitewiseLaw:
        return self.model.process.prior(tuple(x.shape), self.model.device)

    def law(self, name: str, log_score: SiteLogits, x: Tokens, interval: tuple[float, float]) -> SitewiseLaw:
        """One reverse step of a score, with NaN caught where it appears."""
        law = self.kernel(self.model.process, log_score, x, *interval)
        if not hasattr(law, "odds"):
            raise InvalidInput(f"the kernel returned {shown(law)}; it must return the law of a step, as tt.euler does")
        bad = (law.odds.log_hold + law.odds.log_move).isnan()
        check(
            bad.any(),
            lambda: InvalidWeights(
                f"step t = {interval[0]:.6g} -> {interval[1]:.6g}: the {name} score returned NaN or only -inf for "
                f"{int(bad.any(-1).sum())} of {bad[..., 0].numel()} particles; check the network's output there "
                "(overflow in half precision?)"
            ),
        )
        return law

    def _moves(self, kernel: str) -> str:
        """Moves remask a site, which takes a mask."""
        return f"moves at the end ({kernel})" if self.model.process.states > self.model.process.vocabulary else ""

    def evaluate(self, name: str, score: Score | None, x: Tokens, t: float) -> SiteLogits:
        return evaluate(self.model, name, score, x, t)


@dataclass(frozen=True)
class Tempered(OnClock):
    """pi ~ p0(x) p(zeta|x)^alpha by edge ratios: weight p/q (p_zeta/p)^alpha, proposal guided by beta (Prop. E.1)."""

    alpha: float
    beta: float | Schedule = 1.0
    guide: Guide = rate_level

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, alpha=check_alpha(self.alpha))
        settle(self, beta=check_strength(self.beta))
        check_guide(self.guide)
        if self.model.conditional is None:
            raise InvalidInput(
                "Tempered needs a conditional score; give the model one, or use Steered for a reward, or sample p0 "
                "itself, without a condition: tt.sample(model, alpha=0)"
            )
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
    def remedies(self) -> Remedies:
        return Remedies("a smaller alpha", "a potential (tt.Tilted) instead of edge ratios", self._moves("tt.Gibbs"))

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, self.alpha, weights="edge ratios")

    def propose(self, x: Tokens, t: float, s: float) -> Proposal:
        base, conditional = evaluate_all(self.model, x, t, base=self.model.base, conditional=self.model.conditional)
        beta, at = strength(self.beta, t), (x, t)
        leaning = guided(self.guide, self.model.process, base, conditional, beta, at)
        p, p_zeta = self.law("base", base, x, (t, s)), self.law("conditional", conditional, x, (t, s))
        if leaning is conditional:
            return Proposal(p_zeta, powers((1 - self.alpha, p), (self.alpha - 1, p_zeta)))
        q = self.law("guided", leaning, x, (t, s))
        return Proposal(q, powers((1 - self.alpha, p), (self.alpha, p_zeta), (-1.0, q)))


@dataclass(frozen=True)
class LogLikelihood:
    """A model's own potential log p_t(zeta|x), with a warning where it is above 0: no probability has such a log."""

    potential: Potential

    def __call__(self, x: Tokens, t: float) -> Tensor:
        value = self.potential(x, t)
        if isinstance(value, Tensor) and value.dtype != torch.bool and not value.is_complex():
            check((value > _ROUNDING).any(), _above_zero)
        return value


def _above_zero() -> UserWarning:
    return UserWarning(
        "the model's potential is above 0 for some states, and log p(zeta|x, t) of a class never is: it may return "
        "probabilities, or raw logits, where their log_softmax is due, and then another law is sampled. For a density "
        "or a reward this is as it should be"
    )


class OnClockSites(OnClock, SiteTarget):
    """A model in clock time whose weight is a value of the state: its target is known site by site."""

    def keep(self, aux: Aux, stage: Stage) -> Aux:
        """The tilt that the weight holds."""
        return {"log_tilt": stage.total(aux["values"])}


@dataclass(frozen=True)
class Tilted(OnClockSites):
    """pi ~ p(x|zeta) p(zeta|x)^(alpha-1): the conditional model as base and proposal, weighed by a potential.

    The increment (a_s - 1) h(y, s) - (a_t - 1) h(x, t) telescopes: bounded, free of the path, exact at the end whatever
    finite h is in between.

    Args:
        model: A `tt.Model` with a conditional score and a potential log p_t(zeta|x).
        alpha: Exponent of the condition, 0 to 1e9; 1 is the conditional model itself.
        ramp: How the exponent grows with elapsed time, a function from [0, 1] that ends at 1. The square,
            `tt.Power(2.0)`, by default.
        kernel: How a step is taken: `tt.euler` (the default), `tt.tweedie` or `tt.tau_leaping`.
    """

    alpha: float
    ramp: Ramp = SQUARE

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, alpha=check_alpha(self.alpha))
        check_ramp(self.ramp)
        if self.model.conditional is None or self.model.potential is None:
            raise InvalidInput("Tilted needs a conditional score and a potential log p(zeta|x, t); give the model both")

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller alpha", "an exponent that grows as tt.pilot says", self._moves("tt.Metropolis"))

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, 1.0, weights="potential", ramp=self.ramp)

    @property
    def tilt(self) -> Tilt | None:
        h = self.model.potential
        return None if h is None else growing(LogLikelihood(h), self.alpha - 1, self.ramp)

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return {"conditional": self.model.conditional}

    def stage(self, t: float) -> Stage:
        return stage_of(self.tilt, t)

    def propose(self, x: Tokens, t: float, s: float) -> Proposal:
        log_score = self.evaluate("conditional", self.model.conditional, x, t)
        return Proposal(self.law("conditional", log_score, x, (t, s)))


@dataclass(frozen=True)
class Steered(OnClockSites):
    """pi ~ p0(x) exp(strength * reward(x)): the base model weighed by a reward.

    With reward log p(zeta|x) and strength alpha this is the tempered target in potential form.

    Args:
        model: A `tt.Model`; only its base score is used.
        reward: Function (x, t) of a batch of states [B, D] and a time that returns one number a state [B]. Its value at
            t = 0 defines the target; -inf there is a hard constraint. `tt.Reward` makes one of any function.
        strength: Factor of the reward, finite, -1e9 to 1e9; 1 by default.
        ramp: How the reward's share grows with elapsed time, a function from [0, 1] that ends at 1. Linear,
            `tt.Power(1.0)`, by default; `tt.at_end` for a reward that makes sense on clean states only.
        proposal: Score to draw steps from in place of the base, corrected by p/q. None (the default): the base.
        kernel: How a step is taken: `tt.euler` (the default), `tt.tweedie` or `tt.tau_leaping`.
    """

    reward: Potential
    strength: float = 1.0
    ramp: Ramp = LINEAR
    proposal: Score | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, strength=check_reward(self.reward, self.strength))
        if self.proposal is not None:
            function("proposal", self.proposal, "(x, t)")
        check_ramp(self.ramp)

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller strength", "an exponent that grows as tt.pilot says")

    @property
    def target(self) -> Target:
        return steered(self.model, self.reward, self.strength, weights="reward", ramp=self.ramp)

    @property
    def tilt(self) -> Tilt:
        return growing(self.reward, self.strength, self.ramp)

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return {"base": self.model.base}

    def stage(self, t: float) -> Stage:
        return stage_of(self.tilt, t)

    def propose(self, x: Tokens, t: float, s: float) -> Proposal:
        if self.proposal is None:
            return Proposal(self.law("base", self.evaluate("base", self.model.base, x, t), x, (t, s)))
        base, proposal = evaluate_all(self.model, x, t, base=self.model.base, proposal=self.proposal)
        p, q = self.law("base", base, x, (t, s)), self.law("proposal", proposal, x, (t, s))
        return Proposal(q, ((1.0, p), (-1.0, q)))


def stage_of(tilt: Tilt | None, t: float) -> Stage:
    """The intermediate target of states that are weighed by a tilt."""
    return Stage(t) if tilt is None else Stage(t, potentials=(tilt.potential,), factors=(float(tilt.exponent(t)),))


@dataclass(frozen=True)
class Unweighted(OnClock):
    """No weights: what a score samples by itself. With a `Guided` score, the guidance baselines."""

    score: Score

    def __post_init__(self) -> None:
        super().__post_init__()
        function("score", self.score, "(x, t)")

    @property
    def target(self) -> Target:
        return NO_WEIGHTS

    def propose(self, x: Tokens, t: float, s: float) -> Proposal:
        return Proposal(self.law("given", self.evaluate("given", self.score, x, t), x, (t, s)))
