"""The any-order clock: every particle reveals the same number of masked sites a step, and no clock time is involved.

Ratios telescope, so there is no time error: with exact conditionals the limit is the target itself, in D steps of one
site. How many sites a step reveals is what the grid says: `masked_fraction_grid` with D steps reveals one each. Several
at once are drawn as if independent: that factorisation is the only error left. `AnyOrder` is the tempered target by
ratios of two scores, weight p (p_zeta/p)^alpha at each site. The weight of a site is known before its token is drawn
(fully adapted), so particles are resampled first and drawn after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

import torch
from torch import Tensor

from ..core.arguments import function, listed, plain, set_fields, shown
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog, check, evaluate_all
from ..core.logits import SiteLogits, draw_by_row, draw_from, take
from ..core.target import Remedies, Target, tempered
from ..core.types import NEG_INF, Aux, LogWeights, Model, Particles, Schedule, Score, Tokens, check_model
from ..diffusion.grids import masked_fraction_grid
from ..diffusion.guidance import check_strength, interpolate, strength
from ..diffusion.processes import Masking, RevealStep, reveal_step
from .advice import annealing, listed_ways
from .on_clock import FULL, Ramp, advise_pilot, check_ramp
from .potentials import check_alpha, check_conditional, most_log_ratio
from .stage import Answers, SiteLaws, SiteTarget, Stage, minus, nothing_known


class SiteChoice(Protocol):
    """Log-probabilities of revealing each site [..., D], from the mask and (if called) their adapted log-masses."""

    def __call__(self, masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor: ...


def uniform_sites(masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor:
    """Uniform over the masked sites; no network is evaluated.

    Args:
        masked: Whether each site is masked, bool [..., D].
        log_mass: Function without arguments that would return the log of the adapted mass of each site [..., D]; not
            called.
    """
    return torch.where(masked, -masked.sum(-1, keepdim=True).double().log(), NEG_INF)


def adapted_sites(masked: Tensor, log_mass: Callable[[], Tensor]) -> Tensor:
    """In proportion to its adapted mass, so that the weight does not depend on the site; reads every masked site.

    A particle without mass at any site gets weight 0 whichever is revealed: then uniform.

    Args:
        masked: Whether each site is masked, bool [..., D].
        log_mass: Function without arguments that returns the log of the adapted mass of each site [..., D]; calling it
            evaluates the networks at every masked site.
    """
    log_odds = torch.where(masked, log_mass(), NEG_INF)
    stuck = (log_odds == NEG_INF).all(-1, keepdim=True)
    return torch.where(stuck, uniform_sites(masked, log_mass), log_odds.log_softmax(-1))


@dataclass(frozen=True)
class RevealLaw:
    """Tokens for chosen sites [..., k] of x, each from its own row of normalised log-probabilities."""

    x: Tokens
    sites: Tensor
    logits: SiteLogits  # over the chosen sites

    def sample(self, u: Tensor) -> Tokens:
        cdf = self.logits.rows.double().exp().cumsum(-1)
        return self.x.scatter(-1, self.sites, draw_by_row(cdf, self.logits.index, u))

    def log_prob(self, y: Tokens) -> Tensor:
        drawn = y.gather(-1, self.sites)
        kept = (y == self.x.scatter(-1, self.sites, drawn)).all(-1)
        inside = drawn < self.logits.vocabulary
        log_q = torch.where(inside, self.logits.pick(torch.where(inside, drawn, 0)), NEG_INF).sum(-1)
        return torch.where(kept, log_q, NEG_INF)

    def support(self) -> tuple[Tokens, Tensor]:
        """Every way to fill the sites, for flat particles [N, D]: y [N, S^k, D] and its log-probability."""
        n, k = self.sites.shape
        size = self.logits.vocabulary
        fill = torch.cartesian_prod(*[torch.arange(size, device=self.x.device)] * k).reshape(-1, k) if k else None
        if fill is None:
            return self.x[:, None], torch.zeros(n, 1, dtype=torch.float64, device=self.x.device)
        wide = self.sites[:, None].expand(n, len(fill), k)
        y = self.x[:, None].expand(n, len(fill), -1).scatter(-1, wide, fill.expand(n, -1, -1))
        log_q = SiteLogits(self.logits.rows, self.logits.index[:, None]).pick(fill.expand(n, -1, -1)).sum(-1)
        return y, log_q

    def take(self, ancestors: Tensor) -> RevealLaw:
        return RevealLaw(take(self.x, ancestors), take(self.sites, ancestors), self.logits.take(ancestors))


@dataclass(frozen=True)
class RevealMove:
    """Draw tokens for chosen sites of states that have none there.

    The weight before the draw is the mass of the adapted law. After the draw come the ratio of the adapted to the
    proposed law and the values of the next stage that the adapted law did not hold. The memory (aux) follows the draw.
    """

    lazy: ClassVar[bool] = False  # its networks have been asked
    law: RevealLaw
    log_before: LogWeights
    laws: SiteLaws  # of the sites
    aux: Aux  # of the states without the sites: log_p, log_ratios, values
    ends: Stage  # what the weights mean afterwards
    log_held: Tensor | None = None  # [...], what the weight holds of the values of the states without the sites
    lift: Tensor | None = None  # [..., k, S], what values add to the log of each token's probability
    known: Tensor | None = None  # [..., 1, S, M], values with each token, where all have been asked about
    strayed: SiteLogits | None = None  # log of adapted over proposed; None when they are the same
    log: RunLog | None = None  # of the run

    @property
    def uniforms(self) -> int:
        return self.law.sites.shape[-1]

    @property
    def labels(self) -> Tensor:
        return torch.cat([self.law.x, self.law.sites], -1)

    @property
    def log_accept(self) -> LogWeights:
        """As a move: always accepted."""
        return torch.zeros_like(self.log_before)

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        drawn = y.gather(-1, self.law.sites)
        log_w = torch.zeros_like(self.log_before) if self.strayed is None else self.strayed.pick(drawn).sum(-1)
        values = self._values(y, drawn)
        if self.log_held is not None and any(self.ends.factors):
            log_w = log_w + minus(self.ends.total(values), self._held(self.log_held, drawn))
        return log_w, self.laws.grown(self.aux, drawn) | {"values": values}

    def _held(self, log_held: Tensor, drawn: Tensor) -> Tensor:
        """The part of the drawn states' values that the weight before the draw and the law have counted already."""
        if self.lift is None:
            return log_held
        return log_held + self.lift.gather(-1, drawn[..., None]).squeeze(-1).sum(-1)

    def _values(self, y: Tokens, drawn: Tensor) -> Tensor:
        """The values of the states drawn, as far as they count at the end."""
        if self.known is not None:
            index = drawn[..., None, None].expand(*drawn.shape, 1, self.known.shape[-1])
            return self.known.gather(-2, index)[..., 0, 0, :]
        return self.ends.values(y, self.log) if any(self.ends.factors) else self.aux["values"]

    def take(self, ancestors: Tensor) -> RevealMove:
        def own(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else take(tensor, ancestors)

        return RevealMove(
            self.law.take(ancestors),
            take(self.log_before, ancestors),
            self.laws.take(ancestors),
            {key: take(value, ancestors) for key, value in self.aux.items()},
            self.ends,
            own(self.log_held),
            own(self.lift),
            own(self.known),
            None if self.strayed is None else self.strayed.take(ancestors),
            self.log,
        )


def token_lift(
    guide: Stage,
    particles: Particles,
    laws: SiteLaws,
    sites: Tensor,
    fewest: int | None,
    log: RunLog | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """What a stage's values add to the log-probability of each token at masked sites [..., k, S], and those values.

    At least one factor of the stage must differ from 0. The values are computed for the base's `fewest` likeliest
    tokens only (None: all that it can draw); the others add 0. Without sites both results are None.
    """
    if sites.shape[-1] == 0:
        return None, None
    asked = laws.possible()
    if fewest is not None:
        likely = torch.zeros_like(laws.base.rows, dtype=torch.bool)
        likely = likely.scatter(-1, laws.base.rows.topk(fewest, -1).indices, value=True)
        asked &= likely[laws.base.index]
    asked &= (particles.x.gather(-1, sites) >= laws.base.vocabulary)[..., None]
    values = cast("Tensor", guide.token_values(particles.x, sites, asked, log))
    here = guide.total(particles.aux["values"])[..., None, None]
    return torch.where(asked, minus(guide.total(values), here), 0.0), values


def log_strayed(adapted: Tensor, drawn: Tensor) -> Tensor:
    """log of the adapted over the proposed law, where anything is proposed."""
    return torch.where(drawn > NEG_INF, adapted - drawn, NEG_INF)


class RevealClock(SiteTarget):
    """A model on the any-order clock: say which scores it asks and what its stages are; the moves follow.

    Tokens are drawn from their exact law under the next stage (fully adapted): its mass is the weight, known before the
    draw. `guide` is the stage that the draw adapts to where that is not the next one itself: a twist that leads to a
    reward.
    """

    level: ClassVar[bool] = True

    if TYPE_CHECKING:

        @property
        def choose(self) -> SiteChoice: ...

    @property
    def fewest(self) -> int | None:
        """For how many tokens of a site, the base's likeliest, the guide's values are computed; None for all."""
        return None

    def guide(self, ends: Stage) -> Stage:
        """The stage that the draws of a step are adapted to, if the step ends in this stage."""
        return ends

    def lean(self, laws: SiteLaws, t: float) -> SiteLogits | None:
        """A proposal for the tokens, normalised, in place of the adapted law; None for the adapted law."""
        return None

    @property
    def grid(self) -> tuple[float, ...]:
        """The times of a run that reveals one site a step, which is exact; what `tt.run(fk)` takes."""
        return masked_fraction_grid(cast("Masking", self.model.process).schedule, self.model.length)

    def recall(self, particles: Particles, t: float) -> Aux:
        """The memory (aux) of an any-order run; after the last step no weight depends on it, and zeros will do."""
        if "log_ratios" in particles.aux:
            return particles.aux
        if t > 0:
            raise InvalidInput(
                f"a move at t = {t:.6g} on particles that are not those of an any-order run, which need not have "
                "revealed equally many sites; move at_end only"
            )
        return super().recall(particles, t)

    def values(self, particles: Particles, t: float) -> Tensor:
        return particles.aux["values"] if "values" in particles.aux else super().values(particles, t)

    def check_clock(self) -> None:
        """A process with a mask, and sites in an order or chosen, not both."""
        if not isinstance(self.model.process, Masking):
            raise InvalidInput(
                f"the any-order clock reveals masked sites, and {type(self.model.process).__name__} has no mask; "
                "use Tilted or Steered there"
            )
        function("choose", self.choose, "(masked, log_mass)", "such as tt.uniform_sites or tt.adapted_sites")
        if self.order is None:
            return
        need = f"it must be a tuple that names each of the {self.model.length} sites once"
        order = tuple(plain(site) for site in listed("order", self.order, need))
        if any(type(site) is not int for site in order) or sorted(order) != list(range(self.model.length)):
            raise InvalidInput(f"order is {shown(self.order)}; {need}")
        set_fields(self, order=order)
        if self.choose is not uniform_sites:
            raise InvalidInput("sites come in the given order, so none is left to choose; give `order` or `choose`")

    def start(self, shape: tuple[int, ...], t: float) -> RevealMove:
        """All sites are masked; the weight is the potential of that one state."""
        length, stage = self.model.length, self.stage(t)
        x = torch.full((*shape, length), self.model.process.states - 1, device=self.model.device)
        sites = torch.zeros((*shape, 0), dtype=torch.int64, device=x.device)
        none = SiteLogits(torch.zeros(1, self.model.process.vocabulary, dtype=torch.float64, device=x.device), sites)
        aux = nothing_known(x, len(self.scores) - 1)
        if any(stage.factors):
            aux["values"] = stage.values(x.reshape(-1, length)[:1]).expand(aux["values"].shape)
        laws = SiteLaws(none, (none,) * (len(self.scores) - 1))
        return RevealMove(RevealLaw(x, sites, none), stage.total(aux["values"]), laws, aux, stage)

    def choices(self, t: float, s: float) -> int:
        """Uniforms that choose the sites: one for a single site, one for every site of the state for several."""
        count = reveal_step(cast("Masking", self.model.process), self.model.length, t, s).count
        return 0 if self.order is not None or count == 0 else 1 if count == 1 else self.model.length

    def move(self, particles: Particles, t: float, s: float, u: Tensor) -> RevealMove:
        over = reveal_step(cast("Masking", self.model.process), self.model.length, t, s)
        answers = self._answers(particles.x, over)
        sites, log_odds = self._sites(particles, answers, over, u)
        return self.reveal(particles, answers, sites, over, log_odds)

    def branches(self, particles: Particles, t: float, s: float) -> list[tuple[Tensor, RevealMove]]:
        """Every set of sites a step may reveal, with its probability, for particles [N, D]."""
        over, x = reveal_step(cast("Masking", self.model.process), self.model.length, t, s), particles.x
        answers, none = self._answers(x, over), torch.zeros_like(particles.log_w)
        if self.order is not None or over.count == 0:
            sites, log_odds = self._sites(particles, answers, over, none[..., None])
            return [(none, self.reveal(particles, answers, sites, over, log_odds))]
        masked = x == self.model.process.states - 1
        log_choice = self._log_choice(particles, answers, masked, over) if over.count == 1 else None
        log_ways = math.log(math.comb(over.masked, over.count))
        out = []
        for subset in torch.combinations(torch.arange(self.model.length, device=x.device), over.count):
            log_p = none.masked_fill(~masked[:, subset].all(-1), NEG_INF) - log_ways
            log_chosen = log_p if log_choice is None else log_choice[:, int(subset[0])]
            log_odds = torch.where(log_chosen > NEG_INF, log_p - log_chosen, 0.0)
            sites = subset.expand(len(x), over.count)
            out.append((log_chosen, self.reveal(particles, answers, sites, over, log_odds)))
        return out

    def reveal(
        self, particles: Particles, answers: Answers, sites: Tensor, over: RevealStep, log_odds: Tensor
    ) -> RevealMove:
        """The move that reveals these sites; `log_odds` is log (uniform / actual) probability of choosing them."""
        x, aux, ends = particles.x, particles.aux, self.stage(over.s)
        guide = self.guide(ends)
        log_grown = guide.grown(self.stage(over.t), aux, self.log)
        laws = SiteLaws.of(self, over.t, answers, sites, self.log)
        lift, values = None, None
        if any(guide.factors):
            lift, values = token_lift(guide, particles, laws, sites, self.fewest, self.log)
        adapted, log_mass = laws.tilted(guide, lift, self.log)
        leaning = self.lean(laws, over.t)
        log_before = log_mass.sum(-1) + log_odds + log_grown
        law = RevealLaw(x, sites, adapted if leaning is None else leaning)
        strayed = None if leaning is None else adapted.join(leaning, log_strayed)
        whole = values is not None and sites.shape[-1] == 1 and self.fewest is None
        known = values if whole and guide.potentials[0] is ends.potentials[0] else None
        held = guide.total(aux["values"]) if any(guide.factors) or any(ends.factors) else None
        return RevealMove(law, log_before, laws, aux, ends, held, lift, known, strayed, self.log)

    def log_masses(self, particles: Particles, answers: Answers, over: RevealStep) -> Tensor:
        """The adapted log-mass of every site [..., D]; that of a revealed one means nothing."""
        x, guide = particles.x, self.guide(self.stage(over.s))
        every = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
        laws = SiteLaws.of(self, over.t, answers, every, self.log)
        lift = token_lift(guide, particles, laws, every, self.fewest, self.log)[0] if any(guide.factors) else None
        return laws.tilted(guide, lift, self.log)[1]

    def _answers(self, x: Tokens, over: RevealStep) -> Answers:
        """The answers of the scores; no network is evaluated for a step that reveals nothing."""
        if over.count > 0:
            return tuple(evaluate_all(self.model, x, over.t, **self.scores))
        none = torch.zeros(1, self.model.process.vocabulary, dtype=torch.float64, device=x.device)
        return tuple(SiteLogits(none, torch.zeros_like(x)) for _ in self.scores)

    def _sites(self, particles: Particles, answers: Answers, over: RevealStep, u: Tensor) -> tuple[Tensor, Tensor]:
        """The sites to reveal now, int64 [..., count], and log (uniform / actual) probability of choosing them."""
        x = particles.x
        none = torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
        if self.order is not None or over.count == 0:
            first = self.model.length - over.masked
            now = torch.tensor((self.order or ())[first : first + over.count], dtype=torch.int64)
            return now.to(x.device, non_blocking=True).expand(*x.shape[:-1], over.count), none
        masked = x == self.model.process.states - 1
        if over.count > 1:
            if self.choose is not uniform_sites:
                raise InvalidInput(
                    f"a step reveals {over.count} sites at once, which are chosen uniformly; leave `choose` out"
                )
            return torch.where(masked, u, 2.0).topk(over.count, largest=False).indices, none
        log_choice = self._log_choice(particles, answers, masked, over)
        site = draw_from(log_choice.exp().cumsum(-1), u)
        return site, -log_choice.gather(-1, site).squeeze(-1) - math.log(over.masked)

    def _log_choice(self, particles: Particles, answers: Answers, masked: Tensor, over: RevealStep) -> Tensor:
        found = self.choose(masked, partial(self.log_masses, particles, answers, over))
        if self.choose is uniform_sites or self.choose is adapted_sites:
            return found
        if not isinstance(found, Tensor) or found.shape != masked.shape or not found.is_floating_point():
            raise InvalidInput(
                f"choose returned {shown(found)}; it must return log-probabilities {tuple(masked.shape)}"
            )
        total = found.masked_fill(~masked, NEG_INF).exp().sum(-1)
        strayed = (found.masked_fill(masked, NEG_INF) > NEG_INF).any() | ~((total - 1).abs() < 1e-6).all()
        problem = "choose returned what is no law of the masked sites; see tt.uniform_sites"
        check(strayed, partial(InvalidInput, problem), self.log)
        return found


@dataclass(frozen=True)
class AnyOrder(RevealClock):
    """$pi ~ p0(x) p(zeta|x)^alpha$, revealed site by site, in random order or a given one: no time error.

    Args:
        model: A `tt.Model` on `tt.Masking` with a base and a conditional score.
        alpha: Exponent of the condition, 0 to 1e9; 0 is the base model itself, 1 the conditional one.
        beta: Strength of the guided proposal (posterior guidance), 0 to 1e9, a number or a function of time. None (the
            default) proposes from the adapted law $p (p_zeta/p)^alpha$, whose weight is known before the draw.
        order: The order in which sites are revealed, a permutation of 0 .. D - 1. None (the default): chosen by
            `choose`.
        ramp: How the exponent grows from 1 to alpha with elapsed time, a function from [0, 1] that ends at 1. By
            default it is in full force from the start.
        choose: Which site comes next, `tt.uniform_sites` (the default) or `tt.adapted_sites`.
    """

    how: ClassVar[str] = "reveals sites in any order, weighs before it draws"
    model: Model
    alpha: float
    beta: float | Schedule | None = None
    order: tuple[int, ...] | None = None
    ramp: Ramp = FULL
    choose: SiteChoice = uniform_sites

    def __post_init__(self) -> None:
        check_model(self.model)
        set_fields(self, alpha=check_alpha(self.alpha))
        check_ramp(self.ramp)
        if self.beta is not None:
            set_fields(self, beta=check_strength(self.beta))
        self.check_clock()
        check_conditional("AnyOrder", self.model)
        if self.alpha == 0 and (self.beta not in (None, 0) or self.ramp is not FULL):
            raise InvalidInput(
                "alpha = 0 targets p0 itself, and a guided proposal or an exponent that starts at 1 loses states that "
                "p0 has; leave beta and ramp out"
            )

    @property
    def scores(self) -> Mapping[str, Score | None]:
        return {"base": self.model.base, "conditional": self.model.conditional}

    @property
    def most_log_weight(self) -> float | None:
        return most_log_ratio(self.alpha, self.model.log_p_condition)

    @property
    def remedies(self) -> Remedies:
        goal = f"tt.Composed(model, conditions=[(model.conditional, {self.alpha:g})])"
        weigh = listed_ways(advise_pilot(self.ramp, "ramp=tt.pilot(fk, fk.grid)"), annealing(goal, self.model.length))
        return Remedies("a smaller alpha", weigh, "moves (tt.Gibbs)", steps="")

    @property
    def target(self) -> Target:
        return tempered(self.model, self.alpha, self.alpha, weights="revealed sites", ramp=self.ramp)

    def exponent(self, t: float) -> float:
        """alpha in force at time t."""
        share = 1.0 if self.ramp is FULL else self.ramp(1 - t)
        return 1 + (self.alpha - 1) * share

    def stage(self, t: float) -> Stage:
        return Stage(t, conditions=(self.exponent(t),))

    def lean(self, laws: SiteLaws, t: float) -> SiteLogits | None:
        """The law of posterior guidance, where a strength is given."""
        if self.beta is None:
            return None
        beta, (conditional,) = strength(self.beta, t), laws.conditions
        return laws.base.with_rows(interpolate(laws.base.rows, conditional.rows, beta).log_softmax(-1))
