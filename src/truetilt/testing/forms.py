"""Checks of the form of a user's part's output: tensors of the right shape and dtype, laws, moves.

The statistical checks index and multiply these outputs. Their form is checked first, so that a malformed part is
rejected in a sentence that names it, never by an error of torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.arguments import shown
from ..core.logits import SiteLogits
from ..core.types import Aux, Process, Tokens
from .tables import uniforms
from .verdicts import Rejected, require, used


def check_tensor(what: str, value: object, shape: tuple[int, ...], tokens: bool = False) -> None:
    """Reject a value that is not a tensor of this shape: of int64 tokens, or of floating-point numbers."""
    wanted = f"{'int64' if tokens else 'a floating-point tensor'} of shape {list(shape)}"
    if not isinstance(value, Tensor):
        raise Rejected(f"{what} is {shown(value)}; it must be {wanted}")
    kind = value.dtype == torch.int64 if tokens else value.is_floating_point()
    require(kind and value.shape == shape, f"{what} is {value.dtype} of shape {list(value.shape)}; it must be {wanted}")


def check_tokens(what: str, value: Any, shape: tuple[int, ...], process: Process) -> None:
    """Reject a value that is not a batch of states of a process."""
    check_tensor(what, value, shape, tokens=True)
    inside = bool(((value >= 0) & (value < process.states)).all())
    require(inside, f"{what} holds tokens outside 0 to {process.states - 1}")


def check_labels(what: str, value: object, n: int) -> None:
    """Reject a value that is not a row of whole numbers for each of n particles."""
    whole = isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()
    fits = isinstance(value, Tensor) and value.dim() == 2 and len(value) == n
    require(
        whole and fits,
        f"{what} is {shown(value)}; it must be a tensor [{n}, m] of whole numbers, with equal rows only for particles "
        "that draw from the same law, such as their states",
    )


def check_has(what: str, value: object, parts: tuple[str, ...]) -> None:
    """Reject a value that lacks one of these attributes."""
    lacking = [part for part in parts if not hasattr(value, part)]
    require(not lacking, f"{what} is {shown(value)} and has no {' and no '.join(lacking)}")


def check_law_form(what: str, law: Any, shape: tuple[int, int], process: Process, count: int) -> Tokens:
    """Reject a law whose `sample`, `log_prob` or `take` have the wrong form; return one draw of each of its states."""
    n = shape[0]
    check_has(what, law, ("sample", "log_prob", "take"))
    with used(f"`sample` of {what}"):
        y = law.sample(uniforms(8, n, max(1, count))[:, :count])
    check_tokens(f"what `sample` of {what} returned", y, shape, process)
    with used(f"`log_prob` of {what}"):
        log_p = law.log_prob(y)
    check_tensor(f"what `log_prob` of {what} returned", log_p, (n,))
    with used(f"`take` of {what}"):
        taken = law.take(torch.arange(n).flip(0))
    check_has(f"what `take` of {what} returned", taken, ("sample", "log_prob", "take"))
    return y


def check_odds_form(what: str, law: Any, shape: tuple[int, int], process: Process) -> None:
    """Reject a law of independent sites whose `x` or `odds` have the wrong form."""
    check_has(what, law, ("x", "odds"))
    check_has(f"`odds` of {what}", law.odds, ("logits", "log_hold", "log_move"))
    check_tokens(f"`x` of {what}", law.x, shape, process)
    for name in ("log_hold", "log_move"):
        check_tensor(f"`odds.{name}` of {what}", getattr(law.odds, name), shape)
    logits = law.odds.logits
    fits = isinstance(logits, SiteLogits) and logits.index.shape == shape and logits.vocabulary == process.vocabulary
    require(fits, f"`odds.logits` of {what} must be tt.SiteLogits of {process.vocabulary} tokens, sites {list(shape)}")


def check_move_form(what: str, move: Any, shape: tuple[int, int], process: Process) -> tuple[Tokens, Aux]:
    """Reject a move whose parts do not have the form that `Move` prescribes; return a draw and its auxiliary values."""
    n = shape[0]
    with used(f"a property of {what}"):
        check_has(what, move, ("law", "uniforms", "lazy", "labels", "log_before", "after", "take"))
        lazy, labels, law, count, log_before = move.lazy, move.labels, move.law, move.uniforms, move.log_before
    said = "it must be True where no network is asked before `law` is read, else False"
    require(isinstance(lazy, bool), f"`lazy` of {what} is {shown(lazy)}; {said}")
    check_labels(f"`labels` of {what}", labels, n)
    require(isinstance(count, int) and count >= 0, f"`uniforms` of {what} is {shown(count)}; it must be a whole number")
    check_tensor(f"`log_before` of {what}", log_before, (n,))
    y = check_law_form(f"the law of {what}", law, shape, process, count)
    with used(f"`after` of {what}"):
        found = move.after(y)
    pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)
    require(pair, f"`after` of {what} returned {shown(found)}; it must return log-weights, and a dict of what to keep")
    log_after, aux = found
    check_tensor(f"the log-weights that `after` of {what} returned", log_after, (n,))
    for key, value in aux.items():
        kept = isinstance(value, Tensor) and value.shape[:1] == (n,)
        require(kept, f"`after` of {what} keeps {key!r} as {shown(value)}; it must be a tensor [{n}, ...]")
    with used(f"`take` of {what}"):
        taken = move.take(torch.arange(n).flip(0))
    check_has(f"what `take` of {what} returned", taken, ("law", "after", "take"))
    return y, aux
