"""`from_transformers`: any public masked network in one line, with its mask, frame, drawable tokens and call found.

Each fact is taken from the first source that has it: the user, the tokenizer, the network's config, its family
(`families`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.arguments import LONGEST, device_here, listed, shown, truth, whole_number
from ..core.errors import InvalidInput
from ..diffusion.processes import Masking, Uniform
from ..runtime.memory import free_bytes
from .alphabet import drawable, is_place, special_ids, tokenizer_of
from .checkpoint_folders import load_folder, load_tokenizer_of
from .families import Family, family_of, first_of, longest_row
from .public_net import Public
from .sequences import Sequences
from .text_score import check_batch
from .trial_evaluation import looked_at

BATCH = 16  # rows in a batch, if memory allows
_SHARE = 4  # a batch may take one part in this many of the free memory
_TRIED = 200  # words encoded to find a tokenizer's frame, until one is a single token
_ASSUMED = 1024  # longest row assumed for a network without a limit


def from_transformers(
    net: nn.Module | str | Path,
    tokenizer: Any = None,
    *,
    device: torch.device | str | None = None,
    batch: int | None = None,
    dtype: torch.dtype | None = None,
    family: str | Family | None = None,
    mask: int | str | None = None,
    before: Sequence[int] | None = None,
    after: Sequence[int] | None = None,
    draw: Sequence[int | str] | None = None,
    ends: Sequence[str] | None = None,
    length: int | None = None,
    vocabulary: int | None = None,
    classes: int | None = None,
    trust_remote_code: bool = False,
) -> Sequences:
    """A public masked network of texts, proteins or molecules, ready to sample: prompts and results are strings.

    Args:
        net: A network (ESM2, DPLM, ESM-C, EvoDiff, BERT, ModernBERT, GenMol, LLaDA, Dream, MDLM, UDLM, or any other
            masked language model), a folder that transformers reads, or an id on the Hugging Face hub.
        tokenizer: The tokenizer it was trained with: one of transformers, a folder or hub id of one, or the letters of
            tokens 0, 1, ... None (the default): the one in the folder or at the network, or its family's letters.
        device: Where the network runs. None (the default): where it is; a folder is loaded to the CPU.
        batch: Rows per network evaluation. None (the default): 16, or fewer if memory is short.
        dtype: For a folder, the type its weights are loaded in, such as `torch.bfloat16`; for a network object, the
            type it computes in (its weights are not changed). None (the default): float32, or as the network is.
        family: How the network is called, by name ("LLaDA") or as a `tt.Family`. None (the default): found from its
            config.
        mask: Its mask token or its id. None (the default): from the tokenizer, the config or the family.
        before: Ids put before every row and never noised. None (the default): as the tokenizer frames a text.
        after: Ids put after every row. None (the default): as the tokenizer frames a text.
        draw: Tokens or ids that may be drawn. None (the default): the 20 amino acids of a protein; of others, every
            token that is not special, unused or reserved.
        ends: Tokens that end a text: drawn like others, and nothing after them is read. None (the default): those of
            the family (LLaDA and Dream have some).
        length: The most tokens it reads, including its frame. None (the default): from its config.
        vocabulary: Number of tokens it knows. None (the default): from its config, else from its output.
        classes: Number of classes it was trained for. None (the default): from its config, else none.
        trust_remote_code: Whether code shipped with the weights may run. False by default.

    Returns:
        A `tt.Sequences`: its `model(prompt, length=...)` is what `tt.sample` and `tt.steer` take, its `decode` makes
        strings of particles, and it is itself a tokenizer for `tt.Reward`.
    """
    trusted = truth("trust_remote_code", trust_remote_code)
    if device is not None:
        device_here(device)
    if batch is not None or dtype is not None:
        check_batch(1 if batch is None else batch, dtype)
    computed = dtype
    if isinstance(net, str | Path):
        loaded = load_folder(net, "cpu" if device is None else device, dtype, trusted)
        net, computed = loaded.net, None  # its weights were loaded in this type
        tokenizer = loaded.tokenizer if tokenizer is None else tokenizer
    if not isinstance(net, nn.Module):
        raise InvalidInput(f"the net is {shown(net)}; give a torch.nn.Module, a folder, or a hub id owner/name")
    if is_place(tokenizer):
        tokenizer = load_tokenizer_of(tokenizer)
    net = net if device is None else net.to(device)
    kind = family_of(net, family)
    tokenizer = tokenizer_of(tokenizer, net, kind)
    public = _public(net, tokenizer, kind, mask, before, after, draw, ends, length, vocabulary, classes)
    process = (Masking if kind.masked else Uniform)(len(public.alphabet))
    return Sequences(looked_at(public), process, _batch(public) if batch is None else int(batch), computed)


def _public(
    net: nn.Module, tokenizer: Any, family: Family, mask: Any, before: Any, after: Any, draw: Any, ends: Any,
    length: int | None, vocabulary: int | None, classes: int | None,
) -> Public:  # fmt: skip
    """The facts about a network that are known before it is evaluated."""
    config = getattr(net, "config", None)
    size = _vocabulary(net, config, tokenizer, vocabulary)
    _check_match(tokenizer, size, type(net).__name__)
    hole = _mask(mask, tokenizer, config, family, size)
    first, last = ((), ()) if before is not None and after is not None else _frame(tokenizer, family, config)
    first = first if before is None else _given("before", before, size)
    last = last if after is None else _given("after", after, size)
    never = {own for own in (hole, *first, *last) if own is not None}
    alphabet = drawable(tokenizer, family, size, draw, ends, never)
    longest = longest_row(config, family) if length is None else whole_number("length", length, 1, LONGEST)
    pad = getattr(tokenizer, "pad_token_id", None)
    wide = first_of(config, ("hidden_size", "d_model", "hidden_dim", "n_embd")) or 1024
    many = _classes(net, config, classes)
    return Public(
        net, family, alphabet, hole, first, last, 0 if pad is None else pad, size, longest or sys.maxsize, wide, many
    )


def _classes(net: nn.Module, config: Any, given: int | None) -> int:
    """The number of classes that the network's argument `cond` takes."""
    takes = "cond" in inspect.signature(net.forward).parameters
    if given is None:
        return (first_of(config, ("num_classes",)) or 0) if takes else 0
    if whole_number("classes", given, 0, LONGEST) and not takes:
        raise InvalidInput(f"classes is {given} and {type(net).__name__} takes no cond; leave it out")
    return int(given)


