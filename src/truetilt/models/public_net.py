"""A public network with the facts needed to call it, and the lookup of logits in its output."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput
from .alphabet import Alphabet
from .families import Family
from .heads import Head


@dataclass(frozen=True, eq=False)
class Public:
    """A public network with the facts needed to call it: its family, mask, frame and drawable tokens."""

    net: nn.Module
    family: Family
    alphabet: Alphabet
    mask: int | None  # its own id
    before: tuple[int, ...]
    after: tuple[int, ...]
    pad: int
    vocabulary: int  # all its tokens, drawable or not
    length: int  # the most tokens it reads
    hidden: int
    classes: int = 0
    head: Head | None = None  # None: the network is not split

    def ask(self, ids: Tensor, attention: Tensor | None, sigma: Tensor | None, label: Tensor | None = None) -> Tensor:
        """The network's logits for rows of its own ids [B, L]: [B, L, at least V]."""
        family, known = self.family, inspect.signature(self.net.forward).parameters
        args, named = ([], {"input_ids": ids}) if "input_ids" in known else ([ids], {})
        if family.noise is not None:
            if family.noise not in known and not args:
                raise InvalidInput(
                    f"{type(self.net).__name__} takes no {family.noise}; is it of the family {family.name}?"
                )
            noise = torch.zeros(len(ids), device=ids.device) if sigma is None else sigma
            if family.noise in known:
                named[family.noise] = noise
            else:
                args.append(noise)
        if attention is not None and family.attention is not None and family.attention in known:
            named[family.attention] = attention
        if label is not None:
            named["cond"] = label
        return logits_in(self.net(*args, **named))

    @property
    def inner(self) -> int:
        """The most tokens that fit into a row inside its frame."""
        return self.length - len(self.before) - len(self.after)

    @property
    def pads(self) -> bool:
        """Whether rows of unequal lengths can be evaluated in one batch."""
        name = self.family.attention
        return name is not None and name in inspect.signature(self.net.forward).parameters

    def told_noise(self, sigma: Tensor) -> Tensor:
        """The noise level passed to the network: for uniform noise, relative to all its tokens, not only the drawable
        ones.

        A site that shows a drawable token is as likely to be noise under sigma and S drawable tokens as under this
        noise and all V, so the network's predictions for the other sites are right.
        """
        if self.family.masked:
            return sigma
        return torch.log1p(torch.expm1(sigma) * (self.vocabulary / len(self.alphabet)))


def logits_in(answer: Any) -> Tensor:
    """The logits in a network's output: a tensor, an object or dict that has them, or a tuple that begins with one."""
    for name in ("logits", "sequence_logits"):
        found = answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)
        if isinstance(found, Tensor):
            return found
    first = answer[0] if isinstance(answer, tuple | list) and answer else answer
    if isinstance(first, Tensor) and first.dim() == 3:
        return first
    raise InvalidInput(
        f"the net returned a {type(answer).__name__}; it must return logits [B, L, V], or an output or dict with them"
    )
