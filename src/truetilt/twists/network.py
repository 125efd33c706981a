"""A small network as a twist: a table for each site, and one hidden layer over the tokens of all sites.

The hidden layer's input is a sum of one vector per site, so evaluating every token at a site costs one hidden layer per
token. Initial weights and training batches come from the library's random stream, never from a global generator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.arguments import set_fields, whole_number
from ..core.types import Tokens
from ..smc.sampler import DRAW, OUTPUT, Stream, check_seed
from .layout import TableLayout
from .lessons import Lessons, Steps
from .tables import PairTables

_WIDEST = 4096
_NAMES = ("sites", "inner", "bias", "outer")
_BATCH, _UPDATES, _RATE = 512, 300, 0.02
_HIDDEN = 1 << 19  # hidden units in the steps of one batch, at most: with a large vocabulary a batch has fewer steps
_FIRST, _SECOND = 0.9, 0.999  # Adam's decay rates


@dataclass(frozen=True, eq=False)
class NetworkTwist:
    """sum_d sites[d, x_d] + outer . tanh(bias + sum_d inner[d, x_d]), in nats."""

    layout: TableLayout
    sites: Tensor  # [D, S + 1]; the constant is spread over them
    inner: Tensor  # [D, S + 1, H]
    bias: Tensor  # [H]
    outer: Tensor  # [H]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Its parameters by name."""
        return {name: getattr(self, name) for name in _NAMES}

    @staticmethod
    def of(layout: TableLayout, tensors: Mapping[str, Tensor]) -> NetworkTwist:
        """A twist with these parameters, their shapes checked."""
        width = tensors["bias"].numel()
        shape = (layout.length, layout.states)
        expected = ((*shape,), (*shape, width), (width,), (width,))
        if {*tensors} != {*_NAMES} or any(tensors[n].shape != s for n, s in zip(_NAMES, expected, strict=True)):
            raise ValueError("its tensors have other names or shapes")
        return NetworkTwist(layout, *(tensors[name] for name in _NAMES))

    def to(self, device: torch.device | str) -> NetworkTwist:
        return NetworkTwist(self.layout, *(getattr(self, name).to(device) for name in _NAMES))

    def __call__(self, x: Tokens, t: float) -> Tensor:
        linear, hidden = self._sums(x)
        return linear + torch.tanh(hidden) @ self.outer

    def site_values(self, x: Tokens, site: Tensor, t: float) -> Tensor:
        """The value of x [B, D] with a site [B] set to every token, [B, S]."""
        return self.values_with(x, site, torch.arange(self.layout.states - 1, device=x.device).expand(len(x), -1))

    def values_with(self, x: Tokens, site: Tensor, tokens: Tokens) -> Tensor:
        """The value of x [B, D] with a site [B] set to each of these tokens [B, K], [B, K]."""
        linear, hidden = self._sums(x)
        old = site * self.layout.states + x.gather(1, site[:, None]).squeeze(1)
        each = site[:, None] * self.layout.states + tokens
        linear = (linear - _rows(self.sites, old).squeeze(-1))[:, None] + _rows(self.sites, each).squeeze(-1)
        hidden = (hidden - _rows(self.inner, old))[:, None] + _rows(self.inner, each)
        return linear + torch.tanh(hidden) @ self.outer

    def _sums(self, x: Tokens) -> tuple[Tensor, Tensor]:
        every = torch.arange(self.layout.length, device=x.device) * self.layout.states + x
        return _rows(self.sites, every).sum((-2, -1)), self.bias + _rows(self.inner, every).sum(-2)


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Entries [..., H] of a table [D, S + 1, H] or [D, S + 1] by flat index, as a gather whose gradient is cheap."""
    flat = table.reshape(-1, table.shape[2] if table.dim() == 3 else 1)
    return flat.index_select(0, index.reshape(-1)).reshape(*index.shape, -1)


@dataclass(frozen=True)
class SmallNetwork:
    """The family of networks with one hidden layer, trained by Adam from the linear twist.

    Args:
        width: Units of the hidden layer, 1 to 4,096; 32 by default.
        seed: Seed of its first weights and of the batches, 0 by default.
    """

    width: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        set_fields(self, width=whole_number("width", self.width, 1, _WIDEST), seed=check_seed(self.seed))

    @property
    def name(self) -> str:
        return f"network of {self.width}"

    def size(self, length: int, vocabulary: int) -> int:
        """Number of parameters."""
        return length * (vocabulary + 1) * (self.width + 1)

    def fit(self, lessons: Lessons) -> NetworkTwist:
        """Train on squared errors on clean states plus squared log-weights of steps, one batch of each per update."""
        twist = self._first(lessons)
        x, value = lessons.clean()
        stream, steps = Stream(self.seed), lessons.steps
        parameters, most = list(twist.tensors.values()), max(_HIDDEN // (steps.tokens.shape[1] * self.width), 16)
        first, second = ([torch.zeros_like(one) for one in parameters] for _ in range(2))
        for update in range(_UPDATES):
            u = stream.uniforms(update, OUTPUT, 2, _BATCH)
            some, few = ((row * n).long() for row, n in zip(u, (len(x), len(steps.x)), strict=True))
            batch = Steps(*(column[few[:most]] for column in steps))
            with torch.enable_grad():
                asked = [one.requires_grad_() for one in parameters]
                loss = _loss(NetworkTwist(twist.layout, *asked), x[some], value[some], batch)
            found = torch.autograd.grad(loss, asked)
            rate = _RATE * 0.5 * (1 + math.cos(math.pi * update / _UPDATES))
            first = [_FIRST * m + (1 - _FIRST) * g for m, g in zip(first, found, strict=True)]
            second = [_SECOND * v + (1 - _SECOND) * g**2 for v, g in zip(second, found, strict=True)]
            scale = rate * math.sqrt(1 - _SECOND ** (update + 1)) / (1 - _FIRST ** (update + 1))
            parameters = [
                one.detach() - scale * m / (v.sqrt() + 1e-8) for one, m, v in zip(asked, first, second, strict=True)
            ]
        return NetworkTwist(twist.layout, *parameters)

    def _first(self, lessons: Lessons) -> NetworkTwist:
        linear = PairTables(0).fit(lessons)
        layout, size = linear.layout, linear.layout.length * linear.layout.states
        sites = linear.entries[:size].reshape(layout.length, layout.states) + linear.entries[size] / layout.length
        u = Stream(self.seed).uniforms(0, DRAW, 1, (size + 1) * self.width)[0]
        normal = torch.erfinv((2 * u - 1).clamp(-1 + 1e-12, 1 - 1e-12)) * math.sqrt(2)
        inner = normal[: size * self.width].reshape(layout.length, layout.states, self.width) / math.sqrt(layout.length)
        return NetworkTwist(
            layout, sites, inner, normal[size * self.width :], torch.zeros(self.width, dtype=torch.float64)
        )


def _loss(twist: NetworkTwist, x: Tokens, value: Tensor, steps: Steps) -> Tensor:
    """Mean squared error on clean states, plus the mean squared log-weight of steps times their number in a draw."""
    gain = twist.values_with(steps.x, steps.site, steps.tokens) - twist(steps.x, 0.0)[:, None]
    log_w = (steps.log_p + gain).logsumexp(-1)
    return ((value - twist(x, 0.0)) ** 2).mean() + twist.layout.length * (log_w**2).mean()
