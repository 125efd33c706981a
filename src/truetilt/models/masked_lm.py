"""Adapters for other projects' networks of posteriors: MDLM, UDLM, and masked language models such as LLaDA and Dream.

Each adapter returns logits of the clean token given the other sites, up to a constant per site, which are turned into a
Score (at a masked site that law is the posterior). At sites that carry a token the logits of masked networks are not
used, because that token is kept (MDLM's "carry over").
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.arguments import listed, shown, truth, whole_number
from ..core.errors import InvalidInput
from ..core.eval_mode import check_logits
from ..core.logits import SiteLogits
from ..core.types import NEG_INF, Process, Tokens
from .net_score import score_of_prediction
from .text_score import too_long

LogitsFunction = Callable[..., Any]  # logits, or an output object that has them


@dataclass(frozen=True)
class ForeignConfig:
    """The sizes that a sampler needs to know of such a network; `length` is the largest number of sites it reads."""

    vocabulary: int
    length: int
    masked: bool = True
    classes: int = 0


class Denoiser(nn.Module):
    """A net of posteriors, net(x, sigma) -> logits [B, D, at least S]: MDLM (its last token is the mask) or UDLM.

    Columns beyond the vocabulary are left out: nothing is ever restored to a mask.

    Args:
        net: The network: a torch module (x, sigma) of tokens int64 [B, D] and noise levels [B] that returns logits of
            the clean token [B, D, S or more].
        vocabulary: Number of tokens S, without the mask, 2 or more.
        length: The most sites that the network reads, 1 or more.
        masked: Whether it was trained for masking (MDLM); False for uniform noise (UDLM). True by default.
    """

    def __init__(self, net: nn.Module, vocabulary: int, length: int, *, masked: bool = True) -> None:
        super().__init__()
        _check_net(net)
        self.config = ForeignConfig(
            whole_number("vocabulary", vocabulary, 2), whole_number("length", length, 1), truth("masked", masked)
        )
        self.net, self.looked_at = net, False
        self.train(net.training)

    def trunk(self, x: Tokens, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """The logits themselves."""
        return _checked(_logits(self.net(x, sigma)), x, self)

    def head(self, hidden: Tensor, sigma: Tensor) -> Tensor:
        return hidden.float()

    def log_score(self, process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        return score_of_prediction(process, logits, x, t)


class MaskedLM(nn.Module):
    """A masked language model, net(tokens) -> logits [B, D, V], whose mask is one of its own tokens.

    Tokens keep their numbers: the vocabulary is all V of them, and our mask is token V, which the network gets as its
    own `mask_token`.

    Args:
        net: The network: a function or torch module of tokens int64 [B, D] that returns logits [B, D, V], or a record
            with `.logits`.
        mask_token: The network's own mask, a token from 0 to V - 1; it is never drawn.
        shift: Whether the logits of a site are returned at the site before it (as in Dream); False by default.
        never: Further tokens that are never drawn, such as padding; none by default.
        parts: The network's trunk and head as two functions, so that the head runs only at the sites that are read.
            None (the default): the network runs whole.
        vocabulary: Number of tokens V, 2 or more. None (the default): that of the network's `config`, as transformers
            have it.
        length: The most sites that the network reads, 1 or more. None (the default): that of its `config`.
    """

    def __init__(
        self,
        net: nn.Module,
        mask_token: int,
        *,
        shift: bool = False,
        never: Sequence[int] = (),
        parts: tuple[LogitsFunction, LogitsFunction] | None = None,
        vocabulary: int | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__()
        _check_net(net)
        theirs = getattr(net, "config", None)
        vocabulary = getattr(theirs, "vocab_size", None) if vocabulary is None else vocabulary
        if vocabulary is None:
            raise InvalidInput(
                f"{type(net).__name__} has no config.vocab_size; give vocabulary=, how many tokens its logits are of"
            )
        vocabulary, mask_token = whole_number("vocabulary", vocabulary, 2), whole_number("mask_token", mask_token, 0)
        never = [
            whole_number("a token of never", token, 0) for token in listed("never", never, "give a list of tokens")
        ]
        length = None if length is None else whole_number("length", length, 1)
        if parts is not None and (
            not isinstance(parts, tuple | list) or len(parts) != 2 or not all(map(callable, parts))
        ):
            raise InvalidInput(f"parts is {shown(parts)}; give two functions, the net's trunk and its head")
        if not all(0 <= token < vocabulary for token in (mask_token, *never)):
            raise InvalidInput(
                f"mask_token is {mask_token} and never is {tuple(never)}; the net's tokens are 0 to {vocabulary - 1}: "
                "was the tokenizer made for this net?"
            )
        self.net, self.mask_token, self.shift, self.looked_at = net, mask_token, truth("shift", shift), False
        self.train(net.training)
        self.config = ForeignConfig(vocabulary, _longest(theirs) if length is None else length)
        self.never = tuple({mask_token, *never})
        self.read, self.write = parts or (self._checked_logits, _unchanged)

    def _checked_logits(self, x: Tokens) -> Tensor:
        return _checked(_logits(self.net(x)), x, self)

    def trunk(self, x: Tokens, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        if x.shape[-1] > self.config.length:
            raise too_long(x, self.config.length)
        hidden = self.read(torch.where(x == self.config.vocabulary, self.mask_token, x))
        return torch.cat([hidden[:, :1], hidden[:, :-1]], 1) if self.shift else hidden

    def head(self, hidden: Tensor, sigma: Tensor) -> Tensor:
        logits = self.write(hidden).float()
        return logits.index_fill(-1, torch.tensor(self.never, device=hidden.device), NEG_INF)

    def log_score(self, process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        return score_of_prediction(process, logits, x, t)


def _unchanged(hidden: Tensor) -> Tensor:
    """The head of a net whose trunk returns logits already."""
    return hidden


def _check_net(net: object) -> None:
    if not isinstance(net, nn.Module):
        raise InvalidInput(f"the net is {shown(net)}; give a torch.nn.Module")


def _longest(config: Any) -> int:
    """The largest number of sites a network reads, under either name that configs use; no limit if neither is there."""
    found = (getattr(config, name, None) for name in ("max_position_embeddings", "max_sequence_length"))
    return next((length for length in found if length), sys.maxsize)


def _logits(answer: Any) -> Tensor:
    """The logits in a network's output: the output itself, or its field `logits`."""
    found = answer if isinstance(answer, Tensor) else getattr(answer, "logits", answer)
    if not isinstance(found, Tensor):
        raise InvalidInput(f"the net returned a {type(answer).__name__}; it must return logits, or an output with them")
    return found


def _checked(logits: Tensor, x: Tokens, asked: Denoiser | MaskedLM) -> Tensor:
    """A network's output with its shape checked; the values of the first one too, which synchronises the device."""
    config = asked.config
    if logits.shape[:-1] != x.shape or logits.shape[-1] < config.vocabulary:
        raise InvalidInput(
            f"the net returned {tuple(logits.shape)} for tokens {tuple(x.shape)}; it must return "
            f"{(*x.shape, config.vocabulary)}"
        )
    if not asked.looked_at:
        asked.looked_at = True
        check_logits(logits)
    return logits
