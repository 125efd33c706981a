"""The text classifier: from noised tokens and a time to the log-odds of classes, which may come in groups.

A text has one class of each group it is labelled for: negative or positive, toxic or not. Log-probabilities are
normalised within the group. Trained at every noise level it is a potential log p_t(class | x_t); another instance,
trained on other texts and asked at t = 0 alone, judges samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.types import InvalidInput, Tokens, shown
from ..smc.stream import DRAW, Stream, check_seed
from .layers import TimeEmbedding
from .pretrained import Pretrained, check_blocks, check_weights_fit
from .transformer import Norm, Rotary, TokenTable, TransformerBlock


@dataclass(frozen=True)
class TextClassifierConfig:
    """Sizes of a `TextClassifier`; tokens 0..vocabulary are embedded, the last is the mask."""

    vocabulary: int = 4096
    length: int = 64  # the most sites it reads
    groups: tuple[int, ...] = (2,)  # how many classes each group has
    hidden: int = 192
    blocks: int = 2
    heads: int = 3
    condition: int = 64  # of time

    def __post_init__(self) -> None:
        least = {"vocabulary": 2, "length": 1, "hidden": 2, "blocks": 1, "heads": 1, "condition": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InvalidInput(f"{name} is {value!r}; give a whole number of at least {low}")
        check_blocks(self.blocks)
        groups = self.groups
        if not isinstance(groups, tuple) or not groups or any(type(size) is not int or size < 2 for size in groups):
            raise InvalidInput(f"groups is {groups!r}; give the number of classes of each group, at least two")
        if self.hidden % (2 * self.heads):
            raise InvalidInput(f"hidden is {self.hidden} for {self.heads} heads; each head needs an even, equal share")

    @property
    def classes(self) -> int:
        return sum(self.groups)


class TextClassifier(Pretrained[TextClassifierConfig]):
    """Log-odds of the classes given noised tokens; zero at the start, so every class is equally likely."""

    architecture: ClassVar[str] = "text-classifier"
    config_type: ClassVar[Any] = TextClassifierConfig

    def __init__(self, config: TextClassifierConfig | None = None, seed: int | None = 0) -> None:
        super().__init__()
        config = TextClassifierConfig() if config is None else config
        if not isinstance(config, TextClassifierConfig):
            raise InvalidInput(f"config is {shown(config)}; give a tt.TextClassifierConfig")
        self.config, seed = config, None if seed is None else check_seed(seed)
        each = 12 * config.hidden**2 + 6 * config.hidden * config.condition
        tables = (config.vocabulary + config.classes) * config.hidden + config.condition**2
        check_weights_fit(config.blocks * each + tables, config)
        with torch.device("meta"):
            self._build(config)
        _start(self.to_empty(device="cpu"), seed)

    def _build(self, config: TextClassifierConfig) -> None:
        self.vocab_embed = TokenTable(config.vocabulary + 1, config.hidden)
        self.moment = TimeEmbedding(config.condition)
        self.rotary_emb = Rotary(config.hidden // config.heads)
        self.blocks = nn.ModuleList(
            TransformerBlock(config.hidden, config.heads, config.condition) for _ in range(config.blocks)
        )
        self.norm_final = Norm(config.hidden)
        self.notice = nn.Linear(config.hidden, 1)  # how much a site has to say
        self.head = nn.Linear(config.hidden, config.classes)

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


@torch.no_grad()
def _start(net: TextClassifier, seed: int | None) -> None:
    """First weights: uniform of variance 1 / (3 fan-in), norms 1, what modulates or answers 0; all 0 without a seed."""
    net.rotary_emb.inv_freq.copy_(net.rotary_emb.speeds("cpu"))
    for number, (name, parameter) in enumerate(net.named_parameters()):
        if "norm" in name:
            parameter.fill_(1.0)
        elif seed is None or name.endswith("bias") or "adaLN" in name or name.startswith(("head", "notice")):
            parameter.fill_(0.0)
        else:
            u = Stream(seed).uniforms(number, DRAW, 1, (0, parameter.numel())).reshape(parameter.shape)
            parameter.copy_((2 * u - 1) / math.sqrt(parameter.shape[-1]))
