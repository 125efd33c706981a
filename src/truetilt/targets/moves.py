"""Moves that bring diversity back: Markov kernels that leave the current intermediate target invariant.

With U the revealed sites, the law of one site's tokens under a stage, given the other revealed sites, is exactly the
Gibbs conditional: remask the site, redraw it, and no weight changes. Where that law is expensive (a reward is called
for every token), a surrogate proposes and the target accepts by Metropolis. All are exact for conditionals of one joint
law; those of two learned networks are so only approximately. After the last step the moves fit any model of the same
target, unweighted guidance included. Under hard constraints single-site moves may not reach every state, and a state of
target mass zero stays as it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from ..core.arguments import function
from ..core.bases import MoveKernel, made_from
from ..core.errors import InvalidInput
from ..core.evaluation import RunLog
from ..core.target import Target
from ..core.types import NEG_INF, Aux, Particles, Potential, Redraw, Tokens
from ..diffusion.processes import Masking
from .accept_move import AcceptMove
from .any_order import RevealLaw, RevealMove
from .scans import Scan, check_scan, random_scan, scanned, sites_of, systematic_scan
from .stage import SiteLaws, SiteTarget, Stage, minus

Draw = Callable[[RevealLaw], Tokens]  # the state with a token at the site of a law


class SiteKernel(MoveKernel):
    """A move kernel that redraws one site: a scan says which, and `at` redraws it with whatever draws the token."""

    if TYPE_CHECKING:

        @property
        def fk(self) -> SiteTarget: ...
        @property
        def scan(self) -> Scan: ...

    @property
    def choices(self) -> int:
        return 2

    @abstractmethod
    def at(self, particles: Particles, t: float, site: Tensor, draw: Draw) -> Redraw:
        """The move at this site [..., 1]; `draw` returns the state with a token there, of the law of that site."""

    def movable(self, particles: Particles, t: float) -> Tensor:
        """Which sites it may redraw. In an any-order run all particles have equally many, at least one."""
        if self.fk.level:
            self.fk.recall(particles, t)
            check_revealed(self.fk, t)
        return revealed(self.fk, particles.x)

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> Redraw:
        site = scanned(self.scan, self.movable(particles, t), number, u[..., :1], self.fk.log)
        return self.at(particles, t, site, partial(RevealLaw.sample, u=u[..., 1:]))

    def branches(self, particles: Particles, t: float, number: int) -> list[tuple[Tensor, Redraw]]:
        """Every site and every token it may propose, with the probability of each."""
        sites = sites_of(self.scan, self.movable(particles, t), number)
        return [branch for log_p, site in sites for branch in self._every_token(particles, t, site, log_p)]

    def _every_token(self, particles: Particles, t: float, site: Tensor, log_p: Tensor) -> list[tuple[Tensor, Redraw]]:
        """The moves at a site, one for each token that may be proposed there, with its log-probability."""
        out: list[tuple[Tensor, Redraw]] = []
        for token in range(self.fk.model.process.vocabulary):
            chance: list[Tensor] = []

            def draw(law: RevealLaw, token: int = token, chance: list[Tensor] = chance) -> Tokens:
                y = law.x.scatter(-1, law.sites, token)
                chance[:] = [law.log_prob(y)]
                return y

            move = self.at(particles, t, site, draw)
            out.append((log_p + chance[0], move))
        return out


@dataclass(frozen=True)
class Gibbs(SiteKernel):
    """Remask one revealed site and redraw it from its exact law under the target: always accepted.

    One round of evaluations; with a reward, a call for every other token that the base can draw there.

    Args:
        fk: The value whose target the move leaves unchanged, the one that is run: `tt.AnyOrder`, `tt.Composed`,
            `tt.Tilted`, ...
        scan: Which revealed site is redrawn: `tt.random_scan` (the default), `tt.systematic_scan` or
            `tt.backward_scan`.
    """

    redraws: ClassVar[bool] = True  # sites from the model's conditionals
    fk: SiteTarget
    scan: Scan = random_scan

    def __post_init__(self) -> None:
        check_kind(self)
        check_scan(self.scan)
        check_noisy_reward(self, self.fk, remembers_values=True)

    @property
    def choices(self) -> int:
        return 1 if self.fk.level else 2

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> Redraw:
        if not self.fk.level:
            return super().move(particles, t, number, u)
        return self.at(particles, t, scanned(self.scan, self.movable(particles, t), number, u, self.fk.log))

    def branches(self, particles: Particles, t: float, number: int) -> list[tuple[Tensor, Redraw]]:
        """Every site, and every token if it is a choice made before the weight, with the probability of each."""
        if not self.fk.level:
            return super().branches(particles, t, number)
        sites = sites_of(self.scan, self.movable(particles, t), number)
        return [(log_p, self.at(particles, t, site)) for log_p, site in sites]

    def at(self, particles: Particles, t: float, site: Tensor, draw: Draw | None = None) -> Redraw:
        """The move that redraws this revealed site [..., 1]; in clock time, where a site may be masked, a masked one
        stays.
        """
        fk, stage, log = self.fk, self.fk.stage(t), self.fk.log
        hidden, old = hide(fk, particles.x, site), particles.x.gather(-1, site)
        laws = fk.site_laws(hidden, fk.asked_at(t, 1), site, log)
        mine = fk.values(particles, t)
        lift, values = lift_of(stage, hidden, site, laws, Present(old, mine), log)
        law = RevealLaw(hidden, site, laws.tilted(stage, lift, log)[0])
        aux, none = without(fk.recall(particles, t), laws, old), torch.zeros_like(particles.log_w)
        move = RevealMove(law, none, laws, aux, stage, known=values, log=log)
        if draw is None:
            return move
        seen, drawn = revealed(fk, particles.x).gather(-1, site), draw(law)
        can = seen.squeeze(-1) & (stage.total(mine) > NEG_INF)
        log_accept = torch.where(can, 0.0, NEG_INF).double()
        y, after = torch.where(seen, drawn, particles.x), move.after(drawn)[1]
        after["values"] = torch.where(seen, after["values"], mine)
        return accepting(fk, particles, t, Proposed(y, after, log_accept), mine)


scan_gibbs = partial(Gibbs, scan=systematic_scan)


@dataclass(frozen=True)
class Metropolis(SiteKernel):
    """Remask a revealed site, propose its token from the base's law tilted by a surrogate, let the target accept.

    One round of evaluations and one call of the reward. Without a surrogate the networks alone propose.

    Args:
        fk: The value whose target the move leaves unchanged, the one that is run: `tt.AnyOrder`, `tt.Composed`,
            `tt.Tilted`, ...
        scan: Which revealed site is redrawn: `tt.random_scan` (the default), `tt.systematic_scan` or
            `tt.backward_scan`.
        surrogate: Function (x, t) that stands in for the reward when a token is proposed, such as a learned twist. None
            (the default): the networks alone propose.
    """

    redraws: ClassVar[bool] = True  # sites from the model's conditionals
    fk: SiteTarget
    scan: Scan = random_scan
    surrogate: Potential | None = None

    def __post_init__(self) -> None:
        check_kind(self)
        check_scan(self.scan)
        check_noisy_reward(self, self.fk, remembers_values=True)
        if self.surrogate is not None:
            function("the surrogate", self.surrogate, "(x, t)")

    def at(self, particles: Particles, t: float, site: Tensor, draw: Draw) -> AcceptMove:
        """Propose a token at this site [..., 1]; a masked site stays."""
        fk, x, stage, log = self.fk, particles.x, self.fk.stage(t), self.fk.log
        hidden, old = hide(fk, x, site), x.gather(-1, site)
        seen = revealed(fk, x).gather(-1, site).squeeze(-1)
        laws = fk.site_laws(hidden, fk.asked_at(t, 1), site, log)
        lift, _ = lift_of(with_surrogate(stage, self.surrogate), hidden, site, laws, log=log)
        law = RevealLaw(hidden, site, laws.tilted(stage, lift, log)[0])
        drawn = draw(law)
        y = torch.where(seen[..., None], drawn, x)
        mine, new = fk.values(particles, t), stage.values(y, log)
        log_x, log_y = stage.total(mine), stage.total(new)
        if lift is not None:
            token = torch.where(seen[..., None], old, 0)
            log_x, log_y = log_x - picked(lift, token), minus(log_y, picked(lift, drawn.gather(-1, site)))
        can = seen & (log_x > NEG_INF)
        log_accept = torch.where(can, log_y - torch.where(can, log_x, 0.0), NEG_INF).clamp(max=0.0)
        aux = without(fk.recall(particles, t), laws, old)
        after = laws.grown(aux, drawn.gather(-1, site)) | {"values": new}
        return accepting(fk, particles, t, Proposed(y, after, log_accept), mine)


class Present(NamedTuple):
    """The token at the site of each state [..., 1], and the values of those states [..., M]."""

    token: Tensor
    values: Tensor


def lift_of(
    stage: Stage,
    x: Tokens,
    site: Tensor,
    laws: SiteLaws,
    present: Present | None = None,
    log: RunLog | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """What a stage's values add to the log of each token at a site [..., 1, S], and the values.

    The values [..., M] of the token that is `present` there are known and not evaluated again: that saves calls, and a
    noisy reward keeps the number that the state was weighed by.
    """
    asked = laws.possible()
    if present is not None:
        there = torch.arange(asked.shape[-1], device=x.device) == present.token[..., None]
        asked &= ~there
    values = stage.token_values(x, site, asked, log)
    if values is None:
        return None, None
    if present is not None:
        values = torch.where(there[..., None], present.values[..., None, None, :], values)
    return stage.total(values), values


def with_surrogate(stage: Stage, surrogate: Potential | None) -> Stage:
    """The same stage with the surrogate in place of the reward, the last of its values; without a surrogate its factor
    is 0.
    """
    factors = stage.factors if surrogate is not None else (*stage.factors[:-1], 0.0)
    return stage._replace(potentials=(*stage.potentials[:-1], surrogate), factors=factors)


def picked(lift: Tensor, token: Tensor) -> Tensor:
    """The lift [..., k, S] of tokens [..., k], summed over the sites."""
    return lift.gather(-1, token[..., None]).squeeze(-1).sum(-1)


def without(aux: Aux, laws: SiteLaws, old: Tensor) -> Aux:
    """The memory (aux) of states after their tokens `old` at these sites are removed; their values are set to 0."""
    old = torch.where(old < laws.base.vocabulary, old, 0)  # masked ones: they are left alone
    (log_p, log_ratios), known = laws.parts(old), aux["log_ratios"]
    ratios = torch.where(known == NEG_INF, NEG_INF, known - log_ratios)
    return {"log_p": aux["log_p"] - log_p, "log_ratios": ratios, "values": torch.zeros_like(aux["values"])}


class Proposed(NamedTuple):
    """The proposals of a Metropolis move: states, their memory (aux), and the log of the acceptance probability."""

    x: Tokens
    aux: Aux
    log_accept: Tensor


def accepting(fk: SiteTarget, particles: Particles, t: float, proposed: Proposed, values: Tensor) -> AcceptMove:
    """Go to the proposed states or stay; `values` are those of the particles where they are."""
    stage, before = fk.stage(t), fk.recall(particles, t) | {"values": values}
    return AcceptMove(
        particles.x, proposed.x, proposed.log_accept, fk.keep(before, stage), fk.keep(proposed.aux, stage)
    )


def check_kind(kernel: MoveKernel) -> None:
    """Raise unless the move is made from a value whose target has conditionals site by site."""
    fk = made_from(kernel)
    if not isinstance(fk, SiteTarget):
        raise InvalidInput(
            f"{type(kernel).__name__} is made from a model whose target is known site by site, such as "
            f"tt.AnyOrder(model, alpha), tt.Tilted, tt.Steered, tt.Composed or tt.Annealed, not {type(fk).__name__}"
        )
    if not isinstance(fk.model.process, Masking):
        raise InvalidInput("this move remasks a site, and the process has no mask; run without moves there")


def check_noisy_reward(kernel: object, fk: SiteTarget, remembers_values: bool) -> None:
    """Raise for moves that would call a noisy reward twice for one state: acceptance must use the number that weighed
    it.
    """
    if not (remembers_values and fk.level) and any(getattr(h, "noisy", False) for h in fk.stage(0.0).potentials):
        raise InvalidInput(
            f"{type(kernel).__name__} of a {type(fk).__name__} asks a noisy reward again about a state that its number "
            "has weighed, which samples neither law; use tt.Gibbs, tt.Metropolis, tt.Block or tt.WholeSequence of a "
            "tt.Composed or tt.Annealed, which keep that number"
        )


def revealed(fk: SiteTarget, x: Tokens) -> Tensor:
    """Which sites hold a token [..., D]."""
    return x != cast("Masking", fk.model.process).mask


def hide(fk: SiteTarget, x: Tokens, sites: Tensor) -> Tokens:
    """x with these sites masked."""
    return x.scatter(-1, sites, cast("Masking", fk.model.process).mask)


def check_revealed(fk: SiteTarget, t: float) -> int:
    """The number of sites revealed at t, which in an any-order run is that of every particle; raises if it is 0."""
    there = fk.model.length - fk.masked(t)
    if there < 1:
        raise InvalidInput(f"a move that redraws a site at t = {t:.6g}, where none is revealed; move later")
    return there


def at_end_target(fk: SiteTarget) -> Target | None:
    """The target of moves that leave it invariant on clean states only."""
    target = fk.target
    return None if target is None else target.at_end_only()
