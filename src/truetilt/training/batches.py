"""Training batches from a counter: rows, times and noise are a pure function of (seed, step).

No state is kept between steps, so a run resumed at step k sees the same batches as an uninterrupted one. Row order and
times are computed on the CPU; tokens are gathered and noised on the device, without a device synchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ..core.types import Tokens
from ..diffusion.processes import Masking, Uniform
from ..smc.sampler import Stream
from .left_to_right import mixed_in, suffixes
from .losses import Noise, Noised, corrupt
from .task_record import TrainingBatch, TrainingRows

ORDER, TIMES, NOISE, LABELS, SHIFTS, EVALUATION, SUFFIXES = range(
    7
)  # purposes: one stream each, so no uniform is used twice


@dataclass(frozen=True)
class Batches:
    """The batches of a run; with `clean` all rows stay at t = 0."""

    rows: TrainingRows  # on the device
    process: Masking | Uniform
    size: int
    seed: int
    classes: int
    label_dropout: float = 0.0
    clean: bool = False
    max_shift: int = 0
    max_blank: float = 0.0
    suffix_share: float = 0.0  # share of the rows of which a suffix is masked, in place of random sites

    def at(self, step: int) -> TrainingBatch:
        """The batch of this step."""
        device = self.rows.tokens.device
        chosen = move(order(self.seed, self.rows.count, step * self.size, self.size), device)
        x0, label = self.rows.tokens[chosen].long(), self.rows.labels[chosen]
        if self.max_shift:
            x0 = shifted(x0, self._uniforms(step, SHIFTS, 2), self.max_shift)
        instead = self.rows.told_instead(label, self.classes)
        told = torch.where(self._uniforms(step, LABELS, 1)[:, 0] < self.label_dropout, instead, label)
        noised = self._noised(x0, step)
        if self.suffix_share and isinstance(self.process, Masking):
            u, used = self._uniforms(step, SUFFIXES, 2), self.rows.used
            used = torch.full_like(chosen, x0.shape[1]) if used is None else used[chosen]
            noised = mixed_in(noised, suffixes(self.process, x0, used, u[:, 1]), u[:, 0] < self.suffix_share)
        return TrainingBatch(noised, label, told)

    def _noised(self, x0: Tokens, step: int) -> Noised:
        if self.clean:
            nothing = torch.zeros(self.size, dtype=torch.float64, device=x0.device)
            return Noised(x0, self._blanked(x0, step), Noise(nothing, nothing, nothing))
        noise = Noise.at(self.process, times(Stream(self.seed).uniforms(step, TIMES, 1, self.size)[0]))
        return corrupt(self.process, x0, noise.to(x0.device), self._uniforms(step, NOISE, x0.shape[1]))

    def _blanked(self, x0: Tokens, step: int) -> Tokens:
        """Rows with up to `max_blank` of their sites masked, so that a classifier relies on more than a word or two."""
        if not self.max_blank or not isinstance(self.process, Masking):
            return x0
        most = self.max_blank * self._uniforms(step, TIMES, 1)
        return torch.where(self._uniforms(step, NOISE, x0.shape[1]) < most, self.process.mask, x0)

    def _uniforms(self, step: int, purpose: int, each: int) -> Tensor:
        stream = Stream(self.seed, device=self.rows.tokens.device)
        return stream.uniforms(step, purpose, 1, self.size * each).view(self.size, each)


def times(u: Tensor) -> Tensor:
    """One time in (0, 1] in each of n equal strata: uniform on average, and less noisy than independent ones."""
    return (torch.arange(len(u), 0, -1, device=u.device) - u) / len(u)


def order(seed: int, count: int, first: int, size: int) -> Tensor:
    """The row numbers at places first .. first + size - 1, if every epoch is a fresh permutation."""
    chosen = []
    while size > 0:
        epoch, start = divmod(first, count)
        chosen.append(_permutation(seed, count, epoch)[start : start + size])
        first, size = first + len(chosen[-1]), size - len(chosen[-1])
    return torch.cat(chosen)


@lru_cache(maxsize=2)
def _permutation(seed: int, count: int, epoch: int) -> Tensor:
    return Stream(seed).uniforms(epoch, ORDER, 1, count)[0].argsort(stable=True)


def shifted(x: Tokens, u: Tensor, most: int) -> Tokens:
    """Square images shifted by up to `most` pixels each way, filled with black; u is uniform [B, 2]."""
    side = round(x.shape[1] ** 0.5)
    by = (u * (2 * most + 1)).long() - most
    place = torch.arange(side, device=x.device)
    row, column = (place + by[:, axis, None] for axis in (0, 1))  # [B, side]
    inside = ((row >= 0) & (row < side))[:, :, None] & ((column >= 0) & (column < side))[:, None, :]
    source = row.clamp(0, side - 1)[:, :, None] * side + column.clamp(0, side - 1)[:, None, :]
    return torch.where(inside.flatten(1), x.gather(1, source.flatten(1)), 0)


def move(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy to the device asynchronously."""
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
