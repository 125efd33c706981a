"""The text classifier: from noised tokens and a time to the log-odds of classes, which may come in groups.

A text has one class of each group it is labelled for: negative or positive, toxic or not. Log-probabilities are
normalised within a group. Trained at every noise level it is a potential log p_t(class | x_t); another instance,
trained on other texts and evaluated at t = 0 only, judges samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from ..core.arguments import shown
from ..core.errors import InvalidInput
from ..core.types import Tokens
from .layers import TimeEmbedding
from .pretrained import Pretrained
from .transformer import (
    Norm,
    Rotary,
    TokenTable,
    TransformerBlock,
    block_parameters,
    check_transformer_sizes,
    start_transformer,
)


@dataclass(frozen=True)
class TextClassifierConfig:
    """Sizes of a `TextClassifier`; tokens 0..vocabulary are embedded, the last is the mask.

    Args:
        vocabulary: Number of tokens, without the mask; 4096 by default.
        length: The most sites that it reads; 64 by default.
        groups: Number of classes in each group of mutually exclusive ones, each 2 or more; one group of two by default.
        hidden: Width of the network; 192 by default.
        blocks: Number of transformer blocks; 2 by default.
        heads: Number of attention heads; `hidden` is a multiple of twice that; 3 by default.
        condition: Width of the time embedding; 64 by default.
    """

    vocabulary: int = 4096
    length: int = 64  # the most sites it reads
    groups: tuple[int, ...] = (2,)  # number of classes in each group
    hidden: int = 192
    blocks: int = 2
    heads: int = 3
    condition: int = 64  # width of the time embedding

    def __post_init__(self) -> None:
        check_transformer_sizes(self)
        groups = self.groups
        if not isinstance(groups, tuple) or not groups or any(type(size) is not int or size < 2 for size in groups):
            raise InvalidInput(f"groups is {shown(groups)}; give the number of classes of each group, at least two")

    @property
    def classes(self) -> int:
        return sum(self.groups)


class TextClassifier(Pretrained[TextClassifierConfig]):
    """A network of the log-odds of classes given noised tokens; a fresh one finds every class equally likely.

    Args:
        config: Its sizes. None (the default): those of `tt.TextClassifierConfig()`.
        seed: Seed of its first weights, 0 by default; None: all weights are zero, to be loaded.
    """

    architecture: ClassVar[str] = "text-classifier"
    config_type: ClassVar[Any] = TextClassifierConfig

    @staticmethod
    def _least_parameters(config: TextClassifierConfig) -> int:
        tables = (config.vocabulary + config.classes) * config.hidden + config.condition**2
        return block_parameters(config) + tables

    def _build(self, config: TextClassifierConfig) -> None:
        self.vocab_embed = TokenTable(config.vocabulary + 1, config.hidden)
        self.moment = TimeEmbedding(config.condition)
        self.rotary_emb = Rotary(config.hidden // config.heads)
        self.blocks = nn.ModuleList(
            TransformerBlock(config.hidden, config.heads, config.condition) for _ in range(config.blocks)
        )
        self.norm_final = Norm(config.hidden)
        self.notice = nn.Linear(config.hidden, 1)  # attention weight of a site in the pooling
        self.head = nn.Linear(config.hidden, config.classes)

    def _start(self, seed: int | None) -> None:
        start_transformer(self.to_empty(device="cpu"), seed, zero=("head", "notice"))

    def forward(self, x: Tokens, t: Tensor) -> Tensor:
        """int64 [B, D] and float [B] to float32 log-odds [B, classes]."""
        if x.shape[-1] > self.config.length:
            raise InvalidInput(f"a text of {x.shape[-1]} tokens for a net that reads {self.config.length}; shorten it")
        condition = functional.silu(self.moment(t.expand(len(x))))
        h, turn = self.vocab_embed(x), self.rotary_emb(x.shape[-1], x.device)
        for block in self.blocks:
            h = block(h, turn, condition)
        h = self.norm_final(h)
        pooled = (self.notice(h).float().softmax(-2) * h).sum(-2)
        return self.head(pooled).float()
