"""Markov chains with a factor at every site: exact at any length, where enumeration stops.

p0 is a chain and p(zeta|x) a product over sites, so every conditional, tempered marginal and constant is one
forward-backward pass. Messages are logs normalised at every site, in float64; the scales add up to the constant. A
message whose range exceeds float64 is propagated term by term, so no length and no hard zero underflows. Noise acts
site by site: a noised state is one more factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..core.arguments import reals, shown
from ..core.errors import InvalidInput
from ..core.logits import SiteLogits, draw_by_row
from ..core.types import NEG_INF, Model, Tokens, check_process
from ..diffusion.processes import Masking, Uniform
from ..targets.on_clock import check_alpha
from .messages import normalised, sweep
from .spans import Spans

_NUMBERS = "give numbers: a tensor, an array or nested lists"
_LARGEST_TABLE = 1 << 23  # entries of the lookup table for masked states, at most; longer chains pass messages


@dataclass(frozen=True)
class ChainLaw:
    """The law $initial(x^1) prod_d transitions(x^d, x^(d+1)) prod_d exp(log_factors_d(x^d))$, up to its constant.

    Args:
        initial: Probabilities of the first token [V]; they are normalised.
        transitions: Probabilities of the next token in each row, [V, V] for all sites or [D - 1, V, V]; rows are
            normalised.
        log_factors: Log of the factor of each token at each site [D, V]; -inf forbids.
    """

    initial: Tensor  # [V], normalised on construction
    transitions: Tensor  # [V, V] shared or [D-1, V, V], rows normalised on construction
    log_factors: Tensor  # [D, V]; -inf forbids

    def __post_init__(self) -> None:
        named = ("initial", "transitions", "log_factors")
        initial, transitions, factors = (reals(name, getattr(self, name), _NUMBERS) for name in named)
        _check_shapes(initial, transitions, factors)
        _check_rows("initial", initial)
        _check_rows("transitions", transitions)
        if factors.isnan().any() or (factors == torch.inf).any():
            raise InvalidInput("log_factors has NaN or +inf entries; give logs of finite factors, -inf for a factor 0")
        object.__setattr__(self, "initial", initial / initial.sum())
        object.__setattr__(self, "transitions", transitions / transitions.sum(-1, keepdim=True))
        object.__setattr__(self, "log_factors", factors)
        if self.log_z == NEG_INF:
            raise InvalidInput(
                "the factors are zero on every sequence the chain can make: the condition is impossible. "
                "Give at least one possible sequence positive factors at all its sites"
            )

    @property
    def length(self) -> int:
        return self.log_factors.shape[0]

    @property
    def steps(self) -> Tensor:
        """The transitions of every step [D-1, V, V]."""
        return self.transitions.expand(self.length - 1, *self.transitions.shape[-2:])

    @cached_property
    def log_z(self) -> Tensor:
        """$log sum p0 prod_d f_d$."""
        return self.log_total(self._unseen)[0]

    def marginals(self) -> Tensor:
        """The law of each site [D, V]."""
        return self.log_alone(self._unseen)[0].softmax(-1)

    def pairwise(self) -> Tensor:
        """The law of each pair of neighbours [D-1, V, V]."""
        before, after = (message[0] for message in self._messages(self._unseen))
        left, right = (before + self.log_factors)[:-1], (after + self.log_factors)[1:]
        joint = left[:, :, None] + self.steps.log() + right[:, None, :]
        return joint.flatten(1).softmax(-1).reshape(joint.shape)

    def log_prob(self, x: Tokens) -> Tensor:
        """log-probability of clean states [..., D]."""
        _check_states(x, self.length, len(self.initial))
        site = torch.arange(self.length, device=x.device)
        steps = self.steps[site[:-1], x[..., :-1], x[..., 1:]].log().sum(-1)
        return self.initial[x[..., 0]].log() + steps + self.log_factors[site, x].sum(-1) - self.log_z

    def draw(self, u: Tensor) -> Tokens:
        """Exact draws, one uniform of [0, 1) a site [..., D]: filter backward, then invert each site's CDF in turn."""
        u = reals("the uniforms", u, _NUMBERS, self.initial.device)
        if u.shape[-1:] != (self.length,) or not ((u >= 0) & (u < 1)).all():
            raise InvalidInput(f"uniforms have shape {tuple(u.shape)}; give [..., {self.length}] numbers in [0, 1)")
        log_site = self.log_factors + self._messages(self._unseen)[1][0]
        x = [torch.zeros(u.shape[:-1], dtype=torch.int64, device=u.device)]
        for d, step in enumerate([self.initial[None], *self.steps]):
            cdf = normalised(step.log() + log_site[d])[0].exp().cumsum(-1)
            x.append(draw_by_row(cdf, x[-1], u[..., d].double()))
        return torch.stack(x[1:], -1)

    def log_total(self, log_seen: Tensor) -> Tensor:
        """$log sum p0 prod_d f_d seen_d$ [B], for further site factors [B, D, V]."""
        return self._forward(log_seen)[1]

    def log_total_given(self, process: Masking | Uniform, x: Tokens, t: float) -> Tensor:
        """$log sum p0 prod_d f_d p_t(x|.)$ for noised states [B, D]; for masking up to a factor set by the number of
        masks."""
        if self._spans is not None and isinstance(process, Masking):
            return self._spans.log_total(x)
        return self.log_total(_log_seen(process, x, t))

    def log_alone_given(self, process: Masking | Uniform, x: Tokens, t: float) -> Tensor:
        """`log_alone` for the evidence in noised states [B, D]."""
        if self._spans is not None and isinstance(process, Masking):
            return self._spans.log_alone(x)
        return self.log_alone(_log_seen(process, x, t))

    def log_alone(self, log_seen: Tensor) -> Tensor:
        """log of the law of $x^d$ given the evidence at other sites [B, D, V]; all -inf only if that is impossible."""
        before, after = self._messages(log_seen)
        return normalised(before + self.log_factors + after)[0]

    def _messages(self, log_seen: Tensor) -> tuple[Tensor, Tensor]:
        """Messages to each site from the earlier and the later sites, up to a constant per site, each [B, D, V]."""
        log_site, flat = (self.log_factors + log_seen).flip(1), torch.zeros_like(self.initial)
        later = sweep(flat, [step.T for step in reversed(self.steps.unbind())], log_site, self._least)[0]
        return self._forward(log_seen)[0], later.flip(1)

    def _forward(self, log_seen: Tensor) -> tuple[Tensor, Tensor]:
        return sweep(self.initial.log(), self.steps.unbind(), self.log_factors + log_seen, self._least)

    @property
    def _unseen(self) -> Tensor:
        return torch.zeros_like(self.log_factors)[None]

    @cached_property
    def _spans(self) -> Spans | None:
        """The lookup table of the chain, if it is short enough; else None."""
        size = len(self.initial)
        if self.length * size**2 * max(self.length, size) > _LARGEST_TABLE:  # the table, and the work to make it
            return None
        return Spans.of(self.initial.log(), self.steps.log(), self.log_factors)

    @cached_property
    def _least(self) -> float:
        """log of the least positive probability of the chain."""
        every = torch.cat([self.initial, self.transitions.flatten()])
        return math.log(float(every[every > 0].min()))


