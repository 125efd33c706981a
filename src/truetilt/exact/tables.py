"""Enumerated spaces: p_t, p_t(zeta|x) and scores from a table of p0 and a table of p(zeta|x).

A table is [S, ..., S], one axis per site; extended by the mask to [S+1, ..., S+1] for the masking process. A state is
looked up by its flat index, and a site's score is the line of the table through the state along that axis, so each line
is computed once however many particles read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from ..core.arguments import number, reals, set_fields
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, BatchScore, Needs
from ..core.logits import SiteLogits
from ..core.types import NEG_INF, Model, Tokens, check_process
from ..diffusion.processes import Masking, Uniform
from ..targets.potentials import check_alpha

_TABLE = "give a table of probabilities, one axis a site: a tensor, an array or nested lists"


@dataclass(frozen=True)
class Table:
    """p0 and $p(zeta|x)$ on an enumerable space, under a noising process: a small problem whose answers are all exact.

    Args:
        process: The noising process, `tt.Masking(S)` or `tt.Uniform(S)`.
        p0: Probabilities of all clean states, one axis of length S for each site, finite and at least 0; they are
            normalised on construction.
        likelihood: $p(zeta|x)$ of every state, of the same shape, finite and at least 0, up to a constant. Zeros (hard
            constraints) are legal.
    """

    process: Masking | Uniform
    p0: Tensor  # [S] * D, normalised on construction
    likelihood: Tensor  # [S] * D, p(zeta|x) up to a constant

    def __post_init__(self) -> None:
        check_process(self.process)
        p0, likelihood = reals("p0", self.p0, _TABLE), reals("likelihood", self.likelihood, _TABLE)
        size = (self.process.vocabulary,) * p0.dim()
        if likelihood.device != p0.device:
            raise InvalidInput(
                f"p0 is on {p0.device} and the likelihood on {likelihood.device}; put both on one device"
            )
        if p0.dim() < 1 or tuple(p0.shape) != size:
            raise InvalidInput(
                f"p0 has shape {tuple(p0.shape)}; give one axis a site, each as long as the process's "
                f"{self.process.vocabulary} tokens"
            )
        if likelihood.shape != p0.shape:
            raise InvalidInput(
                f"p0 has shape {tuple(p0.shape)}, the likelihood {tuple(likelihood.shape)}; they must agree"
            )
        _check_entries("p0", p0)
        _check_entries("the likelihood", likelihood)
        if not (p0 * likelihood).sum() > 0:
            raise InvalidInput(
                "the likelihood is zero on the whole support of p0: the condition is impossible. "
                "Give at least one state of p0 a positive likelihood"
            )
        object.__setattr__(self, "p0", p0 / p0.sum())
        object.__setattr__(self, "likelihood", likelihood)

    @property
    def length(self) -> int:
        return self.p0.dim()

    @property
    def evidence(self) -> Tensor:
        """$p(zeta) = sum_x p0(x) p(zeta|x)$."""
        return (self.p0 * self.likelihood).sum()

    @cached_property
    def states(self) -> Tokens:
        """Every state of the noised space [K, D], in the order of the flat index."""
        return enumerate_states(self.process.states, self.length, self.p0.device)

    def target(self, alpha: float) -> Tensor:
        """$pi_alpha ~ p0 p(zeta|x)^alpha$ as a table; $0^0$ counts as 1."""
        alpha = check_alpha(alpha)
        tilted = self.p0 * self.likelihood**alpha
        return tilted / tilted.sum()

    def log_z(self, alpha: float) -> Tensor:
        """$log sum p0 p(zeta|x)^alpha$; `log_z_tempered` and `log_z_tilted` subtract a multiple of $log p(zeta)$."""
        return (self.p0 * self.likelihood ** check_alpha(alpha)).sum().log()

    def log_z_tempered(self, alpha: float) -> Tensor:
        """What `Tempered` estimates: $log Z(alpha) - alpha log p(zeta)$."""
        return self.log_z(alpha) - check_alpha(alpha) * self.evidence.log()

    def log_z_tilted(self, alpha: float) -> Tensor:
        """What `Tilted` estimates: $log Z(alpha) - log p(zeta)$."""
        return self.log_z(alpha) - self.evidence.log()

    def marginal(self, t: float) -> Tensor:
        """$p_t$ as a table over the noised space."""
        return noised(self.process, self.p0, t)

    def conditional_marginal(self, t: float) -> Tensor:
        """$p_t(x|zeta)$ as a table over the noised space."""
        return noised(self.process, self.p0 * self.likelihood / self.evidence, t)

    def expected(self, alpha: float, t: float) -> Tensor:
        """$log E[p(zeta|X_0)^alpha | X_t = x]$ over the noised space (Prop. 3.2); -inf where x is impossible."""
        return self._expected(self.p0 * self.likelihood ** check_alpha(alpha), t)

    def _expected(self, joint: Tensor, t: float) -> Tensor:
        """log of a measure on clean states over p0, both noised; -inf where x is impossible."""
        levels = _kept_and_lost(self.process.sigma(_time(t)))
        joint, marginal = (_noised(self.process, law, *levels) for law in (joint, self.p0))
        return torch.where(joint > 0, joint.log() - marginal.log(), NEG_INF)

    def potential(self, x: Tokens, t: float) -> Tensor:
        """$log p_t(zeta|x)$."""
        return self.lookup(self._expected(self.p0 * self.likelihood, t), x)

    def lookup(self, table: Tensor, x: Tokens) -> Tensor:
        """Read a table over the noised space at states [..., D]."""
        if x.shape[-1:] != (self.length,):
            raise InvalidInput(f"states have shape {tuple(x.shape)} and the table {self.length} sites; they must agree")
        try:
            return table.reshape(-1)[flat_index(x, self.process.states)]
        except IndexError as error:
            raise InvalidInput(f"states hold tokens outside 0 to {self.process.states - 1} ({error})") from error

    def model(self) -> Model:
        """The exact base, conditional score and potential, ready to sample."""
        given = self.p0 * self.likelihood / self.evidence
        base = TableScore(self.process, self.p0)
        conditional = TableScore(self.process, given, fallback=self.p0)
        scale = float(self.likelihood.max().clamp(min=1.0))  # the likelihood is known only up to a constant
        log_p = min(0.0, float((self.evidence / scale).log()))
        return Model(self.process, self.length, base, conditional, self.potential, self.p0.device, log_p)

    def true_tempered(self, alpha: float) -> TableScore:
        """The score of the tempered target noised (Prop. 3.2): no network knows it, a table does."""
        return TableScore(self.process, self.target(alpha), fallback=self.p0)


@dataclass(frozen=True)
class TableScore(BatchScore):
    """The exact Score of a law on an enumerable space.

    For a state of probability 0 the score is that of `fallback`, and if the state has probability 0 there too, that of
    the uniform law. No particle of positive weight reads it; it keeps NaN out of the weights.

    Args:
        process: The noising process: `tt.Masking(S)` or `tt.Uniform(S)`.
        p0: The law of clean states, a tensor with one axis a site [S, S, ...].
        fallback: Law whose score is given for states that are impossible under p0. None (the default): the uniform law.
    """

    process: Masking | Uniform
    p0: Tensor
    fallback: Tensor | None = None

    def __post_init__(self) -> None:
        check_process(self.process)
        set_fields(self, p0=check_law(self.process, "p0", self.p0))
        if self.fallback is not None:
            set_fields(self, fallback=check_law(self.process, "fallback", self.fallback))

    @property
    def particle_bytes(self) -> int:
        """Memory per particle: rows are shared, so a few words per site."""
        return 8 * 24 * self.p0.dim()

    @property
    def needs(self) -> Needs:
        return Needs(1, self.particle_bytes)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x, size = batch.x, self.process.states
        if x.shape[-1:] != (self.p0.dim(),):
            raise InvalidInput(
                f"states have shape {tuple(x.shape)} and the table {self.p0.dim()} sites; they must agree"
            )
        index = batch.known.get(("lines", size))
        if index is None:
            index = batch.known["lines", size] = line_index(x, size)
        return SiteLogits(self._rows(t), index)

    def _rows(self, t: float) -> Tensor:
        if isinstance(self.process, Masking):
            return self._posterior_rows + self.process.log_odds_kept(t)
        return lines(noised(self.process, self.p0, t)).log()

    @cached_property
    def _posterior_rows(self) -> Tensor:
        """p(x0 = v | the other sites), for every line of the masked space: it does not depend on time."""
        rows = lines(with_mask(self.p0))[:, :-1]
        mass = rows.sum(-1, keepdim=True)
        other = torch.full_like(rows, 1 / rows.shape[-1]).log()
        if self.fallback is not None:
            other = TableScore(self.process, self.fallback)._posterior_rows
        return torch.where(mass > 0, rows.log() - mass.log(), other)


def check_law(process: Masking | Uniform, name: str, table: Tensor) -> Tensor:
    """A table with one axis per site and no negative entry, as a float64 tensor; raises otherwise."""
    table = reals(name, table, _TABLE)
    if table.dim() < 1 or tuple(table.shape) != (process.vocabulary,) * table.dim():
        raise InvalidInput(
            f"{name} has shape {tuple(table.shape)}; give one axis a site, each as long as the process's "
            f"{process.vocabulary} tokens"
        )
    _check_entries(name, table)
    return table


def noised(process: Masking | Uniform, p0: Tensor, t: float) -> Tensor:
    """The law of x_t as a table over the noised space, for any (unnormalised) law of x_0."""
    return _noised(process, p0, *_kept_and_lost(process.sigma(_time(t))))


def _time(t: float) -> float:
    return t if isinstance(t, float) else number("time", t)


def _noised(process: Masking | Uniform, p0: Tensor, keep: float, lost: float) -> Tensor:
    """The law of x_t from the law of x_0, given the probabilities that a site is kept and that it is not."""
    if isinstance(process, Masking):
        masked = process.mask
        table = with_mask(p0)
        count = _masks(masked, p0.dim(), p0.device).reshape(table.shape)
        return table * lost**count * keep ** (p0.dim() - count)
    for axis in range(p0.dim()):
        p0 = keep * p0 + lost * p0.mean(axis, keepdim=True)
    return p0


@lru_cache(maxsize=256)
def _kept_and_lost(sigma: float) -> tuple[float, float]:
    """The probability that a site is kept under this much noise, and that it is not."""
    return float(torch.exp(-torch.tensor(sigma, dtype=torch.float64))), -math.expm1(-sigma)


@lru_cache(maxsize=4)
def _masks(mask: int, length: int, device: torch.device) -> Tensor:
    """Number of masked sites of each state [K]; cached, because every step needs it."""
    return (enumerate_states(mask + 1, length, device) == mask).sum(-1)


def with_mask(table: Tensor) -> Tensor:
    """The table with its sum appended along every axis: at entry `mask` of a site that site is summed out."""
    for axis in range(table.dim()):
        table = torch.cat([table, table.sum(axis, keepdim=True)], axis)
    return table


def lines(table: Tensor) -> Tensor:
    """Every line of the table along every axis, [D * K^(D-1), K], in the order of `line_index`."""
    size = table.shape[0]
    return torch.cat([table.movedim(axis, -1).reshape(-1, size) for axis in range(table.dim())])


def line_index(x: Tokens, size: int) -> Tensor:
    """Which line runs through x along each axis [..., D]: the digits of the other sites, after the earlier axes."""
    d = x.shape[-1]
    return _whole_product(x, _line_strides(d, size)) + torch.arange(d, device=x.device) * size ** (d - 1)


@lru_cache(maxsize=16)
def _line_strides(d: int, size: int) -> Tensor:
    strides = torch.zeros(d, d, dtype=torch.float64)
    for axis in range(d):
        others = [j for j in range(d) if j != axis]
        strides[others, axis] = torch.tensor([float(size ** (d - 2 - k)) for k in range(d - 1)], dtype=torch.float64)
    return strides


def flat_index(x: Tokens, size: int) -> Tensor:
    """The index of each state [..., D] in a flattened table."""
    d = x.shape[-1]
    strides = torch.tensor([[float(size ** (d - 1 - k))] for k in range(d)], dtype=torch.float64)
    return _whole_product(x, strides).squeeze(-1)


def _whole_product(x: Tokens, strides: Tensor) -> Tensor:
    """x @ strides in float64: exact, since no enumerable space has 2^53 states, and faster than in integers."""
    return (x.double() @ strides.to(x.device)).long()


def enumerate_states(size: int, length: int, device: torch.device | str = "cpu") -> Tokens:
    """All size^length states [K, length], in the order of `flat_index`."""
    axes = [torch.arange(size, device=device)] * length
    return torch.cartesian_prod(*axes).reshape(-1, length)


def _check_entries(name: str, table: Tensor) -> None:
    if not table.isfinite().all() or (table < 0).any():
        raise InvalidInput(f"{name} has negative, NaN or infinite entries; probabilities must be finite and at least 0")
    if not table.sum() > 0:
        raise InvalidInput(f"{name} is zero everywhere; at least one entry must be positive")
