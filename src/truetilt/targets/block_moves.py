"""Moves of several sites at once.

A block is drawn site by site and accepted by Metropolis, from the normalisers of the laws it was drawn from. A pair is
drawn from its enumerated joint law and always accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import permutations, product
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..core.arguments import function, plain, set_fields, shown
from ..core.bases import MoveKernel
from ..core.errors import InvalidInput
from ..core.logits import draw_from
from ..core.target import Target
from ..core.types import NEG_INF, Particles, Potential, Redraw, Tokens
from .accept_move import AcceptMove
from .any_order import RevealLaw
from .moves import (
    Proposed,
    accepting,
    at_end_target,
    check_kind,
    check_noisy_reward,
    check_revealed,
    hide,
    lift_of,
    picked,
    revealed,
    with_surrogate,
)
from .scans import Scan, check_scan, random_scan, scanned, sites_of
from .stage import Answers, SiteLaws, SiteTarget, minus

Fill = Callable[[int, RevealLaw], Tokens]  # (position in the block, law of that site) -> the state with a token there


@dataclass(frozen=True)
class Block(MoveKernel):
    """Redraw several revealed sites one after another and accept by Metropolis: $2 size - 1$ rounds of evaluations.

    While fewer sites are revealed, all of these are the block. A surrogate of partly masked states (a twist) changes
    the proposal only; acceptance uses the target's own values.

    Args:
        fk: The value whose target the move leaves unchanged, the one that is run.
        size: Sites in a block, 1 to the model's length.
        surrogate: Function (x, t) of partly masked states that stands in for the reward while tokens are drawn, such as
            a learned twist. None (the default): the networks alone propose.
    """

    redraws: ClassVar[bool] = True  # sites from the model's conditionals
    fk: SiteTarget
    size: int
    surrogate: Potential | None = None

    def __post_init__(self) -> None:
        check_kind(self)
        size = plain(self.size)
        if type(size) is not int or not 1 <= size <= self.fk.model.length:
            raise InvalidInput(f"a block of {shown(size)} sites in {self.fk.model.length}; give 1 to all of them")
        set_fields(self, size=size)
        check_noisy_reward(self, self.fk, remembers_values=True)
        if self.surrogate is not None:
            function("the surrogate", self.surrogate, "(x, t)")

    @property
    def target(self) -> Target | None:
        return self.fk.target if self.fk.level else at_end_target(self.fk)

    @property
    def choices(self) -> int:
        return self.fk.model.length + self.size

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> AcceptMove:
        self.fk.recall(particles, t)
        size = min(self.size, check_revealed(self.fk, t))
        length = self.fk.model.length
        seen = revealed(self.fk, particles.x)
        sites = torch.where(seen, u[..., :length], 2.0).topk(size, largest=False).indices
        return self.at(particles, t, sites, _DrawEach(u[..., length:]))

    def branches(self, particles: Particles, t: float, number: int) -> list[tuple[Tensor, Redraw]]:
        """Every block in every order with every fill, with the probability of each, for exact answers on few sites."""
        self.fk.recall(particles, t)
        count, size = check_revealed(self.fk, t), self.fk.model.process.vocabulary
        seen = revealed(self.fk, particles.x)
        every = torch.arange(self.fk.model.length, device=seen.device)
        there = torch.where(seen, every, len(every)).sort(-1).values
        out: list[tuple[Tensor, Redraw]] = []
        blocks = list(permutations(range(count), min(self.size, count)))
        for block in blocks:
            for tokens in product(range(size), repeat=len(block)):
                fill = _GivenTokens(tokens, [])
                move = self.at(particles, t, there[..., list(block)], fill)
                out.append((torch.stack(fill.log_q).sum(0) - math.log(len(blocks)), move))
        return out

    def at(self, particles: Particles, t: float, sites: Tensor, draw: Fill) -> AcceptMove:
        """Redraw these sites [..., k] in their order; `draw` returns the state with the j-th filled."""
        fk, x, stage = self.fk, particles.x, self.fk.stage(t)
        hidden = particles._replace(x=hide(fk, x, sites))
        first = fk.answers(hidden.x, fk.asked_at(t, sites.shape[-1]))
        new = self._walk(hidden, t, sites, draw, first)
        old = self._walk(hidden, t, sites, _Restoring(x), first)
        mine, values = fk.values(particles, t), stage.values(new.x, self.fk.log)
        here = stage.total(mine)
        log_accept = minus(stage.total(values) + new.log_mass, here + old.log_mass).clamp(max=0.0)
        ratios = fk.recall(particles, t)["log_ratios"]
        alive = (here > NEG_INF) & _counted(stage.conditions, ratios)
        log_accept = torch.where(alive, log_accept, NEG_INF)
        before = fk.recall(particles, t)
        after = {"log_p": before["log_p"] - old.log_p + new.log_p, "values": values}
        after["log_ratios"] = torch.where(ratios == NEG_INF, NEG_INF, ratios - old.log_ratios + new.log_ratios)
        return accepting(fk, particles, t, Proposed(new.x, after, log_accept), mine)

    def _walk(self, hidden: Particles, t: float, sites: Tensor, draw: Fill, first: Answers) -> _BlockPath:
        """Reveal the sites in order: the final states, and the sum of log (target / proposal) over the sites."""
        fk, stage, count = self.fk, self.fk.stage(t), sites.shape[-1]
        guide, x, log = with_surrogate(stage, self.surrogate), hidden.x, fk.log
        log_mass = log_p = torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
        log_ratios = log_p.new_zeros(*log_p.shape, len(fk.scores) - 1)
        for j in range(count):
            site, now = sites[..., j : j + 1], fk.asked_at(t, count - j)
            laws = SiteLaws.of(fk, now, first if j == 0 else fk.answers(x, now), site, log)
            then = t if j == count - 1 else fk.asked_at(t, count - j - 1)  # sites after this one are still masked
            lift = None
            if self.surrogate is not None:
                lift, _ = lift_of(guide._replace(t=then), x, site, laws, log=log)
            adapted, mass = laws.tilted(stage, lift, log)
            x = draw(j, RevealLaw(x, site, adapted))
            token = x.gather(-1, site)
            part = mass.squeeze(-1) if lift is None else minus(mass.squeeze(-1), picked(lift, token))
            log_mass = log_mass + part
            here = laws.parts(token)
            log_p, log_ratios = log_p + here[0], log_ratios + here[1]
        return _BlockPath(x, log_mass, log_p, log_ratios)


class _DrawEach(NamedTuple):
    """Fills a block with random tokens, one uniform for each site [..., k]."""

    u: Tensor

    def __call__(self, j: int, law: RevealLaw) -> Tokens:
        return law.sample(self.u[..., j : j + 1])


class _Restoring(NamedTuple):
    """Puts the tokens of given states [..., D] back, one site of a block after another."""

    x: Tokens

    def __call__(self, j: int, law: RevealLaw) -> Tokens:
        return law.x.scatter(-1, law.sites, self.x.gather(-1, law.sites))


class _GivenTokens(NamedTuple):
    """Fills a block with given tokens and records their log-probabilities; an impossible token is replaced by the
    likeliest.
    """

    tokens: tuple[int, ...]
    log_q: list[Tensor]

    def __call__(self, j: int, law: RevealLaw) -> Tokens:
        y = law.x.scatter(-1, law.sites, self.tokens[j])
        self.log_q.append(law.log_prob(y))
        likeliest = law.x.scatter(-1, law.sites, law.logits.dense().argmax(-1))
        return torch.where(self.log_q[-1][..., None] > NEG_INF, y, likeliest)


class _BlockPath(NamedTuple):
    x: Tokens
    log_mass: Tensor
    log_p: Tensor
    log_ratios: Tensor


def _counted(alphas: tuple[float, ...], ratios: Tensor) -> Tensor:
    """Whether a state is possible under every condition of nonzero exponent."""
    alive = torch.ones(ratios.shape[:-1], dtype=torch.bool, device=ratios.device)
    for alpha, ratio in zip(alphas, ratios.unbind(-1), strict=True):
        alive = alive if alpha == 0 else alive & (ratio > NEG_INF)
    return alive


@dataclass(frozen=True)
class Pair(MoveKernel):
    """Redraw two sites at once from their exact joint law: $1 + S$ evaluations and $S^2$ calls, always accepted.

    For sites that single moves cannot change alone. The two are neighbours, or `apart` sites from each other.

    Args:
        fk: The value whose target the move leaves unchanged, the one that is run.
        scan: Which revealed site is the first of the pair: `tt.random_scan` (the default), `tt.systematic_scan` or
            `tt.backward_scan`.
        apart: Distance between the two sites, 1 to the length less 1; 1, neighbours, by default.
    """

    redraws: ClassVar[bool] = True  # sites from the model's conditionals
    fk: SiteTarget
    scan: Scan = random_scan
    apart: int = 1

    def __post_init__(self) -> None:
        check_kind(self)
        check_scan(self.scan)
        check_noisy_reward(self, self.fk, remembers_values=False)
        apart = plain(self.apart)
        if type(apart) is not int or not 1 <= apart < self.fk.model.length:
            raise InvalidInput(
                f"two sites {shown(apart)} apart in {self.fk.model.length}; give 1 to all but one of them"
            )

    @property
    def target(self) -> Target | None:
        return at_end_target(self.fk)

    @property
    def choices(self) -> int:
        return 2

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> AcceptMove:
        site = scanned(self.scan, revealed(self.fk, particles.x), number, u[..., :1], self.fk.log)
        return self.at(particles, t, self._both(site), partial(draw_from, u=u[..., 1:]))

    def _both(self, site: Tensor) -> Tensor:
        return torch.cat([site, (site + self.apart) % self.fk.model.length], -1)

    def branches(self, particles: Particles, t: float, number: int) -> list[tuple[Tensor, Redraw]]:
        """Every pair of tokens at every site that the scan may return, with its probability."""
        out: list[tuple[Tensor, Redraw]] = []
        for log_p, site in sites_of(self.scan, revealed(self.fk, particles.x), number):
            joint = self._joint(particles, t, self._both(site))
            for pair in range(joint.log_law.shape[-1]):
                chosen = torch.full_like(site, pair)
                out.append((log_p + joint.log_law[..., pair], self._moved(particles, t, joint, chosen)))
        return out

    def at(self, particles: Particles, t: float, sites: Tensor, draw: Callable[[Tensor], Tensor]) -> AcceptMove:
        """Redraw two sites [..., 2] of clean states; `draw` picks one of the $S^2$ pairs from their CDF."""
        joint = self._joint(particles, t, sites)
        return self._moved(particles, t, joint, draw(joint.log_law.exp().cumsum(-1)))

    def _joint(self, particles: Particles, t: float, sites: Tensor) -> _Joint:
        """The exact law of both tokens given the other sites."""
        fk, x, stage, size = self.fk, particles.x, self.fk.stage(t), self.fk.model.process.vocabulary
        one, two, log = sites[..., :1], sites[..., 1:], self.fk.log
        hidden = hide(fk, x, sites)
        half = _filled(hidden, one, size)  # [..., S, D]
        wide = two[..., None, :].expand(*half.shape[:-1], 1)
        first = fk.site_laws(hidden, fk.asked_at(t, 2), one, log)
        second = fk.site_laws(half, fk.asked_at(t, 1), wide, log)
        log_p = [laws.mixed(stage, log).dense()[..., 0, :] for laws in (first, second)]
        log_joint = log_p[0][..., None] + log_p[1]
        full = torch.where((log_joint > NEG_INF)[..., None], _filled(half, wide, size), x[..., None, None, :])
        values = stage.values(full, log)
        log_joint = torch.where(log_joint > NEG_INF, log_joint + stage.total(values), NEG_INF).flatten(-2)
        alive = log_joint.logsumexp(-1, keepdim=True) > NEG_INF  # else no pair is possible, and x stays
        log_law = torch.where(alive, log_joint, 0.0).log_softmax(-1)
        return _Joint(log_law, alive.squeeze(-1), sites, (first, second), full, values)

    def _moved(self, particles: Particles, t: float, joint: _Joint, chosen: Tensor) -> AcceptMove:
        """The move to the chosen pair [..., 1]; a state of target mass 0 stays where it is."""
        fk, x, size = self.fk, particles.x, self.fk.model.process.vocabulary
        wide = chosen[..., None]
        y = joint.full.flatten(-3, -2).gather(-2, wide.expand(*chosen.shape, x.shape[-1]))[..., 0, :]
        values = joint.values.flatten(-3, -2).gather(-2, wide.expand(*chosen.shape, joint.values.shape[-1]))[..., 0, :]
        old, new = x.gather(-1, joint.sites), torch.cat([chosen // size, chosen % size], -1)
        (old_p, old_ratios), (new_p, new_ratios) = joint.parts(old), joint.parts(new)
        aux, mine = fk.recall(particles, t), fk.values(particles, t)
        ratios = torch.where(aux["log_ratios"] == NEG_INF, NEG_INF, aux["log_ratios"] - old_ratios + new_ratios)
        after = {"log_p": aux["log_p"] - old_p + new_p, "log_ratios": ratios, "values": values}
        can = joint.alive & (fk.stage(t).total(mine) > NEG_INF)
        log_accept = torch.where(can, 0.0, NEG_INF).double()
        return accepting(fk, particles, t, Proposed(y, after, log_accept), mine)


class _Joint(NamedTuple):
    """The joint law of two tokens, with the conditionals, states and values it was computed from."""

    log_law: Tensor  # [..., S^2]
    alive: Tensor  # [...], whether any pair is possible
    sites: Tensor  # [..., 2]
    laws: tuple[SiteLaws, SiteLaws]  # of the first site, and of the second for each token at the first
    full: Tokens  # [..., S, S, D]
    values: Tensor  # [..., S, S, M]

    def parts(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """log_p and log_ratios of two tokens [..., 2]."""
        one, two = tokens[..., :1], tokens[..., 1:]
        size = self.laws[0].base.vocabulary
        wide = two[..., None, :].expand(*two.shape[:-1], size, 1)
        log_p, ratios = self.laws[1].parts(wide)  # for each token at the first site
        ratios = ratios.gather(-2, one[..., None].expand(*one.shape, ratios.shape[-1]))[..., 0, :]
        first, first_ratios = self.laws[0].parts(one)
        return first + log_p.gather(-1, one).squeeze(-1), first_ratios + ratios


def _filled(x: Tokens, site: Tensor, size: int) -> Tokens:
    """x with a site [..., 1] set to each token [..., S, D]."""
    tokens = torch.arange(size, device=x.device)[:, None].expand(*x.shape[:-1], size, 1)
    wide = site[..., None, :].expand(*x.shape[:-1], size, 1)
    return x[..., None, :].expand(*x.shape[:-1], size, x.shape[-1]).scatter(-1, wide, tokens)
