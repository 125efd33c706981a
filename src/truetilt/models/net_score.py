"""Adapters that turn a network into a Score or a Potential.

At the end of a run a potential is evaluated at exactly t = 0, on clean states: the value is log p(class | x_0), on
which the target depends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..core.arguments import set_fields, shown
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, BatchScore, Needs, ask
from ..core.logits import SiteLogits
from ..core.types import Model, Process, Score, Tokens
from ..diffusion.processes import Masking, Uniform
from .deduplication import WrappingScore, all_equal, first_answer
from .net_facts import facts_of, groups_of
from .text_score import Padded, check_batch, check_class, rows_of, sites_read


@dataclass(frozen=True)
class NetScore(BatchScore):
    """The Score of a network that returns posterior logits, under `label` (None: no condition)."""

    net: nn.Module
    process: Process
    label: int | None = None
    batch: int = 64
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        set_fields(self, batch=check_batch(self.batch, self.dtype))
        if self.label is not None:
            check_class(self.net, self.label)
        needed = self.process.vocabulary
        known = facts_of(self.net).vocabulary
        if known is not None and known != needed:
            raise InvalidInput(
                f"the net knows {known} tokens and the process {needed}; they must be equal (the mask is not counted)"
            )

    @property
    def needs(self) -> Needs:
        return Needs(self.batch, longest=facts_of(self.net).length)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        if t >= 1 and all_equal(batch.x):
            return first_answer(self, batch, t)
        return self.score_of(self.logits(batch, t), batch.x, t)

    def score_of(self, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """The Score of the network's logits."""
        return score_of_posterior(self.process, logits, x, t)

    @property
    def _padded(self) -> Padded:
        return Padded(self.net, self.batch, self.dtype)

    def logits(self, batch: Batch, t: float, labels: Tensor | None = None) -> SiteLogits:
        """The network's logits where a sampler reads them (for masking, at masked sites); others share a row of zeros.

        `labels`, one for each state [B], replace the score's own.
        """
        read, x = sites_read(self.process, batch), batch.x
        if labels is None and self.label is not None:
            labels = torch.full((len(x),), self.label, device=x.device)
        rows = rows_of(self._padded(x, t, labels), read, self.batch)
        return SiteLogits(rows if rows.dtype == torch.float64 else rows.float(), read.index)


