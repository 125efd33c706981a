"""Kriging, also called Gaussian process regression: the rewards of few sites, and how much is unknown about them.

Values of two states correlate by a factor for each site at which they differ. These factors and a nugget (the share of
a value that its neighbours do not tell) are fitted by evidence, the marginal likelihood. Where a state was not called,
the twist is the mean plus some standard deviations: a law to draw from must cover what is unknown, and weights correct
the twist exactly, as they correct any other. All states are tabulated, so the value of a partly masked state,
log E_p0[exp(value) | x], is a sum. p0 itself is told by the steps of the draws, which recorded its probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.arguments import number, set_fields
from ..core.errors import InvalidInput
from ..core.types import Tokens
from ..exact.tables import flat_index, with_mask
from ..smc.sampler import OUTPUT, Stream
from .layout import TableLayout
from .lessons import Lessons, Steps

_LARGEST = 1 << 22  # states, clean or masked, at most
_FITTED, _KNOWN = 400, 2000  # called states that the evidence is of, and that the others are predicted from, at most
_NEAR, _FAR = 0.02, 0.98  # the correlations of states that differ at one site
_NUGGET, _LEAST, _DECADES = 0.1, 1e-3, 2.0  # prior median of the nugget, the least, and the prior's spread of its log
_UPDATES = 30
_SAMPLES, _AT_A_TIME = 24, 8  # samples of the posterior that the standard deviations are estimated from
_ROW_RIDGE, _LOWEST = 0.1, -25.0  # ridge of the rows' tables, and the log-probability that impossible tokens count as
_ORDERS = 8  # orders of revealing that the estimate of p0 is averaged over, at most


@dataclass(frozen=True, eq=False)
class TabulatedTwist:
    """The value of every state, clean or masked, in nats: an entry each."""

    layout: TableLayout  # of reach 0: it says the number of sites and of tokens
    entries: Tensor  # float64 [(S + 1)^D]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Its parameters by name."""
        return {"entries": self.entries}

    @staticmethod
    def of(layout: TableLayout, tensors: Mapping[str, Tensor]) -> TabulatedTwist:
        """A twist with these parameters, their shape checked."""
        if {*tensors} != {"entries"} or tensors["entries"].shape != (layout.states**layout.length,):
            raise ValueError("its tensors have other names or shapes")
        return TabulatedTwist(layout, tensors["entries"])

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return self.entries[flat_index(x, self.layout.states)]

    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor:
        """The value of x [B, D] with a site [B] set to every token, [B, S]."""
        stride = self.layout.states ** (self.layout.length - 1 - site)
        without = flat_index(x, self.layout.states) - x.gather(1, site[:, None]).squeeze(1) * stride
        tokens = torch.arange(self.layout.states - 1, device=x.device)
        return self.entries[without[:, None] + tokens * stride[:, None]]

    def to(self, device: torch.device | str) -> TabulatedTwist:
        return TabulatedTwist(self.layout, self.entries.to(device))


@dataclass(frozen=True)
class Kriging:
    """The family of kriging (Gaussian process regression) over few sites: every state is tabulated.

    The called states have their values, the others what those suggest. The covariance is fitted by evidence.

    Args:
        depth: Nats below the target's lowest twentieth, 0 or more, at which values level off: what is lower counts as
            that low, called or not. 6 by default.
        optimism: Posterior standard deviations that are added to a state that was not called, 0 or more; 2 by default.
            A twist that is too high there costs particles, one that is too low leaves few of them with all the weight.
    """

    depth: float = 6.0
    optimism: float = 2.0

    def __post_init__(self) -> None:
        for name in ("depth", "optimism"):
            value = number(name, getattr(self, name))
            if not 0 <= value < torch.inf:
                raise InvalidInput(f"{name} is {value}; it must be at least 0 and finite")
            set_fields(self, **{name: value})

    @property
    def name(self) -> str:
        return f"kriging, {self.depth:g} nats deep, optimism {self.optimism:g}"

    def size(self, length: int, vocabulary: int) -> int:
        """Number of states, clean or masked."""
        return (vocabulary + 1) ** length

    def fit(self, lessons: Lessons) -> TabulatedTwist:
        """Tabulate the values of clean states by kriging, then those of masked states by p0 as the steps tell it."""
        length, size = lessons.x.shape[1], lessons.mask
        if self.size(length, size) > _LARGEST:
            raise InvalidInput(
                f"{length} sites of {size} tokens have more than {_LARGEST:,} states, clean or masked; kriging "
                "tabulates all. Give tt.PairTables(reach)"
            )
        x, value = _distinct(*lessons.clean())
        level = torch.tensor(lessons.low - self.depth, dtype=torch.float64)
        clean = surrogate(x, torch.logaddexp(value, level), size, self.optimism, float(level))
        entries = masked_values(base_law(lessons.steps, length, size), clean.reshape((size,) * length))
        return TabulatedTwist(TableLayout(length, size + 1, 0), entries.reshape(-1))


