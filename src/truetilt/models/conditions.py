"""Several conditions in one run: each class gets an equal part of the populations, and one network batch serves all.

Networks of this package are evaluated with a label for each row; any other score or potential once for each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.evaluation import Batch, BatchScore, Needs, ask
from ..core.logits import SiteLogits
from ..core.types import Model, Process, Score, Tokens
from .net_score import DeftScore, NetPotential, NetScore, class_log_probs
from .text_score import Padded, TextScore


def per_condition(models: Sequence[Model]) -> Model:
    """One model that gives each condition an equal part of the populations, in order.

    The models given may differ in the condition only.
    """
    names = ("base", "conditional", "potential")
    return replace(models[0], **{name: _together([getattr(model, name) for model in models]) for name in names})


def _together(nets: list[Any]) -> Any:
    first = nets[0]
    if len(nets) == 1 or all(net == first for net in nets):
        return first
    labels: tuple[Any, ...] = tuple(getattr(net, "label", None) for net in nets)
    if any(net != _labelled(first, label) for net, label in zip(nets, labels, strict=True)):
        return SeparateNets(tuple(nets))  # they differ in more than the label
    if isinstance(first, DeftScore):
        return PerConditionDeft(first.asked or first.base, PerConditionScore(first.guide, labels))
    return (PerConditionPotential if isinstance(first, NetPotential) else PerConditionScore)(first, labels)


def _labelled(net: Any, label: int | None) -> Any:
    """This network under another label; None if it is not a network of this package."""
    return replace(net, label=label) if isinstance(net, NetScore | TextScore | DeftScore | NetPotential) else None


@dataclass(frozen=True)
class SeparateNets:
    """A Score or a Potential that evaluates one function for each condition, on its part of the populations."""

    parts: tuple[Any, ...]

    @property
    def condition_count(self) -> int:
        return len(self.parts)

    def __call__(self, x: Tokens, t: float) -> Any:
        check_equal_parts(x, len(self.parts))
        answers = [part(piece, t) for part, piece in zip(self.parts, x.chunk(len(self.parts)), strict=True)]
        if isinstance(answers[0], Tensor):
            return torch.cat(answers)
        return SiteLogits.cat(answers)


@dataclass(frozen=True)
class PerConditionScore(BatchScore):
    """The Score of a network with one label for each part of the populations; `score` holds the network."""

    score: NetScore | TextScore
    labels: tuple[Any, ...]

    @property
    def process(self) -> Process:
        return self.score.process

    @property
    def needs(self) -> Needs:
        return self.score.needs

    @property
    def condition_count(self) -> int:
        return len(self.labels)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        return self.score.score_of(self.logits(batch, t), batch.x, t)

    def logits(self, batch: Batch, t: float) -> SiteLogits:
        """The network's logits, as in `NetScore.logits`."""
        return self.score.logits(batch, t, label_of_each_state(self.labels, batch.x))


@dataclass(frozen=True)
class PerConditionDeft(BatchScore):
    """DEFT's conditional Score with a label for each part of the populations."""

    base: Score
    guide: PerConditionScore

    @property
    def process(self) -> Process:
        return self.guide.process

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        return ask(self.base, batch, t).join(self.guide.logits(batch, t), torch.add)


@dataclass(frozen=True)
class PerConditionPotential:
    """log p_t(label | x) with a label for each part of the populations."""

    potential: NetPotential
    labels: tuple[int, ...]

    @property
    def condition_count(self) -> int:
        return len(self.labels)

    def __call__(self, x: Tokens, t: float) -> Tensor:
        label, how = label_of_each_state(self.labels, x), self.potential
        log_probs = class_log_probs(Padded(how.net, how.batch, how.dtype), x, t)
        wide = label.reshape(-1, *[1] * (log_probs.dim() - 1)).expand(*log_probs.shape[:-1], 1)
        return log_probs.gather(-1, wide).squeeze(-1)


def check_equal_parts(x: Tokens, parts: int) -> None:
    """Raise if states cannot be divided equally among the conditions."""
    if x.dim() < 2 or x.shape[0] % parts:
        raise InvalidInput(
            f"states {tuple(x.shape)} cannot be divided equally among {parts} conditions; give populations"
        )


def label_of_each_state(labels: tuple[Any, ...], x: Tokens) -> Tensor:
    """Labels assigned in equal parts to states along their first axis [n]."""
    check_equal_parts(x, len(labels))
    return torch.tensor(labels, device=x.device).repeat_interleave(len(x) // len(labels))


def row_of_each_state(rows: Tensor, x: Tokens) -> Tensor:
    """Rows [parts, k] assigned to states [..., D] in equal parts, as [..., k]."""
    check_equal_parts(x, len(rows))
    each = rows.repeat_interleave(x[..., 0].numel() // len(rows), 0)
    return each.reshape(*x.shape[:-1], rows.shape[-1])
