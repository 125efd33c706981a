"""The cache of a reward: a value for each state, keyed by the bytes of its row, and optionally stored in a file.

The file is safetensors: the states, their values, a checksum, and a mark of the function they belong to. It is replaced
atomically while values come in, at most so often that writing takes a tenth of the time. Answers left by an interrupted
call are kept in `paid`: the function is not called for them again, and each counts as a distinct call when the resumed
call first asks for its state.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..core.arguments import reals, tensor_of
from ..core.errors import InvalidInput
from ..core.storage import check_folder, check_plain, check_writable, write_with
from ..core.types import NEG_INF
from .answer_log import AnswerLog

_FORMAT, _VERSION = "truetilt-reward", "1"
_PATIENCE = 9  # after a write that took one second, the next waits at least this many seconds
_NOISED = (
    "it is masked or noised. A reward is defined on finished sequences; on the way use a twist (a potential of noised "
    "states), or give the reward its whole share at the end (ramp=tt.at_end). If the state is finished, "
)
_OTHER_ALPHABET = "give the reward the tokenizer that the states were made with, or vocabulary= theirs"
_WIDEST = 2**31  # tokens are stored in at most four bytes


class Cache:
    """Values by state in order of arrival, the counters, and the lock that every reader and writer holds."""

    def __init__(self, vocabulary: int | None, path: Path | None = None, mark: str = "") -> None:
        self.lock = threading.RLock()
        self.values: dict[bytes, float] = {}
        self.paid: dict[bytes, float] = {}  # known answers that are not counted yet; disjoint from `values`
        self.log: AnswerLog | None = None  # the log that new answers are appended to, if any
        self.length: int | None = None
        self.calls = self.distinct = 0
        self.vocabulary, self._path, self._mark = vocabulary, path, mark
        self._kind = torch.uint8 if vocabulary is not None and vocabulary <= 256 else torch.int32
        self._written, self._due, self._stamp = 0, 0.0, None
        if path is not None:
            check_writable(path)
            check_folder(path.parent)
            if path.exists():
                self._absorb_file()

    def checked(self, states: Any) -> Tensor:
        """Finished sequences as tokens int64 [B, D], checked; all states of one reward have the same length."""
        x = tensor_of("the states of a reward", states, "give tokens int64 [B, D]")
        if x.dim() != 2 or x.shape[1] == 0 or x.is_floating_point() or x.dtype == torch.bool:
            raise InvalidInput(
                f"a reward was given states {tuple(x.shape)} of {x.dtype}; give tokens int64 [B, D], one row a state"
            )
        if self.length not in (None, x.shape[1]):
            raise InvalidInput(
                f"a reward that knows states of {self.length} sites was given {x.shape[1]}; make a tt.Reward for each"
            )
        x, most = x.long(), _WIDEST if self.vocabulary is None else self.vocabulary
        least, largest = x.aminmax() if len(x) else (x.new_zeros(()), x.new_zeros(()))
        if bool((least < 0) | (largest >= most)):
            row, site = (int(k) for k in ((x < 0) | (x >= most)).nonzero()[0])
            found = int(x[row, site])
            raise InvalidInput(
                f"state {row} (counting from 0) holds token {found} at site {site}, and the reward's alphabet is the "
                f"tokens 0 to {most - 1}: " + _NOISED * (found == most) + _OTHER_ALPHABET
            )
        return x

    def keys(self, x: Tensor) -> list[bytes]:
        """The cache key of each row: its bytes."""
        rows = x.to(self._kind).cpu().contiguous().numpy()
        data, width = rows.tobytes(), rows.shape[1] * rows.itemsize
        return [data[start : start + width] for start in range(0, len(data), width)]

    def add(self, x: Tensor, values: Tensor) -> None:
        """Store values of states without counting a call; states already in the cache keep their value."""
        for key, value in zip(self.keys(x), values.tolist(), strict=True):
            self.values.setdefault(key, self.paid.pop(key, value))
        if len(x):
            self.length = x.shape[1]

    def learn(self, key: bytes, value: float) -> None:
        """Store an answer of the function, and log it."""
        self.values[key] = value
        if self.log is not None:
            self.log.add(key, value)

    def charge(self, keys: Sequence[bytes]) -> None:
        """Move states from `paid` to `values` and count each as a distinct call."""
        for key in keys if self.paid else ():
            if key in self.paid:
                self.values[key] = self.paid.pop(key)
                self.distinct += 1

    def set_aside(self, answers: dict[bytes, float]) -> None:
        """Add answers of an interrupted call to `paid`, except for states already in `values`."""
        self.paid |= {key: value for key, value in answers.items() if key not in self.values}

    def release(self) -> None:
        """Move all that remains in `paid` to `values` without counting it."""
        self.values |= self.paid
        self.paid = {}

    @property
    def width(self) -> int:
        """Bytes per token."""
        return self._kind.itemsize

    def tensors(self) -> dict[str, Tensor]:
        """All cached states [K, D], in the smallest integer type that holds them, and their values float64 [K]."""
        return self._rows(self.values)

    def _rows(self, known: dict[bytes, float]) -> dict[str, Tensor]:
        kind = np.uint8 if self._kind == torch.uint8 else np.int32
        rows = np.frombuffer(bytearray().join(known), kind).reshape(len(known), self.length or 0)
        values = torch.tensor(list(known.values()), dtype=torch.float64)
        return {"states": torch.from_numpy(rows), "values": values}

    def check_values(self, x: Tensor, values: Any) -> Tensor:
        """Values float64 [B], checked: one per state, finite or -inf."""
        found = reals("the values of a reward", values, "give one number a state")
        if found.shape != x.shape[:1] or bool((found.isnan() | (found == -NEG_INF)).any()):
            raise InvalidInput(
                f"{len(x)} states have values of shape {tuple(found.shape)}, or NaN or +inf among them; give one "
                "number a state, finite or -inf"
            )
        return found

    def write(self, path: Path) -> None:
        """Write all cached values to a file, atomically."""
        self._write(path, self.tensors())

    def _write(self, path: Path, kept: dict[str, Tensor]) -> None:
        facts = {"format": _FORMAT, "version": _VERSION, "function": self._mark, "sha256": _checksum(kept)}
        write_with(path, lambda temporary: save_file(kept, temporary, metadata=facts))

    def read(self, path: Path, mark: str | None = None) -> int:
        """Add the values in a file to the cache, return their number; raise if it is damaged or of another function."""
        again = "move it away, or name another file"
        facts, kept = _opened(path, again)
        if (facts.get("format"), facts.get("version")) != (_FORMAT, _VERSION) or kept.keys() != {"states", "values"}:
            raise InvalidInput(f"{path} holds no values of a reward of version {_VERSION}; {again}")
        if facts.get("sha256") != _checksum(kept):
            raise InvalidInput(f"{path} does not match its checksum: it is damaged or cut short; {again}")
        if mark is not None and facts.get("function") != mark:
            raise InvalidInput(
                f"{path} was written for another function, tokenizer or Python. If its values are still this reward's, "
                f"make the reward without cache_file, then reward.load_cache(file) and reward.save(file); else {again}"
            )
        try:
            if len(kept["states"]):
                x = self.checked(kept["states"])
                self.add(x, self.check_values(x, kept["values"]))
        except InvalidInput as error:
            raise InvalidInput(f"{path} does not fit this reward: {error}; {again}") from error
        return len(kept["states"])

    def keep(self, now: bool = False) -> None:
        """Write the log; write the cache file too if there are new values and a write is due (`now`: at once).

        Values that other processes wrote to the file are read first, and so kept.
        """
        if self.log is not None:
            self.log.write()
        if self._path is None or (not now and (self._size == self._written or time.monotonic() < self._due)):
            return
        begun = time.monotonic()
        if self._path.exists() and _stamp_of(self._path) != self._stamp:
            self._absorb_file()
        if self._size > self._written:
            self._write(self._path, self._rows(self.values | self.paid))
            self._written, self._stamp = self._size, _stamp_of(self._path)
            self._due = time.monotonic() + _PATIENCE * (time.monotonic() - begun)

    @property
    def _size(self) -> int:
        return len(self.values) + len(self.paid)

    def _absorb_file(self) -> None:
        path: Any = self._path
        self._stamp = _stamp_of(path)
        paid, self.paid = self.paid, {}
        try:
            self._written = self.read(path, self._mark)
        finally:  # uncounted answers stay uncounted, though the file holds them
            self.paid = paid
            for key in paid:
                self.values.pop(key, None)


def _opened(path: Path, again: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(check_plain(path), framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except InvalidInput:
        raise
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} is not there; give a file that reward.save or cache_file wrote") from error
    except Exception as error:  # safetensors raises various errors for a file that is not its own
        raise InvalidInput(f"{path} cannot be read ({error}); {again}") from error


def _checksum(kept: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(kept):
        digest.update(f"{name} {kept[name].dtype} {tuple(kept[name].shape)}".encode())
        digest.update(kept[name].contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _stamp_of(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size
