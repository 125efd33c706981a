"""A public network as a `TokenNet`: states are the open sites of a row, everything around them is context.

A context (frame, prompt, what stands between gaps) is a row of the network's own ids, put around each state and never
noised. A label of the network picks its context, so that base and condition, or several prompts, are rows of one batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.eval_mode import check_logits, evaluating
from ..core.types import InvalidInput, Process, SiteLogits, Tokens
from .alphabet import Alphabet
from .families import Family
from .heads import Head, find_head
from .score import score_of_posterior

OPEN = None  # an open site of a row


@dataclass(frozen=True, eq=False)
class Public:
    """A public network and what must be known to ask it: its family, mask, frame and drawable tokens."""

    net: nn.Module
    family: Family
    alphabet: Alphabet
    mask: int | None  # its own id
    before: tuple[int, ...]
    after: tuple[int, ...]
    pad: int
    vocabulary: int  # its own tokens, drawable or not
    length: int  # the most tokens it reads
    hidden: int
    classes: int = 0
    head: Head | None = None  # None: the whole network is asked

    def ask(self, ids: Tensor, attention: Tensor | None, sigma: Tensor | None, label: Tensor | None = None) -> Tensor:
        """The network's logits about rows of its own ids [B, L]: [B, L, at least V]."""
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
    def pads(self) -> bool:
        """Whether rows of unequal lengths can be asked together."""
        name = self.family.attention
        return name is not None and name in inspect.signature(self.net.forward).parameters

    def told_noise(self, sigma: Tensor) -> Tensor:
        """The noise that the network is told: of uniform noise over all its tokens, not only over those drawn.

        A site that is seen at a drawable token is as likely to be noise under sigma and S drawable tokens as under this
        noise and all V, so the network's posterior is the right one.
        """
        if self.family.masked:
            return sigma
        return torch.log1p(torch.expm1(sigma) * (self.vocabulary / len(self.alphabet)))


def logits_in(answer: Any) -> Tensor:
    """The logits in what a network returned: a tensor, an output or dict with them, or a tuple that begins with one."""
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


class Context(NamedTuple):
    """A row of the network's own ids with None (`OPEN`) at its open sites, and the class it is told, if any."""

    row: tuple[int | None, ...]
    label: int | None = None

    @property
    def sites(self) -> list[int]:
        return [site for site, own in enumerate(self.row) if own is OPEN]


class FramedConfig(NamedTuple):
    """What a sampler needs to know of such a network: drawable tokens, open sites, contexts."""

    vocabulary: int
    length: int
    masked: bool
    classes: int
    hidden: int


