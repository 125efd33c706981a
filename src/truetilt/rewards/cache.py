"""The cache of a reward: a value for each state, keyed by the bytes of its row, and optionally stored in a file.

Answers left by an interrupted call are kept in `paid`: the function is not called for them again, and each counts as a
distinct call when the resumed call first asks for its state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.arguments import reals, tensor_of
from ..core.errors import InvalidInput
from ..core.storage import write_with
from ..core.types import NEG_INF
from .answer_file import AnswerFile, Kept

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
        self.length: int | None = None
        self.calls = self.distinct = 0
        self.vocabulary, self._mark = vocabulary, mark
        self._kind = torch.uint8 if vocabulary is not None and vocabulary <= 256 else torch.int32
        self.log: AnswerFile | None = None  # a second file that new answers are written to as they come
        self._file = None if path is None else AnswerFile(path, self.width, mark)
        if self._file is not None and path is not None and path.exists():
            self._take(path, *self._file.read(self.width, mark))

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
        found = dict(zip(self.keys(x), values.tolist(), strict=True))
        for key, value in found.items():
            self.values.setdefault(key, self.paid.pop(key, value))
        self._write_later((key, self.values[key]) for key in found)
        if len(x):
            self.length = x.shape[1]

    def learn(self, key: bytes, value: float) -> None:
        """Store an answer of the function, to be written to its files."""
        self.values[key] = value
        self._write_later([(key, value)])
        if self.log is not None:
            self.log.add([Kept(key, value)])

    def charge(self, keys: Sequence[bytes]) -> None:
        """Move states from `paid` to `values` and count each as a distinct call."""
        for key in keys if self.paid else ():
            if key in self.paid:
                self.values[key] = self.paid.pop(key)
                self.distinct += 1

    def set_aside(self, answers: dict[bytes, float]) -> None:
        """Add answers of an interrupted call to `paid`, except for states already in `values`."""
        self.paid |= {key: value for key, value in answers.items() if key not in self.values}
        self._write_later(self.paid.items())

    def release(self) -> None:
        """Move all that remains in `paid` to `values` without counting it."""
        self.values |= self.paid
        self.paid = {}

    @property
    def width(self) -> int:
        """Bytes per token."""
        return self._kind.itemsize

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All cached states [K, D], int64, and their values, float64 [K]."""
        return self._states(self.values, self.width), torch.tensor(list(self.values.values()), dtype=torch.float64)

    def _states(self, keys: Iterable[bytes], width: int) -> Tensor:
        some = list(keys)
        rows = np.frombuffer(b"".join(some), np.uint8 if width == 1 else np.int32)
        return torch.from_numpy(rows.reshape(len(some), -1 if some else self.length or 0).astype(np.int64))

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

        def fill(temporary: Path) -> None:
            file = AnswerFile(temporary, self.width, self._mark)
            file.restart()
            file.add(Kept(*row) for row in self.values.items())
            file.write(now=True)

        write_with(path, fill)

    def read(self, path: Path) -> None:
        """Add the values in a file to the cache; raise if it is damaged."""
        self._take(path, *AnswerFile(path, self.width).read())

    def keep(self, now: bool = False) -> None:
        """Write new values to the files, if that is due or asked for `now`."""
        for file in (self.log, self._file):
            if file is not None:
                file.write(now)

    def _take(self, path: Path, width: int, kept: list[Kept]) -> None:
        try:
            if kept:
                x = self.checked(self._states((row.key for row in kept), width))
                self.add(x, self.check_values(x, torch.tensor([row.value for row in kept], dtype=torch.float64)))
        except (InvalidInput, ValueError) as error:
            raise InvalidInput(
                f"{path} does not fit this reward: {error}; move it away, or name another file"
            ) from error

    def _write_later(self, known: Iterable[tuple[bytes, float]]) -> None:
        if self._file is not None:
            self._file.add(Kept(*row) for row in known)