@dataclass(frozen=True)
class Chain:
    """A problem with exact answers on long sequences: p0 a Markov chain and $p(zeta|x) = prod_d f_d(x^d)$, under noise.

    Hard constraints, factors of 0, are legal.

    Args:
        process: The noising process: `tt.Masking(V)` or `tt.Uniform(V)`.
        initial: Probabilities of the first token [V]; they are normalised.
        transitions: Probabilities of the next token in each row, [V, V] for all sites or [D - 1, V, V]; rows are
            normalised.
        factors: $p(zeta|x)$ as a factor for each token at each site [D, V], not negative, each site's up to a constant.
    """

    process: Masking | Uniform
    initial: Tensor  # [V], normalised on construction
    transitions: Tensor  # [V, V] shared or [D-1, V, V], rows normalised on construction
    factors: Tensor  # [D, V], p(zeta|x) up to a constant a site

    def __post_init__(self) -> None:
        check_process(self.process)
        factors, size = reals("factors", self.factors, _NUMBERS), self.process.vocabulary
        if factors.dim() != 2 or factors.shape[-1] != size:
            raise InvalidInput(
                f"factors has shape {tuple(factors.shape)}; give one row a site, as long as the process's {size} tokens"
            )
        _check_rows("factors", factors)
        law = ChainLaw(self.initial, self.transitions, factors.log())
        object.__setattr__(self, "initial", law.initial)
        object.__setattr__(self, "transitions", law.transitions)
        object.__setattr__(self, "factors", factors)

    @property
    def length(self) -> int:
        return self.factors.shape[0]

    @cached_property
    def p0(self) -> ChainLaw:
        """The chain itself."""
        return ChainLaw(self.initial, self.transitions, torch.zeros_like(self.factors))

    @cached_property
    def given(self) -> ChainLaw:
        """$p0(x|zeta)$."""
        return replace(self.p0, log_factors=self.factors.log())

    def target(self, alpha: float) -> ChainLaw:
        """$pi_alpha ~ p0 p(zeta|x)^alpha$; $0^0$ counts as 1."""
        alpha = check_alpha(alpha)
        return replace(self.p0, log_factors=alpha * self.factors.log()) if alpha != 0 else self.p0

    @property
    def log_evidence(self) -> Tensor:
        """$log p(zeta)$."""
        return self.given.log_z

    def log_z(self, alpha: float) -> Tensor:
        """$log sum p0 p(zeta|x)^alpha$; `log_z_tempered` and `log_z_tilted` subtract a multiple of $log p(zeta)$."""
        return self.target(alpha).log_z

    def log_z_tempered(self, alpha: float) -> Tensor:
        """What `Tempered` estimates: $log Z(alpha) - alpha log p(zeta)$."""
        return self.log_z(alpha) - check_alpha(alpha) * self.log_evidence

    def log_z_tilted(self, alpha: float) -> Tensor:
        """What `Tilted` estimates: $log Z(alpha) - log p(zeta)$."""
        return self.log_z(alpha) - self.log_evidence

    def potential(self, x: Tokens, t: float) -> Tensor:
        """$log p_t(zeta|x)$; -inf where x is impossible. For masking it does not depend on t, not even at 0."""
        _check_states(x, self.length, self.process.states)
        joint, alone = (
            law.log_total_given(self.process, x.reshape(-1, x.shape[-1]), t) for law in (self.given, self.p0)
        )
        return torch.where(joint > NEG_INF, joint - alone, NEG_INF).reshape(x.shape[:-1])

    def model(self) -> Model:
        """The exact base, conditional score and potential, ready to sample."""
        base, conditional = ChainScore(self.process, self.p0), ChainScore(self.process, self.given, self.p0)
        largest = self.factors.log().amax(-1).clamp(min=0.0).sum()  # factors are known only up to a constant
        log_p = min(0.0, float(self.log_evidence - largest))
        return Model(self.process, self.length, base, conditional, self.potential, self.initial.device, log_p)

    def true_tempered(self, alpha: float) -> ChainScore:
        """The score of the tempered target noised (Prop. 3.2): no network knows it, a chain does."""
        return ChainScore(self.process, self.target(alpha), self.p0)


