"""Generative perplexity: the cost of texts, in nats, under a causal language model.

A text ends with its first end-of-text token, which counts; what follows does not. If the model has a begin token, it is
put before each text and not counted; if it has none, the first token is read and not counted. Texts are padded on the
right, which a causal model cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..core.errors import InvalidInput
from ..core.eval_mode import evaluating
from ..core.types import Tokens


@dataclass(frozen=True)
class CausalLM:
    """net(tokens [B, L]) -> logits [B, L, V] of the next token, or an output that has them; reads `context` tokens."""

    net: Callable[[Tokens], Any]
    vocabulary: int
    context: int
    bos: int | None = None  # begin token
    eos: int | None = None  # end token
    encode: Callable[[str], Sequence[int]] | None = None  # without special tokens

    def __post_init__(self) -> None:
        if self.vocabulary < 1 or self.context < 1:
            raise InvalidInput(f"a model of {self.vocabulary} tokens that reads {self.context}; both must be positive")
        for name, token in (("bos", self.bos), ("eos", self.eos)):
            if token is not None and not 0 <= token < self.vocabulary:
                raise InvalidInput(f"{name} is {token}; the model's tokens are 0 to {self.vocabulary - 1}")

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        first = next(self.net.parameters(), None) if isinstance(self.net, nn.Module) else None
        return torch.device("cpu") if first is None else first.device

    def tokens(self, text: str | Sequence[int], number: int = 0) -> list[int]:
        """The text up to and including its first end token, after the begin token; `number` is for error messages."""
        if isinstance(text, str) and self.encode is None:
            raise InvalidInput(f"text {number} is a string and the model has no tokenizer; give tokens, or set encode")
        found = [int(v) for v in (self.encode(text) if isinstance(text, str) and self.encode else text)]
        if not found:
            raise InvalidInput(f"text {number} is empty; leave it out, and say so: it has no perplexity")
        strange = next((v for v in found if not 0 <= v < self.vocabulary), None)
        if strange is not None:
            raise InvalidInput(
                f"text {number} holds token {strange} and the model's are 0 to {self.vocabulary - 1}; was it encoded "
                "by this model's own tokenizer?"
            )
        if self.eos in found:
            found = found[: found.index(self.eos) + 1]
        found = found if self.bos is None else [self.bos, *found]
        if len(found) < 2:
            raise InvalidInput(
                f"text {number} is one token, and without bos nothing predicts it; set bos, or leave the text out"
            )
        return found


@dataclass(frozen=True)
class Perplexity:
    """Nats and counted tokens of each text, float64 [n] and int64 [n]."""

    nats: Tensor
    tokens: Tensor

    @property
    def corpus(self) -> float:
        """The perplexity of all texts together: each token counts the same."""
        return float((self.nats.sum() / self.tokens.sum()).exp())

    @property
    def each(self) -> Tensor:
        """The perplexity of each text [n]."""
        return (self.nats / self.tokens).exp()


class Window(NamedTuple):
    """Part of a text that is read at once; tokens before `first` are read and not counted."""

    text: int
    tokens: list[int]
    first: int


@torch.no_grad()
def perplexity(
    lm: CausalLM, texts: Sequence[str | Sequence[int]], *, batch: int = 8, stride: int | None = None
) -> Perplexity:
    """The perplexity of texts, given as strings or as tokens, `batch` of them read at a time.

    A text longer than the context is read through windows of the full context, each `stride` tokens further than the
    one before and the last at the text's end; every token counts once, in the first window that predicts it. Without
    `stride` such a text raises an error.
    """
    if isinstance(texts, str) or not len(texts):
        raise InvalidInput("give a list of texts, with at least one in it")
    if batch < 1:
        raise InvalidInput(f"batch is {batch}; give at least 1")
    rows = [lm.tokens(text, number) for number, text in enumerate(texts)]
    parts = [part for number, row in enumerate(rows) for part in windows(row, lm.context, stride, number)]
    parts.sort(key=lambda part: len(part.tokens))
    nats = torch.zeros(len(rows), dtype=torch.float64)
    with evaluating(lm.net) if isinstance(lm.net, nn.Module) else nullcontext():
        for k in range(0, len(parts), batch):
            for part, cost in zip(parts[k : k + batch], _costs(lm, parts[k : k + batch]), strict=True):
                nats[part.text] += cost
    return Perplexity(nats, torch.tensor([len(row) - 1 for row in rows]))


def windows(row: list[int], context: int, stride: int | None, number: int = 0) -> list[Window]:
    """The windows of a text; the last token of a window is predicted and not read."""
    if len(row) <= context + 1:
        return [Window(number, row, 1)]
    if stride is None:
        raise InvalidInput(
            f"text {number} has {len(row) - 1} tokens to read and the model reads {context}; give a stride (half the "
            "context is usual), or shorten it"
        )
    if not 1 <= stride <= context:
        raise InvalidInput(f"stride is {stride}; give 1 to {context}, the model's context")
    found, end = [Window(number, row[: context + 1], 1)], context + 1
    while end < len(row):
        before, end = end, min(end + stride, len(row))
        found.append(Window(number, row[end - context - 1 : end], context + 1 - (end - before)))
    return found


def logits_of(lm: CausalLM, x: Tokens) -> Tensor:
    """The model's logits [B, L, V] for tokens [B, L]."""
    answer = lm.net(x)
    found = getattr(answer, "logits", answer)
    shape = (*x.shape, lm.vocabulary)
    if not isinstance(found, Tensor) or found.shape != shape:
        what = tuple(found.shape) if isinstance(found, Tensor) else type(answer).__name__
        raise InvalidInput(f"the model returned {what} for tokens {tuple(x.shape)}; it must return logits {shape}")
    return found


def _costs(lm: CausalLM, parts: Sequence[Window]) -> list[float]:
    """Nats of the counted tokens of each window."""
    x = torch.zeros(len(parts), max(len(part.tokens) for part in parts) - 1, dtype=torch.int64)
    for row, part in zip(x, parts, strict=True):
        row[: len(part.tokens) - 1] = torch.tensor(part.tokens[:-1])
    costs = []
    for part, logits in zip(parts, logits_of(lm, x.to(lm.device)), strict=True):
        counted = torch.tensor(part.tokens[part.first :], device=logits.device)
        logits = logits[part.first - 1 : len(part.tokens) - 1]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        cost = float(cross_entropy(logits, counted, reduction="none").double().sum())
        if cost != cost:
            raise InvalidInput(f"the model returned NaN for text {part.text}; look at its weights")
        costs.append(cost)
    return costs
