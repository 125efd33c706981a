"""`Reward`: any function of finished sequences as a potential that every sampler can call, with a cache per state."""

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

from ..core.arguments import ABOVE_ZERO, FINITE, bounded, function, path_of, set_fields, truth, whole_number
from ..core.errors import FunctionFailed, InvalidInput
from ..core.fingerprints import fingerprint
from ..core.types import Tokens
from ..core.user_functions import SPELL, wants_strings
from .cache import Cache
from .tokens_as_strings import Spelling, check_vocabulary, quoted, spelling_of
from .workers import Failure, RowNumbers, Workers, ask_here

_LONGEST = 1_000_000  # seconds of a time limit; the system's clocks of waiting end after 2^31 milliseconds
_SHARES = 4  # tasks per worker for a function of batches, so that no worker idles long while the last one finishes


@dataclass(frozen=True, eq=False, repr=False)
class Reward:
    """A function of finished sequences (slow or not, differentiable or not) as a potential: tokens [B, D] to [B].

    Values are cached: the function is called once per state, and only for states not seen before. `calls` counts the
    states given to the reward, `distinct` those for which the function was called. -inf forbids a state. An exception,
    NaN, +inf or a wrong shape raises `InvalidInput` and names the sequence; values computed before the error stay in
    the cache, so repeating the call continues from there. Thread-safe: concurrent calls take turns.

    Args:
        function: Function of a batch of tokens [B, D] that returns one number a state [B]; of a list of strings if
            there is a `tokenizer`; of one state or string that returns one number if `one_at_a_time`.
        tokenizer: Turns tokens into the strings that the function reads: letters such as "ACGT", anything with `decode`
            (a `tt.Tokenizer`), or a function of tokens [D] that returns a string. None (the default): the function is
            given tokens.
        one_at_a_time: Whether the function takes a single sequence; False by default.
        vocabulary: Number of tokens S; a state with any other token is refused as masked or noised. None (the default):
            the tokenizer's; without a tokenizer masks go unnoticed.
        cached: Whether values are cached, True by default. Use False for a function cheaper than the lookup.
        noisy: Whether the function returns another number on each call; False by default. Nothing is cached then. The
            run is exact for the target with $exp(strength r)$ replaced by its mean over the noise, as long as each
            particle keeps the number it was weighed by (`tt.Steered` does; a move must compare the new state's fresh
            number with the old state's kept one). Evaluating the old state again would sample neither law.
        workers: Number of worker processes that call the function, which must be importable there; 0 by default: it is
            called in this process.
        timeout: Seconds allowed per sequence; a call that takes longer is killed, so the function runs in a worker, one
            sequence at a time. None (the default): no limit.
        progress: Function (done, total) called while the new states of a batch are evaluated. None by default.
        cache_file: File (sqlite) that cached values are read from at first and written to as they come; several
            processes may share it. None (the default): no file.
        highest: The largest value that any sequence can have, if you know it: `Result.trust` then says whether a run
            may have missed such a sequence. A value above it is an error. None (the default): unknown.
    """

    function: Callable[[Any], Any]
    _: KW_ONLY
    tokenizer: Any = field(default=None, compare=False)  # not compared: `_spelling` identifies it
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
            set_fields(self, **{name: truth(name, getattr(self, name))})
        set_fields(
            self, workers=whole_number("workers", self.workers, 0, 10_000), _spelling=spelling_of(self.tokenizer)
        )
        set_fields(self, vocabulary=check_vocabulary(self.vocabulary, self._spelling))
        if self.timeout is not None:
            need = f"give seconds for one sequence, more than 0 and at most {_LONGEST:,}, or None"
            set_fields(self, timeout=bounded("timeout", self.timeout, need, ABOVE_ZERO, _LONGEST))
        if self.progress is not None:
            function("progress", self.progress, "(done, total)")
        if self.highest is not None:
            need = "give the most that a sequence can have, a finite number, or None"
            set_fields(self, highest=bounded("highest", self.highest, need, -FINITE, FINITE))
        set_fields(self, _crew=self._hired(), _cache=self._remembered())

    def __repr__(self) -> str:
        return f"Reward({getattr(self.function, '__name__', type(self.function).__name__)})"

    def __call__(self, x: Tokens, t: float = 0.0) -> Tensor:
        """The rewards of finished sequences: tokens [B, D] to float64 [B] on their device; the time t is ignored."""
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
        """Number of states given to the reward so far."""
        return self._cache.calls

    @property
    def distinct(self) -> int:
        """Number of distinct calls: states that were not cached, so that the function had to give their value."""
        return self._cache.distinct

    def spell(self, states: Tokens) -> list[str]:
        """Finished sequences [K, D] as the strings that the function reads, by the reward's tokenizer."""
        if self._spelling is None:
            raise InvalidInput('this reward reads tokens and has no tokenizer; give it one, such as tokenizer="ACGT"')
        with self._cache.lock:
            return [self._spelling(tokens) for tokens in self._cache.checked(states).cpu()]

    def known(self) -> tuple[Tokens, Tensor]:
        """All cached states, int64 [K, D] in order of arrival, and their values, float64 [K]."""
        self._check_keeps()
        with self._cache.lock:
            return self._cache.tensors()

    def remember(self, states: Tokens, values: Tensor) -> None:
        """Store values of states [K, D] in the cache without a call; a cached state keeps its value."""
        self._check_keeps()
        with self._cache.lock:
            x = self._cache.checked(states)
            self._cache.add(x, self._cache.check_values(x, values))
            self._cache.keep()

    def save(self, path: str | Path) -> Path:
        """Write all cached states and values to a file (sqlite), atomically."""
        self._check_keeps()
        with self._cache.lock:
            self._cache.write(path_of("path", path))
        return Path(path)

    def load_cache(self, path: str | Path) -> None:
        """Add the values of a file by `save` or `cache_file` to the cache; whose they are is not checked."""
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

    def _hired(self) -> Workers | None:
        """The worker pool, if workers or a time limit are asked for; else None."""
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
        weakref.finalize(self, cache.keep, True)  # runs at the latest when the interpreter exits
        return cache

    def _evaluate(self, x: Tokens, rows: RowNumbers, keep: Callable[[int, float], None], begun: int) -> None:
        """Call the function on rows of x and pass each value to `keep` as it comes; raise if a row has no value."""
        done = [0, len(rows)]
        failure = self._called(x, self._shares(rows), keep, done)
        if failure is not None and failure.raised and len(failure.rows) > 1 and self.keeps:
            alone = self._called(
                x, [[row] for row in failure.rows], keep, done
            )  # one by one, to find the failing state
            failure = alone or failure._replace(words=f"{failure.words} (of all together, of none alone)")
        self._cache.keep(now=failure is not None)
        if failure is not None:
            error = FunctionFailed(self._told(x, failure, begun))
            if failure.trace:
                error.add_note(failure.trace)
            raise error from failure.error

    def _called(
        self, x: Tokens, tasks: Sequence[RowNumbers], keep: Callable[[int, float], None], done: list[int]
    ) -> Any:
        """Run tasks through the function; the first failure, or None."""
        failures: list[Failure] = []

        def make(rows: RowNumbers) -> Any:
            return self._given(x, rows)

        if self._crew is None:
            answered = ask_here(self.function, self.one_at_a_time, tasks, make, failures)
        else:
            answered = self._crew.ask(tasks, make, failures)
        with contextlib.closing(answered):  # also on interruption, so that no worker keeps a stale task
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

    def _shares(self, rows: RowNumbers) -> list[RowNumbers]:
        """The batches of rows that the function is called with."""
        size = len(rows)
        if self.one_at_a_time or self.timeout is not None:
            size = 1
        elif self.workers:
            size = math.ceil(len(rows) / (_SHARES * self.workers))
        return [list(rows[start : start + size]) for start in range(0, len(rows), max(size, 1))]

    def _given(self, x: Tokens, rows: RowNumbers) -> Any:
        """The function's argument for some rows: strings or tokens, a batch or a single one; copies of x."""
        chosen = x[torch.tensor(rows, device=x.device)]
        if self._spelling is not None:
            texts = [self._spelling(tokens) for tokens in chosen.cpu()]
            return texts[0] if self.one_at_a_time else texts
        given = chosen[0] if self.one_at_a_time else chosen
        return given if self._crew is None else given.cpu().numpy()

    def _kept_words(self) -> str:
        where = "in this reward's memory" if self.cache_file is None else f"in {self.cache_file}"
        return f". What was computed before is kept {where}: called again, it goes on from there"

    def _told(self, x: Tokens, failure: Failure, begun: int) -> str:
        row = failure.rows[0]
        several = f"{len(failure.rows)} sequences, the first of them " if len(failure.rows) > 1 else ""
        spell = self._spelling is None and failure.error is not None and wants_strings(failure.error)
        kept = f", given tokens; {SPELL}" if spell else ""
        kept += self._kept_words() if self.keeps else ""
        return (
            f"the reward has no value for {several}{quoted(x[row], self._spelling)} (state {row} of its batch, "
            f"counting from 0; call {begun + row + 1:,}): the function {failure.words}{kept}"
        )
