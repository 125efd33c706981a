"""A trial evaluation of a public network on short rows: whether it can be used, and which module is its head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.eval_mode import check_logits, evaluating
from .heads import find_head
from .public_net import Public


@torch.no_grad()
def looked_at(public: Public) -> Public:
    """The network with its head, if one is found, after checking its answers on short rows."""
    net, device = public.net, next(public.net.parameters()).device
    hidden = public.mask if public.mask is not None else public.alphabet.ids[0]
    middle = [public.alphabet.ids[0], hidden, hidden, public.alphabet.ids[1]]
    if public.inner < 1:
        raise InvalidInput(f"the net reads {public.length} tokens and its frame alone takes as many; give length=")
    middle = middle[: min(4, public.inner)]
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
    """The network's first answer; if it raises, a one-line error that says why."""
    try:
        return ask()
    except InvalidInput:
        raise
    except Exception as error:  # a network may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InvalidInput(
            f"{type(public.net).__name__} cannot be asked about tokens {tuple(ids.shape)} ({why}); is it a masked "
            "language model, and the tokenizer its own?"
        ) from error


def _check_both_ways(public: Public, row: list[int], ask: Any, logits: Tensor) -> None:
    """Raise for a causal network, in which later sites see earlier ones but not vice versa."""
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