def score_of_posterior(process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
    """The Score of unnormalised logits of the clean token."""
    return process.score(logits.normalised(), x, t)


def score_of_prediction(process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
    """The Score of unnormalised logits of the clean token given the other sites: what MDLM and UDLM train.

    Their bounds treat a prediction as if it were the clean token itself. At the optimum it is p(x0 | the other sites):
    at a masked site that is the posterior; at a site with uniform noise it is not, since the token there is left out.
    """
    if isinstance(process, Uniform):
        return process.score_given_others(logits.normalised(), x, t)
    return score_of_posterior(process, logits, x, t)


@dataclass(frozen=True)
class Once(WrappingScore):
    """A Score that is evaluated once per batch and cached there, because two parts of a model read it."""

    score: Score

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        key = ("answer", id(self.score), t)
        if key not in batch.known:
            batch.known[key] = ask(self.score, batch, t)
        return batch.known[key]


@dataclass(frozen=True)
class DeftScore(BatchScore):
    """DEFT's conditional Score: the frozen base's log-score plus a guide network's log g, edge by edge, unnormalised.

    `asked` is a `Once` of the base that is also the model's own base; it is evaluated instead, once for both.
    """

    base: NetScore
    guide_net: nn.Module
    label: int
    asked: Score | None = None

    def __post_init__(self) -> None:
        check_class(self.guide_net, self.label)
        _ = self.guide  # raises for a network that does not fit

    @property
    def guide(self) -> NetScore:
        """The guide network's Score, evaluated with the base's settings."""
        return replace(self.base, net=self.guide_net, label=self.label)

    @property
    def process(self) -> Process:
        return self.base.process

    @property
    def needs(self) -> Needs:
        return self.base.needs

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        return ask(self.asked or self.base, batch, t).join(self.guide.logits(batch, t), torch.add)


@dataclass(frozen=True)
class NetPotential:
    """log p_t(label | x) of a classifier of noised tokens: float64, at most 0; clean states are evaluated at t = 0."""

    net: nn.Module
    label: int
    batch: int = 64
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        set_fields(self, batch=check_batch(self.batch, self.dtype))
        check_class(self.net, self.label)

    @property
    def _padded(self) -> Padded:
        return Padded(self.net, self.batch, self.dtype)

    def __call__(self, x: Tokens, t: float) -> Tensor:
        return class_log_probs(self._padded, x, t)[..., self.label]


def class_log_probs(net: Padded, x: Tokens, t: float = 0.0) -> Tensor:
    """log p_t(class | x) for every class, float64 [..., classes]."""
    log_odds = torch.cat([answer.double() for answer in net(x.reshape(-1, x.shape[-1]), t)])
    return normalised(log_odds, net.net).reshape(*x.shape[:-1], -1)


def normalised(log_odds: Tensor, net: nn.Module) -> Tensor:
    """Log-probabilities of a classifier's log-odds, within each group of classes if the net has several."""
    parts = log_odds.split(groups_of(net, log_odds.shape[-1]), -1)
    return torch.cat([group.log_softmax(-1) for group in parts], -1)


def digit_model(
    nets: Mapping[str, nn.Module],
    condition: int,
    form: str = "potential",
    *,
    process: Process | None = None,
    batch: int = 64,
    dtype: torch.dtype | None = None,
) -> Model:
    """A Model under one condition, made of networks "unet" and, depending on the form, "potential" or "deft".

    "cfg": base and conditional are one net with and without the label. "potential": the same with a classifier's
    log p_t(condition | x), for Tilted (recommended). "deft": the conditional is the base plus a guide net's log g.
    """
    make = form_named(form)
    unet = part_of_bundle(nets, "unet", form)
    check_class(unet, condition)
    base = NetScore(unet, process or Masking(unet.config.vocabulary), None, batch, dtype)
    model = make(nets, base, replace(base, label=condition))
    return replace(model, log_p_condition=-math.log(unet.config.classes))  # assumes equally frequent classes


Form = Callable[[Mapping[str, nn.Module], Any, Any], Model]  # of networks by name, a base and a conditional score


def by_label(nets: Mapping[str, nn.Module], base: Any, conditional: Any) -> Model:
    """One network with and without the label."""
    device = next(base.net.parameters()).device
    return Model(base.process, base.net.config.length, base, conditional, None, device)


def by_potential(nets: Mapping[str, nn.Module], base: Any, conditional: Any) -> Model:
    """The same with a classifier's log p_t(condition | x)."""
    net = part_of_bundle(nets, "potential", "potential")
    potential = NetPotential(net, conditional.label, base.batch, base.dtype)
    return replace(by_label(nets, base, conditional), potential=potential)


def by_guide_net(nets: Mapping[str, nn.Module], base: Any, conditional: Any) -> Model:
    """DEFT: the conditional is the base, asked once for both, plus a guide network's log g."""
    once = Once(base)
    guided = DeftScore(base, part_of_bundle(nets, "deft", "deft"), conditional.label, once)
    return replace(by_label(nets, base, conditional), base=once, conditional=guided)


FORMS: Mapping[str, Form] = {"potential": by_potential, "deft": by_guide_net, "cfg": by_label}


def form_named(form: str) -> Form:
    """A form of model by its name; raises for one that is unknown."""
    if not isinstance(form, str) or form not in FORMS:
        raise InvalidInput(f"form is {shown(form)}; give one of {', '.join(FORMS)}")
    return FORMS[form]


def part_of_bundle(nets: Mapping[str, nn.Module], name: str, purpose: str) -> Any:
    """A network of a bundle by name; the error for a missing one names the purpose."""
    if name not in nets:
        raise InvalidInput(f"{purpose} needs a net called {name!r}, and there are {sorted(nets)}; train or add it")
    return nets[name]
