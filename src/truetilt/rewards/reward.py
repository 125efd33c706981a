"""A reward: any function of finished sequences, as something every sampler can call, asked once about each state."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.asking import SPELL, wants_strings
from ..core.fingerprints import fingerprint
from ..core.types import InvalidInput, Tokens, function, number, path_of, settle, truth, whole
from .cache import Cache
from .spelling import Spelling, check_vocabulary, quoted, spelling_of
from .workers import Failure, Rows, Workers, ask_here

_SHARES = 4  # tasks a worker gets of a function of batches, so that none waits long for the last


@dataclass(frozen=True, eq=False, repr=False)
class Reward:
    """A function of finished sequences, slow or not, differentiable or not, as a potential: tokens [B, D] to [B].

    It is asked once about each state: values are kept, and only states never seen are given to the function. `calls`
    counts states given to the reward, `distinct` those that the function gave a value to. -inf forbids a state. An
    exception, NaN, +inf or a wrong shape raises `InvalidInput` and names the sequence; what was computed before is
    kept, so that the same call goes on from there. Threads take turns.

    Args:
        function: Function of a batch of tokens [B, D] that returns one number a state [B]; of a list of strings if
            there is a `tokenizer`; of one state or string that returns one number if `one_at_a_time`.
        tokenizer: What spells tokens: letters such as "ACGT", anything with `decode` (a `tt.Tokenizer`), or a function
            of tokens [D] that returns a string. None (the default): the function is given tokens.
        one_at_a_time: Whether the function takes a single sequence; False by default.
        vocabulary: Number of tokens S. States with other tokens are refused: they are masked or noised. By default that
            of the tokenizer; without one, masks are not noticed.
        cached: Whether values are kept, True by default. False for a function that is cheaper than looking up.
        noisy: Whether the function says something else each time; False by default. Nothing is kept then. The numbers
            are exact weights for the law with exp(strength r) replaced by its mean over the noise, as long as each
            particle keeps the number it was weighed by (`tt.Steered` does; a move must compare the new state's fresh
            number to the old state's kept one). Asking about the old state again samples neither law.
        workers: Number of processes that ask the function, which must be importable there; 0 by default: it is asked
            here.
        timeout: Seconds for one sequence; a function that takes longer is killed. It then runs in a worker, one
            sequence at a time. None (the default): it may take any time.
        progress: Function (done, total) called while the new states of a batch are evaluated. None by default.
        cache_file: File that the values are read from and kept in, written as they come. None (the default): none.
        highest: The most that any sequence can have, where you know it: then `Result.trust` can tell whether a run may
            have missed such a one. A value above it is an error. None (the default): not known.
    """

    function: Callable[[Any], Any]
    _: KW_ONLY
    tokenizer: Any = field(default=None, compare=False)  # what counts of it is in its spelling
    one_at_a_time: bool = False
    vocabulary: int | None = None
    cached: bool = field(default=True, compare=False)
    noisy: bool = False
    workers: int = field(default=0, compare=False)
    timeout: float | None = field(default=None, compare=False)
    progress: Callable[[int, int], object] | None = field(default=None, compare=False)
    cache_file: str | Path | None = field(default=None, compare=False)
    highest: float | None = field(default=None, compare=False)
    _spelling: Spelling | None = field(init=False)
    _cache: Cache = field(init=False, compare=False)
    _crew: Workers | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        takes, what = ("(tokens)", "[B, D]") if self.tokenizer is None else ("(strings)", "a list of them")
        function("the reward's function", self.function, takes, f"{what}, that returns one number each")
        for name in ("one_at_a_time", "cached", "noisy"):
            settle(self, **{name: truth(name, getattr(self, name))})
        settle(self, workers=whole("workers", self.workers, 0, 10_000), _spelling=spelling_of(self.tokenizer))
        settle(self, timeout=self._check_timeout(), vocabulary=check_vocabulary(self.vocabulary, self._spelling))
        if self.progress is not None:
            function("progress", self.progress, "(done, total)")
        if self.highest is not None:
            settle(self, highest=number("highest", self.highest, "give the most that a sequence can have, or None"))
        settle(self, _crew=self._hired(), _cache=self._remembered())

    def __repr__(self) -> str:
        return f"Reward({getattr(self.function, '__name__', type(self.function).__name__)})"

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        """The rewards of finished sequences, float64 [B] for tokens [B, D], on their device; the time is not asked."""
        cache = self._cache
        with cache.lock:
            x = cache.checked(x)
            begun, cache.calls = cache.calls, cache.calls + len(x)
            if not self.keeps:
                fresh: dict[int, float] = {}
                self._evaluate(x, range(len(x)), fresh.__setitem__, begun)
                return torch.tensor([fresh[row] for row in range(len(x))], dtype=torch.float64, device=x.device)
            keys = cache.keys(x)
            cache.charge(keys)
            found = list(map(cache.values.get, keys))
            if None in found:
                cache.length = x.shape[1]
                new = {key: row for row, key in reversed(list(enumerate(keys))) if found[row] is None}

                def keep(row: int, value: float) -> None:
                    cache.learn(keys[row], value)

                self._evaluate(x, sorted(new.values()), keep, begun)
                found = [cache.values[key] for key in keys]
            return torch.tensor(found, dtype=torch.float64, device=x.device)

    @property
    def calls(self) -> int:
        """How many states were given to the reward."""
        return self._cache.calls

    @property
    def distinct(self) -> int:
        """How many of them were not known and got a value from the function, now or for a call that goes on now."""
        return self._cache.distinct

    def spell(self, states: Tokens) -> list[str]:
        """Finished sequences [K, D] as the strings that the function reads, by the reward's own tokenizer."""
        if self._spelling is None:
            raise InvalidInput('this reward reads tokens and has no tokenizer; give it one, such as tokenizer="ACGT"')
        with self._cache.lock:
            return [self._spelling(tokens) for tokens in self._cache.checked(states).cpu()]

    def known(self) -> tuple[Tokens, Tensor]:
        """All states that have a value, int64 [K, D] in the order they came, and their values, float64 [K]."""
        self._check_keeps()
        with self._cache.lock:
            kept = self._cache.tensors()
        return kept["states"].long(), kept["values"]

    def remember(self, states: Tokens, values: Tensor) -> None:
        """Learn the values of states [K, D] without a call; a state that is known keeps its value."""
        self._check_keeps()
        with self._cache.lock:
            x = self._cache.checked(states)
            self._cache.add(x, self._cache.check_values(x, values))
            self._cache.keep()

    def save(self, path: str | Path) -> Path:
        """Write all states and values to a file (safetensors), whole or not at all."""
        self._check_keeps()
        with self._cache.lock:
            self._cache.write(path_of("path", path))
        return Path(path)

    def load_cache(self, path: str | Path) -> None:
        """Learn what `save` or `cache_file` wrote, for states of this length; you know whose values they are."""
        self._check_keeps()
        with self._cache.lock:
            self._cache.read(path_of("path", path))

    def close(self) -> None:
        """Write the cache file and end the worker processes; the next call starts new ones."""
        with self._cache.lock:
            self._cache.keep(now=True)
            if self._crew is not None:
                self._crew.close()

    @property
    def keeps(self) -> bool:
        return self.cached and not self.noisy

    def _check_keeps(self) -> None:
        if not self.keeps:
            raise InvalidInput("a reward that is noisy, or made with cached=False, keeps no values; make one that does")

    def _check_timeout(self) -> float | None:
        need = "give seconds for one sequence, more than 0, or None"
        found = None if self.timeout is None else number("timeout", self.timeout, need)
        if found is not None and not 0 < found < math.inf:
            raise InvalidInput(f"timeout is {found}; {need}")
        return found

    def _hired(self) -> Workers | None:
        """The workers, if any are asked for or a time limit needs one."""
        if not self.workers and self.timeout is None:
            return None
        limit = math.inf if self.timeout is None else self.timeout
        crew = Workers(self.function, self.one_at_a_time, self.tokenizer is None, max(self.workers, 1), limit)
        weakref.finalize(self, crew.close)
        return crew

    def _remembered(self) -> Cache:
        if self.cache_file is None:
            return Cache(self.vocabulary)
        self._check_keeps()
        mark = fingerprint((self.function, self._spelling, self.one_at_a_time))
        cache = Cache(self.vocabulary, path_of("cache_file", self.cache_file), mark)
        weakref.finalize(self, cache.keep, True)  # at the latest when Python ends
        return cache

    def _evaluate(self, x: Tokens, rows: Rows, keep: Callable[[int, float], None], begun: int) -> None:
        """Ask the function about rows of x and keep each value as it comes; raise if one has none."""
        done = [0, len(rows)]
        failure = self._asked(x, self._shares(rows), keep, done)
        if failure is not None and failure.raised and len(failure.rows) > 1 and self.keeps:
            alone = self._asked(x, [[row] for row in failure.rows], keep, done)  # which of them was it?
            failure = alone or failure._replace(words=f"{failure.words} (of all together, of none alone)")
        self._cache.keep(now=failure is not None)
        if failure is not None:
            error = InvalidInput(self._told(x, failure, begun))
            if failure.trace:
                error.add_note(failure.trace)
            raise error from failure.error

    def _asked(self, x: Tokens, tasks: Sequence[Rows], keep: Callable[[int, float], None], done: list[int]) -> Any:
        """Put tasks to the function; the first failure, or None."""
        failures: list[Failure] = []

        def make(rows: Rows) -> Any:
            return self._given(x, rows)

        if self._crew is None:
            answered = ask_here(self.function, self.one_at_a_time, tasks, make, failures)
        else:
            answered = self._crew.ask(tasks, make, failures)
        with contextlib.closing(answered):  # at an interruption too, so that no worker is left with an old task
            for rows, values in answered:
                for row, value in zip(rows, values, strict=True):
                    if math.isnan(value) or value == math.inf:
                        failures.append(Failure([row], f"returned {value}; return a number, or -inf to forbid it"))
                    elif self.highest is not None and value > self.highest:
                        failures.append(Failure([row], f"returned {value}, more than highest={self.highest:g}"))
                    else:
                        keep(row, value)
                        self._cache.distinct += 1
                self._cache.keep()
                done[0] += len(rows)
                if self.progress is not None:
                    self.progress(*done)
        return min(failures, key=lambda failure: failure.rows[0], default=None)

    def _shares(self, rows: Rows) -> list[Rows]:
        """The rows that the function is given at a time."""
        size = len(rows)
        if self.one_at_a_time or self.timeout is not None:
            size = 1
        elif self.workers:
            size = math.ceil(len(rows) / (_SHARES * self.workers))
        return [list(rows[start : start + size]) for start in range(0, len(rows), max(size, 1))]

    def _given(self, x: Tokens, rows: Rows) -> Any:
        """What the function is given for some rows: strings or tokens, together or alone; copies of x."""
        chosen = x[torch.tensor(rows, device=x.device)]
        if self._spelling is not None:
            texts = [self._spelling(tokens) for tokens in chosen.cpu()]
            return texts[0] if self.one_at_a_time else texts
        given = chosen[0] if self.one_at_a_time else chosen
        return given if self._crew is None else given.cpu().numpy()

    def _told(self, x: Tokens, failure: Failure, begun: int) -> str:
        row = failure.rows[0]
        several = f"{len(failure.rows)} sequences, the first of them " if len(failure.rows) > 1 else ""
        spell = self._spelling is None and failure.error is not None and wants_strings(failure.error)
        kept = f", given tokens; {SPELL}" if spell else ""
        kept += ". What was computed before is kept; call again to go on" if self.keeps else ""
        return (
            f"the reward has no value for {several}{quoted(x[row], self._spelling)} (state {row} of its batch, "
            f"counting from 0; call {begun + row + 1:,}): the function {failure.words}{kept}"
        )
