"""Moves that bring diversity back: Markov kernels that leave the current intermediate target invariant.

With U the revealed sites, the single-site law p(v | x_U less i) (p_zeta/p)^alpha, normalised, is exactly the Gibbs
conditional of p(x_U) p(zeta|x_U)^alpha: remask a site, redraw it, and no weight changes. A block is redrawn one site
after another and accepted by Metropolis; for a tilted conditional the potential decides. All are exact for mutually
consistent conditionals; two learned nets are only nearly so. After the last step they serve any model of the same
target, and unweighted guidance too. Under hard constraints single-site moves may not reach every state, and a state of
target mass zero stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..core.types import (
    NEG_INF,
    Aux,
    InvalidInput,
    LogWeights,
    Particles,
    Questions,
    SiteLogits,
    Target,
    Tokens,
    check,
    function,
    plain,
    settle,
    shown,
    take,
)
from ..diffusion.processes import Masking
from .any_order import AnyOrder, answer
from .on_clock import Tilted, evaluate
from .reveal_move import Answers, RevealLaw, RevealMove, posterior_at, posteriors, tilted_rows

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
    """Remask one revealed site and redraw it from the adapted law: one round of evaluations, always accepted."""

    fk: AnyOrder
    scan: Scan = random_scan

    def __post_init__(self) -> None:
        check_kind(self, AnyOrder)
        check_scan(self.scan)

    @property
    def target(self) -> Target:
        return self.fk.target

    @property
    def choices(self) -> int:
        return 1

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> RevealMove:
        remembered(particles, t)
        check_revealed(self.fk, t)
        return self.at(particles, t, scanned(self.scan, revealed(self.fk, particles.x), number, u, particles.questions))

    def at(self, particles: Particles, t: float, site: Tensor) -> RevealMove:
        """The move that redraws this revealed site [..., 1]."""
        old = particles.x.gather(-1, site)
        hidden = hide(self.fk, particles.x, site)
        p, p_zeta = ask(self.fk, hidden, earlier(self.fk, t, 1), site, particles.questions)
        adapted, _ = tilted_rows(p, p_zeta, self.fk.exponent(t))
        log_ratio = remembered(particles, t)
        without = torch.where(log_ratio == NEG_INF, NEG_INF, log_ratio - gain(p, p_zeta, old))
        return RevealMove(RevealLaw(hidden, site, adapted), torch.zeros_like(log_ratio), p, p_zeta, without, None)


@dataclass(frozen=True)
class Block:
    """Redraw several revealed sites one after another and accept by Metropolis: 2 size - 1 rounds of evaluations.

    While fewer are revealed, all of those are the block.
    """

    fk: AnyOrder
    size: int

    def __post_init__(self) -> None:
        check_kind(self, AnyOrder)
        size = plain(self.size)
        if type(size) is not int or not 1 <= size <= self.fk.model.length:
            raise InvalidInput(f"a block of {shown(size)} sites in {self.fk.model.length}; give 1 to all of them")
        settle(self, size=size)

    @property
    def target(self) -> Target:
        return self.fk.target

    @property
    def choices(self) -> int:
        return self.fk.model.length + self.size

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> AcceptMove:
        remembered(particles, t)
        size = min(self.size, check_revealed(self.fk, t))
        length = self.fk.model.length
        seen = revealed(self.fk, particles.x)
        sites = torch.where(seen, u[..., :length], 2.0).topk(size, largest=False).indices
        return self.at(particles, t, sites, lambda j, law: law.sample(u[..., length + j : length + j + 1]))

    def at(self, particles: Particles, t: float, sites: Tensor, draw: Callable[[int, RevealLaw], Tokens]) -> AcceptMove:
        """Redraw these sites [..., k] in their order, with `draw` filling the j-th."""
        x, log_ratio = particles.x, remembered(particles, t)
        hidden = hide(self.fk, x, sites)
        first = ask(self.fk, hidden, earlier(self.fk, t, sites.shape[-1]), sites[..., :1], particles.questions)
        masked = particles._replace(x=hidden)
        new = self._walk(masked, t, sites, draw, first)
        old = self._walk(masked, t, sites, lambda j, law: law.x.scatter(-1, law.sites, x.gather(-1, law.sites)), first)
        log_accept = (new.log_mass - old.log_mass).clamp(max=0.0)
        alive = log_ratio > NEG_INF
        ratio = torch.where(alive, log_ratio - old.gain + new.gain, NEG_INF)
        if self.fk.exponent(t) != 0:  # at 0 a state may be impossible given zeta and count all the same
            log_accept = torch.where(alive, log_accept, NEG_INF)
        return AcceptMove(x, new.x, log_accept, {"log_ratio": log_ratio}, {"log_ratio": ratio})

    def _walk(
        self, particles: Particles, t: float, sites: Tensor, draw: Callable[[int, RevealLaw], Tokens], first: Answers
    ) -> _Walk:
        """Reveal the sites in order: where it ends, the adapted mass on the way, and what it gains for zeta."""
        x, questions = particles.x, particles.questions
        log_mass = gained = torch.zeros(x.shape[:-1], dtype=torch.float64, device=x.device)
        for j in range(sites.shape[-1]):
            site = sites[..., j : j + 1]
            p, p_zeta = first if j == 0 else ask(self.fk, x, earlier(self.fk, t, sites.shape[-1] - j), site, questions)
            adapted, mass = tilted_rows(p, p_zeta, self.fk.exponent(t))
            x = draw(j, RevealLaw(x, site, adapted))
            log_mass = log_mass + mass.squeeze(-1)
            gained = gained + gain(p, p_zeta, x.gather(-1, site))
        return _Walk(x, log_mass, gained)


@dataclass(frozen=True)
class _Walk:
    x: Tokens
    log_mass: Tensor
    gain: Tensor


@dataclass(frozen=True)
class Metropolis:
    """For `Tilted`: remask a revealed site, propose it from the conditional model, let the potential accept."""

    fk: Tilted
    scan: Scan = random_scan

    def __post_init__(self) -> None:
        check_kind(self, Tilted)
        check_scan(self.scan)
        if not isinstance(self.fk.model.process, Masking):
            raise InvalidInput("this move remasks a site, and the process has no mask; run without moves there")

    @property
    def target(self) -> Target:
        return self.fk.target

    @property
    def choices(self) -> int:
        return 2

    def move(self, particles: Particles, t: float, number: int, u: Tensor) -> AcceptMove:
        seen = revealed(self.fk, particles.x)
        site = scanned(self.scan, seen, number, u[..., :1], particles.questions)
        return self.at(particles, t, site, lambda law: law.sample(u[..., 1:]))

    def at(self, particles: Particles, t: float, site: Tensor, draw: Callable[[RevealLaw], Tokens]) -> AcceptMove:
        """Propose this site [..., 1]; a masked one is left alone."""
        x, tilt, questions = particles.x, self.fk.tilt, particles.questions
        zeros = torch.zeros_like(particles.log_w)
        log_tilt = zeros if tilt is None else tilt(x, t, questions)  # its own: the particles may be another model's
        seen = revealed(self.fk, x).gather(-1, site).squeeze(-1)
        hidden = hide(self.fk, x, site)
        model, now = self.fk.model, max(t, earlier(self.fk, 0.0, 1))
        logits = evaluate(model, "conditional", model.conditional, hidden, now)
        logits = posterior_at(model, "conditional", logits, (hidden, now), site, questions)
        y = torch.where(seen[..., None], draw(RevealLaw(hidden, site, logits)), x)
        new = zeros if tilt is None else tilt(y, t, questions)
        can = seen & (log_tilt > NEG_INF)
        log_accept = torch.where(can, new - torch.where(can, log_tilt, 0.0), NEG_INF).clamp(max=0.0)
        return AcceptMove(x, y, log_accept, {"log_tilt": log_tilt}, {"log_tilt": new})


@dataclass(frozen=True)
class AcceptLaw:
    """Go from x to y with probability exp(log_accept), else stay."""

    x: Tokens
    y: Tokens
    log_accept: Tensor

    def sample(self, u: Tensor) -> Tokens:
        return torch.where(u < self.log_accept.exp()[..., None], self.y, self.x)

    def log_prob(self, z: Tokens) -> Tensor:
        go = torch.where((z == self.y).all(-1), self.log_accept, NEG_INF)
        stay = torch.where((z == self.x).all(-1), torch.log1p(-self.log_accept.exp()), NEG_INF)
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
        there = (y == self.y).all(-1)
        aux = {key: torch.where(there, self.aux_y[key], self.aux_x[key]) for key in self.aux_x}
        return torch.zeros_like(self.log_accept), aux

    def take(self, ancestors: Tensor) -> AcceptMove:
        def pick(aux: Aux) -> Aux:
            return {key: take(value, ancestors) for key, value in aux.items()}

        law = self.law.take(ancestors)
        return AcceptMove(law.x, law.y, law.log_accept, pick(self.aux_x), pick(self.aux_y))


def check_kind(kernel: Gibbs | Block | Metropolis, wanted: type) -> None:
    """A move is made from the model whose target it leaves alone."""
    if not isinstance(kernel.fk, wanted):
        raise InvalidInput(
            f"{type(kernel).__name__} is made from {wanted.__name__}, not {type(kernel.fk).__name__}; "
            "Gibbs and Block take tt.AnyOrder(model, alpha), Metropolis takes tt.Tilted(model, alpha)"
        )


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


def ask(fk: AnyOrder, x: Tokens, t: float, site: Tensor, questions: Questions | None = None) -> Answers:
    """Both posteriors at a site, from one round of evaluation."""
    return posteriors(fk.model, x, t, answer(fk.model, x, t), site, questions)


def revealed(fk: AnyOrder | Tilted, x: Tokens) -> Tensor:
    """Which sites hold a token [..., D]."""
    return x != cast("Masking", fk.model.process).mask


def hide(fk: AnyOrder | Tilted, x: Tokens, sites: Tensor) -> Tokens:
    """x with these sites masked."""
    return x.scatter(-1, sites, cast("Masking", fk.model.process).mask)


def earlier(fk: AnyOrder | Tilted, t: float, hidden: int) -> float:
    """The time of a state with `hidden` more masks than one at t: a network must not be told that nothing is masked."""
    process, length = cast("Masking", fk.model.process), fk.model.length
    return process.time_masked(length, process.count_masked(length, t) + hidden)


def gain(p: SiteLogits, p_zeta: SiteLogits, token: Tensor) -> Tensor:
    """log p_zeta/p of the tokens at the chosen sites, summed [...]."""
    base = p.pick(token)
    return torch.where(base == NEG_INF, NEG_INF, p_zeta.pick(token) - base).sum(-1)


def remembered(particles: Particles, t: float) -> Tensor:
    """log p(zeta|x) / p(zeta) of each particle; after the last step nobody reads it, and any will do."""
    if "log_ratio" in particles.aux:
        return particles.aux["log_ratio"]
    if t > 0:
        raise InvalidInput(
            f"a move at t = {t:.6g} on particles that are not AnyOrder's, which need not have revealed equally many "
            "sites; move at_end only"
        )
    return torch.zeros_like(particles.log_w)


def check_revealed(fk: AnyOrder, t: float) -> int:
    """How many sites are revealed at t, the same for all particles of an any-order run; at least one."""
    process = cast("Masking", fk.model.process)
    there = fk.model.length - process.count_masked(fk.model.length, t)
    if there < 1:
        raise InvalidInput(f"a move that redraws a site at t = {t:.6g}, where none is revealed; move later")
    return there
