"""Evaluation of a network on a batch of states: in padded batches, with only the rows kept that are read.

Every batch is padded to the same number of rows, because float32 matrix products differ with the batch size: the output
for a state then does not depend on the rest of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ..core.arguments import LONGEST, shown, whole
from ..core.errors import InvalidInput
from ..core.eval_mode import evaluating
from ..core.evaluation import Batch, asks_freely
from ..core.types import Process, Tokens
from ..diffusion.processes import Masking


@dataclass(frozen=True)
class Padded:
    """Evaluates a network in padded batches, in eval mode, without gradients, under autocast if a `dtype` is given.

    An output is valid only until the next is computed: a compiled network reuses its output buffer.
    """

    net: nn.Module
    batch: int
    dtype: torch.dtype | None = None
    ask: Callable[..., Tensor] | None = None  # a method of the network to call instead of its forward

    def __call__(self, x: Tokens, t: float, labels: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the network's answers for states [n, D], with labels [n] if any, batch by batch."""
        times = torch.full((self.batch,), float(t), device=x.device)
        inputs = (x,) if labels is None else (x, labels)
        for parts in zip(*(tensor.split(self.batch) for tensor in inputs), strict=True):
            state, *told = (self._filled(part) for part in parts)
            yield self._ask(state, times, *told)[: len(parts[0])]

    def _filled(self, part: Tensor) -> Tensor:
        """Pad a batch with copies of its first row."""
        return torch.cat([part, part[:1].expand(self.batch - len(part), *part.shape[1:])])

    @torch.no_grad()
    def _ask(self, *inputs: Tensor) -> Tensor:
        if self.net.training:
            with evaluating(self.net):
                return self._ask(*inputs)
        with torch.autocast(inputs[0].device.type, self.dtype, enabled=self.dtype is not None):
            return (self.ask or self.net)(*inputs)


def check_batch(batch: object, dtype: object) -> int:
    """The batch size as a plain number, with batch and dtype checked."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InvalidInput(f"dtype is {shown(dtype)}; give torch.bfloat16, torch.float16, or None for float32")
    return whole("batch", batch, 1, LONGEST)


class SitesRead(NamedTuple):
    """The sites at which a sampler reads a score (for masking, the masked ones), and the rows that are kept for them.

    On a GPU the rows of all sites are kept: counting the ones that are read would synchronise the device.
    """

    where: Tensor  # bool [B, D]
    index: Tensor  # [B, D], each site's row number from 1 on; 0 where the score is not read
    rows: int  # number of rows kept, including the row of zeros at the front
    every: bool  # whether the rows of all sites are kept


def sites_read(process: Process, batch: Batch) -> SitesRead:
    """The sites of a batch at which the score is read.

    Base and conditional share the index, so that their rows can be combined without comparing indices.
    """
    mask = process.mask if isinstance(process, Masking) else None
    found = batch.known.get(("sites read", mask))
    if found is None:
        found = batch.known["sites read", mask] = _sites_read(mask, batch.x)
    return found


def _sites_read(mask: int | None, x: Tokens) -> SitesRead:
    read, every = torch.ones_like(x, dtype=torch.bool) if mask is None else x == mask, not asks_freely(x)
    kept = torch.ones_like(read) if every else read
    index = torch.where(read, kept.reshape(-1).cumsum(0).reshape(x.shape), 0)
    return SitesRead(read, index, 1 + (x.numel() if every else int(read.sum())), every)


def rows_of(answers: Iterable[Tensor], read: SitesRead, batch: int) -> Tensor:
    """A row of zeros, then the kept rows of the sites [n, D], from outputs [b, D, C] batch by batch: [1 + k, C].

    Each output is copied before the next is computed: a network may reuse its output buffer.
    """
    rows, end = None, 1
    for answer, here in zip(answers, read.where.split(batch), strict=True):
        part = answer.flatten(0, 1) if read.every else answer[here]
        if rows is None:
            rows = part.new_empty(read.rows, part.shape[-1])
            rows[:1].zero_()
        rows[end : end + len(part)] = part
        end += len(part)
    return cast("Tensor", rows)


def too_long(x: Tokens, longest: int) -> InvalidInput:
    """The error of texts with more sites than a net reads."""
    return InvalidInput(f"a text of {x.shape[-1]} tokens for a net that reads {longest}; shorten it or its prompt")


def check_class(net: nn.Module, label: object) -> None:
    """Raise for a label that is not one of the network's classes, if its config states them."""
    classes = getattr(getattr(net, "config", None), "classes", math.inf)
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < classes:
        known = f"classes 0 to {classes - 1}" if classes else "no classes"
        raise InvalidInput(f"the condition is {label!r}; this net knows {known}")
