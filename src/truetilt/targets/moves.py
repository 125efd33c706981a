"""Moves that bring diversity back: Markov kernels that leave the current intermediate target invariant.

With U the revealed sites, the law of one site's tokens under a stage, given the other revealed sites, is exactly the
Gibbs conditional: remask the site, redraw it, and no weight changes. Where that law is dear (a reward is called for
every token), a surrogate proposes and the target accepts by Metropolis. All are exact for mutually consistent
conditionals; two learned nets are only nearly so. After the last step they serve any model of the same target, and
unweighted guidance too. Under hard constraints single-site moves may not reach every state, and a state of target mass
zero stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor

from ..core.types import (
    NEG_INF,
    Aux,
    InvalidInput,
    LogWeights,
    Particles,
    Potential,
    Questions,
    Redraw,
    Target,
    Tokens,
    check,
    function,
    shown,
    take,
)
from ..diffusion.processes import Masking
from .reveal_move import RevealLaw, RevealMove, grown_by
from .stage import SiteLaws, SiteTarget, Stage, less, tilted_law

Draw = Callable[[RevealLaw], Tokens]  # the state with a token at the site of a law
Scan = Callable[
    [Tensor, int, Tensor], Tensor
]  # (revealed [..., D], moves before this one, u [..., 1]) -> site [..., 1]


def random_scan(revealed: Tensor, number: int, u: Tensor) -> Tensor:
    """A revealed site chosen uniformly."""
    count = revealed.sum(-1, keepdim=True)
    return _kth(revealed, (u * count).long().clamp(max=(count - 1).clamp(min=0)))


def systematic_scan(revealed: Tensor, number: int, u: Tensor) -> Tensor:
    """Revealed sites one after the other, from the first to the last and again."""
    return _kth(revealed, number % revealed.sum(-1, keepdim=True).clamp(min=1))


def backward_scan(revealed: Tensor, number: int, u: Tensor) -> Tensor:
    """Revealed sites from the last to the first and again: the newest first, where sites come from left to right."""
    count = revealed.sum(-1, keepdim=True).clamp(min=1)
    return _kth(revealed, count - 1 - number % count)


def _kth(revealed: Tensor, k: Tensor) -> Tensor:
    """The site of the k-th revealed one [..., 1]."""
    return (revealed.cumsum(-1) > k).long().argmax(-1, keepdim=True)


@dataclass(frozen=True)
class Gibbs:
    """Remask one revealed site and redraw it from its exact law under the target: always accepted.

    One round of evaluations; with a reward, a call for every token that the base can draw there.
    """

    redraws: ClassVar[bool] = True  # sites from the model's conditionals
    fk: SiteTarget
    scan: Scan = random_scan

    def __post_init__(self) -> None:
        check_kind(self)
        check_scan(self.scan)
        check_still(self, self.fk, keeps=True)

    @property
    def target(self) -> Target | None:
        return target_of(self.fk)

    @property
    def choices(self) -> int:
        return 1 if self.fk.level else 2

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> Redraw:
        seen = movable(self.fk, particles, t)
        site = scanned(self.scan, seen, number, u[..., :1], particles.questions)
        return self.at(particles, t, site, None if self.fk.level else lambda law: law.sample(u[..., 1:]))

    def branches(self, particles: Particles, t: float, number: int) -> list[tuple[Tensor, Redraw]]:
        """Every site and, where it is drawn before, every token, with the probability of each."""
        sites = sites_of(self.scan, movable(self.fk, particles, t), number)
        if self.fk.level:
            return [(log_p, self.at(particles, t, site)) for log_p, site in sites]
        return [branch for log_p, site in sites for branch in every_token(self, particles, t, site, log_p)]

    def at(self, particles: Particles, t: float, site: Tensor, draw: Draw | None = None) -> Redraw:
        """The move that redraws this revealed site [..., 1]; in clock time a masked one is left alone."""
        fk, stage = self.fk, self.fk.stage(t)
        hidden, old = hide(fk, particles.x, site), particles.x.gather(-1, site)
        laws = fk.site_laws(hidden, fk.asked_at(t, 1), site, particles.questions)
        mine = fk.values(particles, t)
        lift, values = lift_of(stage, hidden, site, laws, (old, mine))
        law = RevealLaw(hidden, site, tilted_law(laws.mixed(stage), lift, laws.base)[0])
        aux = without(fk.recall(particles, t), laws, old)
        none, asked = torch.zeros_like(particles.log_w), particles.questions
        move = RevealMove(law, none, laws, aux, stage, known=values, questions=asked)
        if draw is None:
            return move
        seen, drawn = revealed(fk, particles.x).gather(-1, site), draw(law)
        can = seen.squeeze(-1) & (stage.total(mine) > NEG_INF)
        log_accept = torch.where(can, 0.0, NEG_INF).double()
        y, after = torch.where(seen, drawn, particles.x), move.after(drawn)[1]
        after["values"] = torch.where(seen, after["values"], mine)
        return accepting(fk, particles, t, (y, after), log_accept, mine)


@dataclass(frozen=True)
class Metropolis:
    """Remask a revealed site, propose its token from the base's law tilted by a surrogate, let the target accept.

    One round of evaluations and one call of the reward. Without a surrogate the networks alone propose.
    """

    redraws: ClassVar[bool] = True  # sites from the model's conditionals
    fk: SiteTarget
    scan: Scan = random_scan
    surrogate: Potential | None = None

    def __post_init__(self) -> None:
        check_kind(self)
        check_scan(self.scan)
        check_still(self, self.fk, keeps=True)
        if self.surrogate is not None:
            function("the surrogate", self.surrogate, "(x, t)")

    @property
    def target(self) -> Target | None:
        return target_of(self.fk)

    @property
    def choices(self) -> int:
        return 2

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> AcceptMove:
        seen = movable(self.fk, particles, t)
        site = scanned(self.scan, seen, number, u[..., :1], particles.questions)
        return self.at(particles, t, site, lambda law: law.sample(u[..., 1:]))

    def branches(self, particles: Particles, t: float, number: int) -> list[tuple[Tensor, Redraw]]:
        """Every site and every token it may propose, with the probability of each."""
        sites = sites_of(self.scan, movable(self.fk, particles, t), number)
        return [branch for log_p, site in sites for branch in every_token(self, particles, t, site, log_p)]

    def at(self, particles: Particles, t: float, site: Tensor, draw: Draw) -> AcceptMove:
        """Propose this site [..., 1]; a masked one is left alone."""
        fk, x, stage = self.fk, particles.x, self.fk.stage(t)
        hidden, old = hide(fk, x, site), x.gather(-1, site)
        seen = revealed(fk, x).gather(-1, site).squeeze(-1)
        laws = fk.site_laws(hidden, fk.asked_at(t, 1), site, particles.questions)
        lift, _ = lift_of(with_surrogate(stage, self.surrogate), hidden, site, laws)
        law = RevealLaw(hidden, site, tilted_law(laws.mixed(stage), lift, laws.base)[0])
        drawn = draw(law)
        y = torch.where(seen[..., None], drawn, x)
        mine, new = fk.values(particles, t), stage.values(y, particles.questions)
        log_x, log_y = stage.total(mine), stage.total(new)
        if lift is not None:
            token = torch.where(seen[..., None], old, 0)
            log_x, log_y = log_x - picked(lift, token), less(log_y, picked(lift, drawn.gather(-1, site)))
        can = seen & (log_x > NEG_INF)
        log_accept = torch.where(can, log_y - torch.where(can, log_x, 0.0), NEG_INF).clamp(max=0.0)
        aux = without(fk.recall(particles, t), laws, old)
        after = grown_by(aux, laws.parts(drawn.gather(-1, site))) | {"values": new}
        return accepting(fk, particles, t, (y, after), log_accept, mine)


def lift_of(
    stage: Stage, x: Tokens, site: Tensor, laws: SiteLaws, present: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor | None, Tensor | None]:
    """What a stage's values add to the log of each token at a site [..., 1, S], and the values.

    A token that is `present` there with known values [..., M] is not asked about again: no call is wasted, and a noisy
    reward keeps the number that the state was weighed by.
    """
    asked = laws.possible()
    if present is not None:
        there = torch.arange(asked.shape[-1], device=x.device) == present[0][..., None]
        asked &= ~there
    values = stage.token_values(x, site, asked)
    if values is None:
        return None, None
    if present is not None:
        values = torch.where(there[..., None], present[1][..., None, None, :], values)
    return stage.total(values), values


def with_surrogate(stage: Stage, surrogate: Potential | None) -> Stage:
    """The same stage with the reward, the last of its values, replaced; without a surrogate it counts for nothing."""
    factors = stage.factors if surrogate is not None else (*stage.factors[:-1], 0.0)
    return stage._replace(potentials=(*stage.potentials[:-1], surrogate), factors=factors)


def picked(lift: Tensor, token: Tensor) -> Tensor:
    """The lift [..., k, S] of tokens [..., k], summed over the sites."""
    return lift.gather(-1, token[..., None]).squeeze(-1).sum(-1)


def without(aux: Aux, laws: SiteLaws, old: Tensor) -> Aux:
    """What is remembered of states whose tokens `old` at these sites are taken away; their values are not known."""
    old = torch.where(old < laws.base.vocabulary, old, 0)  # masked ones: they are left alone
    (log_p, log_ratios), known = laws.parts(old), aux["log_ratios"]
    ratios = torch.where(known == NEG_INF, NEG_INF, known - log_ratios)
    return {"log_p": aux["log_p"] - log_p, "log_ratios": ratios, "values": torch.zeros_like(aux["values"])}


def accepting(
    fk: SiteTarget, particles: Particles, t: float, proposed: tuple[Tokens, Aux], log_accept: Tensor, values: Tensor
) -> AcceptMove:
    """Go to the proposed states or stay, with what the model remembers of each; `values` are those of the particles."""
    (y, after), stage = proposed, fk.stage(t)
    before = fk.recall(particles, t) | {"values": values}
    return AcceptMove(particles.x, y, log_accept, fk.keep(before, stage), fk.keep(after, stage))


@dataclass(frozen=True)
class AcceptLaw:
    """Go from x to y with probability exp(log_accept), else stay."""

    x: Tokens
    y: Tokens
    log_accept: Tensor

    def sample(self, u: Tensor) -> Tokens:
        return torch.where(u < self.log_accept.exp()[..., None], self.y, self.x)

    def log_prob(self, y: Tokens) -> Tensor:
        go = torch.where((y == self.y).all(-1), self.log_accept, NEG_INF)
        stay = torch.where((y == self.x).all(-1), torch.log1p(-self.log_accept.exp()), NEG_INF)
        return torch.logaddexp(go, stay)

    def support(self) -> tuple[Tokens, Tensor]:
        """x and y, for flat particles [N, D]: both [N, 2, D] and their log-probabilities; of x = y their sum counts."""
        return torch.stack([self.x, self.y], 1), torch.stack([torch.log1p(-self.log_accept.exp()), self.log_accept], 1)

    def take(self, ancestors: Tensor) -> AcceptLaw:
        return AcceptLaw(take(self.x, ancestors), take(self.y, ancestors), take(self.log_accept, ancestors))


@dataclass(frozen=True)
class AcceptMove:
    """A Metropolis move: no weight, and the memory of whichever state it ends in."""

    lazy: ClassVar[bool] = False  # its networks have been asked
    x: Tokens
    y: Tokens
    log_accept: Tensor
    aux_x: Aux
    aux_y: Aux

    @property
    def uniforms(self) -> int:
        return 1

    @property
    def log_before(self) -> LogWeights:
        return torch.zeros_like(self.log_accept)

    @property
    def labels(self) -> Tensor:
        return torch.cat([self.x, self.y], -1)

    @property
    def law(self) -> AcceptLaw:
        return AcceptLaw(self.x, self.y, self.log_accept)

    def after(self, y: Tokens) -> tuple[LogWeights, Aux]:
        there = (y != self.x).any(-1)  # who proposed the state that it has keeps what it knows of it
        both = {key: (value, self.aux_x[key]) for key, value in self.aux_y.items()}
        aux = {
            key: torch.where(there[(...,) + (None,) * (a.dim() - there.dim())], a, b) for key, (a, b) in both.items()
        }
        return torch.zeros_like(self.log_accept), aux

    def take(self, ancestors: Tensor) -> AcceptMove:
        def pick(aux: Aux) -> Aux:
            return {key: take(value, ancestors) for key, value in aux.items()}

        law = self.law.take(ancestors)
        return AcceptMove(law.x, law.y, law.log_accept, pick(self.aux_x), pick(self.aux_y))


def check_kind(kernel: object) -> None:
    """A move is made from a model whose target is known site by site."""
    fk = getattr(kernel, "fk", None)
    if not isinstance(fk, SiteTarget):
        raise InvalidInput(
            f"{type(kernel).__name__} is made from a model whose target is known site by site, such as "
            f"tt.AnyOrder(model, alpha), tt.Tilted, tt.Steered, tt.Composed or tt.Annealed, not {type(fk).__name__}"
        )
    if not isinstance(fk.model.process, Masking):
        raise InvalidInput("this move remasks a site, and the process has no mask; run without moves there")


def check_still(kernel: object, fk: SiteTarget, keeps: bool) -> None:
    """A noisy reward is compared by the number that a particle was weighed by: whoever asks it again is refused."""
    if not (keeps and fk.level) and any(getattr(h, "noisy", False) for h in fk.stage(0.0).potentials):
        raise InvalidInput(
            f"{type(kernel).__name__} of a {type(fk).__name__} asks a noisy reward again about a state that its number "
            "has weighed, which samples neither law; use tt.Metropolis, tt.Block or tt.WholeSequence of a tt.Composed "
            "or tt.Annealed, which keep that number"
        )


def target_of(fk: SiteTarget) -> Target | None:
    """The target of the model a move is made from."""
    return cast("Any", fk).target


def check_scan(scan: object) -> None:
    """What names the site to redraw."""
    function("scan", scan, "(revealed, number, u)", "such as tt.random_scan or tt.systematic_scan")


def scanned(scan: Scan, seen: Tensor, number: int, u: Tensor, questions: Questions | None = None) -> Tensor:
    """The site that a scan names, one for each state."""
    site = scan(seen, number, u)
    if not isinstance(site, Tensor) or site.dtype != torch.int64 or site.shape != u.shape:
        raise InvalidInput(f"the scan returned {shown(site)}; it must return one site a state, int64 {tuple(u.shape)}")
    check(
        ((site < 0) | (site >= seen.shape[-1])).any(),
        lambda: InvalidInput(f"the scan named a site outside 0 to {seen.shape[-1] - 1}"),
        questions,
    )
    return site


def sites_of(scan: Scan, seen: Tensor, number: int) -> list[tuple[Tensor, Tensor]]:
    """Every site that a scan may name with its log-probability, for exact answers on few sites.

    A scan reads its uniform as random_scan does, in equal parts for the revealed sites, or not at all.
    """
    ways = math.lcm(*range(1, seen.shape[-1] + 1))
    none = torch.zeros(seen.shape[:-1], dtype=torch.float64, device=seen.device)
    found = [scanned(scan, seen, number, (none + (k + 0.5) / ways)[..., None]) for k in range(ways)]
    if all(torch.equal(site, found[0]) for site in found):
        return [(none, found[0])]
    return [(none - math.log(ways), site) for site in found]


class SiteKernel(Protocol):
    """A move kernel that can be told which site to redraw, and how to draw."""

    @property
    def fk(self) -> SiteTarget: ...
    def at(self, particles: Particles, t: float, site: Tensor, draw: Draw) -> Redraw: ...


def every_token(
    kernel: SiteKernel, particles: Particles, t: float, site: Tensor, log_p: Tensor
) -> list[tuple[Tensor, Redraw]]:
    """The moves of a kernel at a site, one for each token it may propose there, with its log-probability."""
    out: list[tuple[Tensor, Redraw]] = []
    for token in range(kernel.fk.model.process.vocabulary):
        chance: list[Tensor] = []

        def draw(law: RevealLaw, token: int = token, chance: list[Tensor] = chance) -> Tokens:
            y = law.x.scatter(-1, law.sites, token)
            chance[:] = [law.log_prob(y)]
            return y

        move = kernel.at(particles, t, site, draw)
        out.append((log_p + chance[0], move))
    return out


def revealed(fk: SiteTarget, x: Tokens) -> Tensor:
    """Which sites hold a token [..., D]."""
    return x != cast("Masking", fk.model.process).mask


def movable(fk: SiteTarget, particles: Particles, t: float) -> Tensor:
    """Which sites a move may redraw; an any-order run has revealed equally many for all, at least one."""
    if fk.level:
        fk.recall(particles, t)
        check_revealed(fk, t)
    return revealed(fk, particles.x)


def hide(fk: SiteTarget, x: Tokens, sites: Tensor) -> Tokens:
    """x with these sites masked."""
    return x.scatter(-1, sites, cast("Masking", fk.model.process).mask)


def check_revealed(fk: SiteTarget, t: float) -> int:
    """How many sites are revealed at t, the same for all particles of an any-order run; at least one."""
    there = fk.model.length - fk.masked(t)
    if there < 1:
        raise InvalidInput(f"a move that redraws a site at t = {t:.6g}, where none is revealed; move later")
    return there
