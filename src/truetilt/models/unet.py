"""The U-Net: from a noised grid of tokens, a time and a label to the logits of every clean token.

Down through coarser and coarser grids and back up, each block reading time and label. The output is log p(x0 = v | x,
t, label) up to a constant per site; the process turns that into a Score.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.types import Tokens
from .layers import Attention, GridNet, Level, Residual, Rise, TimeEmbedding, TokenGrid, ZeroLinear, group_norm, halve
from .pretrained import check_sizes


@dataclass(frozen=True)
class UNetConfig:
    """Sizes of a `UNet`; tokens 0..vocabulary are embedded, the last is the mask; label `classes` is "no condition"."""

    side: int = 28
    vocabulary: int = 256
    classes: int = 10
    channels: tuple[int, ...] = (64, 128, 160)  # of each grid, from the finest
    blocks: int = 2  # on each grid, on the way down and on the way up
    embedding: int = 64  # width of the token embedding
    condition: int = 128  # width of the time and label embedding
    attention: bool = True  # once, at the coarsest grid

    def __post_init__(self) -> None:
        check_sizes(self)

    @property
    def length(self) -> int:
        return self.side**2


class UNet(GridNet[UNetConfig]):
    """Posterior logits of clean tokens given noised ones, for any grid and vocabulary."""

    architecture: ClassVar[str] = "unet"
    config_type: ClassVar[Any] = UNetConfig

    def _build(self, config: UNetConfig) -> None:
        sizes, width, blocks = config.channels, config.condition, config.blocks
        coarse, finer = sizes[-1], list(pairwise(sizes))  # (fine, coarse) of each halving
        self.tokens = TokenGrid(config.side, config.vocabulary, config.embedding)
        self.moment, self.label = TimeEmbedding(width), nn.Embedding(config.classes + 1, width)
        self.stem = nn.Conv2d(config.embedding, sizes[0], 3, padding=1)
        self.down = nn.ModuleList(Level(before, here, width, blocks) for before, here in [(sizes[0], sizes[0]), *finer])
        self.halves = nn.ModuleList(halve(fine) for fine, _ in finer)
        self.before, self.after = Residual(coarse, coarse, width), Residual(coarse, coarse, width)
        self.attention = Attention(coarse) if config.attention else nn.Identity()
        self.up = nn.ModuleList(Rise(here, here, width, blocks) for here in reversed(sizes))
        self.doubles = nn.ModuleList(nn.Conv2d(here, fine, 1) for fine, here in reversed(finer))
        self.norm, self.head = group_norm(sizes[0]), ZeroLinear(sizes[0], config.vocabulary)

    def forward(self, x: Tokens, t: Tensor, label: Tensor | None = None) -> Tensor:
        """int64 [B, D], float [B], int64 [B] (None: no condition) to float32 logits [B, D, V]."""
        condition = self._condition(x, t, label)
        h, kept = self.stem(self.tokens(x)), []
        for number, level in enumerate(self.down):
            h = self.halves[number - 1](h) if number > 0 else h
            kept.append(level(h, condition))
            h = kept[-1][-1]
        h = self.after(self.attention(self.before(h, condition)), condition)
        for number, rise in enumerate(self.up):
            if number > 0:  # projected on the coarse grid, where it is cheap
                h = self.doubles[number - 1](h)
                h = functional.interpolate(h, size=kept[-1][-1].shape[2:], mode="nearest")
            h = rise(h, kept.pop(), condition)
        features = functional.silu(self.norm(h)).permute(0, 2, 3, 1).flatten(1, 2)  # [B, D, C]
        return self.head(features).float()

    def _condition(self, x: Tokens, t: Tensor, label: Tensor | None) -> Tensor:
        label = torch.full_like(x[:, 0], self.config.classes) if label is None else label
        return functional.silu(self.moment(t.expand(len(x))) + self.label(label))
