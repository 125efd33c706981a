"""Questions to a device, asked together: each one that is asked alone makes the host wait for all that is under way.

Outside `Questions` a check is answered at once, and so it is for tensors on the CPU, where asking costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

import torch
from torch import Tensor

_FREE = {"cpu"}  # where the host knows what it asks for
Problem = Callable[[], Exception]  # what to raise; called only when it is
_ASKED: ContextVar[Questions | None] = ContextVar("asked", default=None)


def asks_freely(tensor: Tensor) -> bool:
    """Whether a value of this tensor can be read without waiting for anything."""
    return tensor.device.type in _FREE


def check(bad: Tensor, problem: Problem) -> None:
    """Raise the problem if `bad`, a truth value [], is true: now, or with the other questions of the step."""
    asked = _ASKED.get()
    if asked is not None and not asks_freely(bad):
        asked.pending.append((bad, problem))
    elif bool(bad):
        raise problem()


def sites_where(mask: Tensor) -> tuple[Tensor, ...]:
    """Where a mask is true, as `nonzero(as_tuple=True)` says it; what is pending is answered on the way."""
    asked = _ASKED.get()
    if asked is None or asks_freely(mask):
        return mask.nonzero(as_tuple=True)
    count = asked.settle(mask.sum())
    flat = mask.reshape(-1).to(torch.uint8).argsort(descending=True, stable=True)[:count]
    return torch.unravel_index(flat, mask.shape)


class Questions:
    """Gathers the checks of a step while it is entered, and asks once: where sites are counted, else at the end.

    Checks that come after the count wait for the next step's; `settle` asks for what is left.
    """

    def __init__(self) -> None:
        self.pending: list[tuple[Tensor, Problem]] = []
        self._token: Token[Questions | None] | None = None
        self._asked_now = False

    def __enter__(self) -> Questions:
        self._token, self._asked_now = _ASKED.set(self), False
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        if self._token is not None:
            _ASKED.reset(self._token)
        if kind is None and not self._asked_now:
            self.settle()

    def settle(self, *counts: Tensor) -> int:
        """Answer all that is pending in one transfer; returns the sum of the counts given."""
        questions, self.pending, self._asked_now = self.pending, [], True
        values = [*(bad.long().reshape(1) for bad, _ in questions), *(count.reshape(1) for count in counts)]
        if not values:
            return 0
        answers = torch.cat(values).tolist()
        for found, (_, problem) in zip(answers, questions, strict=False):
            if found:
                raise problem()
        return sum(answers[len(questions) :])