def _given(name: str, ids: Any, size: int) -> tuple[int, ...]:
    """The ids of a frame given by the user, checked."""
    return tuple(
        whole_number(f"a token of {name}", own, 0, size - 1) for own in listed(name, ids, "give a list of ids")
    )


def _vocabulary(net: nn.Module, config: Any, tokenizer: Any, given: int | None) -> int:
    """The network's vocabulary size: as given, from its config, or the rows of its embedding."""
    if given is not None:
        return whole_number("vocabulary", given, 2, 2**31 - 1)
    found = first_of(config, ("vocab_size",))
    if found is None:
        rows = [module.num_embeddings for module in net.modules() if isinstance(module, nn.Embedding)]
        found = rows[0] if rows else len(tokenizer)
    return found


def _check_match(tokenizer: Any, size: int, name: str) -> None:
    """Raise for a tokenizer with ids that the network lacks, or with fewer than half of the network's tokens."""
    known = tokenizer.get_vocab()
    most = max(known.values()) + 1
    named = getattr(tokenizer, "all_special_ids", None) is not None  # an alphabet of letters may be smaller
    if most > size or (named and 2 * most < size):
        raise InvalidInput(
            f"the tokenizer has {most:,} tokens and {name} knows {size:,}: it was made for another net; give the one "
            "that came with this net"
        )


def _mask(given: Any, tokenizer: Any, config: Any, family: Family, size: int) -> int | None:
    """The network's own id of its mask; None for a family with uniform noise."""
    if not family.masked:
        return None
    known = tokenizer.get_vocab()
    theirs, own = (getattr(one, "mask_token_id", None) for one in (tokenizer, config))
    if isinstance(theirs, int) and isinstance(own, int) and theirs != own:
        raise InvalidInput(
            f"the mask is token {own} by the net's config and token {theirs} by the tokenizer; mend the one that is "
            "wrong (mask_token_id)"
        )
    options = [given, theirs, own, family.mask]
    for option in options:
        if isinstance(option, str) and option in known:
            return known[option]
        if isinstance(option, str) and option is given:
            raise InvalidInput(f"mask is {option!r}, which the tokenizer does not have; give a token it has, or an id")
        if isinstance(option, int) and not isinstance(option, bool):
            found = size + option if option < 0 else option
            if not 0 <= found < size:
                raise InvalidInput(
                    f"the mask is token {option} and the net's tokens are 0 to {size - 1}: was the tokenizer made for "
                    "this net?"
                )
            return found
    raise InvalidInput(
        f"the tokenizer ({type(tokenizer).__name__}) has no mask token, and the net names none; give the mask that it "
        "was trained with as mask="
    )


def _frame(tokenizer: Any, family: Family, config: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a tokenizer puts before and after a text; if none, those that the family names."""
    first, last = _around_a_token(tokenizer) if callable(tokenizer) else ((), ())
    if first or last:
        return first, last
    named = {end: getattr(tokenizer, f"{end}_token_id", None) for end in ("bos", "cls", "eos", "sep")}
    bos = [own for own in (named["bos"], named["cls"], getattr(config, "bos_token_id", None)) if own is not None]
    eos = [own for own in (named["eos"], named["sep"], getattr(config, "eos_token_id", None)) if own is not None]
    return tuple(bos[:1]) if "bos" in family.frame else (), tuple(eos[:1]) if "eos" in family.frame else ()


def _around_a_token(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a tokenizer puts before and after an ordinary token, found by encoding one."""
    special = special_ids(tokenizer)
    words = sorted(filter(str.isalnum, tokenizer.get_vocab()), key=lambda word: not word.isascii())
    for word in words[:_TRIED]:
        alone = tokenizer(word, add_special_tokens=False)["input_ids"]
        framed = list(tokenizer(word)["input_ids"])
        if len(alone) == 1 and alone[0] not in special and framed.count(alone[0]) == 1:
            place = framed.index(alone[0])
            return tuple(framed[:place]), tuple(framed[place + 1 :])
    if tokenizer("")["input_ids"]:
        raise InvalidInput("the tokenizer puts a frame around a text and does not show where; give before= and after=")
    return (), ()


def _batch(public: Public) -> int:
    """The batch size: `BATCH`, or fewer if a share of the free memory holds fewer rows."""
    weights = next(public.net.parameters())
    config = getattr(public.net, "config", None)
    inner = first_of(config, ("intermediate_size", "mlp_hidden_size", "ffn_hidden_size")) or 4 * public.hidden
    sites = min(public.length, _ASSUMED)
    row = sites * (8 * public.hidden + 4 * inner) * weights.element_size()
    return max(1, min(BATCH, free_bytes(weights.device) // _SHARE // row))
