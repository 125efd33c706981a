"""Device synchronisations, batched: reading a value from a GPU makes the host wait for all work queued before it.

Each step passes one `Questions` object to all checks of its particles. They wait in it and are read by one transfer. A
check without such an object, and any check of tensors on the CPU, is answered at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_FREE = frozenset({"cpu"})  # kinds of device whose values are read without a synchronisation
MakeError = Callable[[], Exception]  # makes the error to raise, or the Warning to give; called only if a check fails


def nothing() -> None:
    """Do nothing: for work that somebody may have to do, and here nobody has."""


def _none_found() -> int:
    """The answer to checks of which none was sent."""
    return 0


def _no_numbers() -> list[int]:
    """What is read of a transfer that holds nothing."""
    return []


class Doubt(NamedTuple):
    """A check that is not made yet: `bad`, a boolean tensor [] that must be false, and the problem if it is true."""

    bad: Tensor
    problem: MakeError


def asks_freely(tensor: Tensor) -> bool:
    """Whether values of this tensor can be read without a device synchronisation."""
    return tensor.device.type in _FREE


def check(bad: Tensor, problem: MakeError, questions: Questions | None = None) -> None:
    """Raise the problem if `bad`, a boolean tensor [], is true: now, or with the other checks of the step.

    A problem that is a Warning is issued instead, once a run.
    """
    if questions is not None and bad.device.type not in _FREE:
        questions.pending.append((bad, problem))
    elif bool(bad):
        _tell(problem(), set() if questions is None else questions.told)


def _tell(problem: Exception, told: set[str]) -> None:
    """Raise an error. Issue a warning, unless one with the same text has been issued (`told`)."""
    if not isinstance(problem, Warning):
        raise problem
    if str(problem) not in told:
        told.add(str(problem))
        warnings.warn(problem, stacklevel=2)


def sites_where(
    mask: Tensor, questions: Questions | None = None, meanwhile: Callable[[], object] = nothing
) -> tuple[Tensor, ...]:
    """Where a mask is true, as `nonzero(as_tuple=True)` gives it; pending checks are answered by the same transfer.

    Their number must be read from the device. `meanwhile` queues further work before the host waits for it.
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


SentChecks = Callable[[], int]  # waits for the transfer, raises what a check found, and returns the sum of the counts


class Questions:
    """The pending checks of a run, sent to the host once a step: with the count of changing sites, else at its end.

    The host waits for a count. Checks that were sent at the end of a step are read at the end of the next one, when the
    transfer is long finished; checks made after the count go with those of the next step. `settle` waits for all.
    """

    def __init__(self) -> None:
        self.pending: list[tuple[Tensor, MakeError]] = []
        self._sent: SentChecks = _none_found
        self._asked_now = False
        self.told: set[str] = set()  # the warnings given so far

    def end_step(self) -> None:
        """Send the pending checks, unless this step has already sent some."""
        if not self._asked_now:
            self._sent = self.send()
        self._asked_now = False

    def send(self, *counts: Tensor) -> SentChecks:
        """Send all pending checks in one transfer; the function returned reads it and sums the counts given."""
        before, self._sent = self._sent, _none_found
        questions, self.pending, self._asked_now = self.pending, [], True
        values = [*(bad.long().reshape(1) for bad, _ in questions), *(count.reshape(1) for count in counts)]
        numbers = _sent(torch.cat(values)) if values else _no_numbers

        def answer() -> int:
            found = numbers()
            for bad, (_, problem) in zip(found, questions, strict=False):
                if bad:
                    _tell(problem(), self.told)
            return sum(found[len(questions) :])

        before()
        return answer

    def settle(self) -> None:
        """Wait for the checks that were sent and for those that are pending."""
        self.send()()


def _sent(numbers: Tensor) -> Callable[[], list[int]]:
    """Start copying numbers to the host; the function returned waits for this copy, and not for work queued later."""
    if not numbers.is_cuda:
        return numbers.tolist
    here, arrived = numbers.to("cpu", non_blocking=True), torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(numbers.device))

    def wait() -> list[int]:
        arrived.synchronize()
        return here.tolist()

    return wait