class Framed(nn.Module):
    """The open sites of one or more contexts as a `TokenNet`; label k is context k. Short rows are padded."""

    def __init__(self, public: Public, contexts: Sequence[Context]) -> None:
        super().__init__()
        self.public, self.net, self.contexts = public, public.net, tuple(contexts)
        self.train(public.net.training)
        counts = {len(context.sites) for context in contexts}
        if len(counts) != 1 or 0 in counts:
            raise InvalidInput(f"the texts have {sorted(counts)} open sites; give one number, 1 or more, for all")
        sizes = [len(context.row) for context in contexts]
        if max(sizes) > public.length:
            raise InvalidInput(
                f"the row has {max(sizes):,} tokens with its prompt and frame and the net reads {public.length:,}; "
                "shorten the prompt, or leave fewer sites open"
            )
        if len(set(sizes)) > 1 and not public.pads:
            raise InvalidInput(
                f"rows of {min(sizes)} and {max(sizes)} tokens and a net without an attention mask, which cannot read "
                "them in one batch; give prompts of equal length"
            )
        family, wide = public.family, max(sizes)
        shifts = [wide - size if family.left else 0 for size in sizes]
        place = torch.tensor([c.sites for c in contexts]) + torch.tensor(shifts)[:, None]
        rows, seen = torch.full((len(sizes), wide), public.pad), torch.zeros(len(sizes), wide, dtype=torch.bool)
        for k, (context, size, start) in enumerate(zip(contexts, sizes, shifts, strict=True)):
            rows[k, start : start + size] = torch.tensor([0 if own is OPEN else own for own in context.row])
            seen[k, start : start + size] = True
        answers = torch.maximum(place - 1, torch.tensor(shifts)[:, None]) if family.shift else place
        own = torch.tensor([*public.alphabet.ids, public.mask or 0])
        labels = torch.tensor([-1 if c.label is None else c.label for c in contexts])
        device = next(public.net.parameters()).device
        self.tables = {
            name: tensor.to(device)
            for name, tensor in {
                "rows": rows, "seen": seen, "place": place, "answers": answers, "own": own, "labels": labels
            }.items()
        }  # fmt: skip
        self.padded, self.told = len(set(sizes)) > 1, any(c.label is not None for c in contexts)
        size = len(public.alphabet)
        self.config = FramedConfig(size, counts.pop(), family.masked, len(sizes), public.hidden)
        first = own[0]
        self.plain = bool(torch.equal(own[:size], torch.arange(size) + first))  # whether ids are a range
        self.first = int(first)

    def trunk(self, x: Tokens, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Features of the open sites [B, D, C]."""
        public, known = self.public, self.tables
        which = torch.zeros(len(x), dtype=torch.int64, device=x.device) if label is None else label
        ids = known["rows"][which].scatter(1, known["place"][which], known["own"][x])
        seen = known["seen"][which] if self.padded else None
        if seen is not None:
            seen = seen[:, None, None].expand(-1, 1, seen.shape[1], -1) if public.family.pairwise else seen.long()
        told = known["labels"][which] if self.told else None

        def ask() -> Tensor:
            return public.ask(ids, seen, public.told_noise(sigma), told)

        hidden = ask() if public.head is None else public.head.features(ask)
        sites = known["answers"][which]
        return hidden.gather(1, sites[..., None].expand(-1, -1, hidden.shape[-1]))

    def head(self, hidden: Tensor, sigma: Tensor) -> Tensor:
        """Logits of the drawable tokens, float32."""
        head = self.public.head
        logits = hidden if head is None else head.module(hidden[None])[0] if hidden.dim() == 2 else head.module(hidden)
        if self.plain:
            return logits[..., self.first : self.first + self.config.vocabulary].float()
        return logits.index_select(-1, self.tables["own"][:-1]).float()

    def log_score(self, process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        return score_of_posterior(process, logits, x, t)


@torch.no_grad()
def looked_at(public: Public) -> Public:
    """The network with its head, where it has one, once a look at short rows found nothing wrong with it."""
    net, device = public.net, next(public.net.parameters()).device
    hidden = public.mask if public.mask is not None else public.alphabet.ids[0]
    middle = [public.alphabet.ids[0], hidden, hidden, public.alphabet.ids[1]]
    room = public.length - len(public.before) - len(public.after)
    if room < 1:
        raise InvalidInput(f"the net reads {public.length} tokens and its frame alone takes as many; give length=")
    middle = middle[: min(4, room)]
    row = [*public.before, *middle, *public.after]
    ids = torch.tensor([row], device=device)
    label = torch.tensor([public.classes], device=device) if public.classes else None

    def ask(ids: Tensor = ids) -> Tensor:
        return public.ask(ids, None, torch.ones(len(ids), device=device), label)

    with evaluating(net):
        logits = _first_answer(public, ask, ids)
        if logits.shape[:2] != ids.shape or logits.shape[-1] <= max(public.alphabet.ids):
            raise InvalidInput(
                f"the net returned {tuple(logits.shape)} for tokens {tuple(ids.shape)}; it must return logits "
                f"[{len(ids)}, {ids.shape[1]}, at least {max(public.alphabet.ids) + 1}]"
            )
        masks = torch.tensor([[*public.before, *[hidden] * len(middle), *public.after]], device=device)
        if logits.isnan().any() or ask(masks).isnan().any():
            raise InvalidInput(
                "the net answers NaN to a short row of masks; has it the frame it needs (before, after)?"
            )
        check_logits(logits)
        if len(middle) == 4:
            _check_both_ways(public, row, ask, logits)
        head = find_head(net, ask)
    return replace(public, head=head)


def _first_answer(public: Public, ask: Any, ids: Tensor) -> Tensor:
    """The network's first answer; one that cannot be asked about tokens says why in one line."""
    try:
        return ask()
    except InvalidInput:
        raise
    except Exception as error:  # whatever a network raises
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InvalidInput(
            f"{type(public.net).__name__} cannot be asked about tokens {tuple(ids.shape)} ({why}); is it a masked "
            "language model, and the tokenizer its own?"
        ) from error


def _check_both_ways(public: Public, row: list[int], ask: Any, logits: Tensor) -> None:
    """Refuse a network whose later sites see the earlier ones and not the other way round: it is causal."""
    first, last = len(public.before), len(row) - len(public.after) - 1
    one, two = public.alphabet.ids[:2]
    changed = []
    for site in (first, last):
        other = two if row[site] == one else one
        ids = torch.tensor([[*row[:site], other, *row[site + 1 :]]], device=logits.device)
        changed.append((ask(ids) != logits)[0].any(-1))
    forward, backward = changed[0][first + 1 :].any(), changed[1][:last].any()
    if forward and not backward:
        raise InvalidInput(
            f"{type(public.net).__name__} is causal: what it says of a site does not depend on later ones; masked "
            "diffusion needs a net that sees both ways, such as BERT, ESM2 or LLaDA"
        )
