"""Log-weights, resampling schemes and the combinators around them.

Log-weights are float64, unnormalised and never clamped; sums go over the particle axis, the last. Every scheme maps
(log-weights [..., N], uniforms [..., N]) to ancestors and new log-weights, keeps the total mass of each population (so
log Z is log-mean-exp at any time) and is unbiased: E[sum w~ phi] = sum w phi. A population without mass is left alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.arguments import function, number, set_fields, shown
from ..core.errors import DegenerateWeights, InvalidInput, InvalidWeights, TruetiltError
from ..core.evaluation import RunLog, check, is_on_host
from ..core.logits import draw_from
from ..core.types import NEG_INF, LogWeights, Resampled, Resampler

_ROUNDING = 1e-9  # by which the log of a probability may exceed 0


def log_mean_exp(log_w: LogWeights) -> Tensor:
    """log of the mean weight: the estimate of log Z that a mass-preserving sampler carries at any time."""
    return torch.logsumexp(log_w, -1) - math.log(log_w.shape[-1])


def normalised(log_w: LogWeights) -> Tensor:
    """Weights that sum to one; a population without mass gets equal ones, which are never used."""
    log_sum = torch.logsumexp(log_w, -1, keepdim=True)
    return (log_w - log_sum).exp().masked_fill_(log_sum == NEG_INF, 1 / log_w.shape[-1])


def effective_sample_size(log_w: LogWeights) -> Tensor:
    """(sum w)^2 / sum w^2, between 1 and N; 0 for a population without mass."""
    log_sum = torch.logsumexp(log_w, -1)
    log_ess = 2 * log_sum - torch.logsumexp(2 * log_w, -1)
    return log_ess.exp().masked_fill_(log_sum == NEG_INF, 0.0)


def check_weights(log_w: LogWeights, where: object, complete: bool = True, log: RunLog | None = None) -> None:
    """Raise on NaN, on +inf and, if these are all particles (`complete`), when every weight is zero."""
    top = log_w.max()  # NaN if any is NaN
    bad = top - top != 0 if complete else ~(top < torch.inf)  # x - x is 0 only for a finite x
    check(bad, functools.partial(_problem, log_w, where), log)


def check_accepted(log_accept: Tensor, where: object, log: RunLog | None = None) -> None:
    """Raise unless acceptance probabilities are probabilities: neither NaN nor, but for rounding, above 1."""
    check(~(log_accept <= _ROUNDING).all(), functools.partial(_no_chance, log_accept, where), log)


def _no_chance(log_accept: Tensor, where: object) -> InvalidWeights:
    nan, above = int(log_accept.isnan().sum()), int((log_accept > 0).sum())
    kind, bad = ("NaN", nan) if nan else (f"up to {float(log_accept.exp().max()):.3g}", above)
    return InvalidWeights(
        f"{where}: the acceptance probability is {kind} for {bad} of {log_accept.numel()} particles; return log_accept "
        "of at most 0, min(0, log ratio), and where a state has mass zero a number too, such as 0, not -inf + inf"
    )


def _problem(log_w: LogWeights, where: object) -> TruetiltError:
    if log_w.max() == NEG_INF:
        return DegenerateWeights(
            f"{where}: every particle has weight zero. The condition may be impossible for the states reached: "
            "use more particles, a smaller alpha or strength, a proposal that keeps the support (beta), or a softer "
            "likelihood or reward (tt.Annealed has a floor for forbidden states)."
        )
    bad = int((log_w.isnan() | (log_w == torch.inf)).sum())
    kind = "NaN" if log_w.isnan().any() else "+inf"
    return InvalidWeights(
        f"{where}: {bad} of {log_w.numel()} particles have weight {kind}. A score, potential or reward returned NaN "
        "or an infinite value there, or the proposal lacks the base's support; check the model's output at this time."
    )


def resampled(scheme: Resampler, log_w: LogWeights, u: Tensor, log: RunLog | None = None) -> Resampled:
    """Call a resampling scheme, and validate what a scheme from outside this package returns."""
    found = scheme(log_w, u)
    if isinstance(scheme, Adaptive | Partial) or scheme is never or scheme in SCHEMES.values():
        return found
    if not isinstance(found, tuple) or len(found) != 2 or not all(isinstance(part, Tensor) for part in found):
        raise InvalidInput(f"the resampler returned {shown(found)}; it must return ancestors and log-weights")
    ancestors, weights = found
    if ancestors.shape != log_w.shape or ancestors.dtype != torch.int64 or weights.shape != log_w.shape:
        raise InvalidInput(
            f"the resampler returned ancestors {ancestors.dtype} {tuple(ancestors.shape)} and log-weights "
            f"{tuple(weights.shape)} for {tuple(log_w.shape)} particles; ancestors are int64, both of that shape"
        )
    strange = (ancestors.min() < 0) | (ancestors.max() >= log_w.shape[-1])
    named = f"the resampler named ancestors outside 0 to {log_w.shape[-1] - 1}"
    check(strange, functools.partial(InvalidInput, named), log)
    return Resampled(ancestors, weights.to(log_w))


def _check(log_w: LogWeights, u: Tensor) -> None:
    """Refuse log-weights and uniforms of different shapes; no value is read, so no device is synchronised."""
    tensors = (
        isinstance(log_w, Tensor)
        and isinstance(u, Tensor)
        and log_w.is_floating_point()
        and u.is_floating_point()
        and not any(tensor.is_meta or tensor.is_sparse for tensor in (log_w, u))
    )
    many = log_w.shape[-1] if tensors and log_w.dim() else 0
    if not many or u.shape[:-1] != log_w.shape[:-1] or u.shape[-1:] not in ((many,), (1,)):  # 1: one draw of all
        raise InvalidInput(
            f"log-weights are {shown(log_w)} and uniforms {shown(u)}; give two tensors of one shape [..., N]"
        )


def never(log_w: LogWeights, u: Tensor) -> Resampled:
    """No resampling: every particle is its own ancestor and keeps its weight.

    Args:
        log_w: Log-weights of the particles, float64 [..., N], unnormalised.
        u: Uniforms in [0, 1), float64 [..., N].
    """
    _check(log_w, u)
    return Resampled(torch.arange(log_w.shape[-1], device=log_w.device).expand(log_w.shape), log_w)


def multinomial(log_w: LogWeights, u: Tensor) -> Resampled:
    """Multinomial resampling: N independent draws by weight.

    Args:
        log_w: Log-weights of the particles, float64 [..., N], unnormalised.
        u: Uniforms in [0, 1), float64 [..., N].
    """
    _check(log_w, u)
    return _equal(log_w, _invert(normalised(log_w), u))


def stratified(log_w: LogWeights, u: Tensor) -> Resampled:
    """Stratified resampling: one draw in each of N equal slices of the cumulated weights.

    Args:
        log_w: Log-weights of the particles, float64 [..., N], unnormalised.
        u: Uniforms in [0, 1), float64 [..., N].
    """
    _check(log_w, u)
    return _equal(log_w, _invert(normalised(log_w), _slices(u)))


def systematic(log_w: LogWeights, u: Tensor) -> Resampled:
    """Systematic resampling: one uniform shifts N equally spaced points on the cumulated weights.

    Args:
        log_w: Log-weights of the particles, float64 [..., N], unnormalised.
        u: Uniforms in [0, 1), float64 [..., N].
    """
    _check(log_w, u)
    return _equal(log_w, _invert(normalised(log_w), _slices(u[..., :1].expand_as(u))))


def residual(log_w: LogWeights, u: Tensor) -> Resampled:
    """Residual resampling: $floor(N w)$ copies of each particle for sure, other places drawn from the remainders.

    Args:
        log_w: Log-weights of the particles, float64 [..., N], unnormalised.
        u: Uniforms in [0, 1), float64 [..., N].
    """
    _check(log_w, u)
    expected = normalised(log_w) * log_w.shape[-1]
    sure = (expected * (1 + 1e-14)).floor()  # N w that rounding left just under a whole number is that number
    taken = sure.sum(-1, keepdim=True)
    remainder = (expected - sure).clamp(min=0.0)
    slot = torch.arange(log_w.shape[-1], device=log_w.device).expand(log_w.shape)
    drawn = _invert(remainder, u)
    return _equal(log_w, torch.where(slot < taken, _repeat(sure), drawn))


def ssp(log_w: LogWeights, u: Tensor) -> Resampled:
    """Srinivasan sampling process (Gerber, Chopin & Whiteley 2019), pairs matched in a tournament of $log2 N$ rounds.

    Each round pairs the fractional counts. One of a pair becomes 0 or 1, the other carries their remainder on.

    Args:
        log_w: Log-weights of the particles, float64 [..., N], unnormalised.
        u: Uniforms in [0, 1), float64 [..., N].
    """
    _check(log_w, u)
    expected = normalised(log_w) * log_w.shape[-1]
    sure = expected.floor()
    carried = expected - sure
    settled = torch.zeros_like(carried)
    who = torch.arange(log_w.shape[-1], device=log_w.device).expand(log_w.shape)
    used = 0
    while carried.shape[-1] > 1:
        odd = carried.shape[-1] % 2
        rest, rest_who = carried[..., carried.shape[-1] - odd :], who[..., who.shape[-1] - odd :]
        a, b = carried[..., : carried.shape[-1] - odd].unflatten(-1, (-1, 2)).unbind(-1)
        i, j = who[..., : who.shape[-1] - odd].unflatten(-1, (-1, 2)).unbind(-1)
        pairs = a.shape[-1]
        settle_first, value, kept = _meet(a, b, u[..., used : used + pairs])
        settled = settled.scatter(-1, torch.where(settle_first, i, j), value)
        carried = torch.cat([kept, rest], -1)
        who = torch.cat([torch.where(settle_first, j, i), rest_who], -1)
        used += pairs
    settled = settled.scatter(-1, who, carried.round())  # the last count is 0 or 1 up to rounding
    return _equal(log_w, _repeat(sure + settled))


def _meet(a: Tensor, b: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each pair: whether the first is settled, the value (0 or 1) it is settled at, and the count the other
    carries.
    """
    both = a + b
    small = both <= 1
    chance_first = torch.where(small, b / both, (1 - b) / (2 - both))  # 0/0 compares false
    return u < chance_first, (~small).to(a.dtype), torch.where(small, both, both - 1)


