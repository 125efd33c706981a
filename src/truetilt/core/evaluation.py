"""Asking networks and potentials about a batch of states, and the log of the run in which that is noted.

The base and the conditional of a model are asked about the same states. What both need (which sites are masked, which
row of a table a site reads, what a common network answered) is computed once and cached in the batch, which lives as
long as the step.

Checks are batched: reading a value from a GPU makes the host wait for all work queued before it (a device
synchronisation). Within a step of a run they wait in its log, and one transfer a step reads them. Elsewhere, and for
tensors on the CPU, a check is made at once.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .arguments import tensor_of
from .errors import InvalidInput, InvalidWeights
from .logits import SiteLogits, Sites, batch_of, nothing, over_sites
from .spent import Spent
from .user_functions import check_strings

AnyScore = Callable[[Tensor, float], SiteLogits]  # a `Score`
AnyPotential = Callable[[Tensor, float], Tensor]  # a `Potential`
_FREE = frozenset({"cpu"})  # kinds of device whose values are read without a synchronisation
MakeError = Callable[[], Exception]  # makes the error to raise, or the Warning to give; called only if a check fails
SentChecks = Callable[[], int]  # waits for the transfer, raises what a check found, and returns the sum of the counts


class PendingCheck(NamedTuple):
    """A check that is not made yet: `bad`, a boolean tensor [] that must be false, and the problem if it is true."""

    bad: Tensor
    problem: MakeError


class RunLog:
    """What a run notes: counts of what it asked, checks that wait, warnings given, the sites of the last draw.

    The checks of a step are sent to the host together: with the count of changed sites if the step reads one, else when
    the step ends. The host waits for a count. What was sent at the end of step n is read at the end of step n + 1, when
    the transfer has long finished; checks made after the count go with those of the next step.
    """

    def __init__(self) -> None:
        self.rounds = self.evaluations = self.calls = self.distinct = 0
        self.warned: set[str] = set()
        self.waiting: list[PendingCheck] = []
        self.in_step = False  # whether checks may wait: the loop of steps reads them
        self._sent: SentChecks = _none_found
        self._sent_in_step = False
        self._drawn: tuple[Tensor, Sites] | None = None

    def evaluated(self, states: int) -> None:
        """One batched pass of a network over so many states."""
        self.rounds += 1
        self.evaluations += states

    def called(self, states: int, distinct: int) -> None:
        """A reward was given so many states, of which so many were new to it."""
        self.calls += states
        self.distinct += distinct

    @property
    def spent(self) -> Spent:
        return Spent(self.rounds, self.evaluations, self.calls, self.distinct)

    def lap(self) -> Spent:
        """What was asked since the last lap."""
        spent = self.spent
        self.rounds = self.evaluations = self.calls = self.distinct = 0
        return spent

    def begin_step(self) -> None:
        """From here on checks wait."""
        self.in_step = True

    def end_step(self, last: bool) -> None:
        """Send the waiting checks, unless this step has already sent some; after the last step, read them all."""
        if not self._sent_in_step:
            self._sent = self.send()
        self.in_step, self._drawn = False, None
        if last:
            self.send()()
        self._sent_in_step = False

    def send(self, *counts: Tensor) -> SentChecks:
        """Send all waiting checks in one transfer; the function returned reads it and sums the counts given."""
        before, self._sent = self._sent, _none_found
        checks, self.waiting, self._sent_in_step = self.waiting, [], True
        values = [*(check.bad.long().reshape(1) for check in checks), *(count.reshape(1) for count in counts)]
        numbers = _sent(torch.cat(values)) if values else _no_numbers

        def answer() -> int:
            found = numbers()
            for bad, check in zip(found, checks, strict=False):
                if bad:
                    _raise(check.problem(), self.warned)
            return sum(found[len(checks) :])

        before()
        return answer

    def drew(self, y: Tensor, sites: Sites) -> None:
        """Note the sites where these next states differ from the states that they were drawn from."""
        if self.in_step:
            self._drawn = y, sites

    def sites_drawn(self, y: Tensor) -> Sites | None:
        """The sites noted for these states; None if they are not those of the last draw."""
        return self._drawn[1] if self._drawn is not None and self._drawn[0] is y else None


def _none_found() -> int:
    """The answer to checks of which none was sent."""
    return 0


def _no_numbers() -> list[int]:
    """What is read of a transfer that holds nothing."""
    return []


def is_on_host(tensor: Tensor) -> bool:
    """Whether values of this tensor can be read without a device synchronisation."""
    return tensor.device.type in _FREE


def check(bad: Tensor, problem: MakeError, log: RunLog | None = None) -> None:
    """Raise the problem if `bad`, a boolean tensor [], is true: now, or with the other checks of the step.

    A problem that is a Warning is issued instead, once a run.
    """
    if log is not None and log.in_step and not is_on_host(bad):
        log.waiting.append(PendingCheck(bad, problem))
    elif bool(bad):
        _raise(problem(), set() if log is None else log.warned)


def _raise(problem: Exception, warned: set[str]) -> None:
    """Raise an error. Issue a warning, unless one with the same text has been issued (`warned`)."""
    if not isinstance(problem, Warning):
        raise problem
    if str(problem) not in warned:
        warned.add(str(problem))
        warnings.warn(problem, stacklevel=2)


def sites_where(
    mask: Tensor, log: RunLog | None = None, meanwhile: Callable[[], object] = nothing
) -> tuple[Tensor, ...]:
    """Where a mask is true, as `nonzero(as_tuple=True)` gives it; pending checks are answered by the same transfer.

    Their number must be read from the device. `meanwhile` queues further work before the host waits for it.
    """
    if log is None or not log.in_step or is_on_host(mask):
        return mask.nonzero(as_tuple=True)
    answer = log.send(mask.sum())
    meanwhile()
    flat = mask.reshape(-1).to(torch.uint8).argsort(descending=True, stable=True)[: answer()]
    where: list[Tensor] = []
    for size in reversed(mask.shape[1:]):
        where.append(flat % size)
        flat = flat // size
    return flat, *reversed(where)


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


@dataclass(frozen=True, eq=False)
class CountedFunction:
    """A function of states, or of them and a time, that a run counts: as calls of a reward, or as passes of a network.

    Every call of a reward without a cache is a distinct one.
    """

    function: Any
    log: RunLog
    network: bool = False

    def __call__(self, x: Tensor, *time: float) -> Tensor:
        if self.network:
            self.log.evaluated(len(x))
            return self.function(x, *time)
        known = hasattr(self.function, "distinct")
        before = self.function.distinct if known else 0
        try:
            return self.function(x, *time)
        finally:
            self.log.called(len(x), self.function.distinct - before if known else len(x))

    @property
    def highest(self) -> float | None:
        return self.function.highest if hasattr(self.function, "highest") else None


@dataclass(frozen=True, eq=False)
class Batch:
    """States [B, D], a cache of what was computed from them, and the log of the run that counts passes over them."""

    x: Tensor
    log: RunLog | None = field(default=None, repr=False)
    known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)  # the cache, by key


class Needs(NamedTuple):
    """What a score says of itself: its batch size, its memory, and how long its states may be."""

    batch: int = 1  # states its network is asked about at a time
    particle_bytes: int | None = None  # memory that a particle takes; None: a row of float64 at every site
    longest: int | None = None  # the most sites that its network reads; None: not known


class BatchScore(ABC):
    """A Score that shares intermediate results about a batch with the other scores of its step, through its cache.

    A subclass writes `ask`. Called as a plain Score (x, t), with states of any leading shape, it makes a batch of its
    own.
    """

    called_with: ClassVar[str] = "(x, t)"  # so it is no function of two other things
    asks_others: ClassVar[bool] = False  # whether its answer is made of other scores', which are counted themselves
    consistent: ClassVar[bool] = False  # whether its conditionals are worked out from one joint law

    @property
    def needs(self) -> Needs:
        """Its batch size, its memory and its longest state."""
        return Needs()

    @abstractmethod
    def ask(self, batch: Batch, t: float) -> SiteLogits:
        """The answer about a batch, over sites [B, D]."""

    def __call__(self, x: Tensor, t: float) -> SiteLogits:
        answer = self.ask(Batch(batch_of(x)), t)
        return answer if x.dim() == 2 else SiteLogits(answer.store, answer.index.reshape(x.shape))


def needs_of(score: Any) -> Needs:
    """Batch size and memory of any Score; the default assumes a row at every site."""
    return score.needs if isinstance(score, BatchScore) else Needs()


def ask(score: AnyScore, batch: Batch, t: float, name: str = "given") -> SiteLogits:
    """The answer of any Score about a batch, counted as one pass of its network; ours share its cache."""
    if batch.log is not None and not (isinstance(score, BatchScore) and score.asks_others):
        batch.log.evaluated(len(batch.x))
    answer = score.ask(batch, t) if isinstance(score, BatchScore) else score(batch.x, t)
    if isinstance(answer, SiteLogits):
        return answer
    raise InvalidInput(
        f"the {name} score returned a {type(answer).__name__}; return tt.SiteLogits.of(log_scores), or give a network "
        "of posteriors as tt.PosteriorScore(process, net)"
    )


def evaluate_all(
    model: Any, x: Tensor, t: float, **scores: Callable[[Tensor, float], SiteLogits] | None
) -> list[SiteLogits]:
    """Every score of a `Model` at x [..., D]: all are asked about one batch, and the shape of each answer is checked.

    Answers that share an index tensor share it afterwards, too.
    """
    batch = Batch(x.reshape(-1, x.shape[-1]), model.log)
    answers = []
    for name, score in scores.items():
        answers.append(_checked(model, name, score, batch, t))
    return over_sites(x.shape, answers)


def _checked(model: Any, name: str, score: AnyScore | None, batch: Batch, t: float) -> SiteLogits:
    """A score's answer about a batch, with its shape checked against the process."""
    if score is None:
        raise InvalidInput(f"this sampler needs a {name} score and the model has none")
    size, x = model.process.vocabulary, batch.x
    counted = not x.is_inference()  # torch counts how often a tensor is written to, but for inference mode
    before = x._version if counted else 0
    logits = ask(score, batch, t, name)
    if counted and x._version != before:
        raise InvalidInput(
            f"the {name} score writes to the states that it is given; let it work on a copy of them, x.clone()"
        )
    if logits.store.shape[-1] != size or logits.index.shape != x.shape:
        raise _misfit(f"the {name} score", logits, x, size)
    return logits


