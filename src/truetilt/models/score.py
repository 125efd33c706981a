"""Adapters: a network becomes a Score or a Potential, the words the samplers speak.

Every network batch is padded to the same number of rows, because float32 matrix products differ with the batch: a
state's answer then does not depend on how many others came with it. At t = 0 a potential is asked at t = 0: the state
is clean, and the answer is log p(class | x_0), where a telescoping weight must end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..processes import Masking
from ..types import InvalidInput, Model, Process, SiteLogits, Tokens

FORMS = ("potential", "deft", "cfg")


@dataclass(frozen=True)
class Padded:
    """A net asked in batches of one size, in eval mode, without gradients, under autocast if a `dtype` is given."""

    net: nn.Module
    batch: int
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InvalidInput(f"batch is {self.batch}; a net is asked about at least one state at a time")

    def __call__(self, x: Tokens, t: float, labels: Tensor | None = None) -> Iterator[Tensor]:
        """The net's answers on states [n, D], batch by batch, told a label each [n] if any."""
        times = torch.full((self.batch,), float(t), device=x.device)
        inputs = (x,) if labels is None else (x, labels)
        for parts in zip(*(tensor.split(self.batch) for tensor in inputs), strict=True):
            state, *told = (self._filled(part) for part in parts)
            yield self._ask(state, times, *told)[: len(parts[0])]

    def _filled(self, part: Tensor) -> Tensor:
        """With copies of its first row up to the size of a batch."""
        return torch.cat([part, part[:1].expand(self.batch - len(part), *part.shape[1:])])

    @torch.no_grad()
    def _ask(self, *inputs: Tensor) -> Tensor:
        training = self.net.training
        self.net.eval()
        try:
            with torch.autocast(inputs[0].device.type, self.dtype, enabled=self.dtype is not None):
                return self.net(*inputs)
        finally:
            self.net.train(training)


@dataclass(frozen=True)
class NetScore:
    """The Score of a net of posterior logits, under `label` (None: no condition)."""

    net: nn.Module
    process: Process
    label: int | None = None
    batch: int = 64
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        _ = self._asked
        if self.label is not None:
            _check_class(self.net, self.label)
        needed = self.process.vocabulary
        known = getattr(getattr(self.net, "config", None), "vocabulary", needed)
        if known != needed:
            raise InvalidInput(
                f"the net knows {known} tokens and the process {needed}; they must be equal (the mask is not counted)"
            )

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        logits = self.logits(x, t)
        return self.process.score(logits.with_rows(logits.rows.log_softmax(-1)), x, t)

    @property
    def _asked(self) -> Padded:
        return Padded(self.net, self.batch, self.dtype)

    def logits(self, x: Tokens, t: float, labels: Tensor | None = None) -> SiteLogits:
        """The net's own numbers where a sampler reads them: for masking, masked sites; the rest share one flat row.

        `labels`, one for each state in a flat row, take the place of the score's own.
        """
        masking = isinstance(self.process, Masking)
        read = x == self.process.mask if masking else torch.ones_like(x, dtype=torch.bool)
        flat, chosen = x.reshape(-1, x.shape[-1]), read.reshape(-1, x.shape[-1]).split(self.batch)
        if labels is None and self.label is not None:
            labels = torch.full((len(flat),), self.label, device=x.device)
        answers = self._asked(flat, t, labels)
        rows = [SiteLogits.of(out[here]).rows for out, here in zip(answers, chosen, strict=True)]
        index = torch.where(read, read.reshape(-1).cumsum(0).reshape(x.shape), 0)
        return SiteLogits(torch.cat([rows[0].new_zeros(1, self.process.vocabulary), *rows]), index)


@dataclass(frozen=True)
class DeftScore:
    """DEFT's conditional Score: the frozen base's log-score plus a guide net's log g, edge by edge, unnormalised."""

    base: NetScore
    guide_net: nn.Module
    label: int

    def __post_init__(self) -> None:
        _check_class(self.guide_net, self.label)
        _ = self.guide  # a net that does not fit fails here

    @property
    def guide(self) -> NetScore:
        """The guide net, asked in the way the base is."""
        return NetScore(self.guide_net, self.base.process, self.label, self.base.batch, self.base.dtype)

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        base, log_g = self.base(x, t).aligned(self.guide.logits(x, t))
        return base.with_rows(base.rows + log_g.rows)


@dataclass(frozen=True)
class NetPotential:
    """log p_t(label | x) of a classifier of noised tokens: float64, at most 0; a clean state is asked at t = 0."""

    net: nn.Module
    label: int
    batch: int = 64
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        _ = self._asked
        _check_class(self.net, self.label)

    @property
    def _asked(self) -> Padded:
        return Padded(self.net, self.batch, self.dtype)

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return class_log_probs(self._asked, x, t)[..., self.label]


def class_log_probs(net: Padded, x: Tokens, t: float = 0.0) -> Tensor:
    """log p_t(class | x) for every class, float64 [..., classes]."""
    log_odds = torch.cat(list(net(x.reshape(-1, x.shape[-1]), t))).double()
    return log_odds.log_softmax(-1).reshape(*x.shape[:-1], -1)


def digit_model(
    nets: Mapping[str, nn.Module],
    condition: int,
    form: str = "potential",
    *,
    process: Process | None = None,
    batch: int = 64,
    dtype: torch.dtype | None = None,
) -> Model:
    """A Model under one condition, of nets "unet" and, as the form asks, "potential" or "deft".

    "cfg": base and conditional are one net with and without the label. "potential": the same with a classifier's
    log p_t(condition | x), for Tilted (recommended). "deft": the conditional is the base plus a guide net's log g.
    """
    if form not in FORMS:
        raise InvalidInput(f"form is {form!r}; give one of {', '.join(FORMS)}")
    unet = _part(nets, "unet", form)
    _check_class(unet, condition)
    config, device = unet.config, next(unet.parameters()).device
    base = NetScore(unet, process or Masking(config.vocabulary), None, batch, dtype)
    if form == "deft":
        conditional = DeftScore(base, _part(nets, "deft", form), condition)
    else:
        conditional = NetScore(unet, base.process, condition, batch, dtype)
    potential = NetPotential(_part(nets, "potential", form), condition, batch, dtype) if form == "potential" else None
    return Model(base.process, config.length, base, conditional, potential, device)


def _part(nets: Mapping[str, nn.Module], name: str, form: str) -> Any:
    if name not in nets:
        raise InvalidInput(f"form {form!r} needs a net called {name!r}, and there are {sorted(nets)}; train or add it")
    return nets[name]


def _check_class(net: nn.Module, label: object) -> None:
    """A label must be one of the net's classes; a net of somebody else's has no config to compare with."""
    classes = getattr(getattr(net, "config", None), "classes", math.inf)
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < classes:
        raise InvalidInput(f"the condition is {label!r}; this net knows classes 0 to {classes - 1}")