@dataclass(frozen=True)
class ChainScore:
    """The exact Score of a chain law. Where the other sites have probability 0 it is the score of `fallback`, and where
    they have it there too, that of the uniform law.

    Args:
        process: The noising process: `tt.Masking(V)` or `tt.Uniform(V)`.
        law: The law whose score it is, a `tt.ChainLaw`.
        fallback: Law whose score is given where the other sites of a state are impossible. None (the default): the
            uniform law.
    """

    process: Masking | Uniform
    law: ChainLaw
    fallback: ChainLaw | None = None

    def __post_init__(self) -> None:
        check_process(self.process)
        if not isinstance(self.law, ChainLaw) or not isinstance(self.fallback, ChainLaw | None):
            raise InvalidInput(f"the law is {shown(self.law)}, the fallback {shown(self.fallback)}; give tt.ChainLaw")
        sizes = {len(law.initial) for law in (self.law, self.fallback) if law is not None}
        if sizes != {self.process.vocabulary}:
            raise InvalidInput(f"chains of {sizes} tokens for a process of {self.process.vocabulary}; they must agree")

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        _check_states(x, self.law.length, self.process.states)
        alone = self._possible(x.reshape(-1, x.shape[-1]), t).reshape(*x.shape, self.process.vocabulary)
        if isinstance(self.process, Masking):
            return SiteLogits.of(alone + self.process.log_odds_kept(t))
        keep, other = _mixing(self.process, t)
        return SiteLogits.of((keep * alone.exp() + other).log())

    def _possible(self, x: Tokens, t: float) -> Tensor:
        alone = self.law.log_alone_given(self.process, x, t)
        lost = (alone == NEG_INF).all(-1, keepdim=True)
        if not lost.any():
            return alone
        flat = torch.full_like(alone, -math.log(alone.shape[-1]))
        other = flat if self.fallback is None else ChainScore(self.process, self.fallback)._possible(x, t)
        return torch.where(lost, other, alone)


