"""Scores of token networks split in two: the trunk reads whole texts, the head runs only at the sites that are read.

If a sampler chooses its sites before it reads their logits (any-order, tweedie steps of masking), the head with its
large vocabulary runs only at revealed sites. Conditions may be labels, or a prompt in the text itself: `prompted`.
A network is called in padded batches of one size (`Padded`), because float32 products differ with the batch size, and
only the rows of sites that are read are kept (`SitesRead`). Networks of pixels use these two as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..core.arguments import LONGEST, plain, set_fields, shown, whole_number
from ..core.errors import InvalidInput
from ..core.eval_mode import evaluating
from ..core.evaluation import Batch, BatchScore, Needs, is_on_host
from ..core.logits import LazyRows, SiteLogits
from ..core.types import Model, Process, Tokens, check_process
from ..diffusion.processes import Masking
from .deduplication import all_equal, first_answer
from .infilling import prompted
from .net_facts import TokenNet, check_token_net, facts_of, features_of

_BLOCKS = {"cpu": 64}  # rows in a batch of the head, fixed because float32 products differ with the batch size
_BLOCK = 256  # rows in a batch of the head on other devices


@dataclass(frozen=True)
class Padded:
    """Evaluates a network in padded batches, in eval mode, without gradients, under autocast if a `dtype` is given.

    An output is valid only until the next is computed: a compiled network reuses its output buffer.
    """

    net: nn.Module
    batch: int
    dtype: torch.dtype | None = None
    ask: Callable[..., Tensor] | None = None  # a method of the network to call instead of its forward

    def __call__(self, x: Tokens, t: float, labels: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the network's answers for states [n, D], with labels [n] if any, batch by batch."""
        times = torch.full((self.batch,), float(t), device=x.device)
        inputs = (x,) if labels is None else (x, labels)
        for parts in zip(*(tensor.split(self.batch) for tensor in inputs), strict=True):
            state, *told = (self._filled(part) for part in parts)
            yield self._ask(state, times, *told)[: len(parts[0])]

    def _filled(self, part: Tensor) -> Tensor:
        """Pad a batch with copies of its first row."""
        return torch.cat([part, part[:1].expand(self.batch - len(part), *part.shape[1:])])

    @torch.no_grad()
    def _ask(self, *inputs: Tensor) -> Tensor:
        if self.net.training:
            with evaluating(self.net):
                return self._ask(*inputs)
        with torch.autocast(inputs[0].device.type, self.dtype, enabled=self.dtype is not None):
            return (self.ask or self.net)(*inputs)


def check_batch(batch: object, dtype: object) -> int:
    """The batch size as a plain number, with batch and dtype checked."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InvalidInput(f"dtype is {shown(dtype)}; give torch.bfloat16, torch.float16, or None for float32")
    return whole_number("batch", batch, 1, LONGEST)


class SitesRead(NamedTuple):
    """The sites at which a sampler reads a score (for masking, the masked ones), and the rows that are kept for them.

    On a GPU the rows of all sites are kept: counting the ones that are read would synchronise the device.
    """

    where: Tensor  # bool [B, D]
    index: Tensor  # [B, D], each site's row number from 1 on; 0 where the score is not read
    rows: int  # number of rows kept, including the row of zeros at the front
    every: bool  # whether the rows of all sites are kept


def sites_read(process: Process, batch: Batch) -> SitesRead:
    """The sites of a batch at which the score is read.

    Base and conditional share the index, so that their rows can be combined without comparing indices.
    """
    mask = process.mask if isinstance(process, Masking) else None
    found = batch.known.get(("sites read", mask))
    if found is None:
        found = batch.known["sites read", mask] = _sites_read(mask, batch.x)
    return found


def _sites_read(mask: int | None, x: Tokens) -> SitesRead:
    read, every = torch.ones_like(x, dtype=torch.bool) if mask is None else x == mask, not is_on_host(x)
    kept = torch.ones_like(read) if every else read
    index = torch.where(read, kept.reshape(-1).cumsum(0).reshape(x.shape), 0)
    return SitesRead(read, index, 1 + (x.numel() if every else int(read.sum())), every)


def rows_of(answers: Iterable[Tensor], read: SitesRead, batch: int) -> Tensor:
    """A row of zeros, then the kept rows of the sites [n, D], from outputs [b, D, C] batch by batch: [1 + k, C].

    Each output is copied before the next is computed: a network may reuse its output buffer.
    """
    rows, end = None, 1
    for answer, here in zip(answers, read.where.split(batch), strict=True):
        part = answer.flatten(0, 1) if read.every else answer[here]
        if rows is None:
            rows = part.new_empty(read.rows, part.shape[-1])
            rows[:1].zero_()
        rows[end : end + len(part)] = part
        end += len(part)
    return cast("Tensor", rows)


def too_long(x: Tokens, longest: int) -> InvalidInput:
    """The error of texts with more sites than a net reads."""
    return InvalidInput(f"a text of {x.shape[-1]} tokens for a net that reads {longest}; shorten it or its prompt")


def check_class(net: object, label: object) -> None:
    """Raise for a label that is not one of the network's classes, if its config states them."""
    said = facts_of(net).classes
    classes = math.inf if said is None else said
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < classes:
        known = f"classes 0 to {classes - 1}" if classes else "no classes"
        raise InvalidInput(f"the condition is {shown(label)}; this net knows {known}")


