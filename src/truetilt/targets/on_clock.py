"""What is sampled in clock time: Feynman-Kac values of tokens, which give a move for every interval and draw nothing.

`Tempered` is the paper's (edge ratios), `Tilted` weighs a conditional base by a potential, `Unweighted` is plain
guidance. Where the target is named there is `alpha`; how it is proposed is `beta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..core.arguments import function, settle, shown
from ..core.errors import InvalidInput, InvalidWeights
from ..core.evaluation import Doubt, check, evaluate_all
from ..core.logits import SiteLogits
from ..core.target import NO_WEIGHTS, Remedies, Target, tempered
from ..core.types import Aux, Model, Schedule, Score, SitewiseLaw, Tokens
from ..diffusion.guidance import Guide, NoisyState, check_guide, check_strength, guided, rate_level, strength
from ..diffusion.kernels import Kernel, SiteLaw, euler, tweedie
from ..diffusion.processes import Masking
from .advice import advise_pilot, listed_ways
from .base import Clockwork, Proposal, both_times, check_alpha, most_log_ratio, powers
from .stage import SiteTarget, Stage
from .tilts import (
    SQUARE,
    Growing,
    Ramp,
    Tilt,
    check_ramp,
)

_ROUNDING = 1e-5  # of a log-probability in float32
FINER = "smaller steps (a finer grid)"


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

    def law(
        self, name: str, log_score: SiteLogits, x: Tokens, t: float | tuple[float, float], s: float | None = None
    ) -> SitewiseLaw:
        """One reverse step $t -> s$ of a score; the move that draws from it checks it for NaN."""
        return self.laws(x, t, s, **{name: log_score})[0]

    def laws(
        self, x: Tokens, t: float | tuple[float, float], s: float | None = None, **scores: SiteLogits
    ) -> list[SitewiseLaw]:
        """One reverse step $t -> s$ of each score, by its name; the move that draws from one checks all for NaN."""
        if s is None or isinstance(t, tuple):
            t, s = both_times(t, s)
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
        doubt = Doubt(cast("Tensor", bad), partial(_flawed, flaws, t, s))
        if set(map(type, laws)) == {SiteLaw}:
            return list(map(partial(replace, doubt=doubt), laws))
        check(*doubt)
        return laws

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
    """$pi ~ p0(x) p(zeta|x)^alpha$ by edge ratios: weight $p/q (p_zeta/p)^alpha$, guided by beta (Prop. E.1)."""

    how: ClassVar[str] = "moves as guidance does, weighs by the ratios of the two models (edge ratios)"
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

    def keep(self, aux: Aux, stage: Stage) -> Aux:
        """The tilt that the weight holds."""
        return {"log_tilt": stage.total(aux["values"])}


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
        settle(self, alpha=check_alpha(self.alpha))
        check_ramp(self.ramp)
        if self.model.conditional is None or self.model.potential is None:
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
    """No weights: what a score samples by itself. With a `Guided` score, the guidance baselines."""

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