@dataclass(frozen=True)
class Partial:
    """A resampler that touches only the heaviest and the lightest; made by `partial`."""

    scheme: Resampler
    size: int | float

    def __post_init__(self) -> None:
        _check_scheme(self.scheme)
        size = number("the size of partial resampling", self.size)
        set_fields(self, size=size)
        if not (0 < size <= 1 if isinstance(size, float) else size >= 1):
            raise InvalidInput(f"partial resampling of size {size}: give a count of at least 1 or a fraction in (0, 1]")

    def __call__(self, log_w: LogWeights, u: Tensor) -> Resampled:
        n = log_w.shape[-1]
        m = max(1, round(self.size * n)) if isinstance(self.size, float) else self.size
        if m > n:
            raise InvalidInput(f"partial resampling of {m} particles, but the population has {n}")
        order = log_w.argsort(dim=-1, stable=True)
        chosen = torch.cat([order[..., : m - m // 2], order[..., n - m // 2 :]], -1)
        inner = resampled(self.scheme, log_w.gather(-1, chosen), u[..., :m])
        everyone = never(log_w, u).ancestors
        return Resampled(
            everyone.scatter(-1, chosen, chosen.gather(-1, inner.ancestors)), log_w.scatter(-1, chosen, inner.log_w)
        )


@dataclass(frozen=True)
class Adaptive:
    """A resampler that acts only when the effective sample size is low; made by `adaptive`."""

    scheme: Resampler
    threshold: float

    def __post_init__(self) -> None:
        _check_scheme(self.scheme)
        set_fields(self, threshold=number("the ESS threshold", self.threshold))
        if not 0 <= self.threshold <= 1:
            raise InvalidInput(f"the ESS threshold is {self.threshold}; give a fraction of the particles in [0, 1]")

    def __call__(self, log_w: LogWeights, u: Tensor) -> Resampled:
        low = (effective_sample_size(log_w) < self.threshold * log_w.shape[-1])[..., None]
        old = never(log_w, u)
        if is_on_host(low) and not low.any():  # on a GPU, reading the answer would cost more than resampling
            return old
        new = resampled(self.scheme, log_w, u)
        return Resampled(torch.where(low, new.ancestors, old.ancestors), torch.where(low, new.log_w, old.log_w))


def _check_scheme(scheme: object) -> None:
    function("the scheme", scheme, "(log_w, u)", "such as tt.systematic or tt.multinomial")


def partial(scheme: Resampler, size: int | float) -> Partial:
    """Partial resampling: the $floor(M/2)$ heaviest and $ceil(M/2)$ lightest particles are resampled among themselves.

    The other particles keep their weights, and the subset keeps its mass. This is the paper's Algorithm 4, corrected.

    Args:
        scheme: Resampling scheme for the M particles, such as `tt.systematic`.
        size: M as a whole number, 1 to the particles of a population; or a fraction of them, a float above 0 and at
            most 1.
    """
    return Partial(scheme, size)


def adaptive(scheme: Resampler, threshold: float = 0.5) -> Adaptive:
    """A resampler that acts where the effective sample size is low, and elsewhere leaves the particles as they are.

    Args:
        scheme: Resampling scheme for the populations that are resampled, such as `tt.systematic`.
        threshold: Resample the populations whose effective sample size is below this fraction of their particles, 0 to
            1; 0.5 by default.
    """
    return Adaptive(scheme, threshold)


SCHEMES: dict[str, Callable[[LogWeights, Tensor], Resampled]] = {
    f.__name__: f for f in (multinomial, stratified, systematic, residual, ssp)
}


def _equal(log_w: LogWeights, ancestors: Tensor) -> Resampled:
    """Equal weights of the same total mass; a population without mass keeps itself."""
    mean = log_mean_exp(log_w)[..., None]
    dead = mean == NEG_INF
    own = torch.arange(log_w.shape[-1], device=log_w.device)
    return Resampled(torch.where(dead, own, ancestors), mean.expand(log_w.shape).clone())


def _slices(u: Tensor) -> Tensor:
    n = u.shape[-1]
    return (torch.arange(n, device=u.device) + u) / n


def _invert(weights: Tensor, u: Tensor) -> Tensor:
    """The first particle whose cumulated weight exceeds u times the total."""
    return draw_from(weights.cumsum(-1), u)


def _repeat(counts: Tensor) -> Tensor:
    """Ancestors in order, each repeated `counts` times; slots beyond the counts hold the last particle."""
    slot = torch.arange(counts.shape[-1], device=counts.device, dtype=counts.dtype).expand(counts.shape)
    return torch.searchsorted(counts.cumsum(-1), slot.contiguous(), right=True).clamp(max=counts.shape[-1] - 1)
