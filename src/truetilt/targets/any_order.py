"""The any-order clock: every particle reveals the same number of masked sites a step, and no clock time is involved.

Ratios telescope, so there is no time error: with exact conditionals the limit is the target itself, in D steps of one
site. The weight of a site is known before its token is drawn (fully adapted), so particles are resampled first and
drawn after. How many sites a step reveals is what the grid says: `masked_fraction_grid` with D steps reveals one each.
Several at once are drawn as if independent: that factorisation is the only error left, and it has no other name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor

from ..core.batch import evaluate_all
from ..core.logits import draw_from
from ..core.target import Remedies, tempered
from ..core.types import (
    NEG_INF,
    InvalidInput,
    Model,
    Particles,
    Questions,
    Schedule,
    SiteLogits,
    Target,
    Tokens,
    check,
    check_model,
    function,
    listed,
    plain,
    settle,
    shown,
)
from ..diffusion.guidance import check_strength, interpolate, strength
from ..diffusion.processes import Masking
from .base import check_alpha
from .reveal_move import Answers, RevealLaw, RevealMove, posteriors, tilted_rows
from .tilts import FULL, Ramp, check_ramp


class SiteChoice(Protocol):
    """Log-probabilities of revealing each site [..., D], from who is masked and (if asked) their adapted log-masses."""

    def __call__(self, masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor: ...


def uniform_sites(masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor:
    """Any masked site alike; no network is asked."""
    return torch.where(masked, -masked.sum(-1, keepdim=True).double().log(), NEG_INF)


def adapted_sites(masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor:
    """In proportion to its adapted mass, so that the weight does not depend on the site; reads every masked site."""
    return torch.where(masked, log_mass(), NEG_INF).log_softmax(-1)


class Reveal(NamedTuple):
    """What a step t -> s does, the same for every particle."""

    t: float
    masked: int  # sites that are masked before it
    count: int  # sites that it reveals
    before: float  # exponents in force before and after it
    after: float


@dataclass(frozen=True)
class AnyOrder:
    """pi ~ p0(x) p(zeta|x)^alpha, revealing sites chosen at random (`choose`), or in a given `order`.

    `beta` is how tokens are proposed: None for the adapted law p (p_zeta/p)^alpha, a number for posterior guidance.
    `ramp` lets the exponent grow from 1 to alpha with elapsed time; it is in full force from the start by default.
    """

    model: Model
    alpha: float
    beta: float | Schedule | None = None
    order: tuple[int, ...] | None = None
    ramp: Ramp = FULL
    choose: SiteChoice = uniform_sites
    _reveals: dict[tuple[float, float], Reveal] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_model(self.model)
        settle(self, alpha=check_alpha(self.alpha))
        check_ramp(self.ramp)
        if self.beta is not None:
            settle(self, beta=check_strength(self.beta))
        function("choose", self.choose, "(masked, log_mass)", "such as tt.uniform_sites or tt.adapted_sites")
        if not isinstance(self.model.process, Masking):
            raise InvalidInput(
                f"the any-order clock reveals masked sites, and {type(self.model.process).__name__} has no mask; "
                "use Tilted there"
            )
        if self.model.conditional is None:
            raise InvalidInput("AnyOrder needs a conditional score; give the model one")
        self._check_order()
        if self.alpha == 0 and (self.beta not in (None, 0) or self.ramp is not FULL):
            raise InvalidInput(
                "alpha = 0 targets p0 itself, and a guided proposal or an exponent that starts at 1 loses states that "
                "p0 has; leave beta and ramp out"
            )

    @property
    def device(self) -> torch.device | str:
        return self.model.device

    def _check_order(self) -> None:
        if self.order is None:
            return
        need = f"it must be a tuple that names each of the {self.model.length} sites once"
        order = tuple(plain(site) for site in listed("order", self.order, need))
        if any(type(site) is not int for site in order) or sorted(order) != list(range(self.model.length)):
            raise InvalidInput(f"order is {shown(self.order)}; {need}")
        settle(self, order=order)
        if self.choose is not uniform_sites:
            raise InvalidInput("sites come in the given order, so none is left to choose; give `order` or `choose`")

    @property
    def remedies(self) -> Remedies:
        return Remedies("a smaller alpha", "an exponent that grows as tt.pilot says", "moves (tt.Gibbs)")

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, self.alpha, weights="revealed sites", ramp=self.ramp)

    def start(self, shape: tuple[int, ...], t: float) -> RevealMove:
        """Nothing is revealed yet, and nothing is known of zeta."""
        device, process = self.model.device, self.model.process
        x = torch.full((*shape, self.model.length), process.states - 1, device=device)
        sites = torch.zeros((*shape, 0), dtype=torch.int64, device=device)
        none = SiteLogits(torch.zeros(1, process.vocabulary, dtype=torch.float64, device=device), sites)
        zeros = torch.zeros(shape, dtype=torch.float64, device=device)
        return RevealMove(RevealLaw(x, sites, none), zeros, none, none, zeros, None)

    def choices(self, t: float, s: float) -> int:
        """One uniform picks a site; several sites need one each for all."""
        count = self._over(t, s).count
        return 0 if self.order is not None or count == 0 else 1 if count == 1 else self.model.length

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> RevealMove:
        step = self._over(t, s)
        answers = self._answers(particles.x, step)
        sites, log_odds = self._sites(answers, particles, step, u)
        return self._reveal(particles, answers, sites, step, log_odds)

    def _over(self, t: float, s: float) -> Reveal:
        """What the step t -> s does, worked out once."""
        found = self._reveals.get((t, s))
        if found is None:
            process, length = cast("Masking", self.model.process), self.model.length
            masked = process.count_masked(length, t)
            count = masked - process.count_masked(length, s)
            before = 1 + (self.alpha - 1) * self.ramp(1 - t)
            after = 1 + (self.alpha - 1) * self.ramp(1 - s)
            found = self._reveals[t, s] = Reveal(t, masked, count, before, after)
        return found

    def _answers(self, x: Tokens, step: Reveal) -> Answers:
        """What the networks say; a step that reveals nothing asks nobody."""
        if step.count > 0:
            return answer(self.model, x, step.t)
        none = torch.zeros(1, self.model.process.vocabulary, dtype=torch.float64, device=x.device)
        return SiteLogits(none, torch.zeros_like(x)), SiteLogits(none, torch.zeros_like(x))

    def branches(self, particles: Particles, t: float, s: float) -> list[tuple[Tensor, RevealMove]]:
        """Every set of sites a step may reveal, with its probability, for particles [N, D]."""
        step, x = self._over(t, s), particles.x
        answers, none, count = self._answers(x, step), torch.zeros_like(particles.log_w), step.count
        if self.order is not None or count == 0:
            sites, log_odds = self._sites(answers, particles, step, none[..., None])
            return [(none, self._reveal(particles, answers, sites, step, log_odds))]
        masked = x == self.model.process.states - 1
        log_choice = self._log_choice(answers, masked, step, particles.questions) if count == 1 else None
        log_ways = math.log(math.comb(step.masked, count))
        out = []
        for subset in torch.combinations(torch.arange(self.model.length, device=x.device), count):
            log_p = none.masked_fill(~masked[:, subset].all(-1), NEG_INF) - log_ways
            log_chosen = log_p if log_choice is None else log_choice[:, int(subset[0])]
            log_odds = torch.where(log_chosen > NEG_INF, log_p - log_chosen, 0.0)
            sites = subset.expand(len(x), count)
            out.append((log_chosen, self._reveal(particles, answers, sites, step, log_odds)))
        return out

    def exponent(self, t: float) -> float:
        """alpha in force at time t."""
        return 1 + (self.alpha - 1) * self.ramp(1 - t)

    def _reveal(
        self, particles: Particles, answers: Answers, sites: Tensor, step: Reveal, log_odds: Tensor
    ) -> RevealMove:
        """Reveal these sites; `log_odds` is what choosing them counts for (uniform over chosen)."""
        x, log_ratio = particles.x, particles.aux["log_ratio"]
        p, p_zeta = posteriors(self.model, x, step.t, answers, sites, particles.questions)
        adapted, log_mass = tilted_rows(p, p_zeta, step.after)
        log_before = log_mass.sum(-1) + log_odds
        change = step.after - step.before
        if change != 0:
            log_before = log_before + torch.where(log_ratio == NEG_INF, NEG_INF, change * log_ratio)
        if self.beta is None:
            return RevealMove(RevealLaw(x, sites, adapted), log_before, p, p_zeta, log_ratio, None)
        guided = interpolate(p.rows, p_zeta.rows, strength(self.beta, step.t)).log_softmax(-1)
        strayed = torch.where(guided > NEG_INF, adapted.rows - guided, NEG_INF)
        law = RevealLaw(x, sites, p.with_rows(guided))
        return RevealMove(law, log_before, p, p_zeta, log_ratio, p.with_rows(strayed))

    def _sites(self, answers: Answers, particles: Particles, step: Reveal, u: Tensor) -> tuple[Tensor, Tensor]:
        """The sites to reveal now, int64 [..., count], and log of uniform over chosen probability."""
        x, count = particles.x, step.count
        if self.order is not None or count == 0:
            first = self.model.length - step.masked
            now = torch.tensor((self.order or ())[first : first + count], dtype=torch.int64)
            return now.to(x.device, non_blocking=True).expand(*x.shape[:-1], count), _no_odds(x)
        masked = x == self.model.process.states - 1
        if count > 1:
            if self.choose is not uniform_sites:
                raise InvalidInput(
                    f"a step reveals {count} sites at once, which are chosen uniformly; leave `choose` out"
                )
            return torch.where(masked, u, 2.0).topk(count, largest=False).indices, _no_odds(x)
        log_choice = self._log_choice(answers, masked, step, particles.questions)
        cdf = log_choice.exp().cumsum(-1)
        site = draw_from(cdf, u)
        return site, -log_choice.gather(-1, site).squeeze(-1) - math.log(step.masked)

    def _log_choice(self, answers: Answers, masked: Tensor, step: Reveal, questions: Questions | None) -> Tensor:
        def log_mass() -> Tensor:
            p, p_zeta = (self.model.process.posterior(logits, masked, step.t) for logits in answers)
            return tilted_rows(*p.aligned(p_zeta), step.after)[1]

        found = self.choose(masked, log_mass)
        if self.choose is uniform_sites or self.choose is adapted_sites:
            return found
        if not isinstance(found, Tensor) or found.shape != masked.shape or not found.is_floating_point():
            raise InvalidInput(
                f"choose returned {shown(found)}; it must return log-probabilities {tuple(masked.shape)}"
            )
        total = found.masked_fill(~masked, NEG_INF).exp().sum(-1)
        strayed = (found.masked_fill(masked, NEG_INF) > NEG_INF).any() | ~((total - 1).abs() < 1e-6).all()
        problem = InvalidInput("choose returned what is no law of the masked sites; see tt.uniform_sites")
        check(strayed, lambda: problem, questions)
        return found


def answer(model: Model, x: Tokens, t: float) -> Answers:
    """What the base and the conditional network say of x: one round of evaluation."""
    base, conditional = evaluate_all(model, x, t, base=model.base, conditional=model.conditional)
    return base, conditional


def _no_odds(x: Tokens) -> Tensor:
    """Chosen as they should be: log 1 for each state."""
    return torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