def _distinct(x: Tokens, value: Tensor) -> tuple[Tokens, Tensor]:
    """Each state once, with the mean of its values (of a noisy reward)."""
    states, number_of = torch.unique(x, dim=0, return_inverse=True)
    total = torch.zeros(len(states), dtype=torch.float64).index_add(0, number_of, value)
    return states, total / torch.bincount(number_of)


class Covariance(NamedTuple):
    """The prior's correlations, the same up to the variance: a factor for each site that differs, and a nugget."""

    factors: Tensor  # float64 [D], between 0 and 1
    nugget: float  # variance of what is a state's own, in units of the rest

    def between(self, a: Tokens, b: Tokens) -> Tensor:
        """The correlations of two batches of states without the nugget, [A, B]."""
        return _correlations(self.factors, _differ(a, b))

    def with_itself(self, x: Tokens) -> Tensor:
        """The covariance of distinct states in units of the variance, with the nugget: [K, K]."""
        return self.between(x, x) + self.nugget * torch.eye(len(x), dtype=torch.float64)

    def spread_over(self, table: Tensor) -> Tensor:
        """The sum over all states of their correlation with each, weighed by a table [..., S, ..., S]."""
        for axis, factor in zip(range(-len(self.factors), 0), self.factors, strict=True):
            table = (1 - factor) * table + factor * table.sum(axis, keepdim=True)
        return table

    def sample(self, normals: Tensor) -> Tensor:
        """Draws of the prior without the nugget, from standard normals [..., S, ..., S]: a root along each axis."""
        size = normals.shape[-1]
        for axis, factor in zip(range(-len(self.factors), 0), self.factors, strict=True):
            own = (1 - factor).sqrt()
            shared = ((1 - factor + size * factor).sqrt() - own) / size
            normals = own * normals + shared * normals.sum(axis, keepdim=True)
        return normals


def _differ(a: Tokens, b: Tokens) -> Tensor:
    """Whether two states differ at a site, float64 [D, A, B]."""
    return (a.T[:, :, None] != b.T[:, None]).double()


def _correlations(factors: Tensor, differ: Tensor) -> Tensor:
    return torch.einsum("d,dab->ab", factors.log(), differ).exp()