def _log_seen(process: Masking | Uniform, x: Tokens, t: float) -> Tensor:
    """log-probability that clean v shows as x^d at time t [B, D, V]; for masking up to a constant per site."""
    eye = torch.eye(process.vocabulary, dtype=torch.float64, device=x.device)
    if isinstance(process, Masking):
        shown = torch.cat([eye, torch.ones_like(eye[:1])])
    else:
        keep, other = _mixing(process, t)
        shown = keep * eye + other
    return shown.log()[x]


def _mixing(process: Uniform, t: float) -> tuple[Tensor, Tensor]:
    """The probability that a site is kept, and that it is redrawn as any one token."""
    sigma = process.schedule(t).value
    return torch.exp(-sigma), -torch.expm1(-sigma) / process.vocabulary


def _check_shapes(initial: Tensor, transitions: Tensor, factors: Tensor) -> None:
    if factors.dim() != 2 or min(factors.shape) < 1:
        raise InvalidInput(f"log_factors has shape {tuple(factors.shape)}; give one row of tokens a site, [D, V]")
    length, size = factors.shape
    if tuple(initial.shape) != (size,):
        raise InvalidInput(f"initial has shape {tuple(initial.shape)} and the factors {size} tokens; give [{size}]")
    if tuple(transitions.shape) not in ((size, size), (length - 1, size, size)):
        raise InvalidInput(
            f"transitions has shape {tuple(transitions.shape)}; for {length} sites of {size} tokens give "
            f"{[size, size]} for all steps or {[length - 1, size, size]}, one matrix a step"
        )


def _check_rows(name: str, table: Tensor) -> None:
    if not table.sum(-1).isfinite().all() or (table < 0).any():
        raise InvalidInput(f"{name} has negative, NaN or infinite entries; probabilities must be finite and at least 0")
    empty = (table.sum(-1) == 0).nonzero()
    if len(empty):
        raise InvalidInput(
            f"{name} is zero everywhere in row {empty[0].tolist()}; at least one entry a row must be positive"
        )


def _check_states(x: Tokens, length: int, size: int) -> None:
    tokens = isinstance(x, Tensor) and x.dtype in (torch.int64, torch.int32)
    if not tokens or x.shape[-1:] != (length,) or ((x < 0) | (x >= size)).any():
        raise InvalidInput(f"states are {shown(x)}; give [..., {length}] tokens from 0 to {size - 1}")
