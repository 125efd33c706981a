"""The classifier network: from a noised grid of tokens and a time to the logits of the classes.

Trained at every noise level it is a potential log p_t(class | x_t). A second instance, trained separately and evaluated
at t = 0 only, judges samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from ..core.errors import InvalidInput
from ..core.types import Tokens
from .layers import Attention, GridNet, Level, TimeEmbedding, TokenGrid, ZeroLinear, group_norm, halve
from .pretrained import check_sizes


@dataclass(frozen=True)
class ClassifierConfig:
    """Sizes of a `Classifier`; tokens 0..vocabulary are embedded, the last is the mask."""

    side: int = 28
    vocabulary: int = 256
    classes: int = 10
    channels: tuple[int, ...] = (32, 64, 128)  # of each grid, from the finest
    blocks: int = 2  # on each grid
    embedding: int = 32  # width of the token embedding
    condition: int = 64  # width of the time embedding
    attention: bool = True  # once, at the coarsest grid

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.classes < 2:
            raise InvalidInput(f"classes is {self.classes}; a classifier tells at least two apart")

    @property
    def length(self) -> int:
        return self.side**2


class Classifier(GridNet[ClassifierConfig]):
    """Class logits given noised tokens; they start at zero, so that every class is equally likely."""

    architecture: ClassVar[str] = "classifier"
    config_type: ClassVar[Any] = ClassifierConfig

    def _build(self, config: ClassifierConfig) -> None:
        sizes, width, blocks = config.channels, config.condition, config.blocks
        coarse, finer = sizes[-1], list(pairwise(sizes))  # (fine, coarse) of each halving
        self.tokens, self.moment = TokenGrid(config.side, config.vocabulary, config.embedding), TimeEmbedding(width)
        self.stem = nn.Conv2d(config.embedding, sizes[0], 3, padding=1)
        self.down = nn.ModuleList(Level(before, here, width, blocks) for before, here in [(sizes[0], sizes[0]), *finer])
        self.halves = nn.ModuleList(halve(fine) for fine, _ in finer)
        self.attention = Attention(coarse) if config.attention else nn.Identity()
        self.norm, self.mix = group_norm(coarse), nn.Linear(coarse, coarse)
        self.head = ZeroLinear(coarse, config.classes)

    def forward(self, x: Tokens, t: Tensor) -> Tensor:
        """int64 [B, D] and float [B] to float32 log-odds [B, classes]."""
        condition = functional.silu(self.moment(t.expand(len(x))))
        h = self.stem(self.tokens(x))
        for number, level in enumerate(self.down):
            h = self.halves[number - 1](h) if number > 0 else h
            h = level(h, condition)[-1]
        pooled = functional.silu(self.norm(self.attention(h))).mean((2, 3))
        return self.head(functional.silu(self.mix(pooled))).float()
