"""Many conditions in one run: populations are dealt to the classes in equal parts, and one network batch serves all.

Nets of ours are asked with a label for each row; any other score or potential is asked class by class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..models.score import DeftScore, NetPotential, NetScore, Padded, class_log_probs
from ..processes import Masking
from ..types import InvalidInput, Model, SiteLogits, Tokens


def dealt(models: Sequence[Model]) -> Model:
    """One model whose populations are under the conditions of these, in turn; all but the condition is shared."""
    names = ("base", "conditional", "potential")
    return replace(models[0], **{name: _together([getattr(model, name) for model in models]) for name in names})


def _together(nets: list[Any]) -> Any:
    first = nets[0]
    if len(nets) == 1 or all(net == first for net in nets):
        return first
    labels: tuple[Any, ...] = tuple(getattr(net, "label", None) for net in nets)
    if any(net != _labelled(first, label) for net, label in zip(nets, labels, strict=True)):
        return SideBySide(tuple(nets))  # they differ in more than the label
    if isinstance(first, DeftScore):
        return DealtDeft(first.base, DealtScore(first.guide, labels))
    return (DealtPotential if isinstance(first, NetPotential) else DealtScore)(first, labels)


def _labelled(net: Any, label: int | None) -> Any:
    """This net under another label; None where it is none of ours."""
    return replace(net, label=label) if isinstance(net, NetScore | DeftScore | NetPotential) else None


@dataclass(frozen=True)
class SideBySide:
    """A Score or a Potential for each condition, asked in turn."""

    parts: tuple[Any, ...]

    def __call__(self, x: Tokens, t: float) -> Any:
        check_deal(x, len(self.parts))
        answers = [part(piece, t) for part, piece in zip(self.parts, x.chunk(len(self.parts)), strict=True)]
        if isinstance(answers[0], Tensor):
            return torch.cat(answers)
        index, first = [], 0
        for answer in answers:
            index.append(answer.index + first)
            first += len(answer.rows)
        return SiteLogits(torch.cat([answer.rows for answer in answers]), torch.cat(index))


@dataclass(frozen=True)
class DealtScore:
    """A net's Score with a label for each part of the populations; `score` says how the net is asked."""

    score: NetScore
    labels: tuple[Any, ...]

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        logits = self.logits(x, t)
        return self.score.process.score(logits.with_rows(logits.rows.log_softmax(-1)), x, t)

    def logits(self, x: Tokens, t: float) -> SiteLogits:
        """As `NetScore.logits`: rows of the sites that a sampler reads, the rest share one."""
        process, batch = self.score.process, self.score.batch
        read = x == process.mask if isinstance(process, Masking) else torch.ones_like(x, dtype=torch.bool)
        chosen = read.reshape(-1, x.shape[-1]).split(batch)
        rows = [out[here].float() for out, here in zip(self._answers(x, t), chosen, strict=True)]
        shared = torch.zeros(1, process.vocabulary, device=x.device)
        index = torch.where(read, read.reshape(-1).cumsum(0).reshape(x.shape), 0)
        return SiteLogits(torch.cat([shared, *rows]), index)

    def _answers(self, x: Tokens, t: float) -> Iterator[Tensor]:
        """The net's answers, batch by batch, each padded to the same number of rows."""
        check_deal(x, len(self.labels))
        flat, how = x.reshape(-1, x.shape[-1]), self.score
        label = torch.tensor(self.labels, device=x.device).repeat_interleave(len(flat) // len(self.labels))
        net = _WithLabels(how, torch.full((how.batch,), float(t), device=x.device))
        for part, own in zip(flat.split(how.batch), label.split(how.batch), strict=True):
            spare = how.batch - len(part)
            filled = torch.cat([part, part[:1].expand(spare, -1)]), torch.cat([own, own[:1].expand(spare)])
            yield net(*filled)[: len(part)]


@dataclass(frozen=True)
class _WithLabels:
    """The net in eval mode, without gradients, under autocast if its score says so."""

    score: NetScore
    times: Tensor

    @torch.no_grad()
    def __call__(self, x: Tokens, label: Tensor) -> Tensor:
        self.score.net.eval()
        dtype = self.score.dtype
        with torch.autocast(x.device.type, dtype, enabled=dtype is not None):
            return self.score.net(x, self.times, label)


@dataclass(frozen=True)
class DealtDeft:
    """DEFT's conditional Score with a label for each part of the populations."""

    base: NetScore
    guide: DealtScore

    def __call__(self, x: Tokens, t: float) -> SiteLogits:
        base, log_g = self.base(x, t).aligned(self.guide.logits(x, t))
        return base.with_rows(base.rows + log_g.rows)


@dataclass(frozen=True)
class DealtPotential:
    """log p_t(label | x) with a label for each part of the populations."""

    potential: NetPotential
    labels: tuple[int, ...]

    def __call__(self, x: Tokens, t: float) -> Tensor:
        check_deal(x, len(self.labels))
        how = self.potential
        log_probs = class_log_probs(Padded(how.net, how.batch, how.dtype), x, t)
        label = torch.tensor(self.labels, device=x.device).repeat_interleave(x.shape[0] // len(self.labels))
        wide = label.reshape(-1, *[1] * (log_probs.dim() - 1)).expand(*log_probs.shape[:-1], 1)
        return log_probs.gather(-1, wide).squeeze(-1)


def check_deal(x: Tokens, parts: int) -> None:
    """Populations must come out even."""
    if x.dim() < 2 or x.shape[0] % parts:
        raise InvalidInput(f"states {tuple(x.shape)} cannot be dealt to {parts} conditions equally; give populations")
