"""Questions to a device, asked together: each one that is asked alone makes the host wait for all that is under way.

A step hands its `Questions` to whoever checks something about its particles. A check that is handed none is answered at
once, and so is any check of tensors on the CPU, where asking costs nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_FREE = {"cpu"}  # where the host knows what it asks for
Problem = Callable[[], Exception]  # what to raise, or a Warning to give; called only when it is


class Doubt(NamedTuple):
    """A check that is still to be made: what must not be true, a truth value [], and the problem if it is."""

    bad: Tensor
    problem: Problem


def asks_freely(tensor: Tensor) -> bool:
    """Whether a value of this tensor can be read without waiting for anything."""
    return tensor.device.type in _FREE


def check(bad: Tensor, problem: Problem, questions: Questions | None = None) -> None:
    """Raise the problem if `bad`, a truth value [], is true: now, or with the other questions of the step.

    A problem that is a Warning is given instead, once a run.
    """
    if questions is not None and bad.device.type not in _FREE:
        questions.pending.append((bad, problem))
    elif bool(bad):
        _tell(problem(), set() if questions is None else questions.told)


def _tell(problem: Exception, told: set[str]) -> None:
    """Raise an error; give a warning whose words are not among those told."""
    if not isinstance(problem, Warning):
        raise problem
    if str(problem) not in told:
        told.add(str(problem))
        warnings.warn(problem, stacklevel=2)


def sites_where(
    mask: Tensor, questions: Questions | None = None, meanwhile: Callable[[], object] = bool
) -> tuple[Tensor, ...]:
    """Where a mask is true, as `nonzero(as_tuple=True)` says it; what is pending is answered on the way.

    A device must be asked how many there are: it goes on with `meanwhile` before the host waits to hear of it.
    """
    if questions is None or mask.device.type in _FREE:
        return mask.nonzero(as_tuple=True)
    answer = questions.send(mask.sum())
    meanwhile()
    flat = mask.reshape(-1).to(torch.uint8).argsort(descending=True, stable=True)[: answer()]
    where: list[Tensor] = []
    for size in reversed(mask.shape[1:]):
        where.append(flat % size)
        flat = flat // size
    return flat, *reversed(where)


Answer = Callable[[], int]  # waits for it


class Questions:
    """Gathers the checks of each step of a run, and sends them once: where sites are counted, else at the end.

    A count is waited for. What was sent at the end of a step is read at the end of the next, when it has long arrived;
    checks after the count go with the next step's. `settle` waits for all that is left.
    """

    def __init__(self) -> None:
        self.pending: list[tuple[Tensor, Problem]] = []
        self._sent: Answer = int
        self._asked_now = False
        self.told: set[str] = set()  # the warnings given so far

    def end_step(self) -> None:
        """Send what is pending, unless this step has asked already."""
        if not self._asked_now:
            self._sent = self.send()
        self._asked_now = False

    def send(self, *counts: Tensor) -> Answer:
        """Send all that is pending in one transfer. Its answer, once read, is the sum of the counts given."""
        before, self._sent = self._sent, int
        questions, self.pending, self._asked_now = self.pending, [], True
        values = [*(bad.long().reshape(1) for bad, _ in questions), *(count.reshape(1) for count in counts)]
        numbers = _sent(torch.cat(values)) if values else list

        def answer() -> int:
            found = numbers()
            for bad, (_, problem) in zip(found, questions, strict=False):
                if bad:
                    _tell(problem(), self.told)
            return sum(found[len(questions) :])

        before()
        return answer

    def settle(self) -> None:
        """Wait for what was sent, and for what is pending."""
        self.send()()


def _sent(numbers: Tensor) -> Callable[[], list[int]]:
    """Numbers on their way to the host: what waits for them, and for nothing that is begun after."""
    if not numbers.is_cuda:
        return numbers.tolist
    here, arrived = numbers.to("cpu", non_blocking=True), torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(numbers.device))

    def wait() -> list[int]:
        arrived.synchronize()
        return here.tolist()

    return wait