def fitted_covariance(x: Tokens, value: Tensor) -> Covariance:
    """The covariance of most evidence for the values of distinct states; many states are thinned out.

    The mean and the variance are profiled out. A weak prior, one logit around 1/2 for the factors, decides where few
    states say little.
    """
    every = -(-len(x) // _FITTED)
    x, value = x[::every], value[::every]
    differ, length = _differ(x, x), x.shape[1]
    logits = torch.zeros(length + 1, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([logits], max_iter=_UPDATES, line_search_fn="strong_wolfe", tolerance_change=1e-3)

    def loss() -> Tensor:
        search.zero_grad()
        factors, nugget = _covariance_of(logits)
        root = torch.linalg.cholesky(_correlations(factors, differ) + nugget * torch.eye(len(x), dtype=torch.float64))
        found = -_evidence(root, value) + (logits[:-1] ** 2).sum() / 2 + (logits[-1] / _DECADES) ** 2 / 2
        found.backward()
        return found

    with torch.enable_grad():
        search.step(loss)
    factors, nugget = _covariance_of(logits.detach())
    return Covariance(factors, float(nugget))


def _covariance_of(logits: Tensor) -> tuple[Tensor, Tensor]:
    return _NEAR + (_FAR - _NEAR) * logits[:-1].sigmoid(), _LEAST + _NUGGET * logits[-1].exp()


def _evidence(root: Tensor, value: Tensor) -> Tensor:
    """Log marginal likelihood of values [K] at the best mean and variance, up to a constant, from the root of their
    covariance."""
    left = value - _best_mean(root, value)
    quadratic = (torch.linalg.solve_triangular(root, left[:, None], upper=False) ** 2).sum()
    return -len(value) / 2 * (quadratic / len(value)).log() - root.diagonal().log().sum()


def _best_mean(root: Tensor, value: Tensor) -> Tensor:
    ones = torch.ones_like(value)
    solved = torch.cholesky_solve(ones[:, None], root).squeeze(1)
    return (solved @ value) / (solved @ ones)


def surrogate(x: Tokens, value: Tensor, size: int, optimism: float, level: float) -> Tensor:
    """The value of every clean state [S^D]: of called states x [K, D] their own, of others mean plus optimism standard
    deviations, between `level` and the largest of all."""
    length, top = x.shape[1], float(value.max())
    index = flat_index(x, size)
    if top - float(value.min()) < 1e-9:
        return torch.full((size**length,), top, dtype=torch.float64)
    used = _told_by(value)
    covariance = fitted_covariance(x[used], value[used])
    mean, deviation = predicted(covariance, x[used], value[used], size, optimism > 0)
    return (mean + optimism * deviation).clamp(level, top).index_copy(0, index, value)


def _told_by(value: Tensor) -> Tensor:
    """The states that others are predicted from: of too many, the highest half and some of the others, in order."""
    if len(value) <= _KNOWN:
        return torch.arange(len(value))
    order = value.argsort(descending=True, stable=True)
    high, others = order[: _KNOWN // 2], order[_KNOWN // 2 :]
    return torch.cat([high, others[:: -(-2 * len(others) // _KNOWN)]]).sort().values


def predicted(covariance: Covariance, x: Tokens, value: Tensor, size: int, uncertain: bool) -> tuple[Tensor, Tensor]:
    """The posterior mean of every state [S^D] and its standard deviation (0 if not wanted) from called states.

    The deviation is that of samples: a draw of the prior plus the kriging of what it leaves of the values.
    """
    length, shape = x.shape[1], (size,) * x.shape[1]
    index, root = flat_index(x, size), torch.linalg.cholesky(covariance.with_itself(x))

    def kriged(left: Tensor) -> Tensor:
        """The sum of correlations with the called states, weighed by the solution for these values [K, N]: [N, S^D]."""
        table = torch.zeros(left.shape[1], size**length, dtype=torch.float64)
        table[:, index] = torch.cholesky_solve(left, root).T
        return covariance.spread_over(table.reshape(-1, *shape)).reshape(left.shape[1], -1)

    centre = _best_mean(root, value)
    left = (value - centre)[:, None]
    mean = centre + kriged(left)[0]
    if not uncertain:
        return mean, torch.zeros_like(mean)
    square = torch.zeros_like(mean)
    for first in range(0, _SAMPLES, _AT_A_TIME):
        normals = _normals(first // _AT_A_TIME, _AT_A_TIME, size**length + len(x))
        drawn = covariance.sample(normals[:, : size**length].reshape(-1, *shape)).reshape(_AT_A_TIME, -1)
        noisy = drawn[:, index] + math.sqrt(covariance.nugget) * normals[:, size**length :]
        square += ((drawn - kriged(noisy.T)) ** 2).sum(0)
    variance = (left * torch.cholesky_solve(left, root)).sum() / len(x)
    return mean, (variance * (square / _SAMPLES + covariance.nugget)).sqrt()


def _normals(block: int, rows: int, count: int) -> Tensor:
    u = Stream(0).uniforms(block, OUTPUT, rows, count)
    return torch.erfinv((2 * u - 1).clamp(-1 + 1e-12, 1 - 1e-12)) * math.sqrt(2)


def masked_values(log_p0: Tensor, clean: Tensor) -> Tensor:
    """log E[exp(value) | x] of all states, clean or masked [S + 1, ..., S + 1], from tables of log p0 and of values."""
    top = float(clean.max())
    law = log_p0.exp()
    return top + (with_mask(law * (clean - top).exp()) / with_mask(law)).log()


def base_law(steps: Steps, length: int, size: int) -> Tensor:
    """log p0 of all clean states [S, ..., S] as the recorded steps suggest it.

    p(token | what is revealed) is log-linear in the other sites' tokens, of which the mask is one. The chain rule
    makes p0 of these along the orders of the draws, and their logs are averaged.
    """
    rows = [_fitted_rows(steps, site, size) for site in range(length)]
    total = torch.zeros((size,) * length, dtype=torch.float64)
    orders = _orders(steps, length)
    for order in orders:
        for place, site in enumerate(order):
            shown = set(order[:place])
            logits = _along(rows[site].alone, (site,), length)
            for other, table in rows[site].beside.items():
                here = table[:size] if other in shown else table[size:]
                axes = (other, site)
                logits = logits + (_along(here, axes, length) if other in shown else _along(here[0], (site,), length))
            total = total + logits.log_softmax(site) / len(orders)
    return (total - total.flatten().logsumexp(0)).clamp(min=-500.0)


class _SiteLogitTables(NamedTuple):
    """Logits of a site's tokens: some alone [S], and for each other site a table of its token or mask [S + 1, S]."""

    alone: Tensor
    beside: dict[int, Tensor]


def _fitted_rows(steps: Steps, site: int, size: int) -> _SiteLogitTables:
    """Ridge regression of the recorded log-probabilities of a site, centred, on the tokens and masks of the others."""
    others = [other for other in range(steps.x.shape[1]) if other != site]
    here = steps.site == site
    contexts, number_of = torch.unique(steps.x[here], dim=0, return_inverse=True)
    if not len(contexts):
        flat = torch.zeros(size + 1, size, dtype=torch.float64)
        return _SiteLogitTables(flat[0], dict.fromkeys(others, flat))
    seen = torch.bincount(number_of).double()[:, None]
    full = torch.full((int(here.sum()), size), _LOWEST, dtype=torch.float64)
    full.scatter_(1, steps.tokens[here], steps.log_p[here].clamp(min=_LOWEST))
    goal = torch.zeros(len(contexts), size, dtype=torch.float64).index_add(0, number_of, full) / seen
    goal, weight = goal - goal.mean(-1, keepdim=True), seen.sqrt()
    alone = (weight * goal).sum(0) / weight.sum()
    tokens = torch.nn.functional.one_hot(contexts[:, others], size + 1).flatten(1).double()
    gram = (weight * tokens).T @ tokens
    solved = torch.linalg.solve(gram + _ROW_RIDGE * torch.eye(len(gram)), (weight * tokens).T @ (goal - alone))
    return _SiteLogitTables(alone, dict(zip(others, solved.reshape(-1, size + 1, size), strict=True)))


def _orders(steps: Steps, length: int) -> Sequence[tuple[int, ...]]:
    """Orders in which draws revealed the sites, some of many; any one if no draw has all its steps."""
    whole = torch.bincount(steps.draw) == length
    own = whole[steps.draw]
    draw, site = steps.draw[own], steps.site[own]
    shown = (steps.x[own] != steps.x[own].gather(1, site[:, None])).sum(-1)  # sites that are not masked
    found = site[(draw * length + shown).argsort()].reshape(-1, length)
    every = torch.unique(found, dim=0) if len(found) else torch.arange(length)[None]
    stride = -(-len(every) // _ORDERS)
    return [tuple(order) for order in every[::stride].tolist()]


def _along(values: Tensor, axes: tuple[int, ...], length: int) -> Tensor:
    """A table over some sites as one over all, to broadcast: its axes in the order of `axes`."""
    ordered = values if list(axes) == sorted(axes) else values.T
    sizes = iter(ordered.shape)
    return ordered.reshape([next(sizes) if axis in axes else 1 for axis in range(length)])