@dataclass(frozen=True)
class TextScore(BatchScore):
    """The Score of a token network under one label; rows are computed lazily, where they are read.

    Args:
        net: The network: a `tt.SEDD`, `tt.MaskedLM`, `tt.Denoiser` or another with a trunk and a head.
        process: The noising process that it was trained for.
        label: Class that it is conditioned on. None (the default): no condition.
        batch: Texts evaluated at a time, 1 or more; 16 by default.
        dtype: Number type in which it is evaluated. None (the default): that of its weights.
    """

    net: TokenNet
    process: Process
    label: int | None = None
    batch: int = 16
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        check_process(self.process)
        check_token_net(self.net)
        if self.label is not None:
            check_class(self.net, self.label)
        set_fields(self, batch=check_batch(self.batch, self.dtype))
        known = self.net.config.vocabulary
        if known != self.process.vocabulary:
            raise InvalidInput(
                f"the net knows {known} tokens and the process {self.process.vocabulary}; they must be equal (the mask "
                "is not counted)"
            )
        if isinstance(self.process, Masking) != self.net.config.masked:
            kind = "a mask" if self.net.config.masked else "no mask"
            raise InvalidInput(f"the net has {kind} and the process is {type(self.process).__name__}; they must agree")

    @property
    def _padded(self) -> Padded:
        return Padded(cast("nn.Module", self.net), self.batch, self.dtype, self.net.trunk)

    @property
    def needs(self) -> Needs:
        return Needs(self.batch, self.particle_bytes, self.net.config.length)

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        if t >= 1 and all_equal(batch.x):
            return first_answer(self, batch, t)
        return self.net.log_score(self.process, self.logits(batch, t), batch.x, t)

    @property
    def particle_bytes(self) -> int:
        """Memory per particle: features of every site, and rows of the few sites that a step reveals."""
        return 16 * (self.net.config.length * features_of(self.net) + self.process.vocabulary)

    def score_of(self, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """The Score of the head's outputs."""
        return self.net.log_score(self.process, logits, x, t)

    def logits(self, batch: Batch, t: float, labels: Tensor | None = None) -> SiteLogits:
        """The head's outputs, computed lazily where a sampler reads them; other sites share the head's output for zero
        features.

        The trunk runs when the first rows are read. `labels`, one for each state [B], replace the score's own.
        """
        sigma, read, x = cast("Masking", self.process).sigma(t), sites_read(self.process, batch), batch.x
        if x.shape[-1] > self.net.config.length:
            raise too_long(x, self.net.config.length)
        if labels is None and self.label is not None:
            labels = torch.full((len(x),), self.label, device=x.device)
        trunk, place = Trunk(self, x, read, sigma), 0
        if labels is not None:
            trunk = batch.known.get(trunk.key, trunk)
            trunk = Trunk(self, x, read, sigma) if trunk.ran else trunk
            place, batch.known[trunk.key] = trunk.add(labels), trunk
        rows = HeadRows(self, trunk, place)
        return SiteLogits(LazyRows((read.rows, self.process.vocabulary), rows.make, rows.begin), read.index)


class TrunkKey(NamedTuple):
    """The key of a trunk in the cache of a batch: scores that agree in it share the trunk."""

    net: int  # its id: the scores keep the network alive
    batch: int
    dtype: torch.dtype | None
    sigma: float


@dataclass(frozen=True, eq=False)
class Trunk:
    """Evaluations of a network on states x, one under each label tensor added (none: one without), in shared batches.

    So a base and a conditional that are one network under two labels share its batches. Labels are added until the
    trunk runs, which it does when its features are first read.
    """

    score: TextScore
    x: Tokens
    read: SitesRead
    sigma: float
    labels: list[Tensor] = field(default_factory=list, init=False)  # [B] each

    @property
    def key(self) -> TrunkKey:
        return TrunkKey(id(self.score.net), self.score.batch, self.score.dtype, self.sigma)

    @property
    def ran(self) -> bool:
        return "hidden" in vars(self)

    def add(self, labels: Tensor) -> int:
        """Add labels [B] to evaluate the states under; returns their place among the labels."""
        self.labels.append(labels)
        return len(self.labels) - 1

    @cached_property
    def hidden(self) -> Tensor:
        """Features of the sites that are read, label by label, after a row of zeros for the other sites."""
        how, x, read, many = self.score, self.x, self.read, len(self.labels)
        labels = torch.cat(self.labels) if many else None
        if many > 1:
            x, wide = x.repeat(many, 1), read.where.repeat(many, 1)
            read = read._replace(where=wide, rows=1 + many * (read.rows - 1))
        hidden = rows_of(how._padded(x, self.sigma, labels), read, how.batch)
        return hidden if how.dtype is None else hidden.to(how.dtype)


@dataclass(frozen=True, eq=False)
class HeadRows:
    """The lazy rows of a `TextScore`: the trunk runs once, at `begin`, and the head on the rows that are read."""

    score: TextScore
    trunk: Trunk
    place: int  # index of this score among the trunk's labels

    def begin(self) -> None:
        """Run the trunk."""
        _ = self.trunk.hidden

    @torch.no_grad()
    def make(self, numbers: Tensor) -> Tensor:
        """The head on these rows of `hidden`, block by block; row 0 (zero features) is for the sites not read."""
        hidden, net, vocabulary = self.trunk.hidden, self.score.net, self.score.process.vocabulary
        if net.training:
            with evaluating(net):
                return self.make(numbers)
        if self.place:
            numbers = torch.where(numbers > 0, numbers + self.place * (self.trunk.read.rows - 1), 0)
        kind, block = hidden.device.type, _BLOCKS.get(hidden.device.type, _BLOCK)
        noise = torch.full((1,), self.trunk.sigma, device=hidden.device)
        out = torch.empty(len(numbers), vocabulary, device=hidden.device)
        with torch.autocast(kind, self.score.dtype, enabled=self.score.dtype is not None):
            for part, place in zip(numbers.split(block), out.split(block), strict=True):
                if not len(part):  # no site changes
                    break
                filled = torch.cat([part, part.new_zeros(block - len(part))])
                place.copy_(net.head(hidden[filled], noise)[: len(part), :vocabulary])
        return out


@dataclass(frozen=True)
class Text:
    """A token network and the process it was trained for; `tt.load` makes it of a folder.

    Args:
        net: The network: a `tt.SEDD`, `tt.MaskedLM`, `tt.Denoiser` or another with a trunk and a head.
        process: The noising process that it was trained for.
        batch: Texts evaluated at a time, 1 or more; 16 by default.
        dtype: Number type in which it is evaluated. None (the default): that of its weights.
        tokenizer: The `tt.Tokenizer` that lies beside the network. None (the default): there is none.
    """

    net: TokenNet
    process: Process
    batch: int = 16
    dtype: torch.dtype | None = None
    tokenizer: Any = None  # a Tokenizer, if one lies beside the network

    def __post_init__(self) -> None:
        _ = self.score()

    def __repr__(self) -> str:
        words = "" if self.tokenizer is None else ", with a tokenizer"
        shape = f"{self.length} sites, {self.process.vocabulary} tokens{words}"
        return f"<Text: {type(self.net).__name__}; {shape}; on {self.device}>"

    @property
    def length(self) -> int:
        """The most tokens the network reads."""
        return self.net.config.length

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    @property
    def view(self) -> Any:
        """The view of states, a `TextView`: words if there is a tokenizer, else token numbers."""
        from ..viz.views import view_of_tokens

        mask = self.process.mask if isinstance(self.process, Masking) else None
        return view_of_tokens(self.tokenizer, self.process.vocabulary, mask)

    def score(self, label: int | None = None) -> TextScore:
        return TextScore(self.net, self.process, label, self.batch, self.dtype)

    def model(self, condition: int | Sequence[int] | None = None, *, length: int | None = None) -> Model:
        """The model of `length` tokens under a class or under a prompt, given as tokens; by default as many as fit."""
        condition = plain(condition)
        if condition is not None and not isinstance(condition, int | Sequence):
            raise InvalidInput(f"the condition is {shown(condition)}; give a class, or the tokens of a prompt")
        if isinstance(condition, str):
            raise InvalidInput(f"the condition is the text {condition!r}; encode it, and give its tokens")
        prompt = condition if isinstance(condition, Sequence) else ()
        length = max(1, self.length - len(prompt)) if length is None else length
        if not 1 <= whole_number("length", length, 0) <= self.length:
            raise InvalidInput(f"length is {length}; the net reads {self.length} tokens, so give 1 to {self.length}")
        base, conditional = self.score(), None
        if condition is not None:
            conditional = self.score(condition) if isinstance(condition, int) else prompted(base, length, prompt)
        return Model(self.process, length, base, conditional, None, self.device)