def check_answer(name: str, logits: SiteLogits, x: Tensor, size: int) -> None:
    """Raise for an answer about a batch of states that has other sites, or another vocabulary than this."""
    if logits.store.shape[-1] != size or logits.index.shape != x.shape:
        raise _misfit(name, logits, x, size)


def _misfit(name: str, logits: SiteLogits, x: Tensor, size: int) -> InvalidInput:
    return InvalidInput(
        f"{name} returned {logits.vocabulary} values at sites {tuple(logits.index.shape)} for a batch of states "
        f"{tuple(x.shape)}; the process has {size} tokens (the mask is not one): return "
        f"[{len(x)}, {x.shape[-1]}, {size}]"
    )


def value_of(potential: AnyPotential, x: Tensor, t: float, log: RunLog | None = None) -> Tensor:
    """The value of states [..., D], float64 [...]: asked as one batch, with its shape and NaN checked.

    The function is given a copy: what it writes into its input changes no particle.
    """
    batch = x.reshape(-1, x.shape[-1])
    try:
        value = potential(batch.clone(), t)
    except (AttributeError, TypeError, RuntimeError) as error:
        check_strings("the potential (reward)", error, batch)
        raise
    real = isinstance(value, Tensor) and value.dtype in (torch.float64, torch.float32)
    if not real or value.requires_grad or value.layout != torch.strided or value.device != x.device:
        value = tensor_of("what the potential returned", value, "return one number a state", x.device)
    if value.shape != batch.shape[:1]:
        raise InvalidInput(
            f"the potential (reward) returned shape {tuple(value.shape)} for a batch of states "
            f"{tuple(batch.shape)}; it must return one number a state, [{len(batch)}]"
        )
    check(value.isnan().any(), partial(_nan_value, value, t), log)
    return value.double().reshape(x.shape[:-1])


def _nan_value(value: Tensor, t: float) -> InvalidWeights:
    return InvalidWeights(
        f"the potential (reward) returned NaN for {int(value.isnan().sum())} of {value.numel()} states at "
        f"t = {t:.6g}; return -inf for an impossible state, a finite number otherwise"
    )
