"""Eval mode for the networks that this library calls; warnings for the user's functions with networks in train mode or
without logits.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import CellType
from typing import Any

from torch import Tensor, nn

from .evaluation import check


@contextmanager
def evaluating(net: Any) -> Generator[None, None, None]:
    """Context manager: the network is in eval mode inside. A network already in eval mode is left alone, since
    switching visits all its modules.
    """
    training = getattr(net, "training", False)
    if training:
        net.eval()
    try:
        yield
    finally:
        if training:
            net.train()


def check_logits(answer: Tensor) -> None:
    """Warn if a net that should return logits [B, D, S] returns probabilities: rows of its first state sum to 1."""
    rows = answer[:1].detach()
    if rows.numel() and rows.is_floating_point():
        whole = (rows >= 0).all() & ((rows.float().sum(-1) - 1).abs() < _ROUNDING).all()
        check(whole, _probabilities)


_ROUNDING = 1e-3  # tolerance of a sum of probabilities in half precision


def _probabilities() -> UserWarning:
    return UserWarning(
        "the network seems to return probabilities (its rows are not negative and sum to 1) where logits are due, and "
        "log_softmax of probabilities is nearly uniform; return logits or log-probabilities"
    )


def hidden_in_training(value: Any) -> list[nn.Module]:
    """Networks in train mode inside plain functions, found in closures, attributes and globals. Those in our adapters
    are left out, because adapters switch them to eval mode.
    """
    return [net for net in _networks(value) if net.training]


def _networks(value: Any) -> Iterator[nn.Module]:
    """Every network that can be reached from a value; each object is visited once."""
    seen, waiting = {}, [value]
    while waiting and len(seen) < _MOST:
        part = waiting.pop()
        if isinstance(part, nn.Module):
            yield part
        elif id(part) not in seen:
            seen[id(part)] = part  # kept alive, so that no other object gets its id
            waiting += _within(part)


_MOST = 10_000  # most objects visited: a function may refer to a whole program


def _within(value: Any) -> list[Any]:
    """Objects that a function or record refers to; networks of our own records are left out, they run in eval mode."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if hasattr(value, "__self__"):
        return [value.__self__]
    if hasattr(value, "__code__"):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        known = [value.__globals__.get(name) for name in value.__code__.co_names]
        here = [part for part in known if getattr(part, "__globals__", None) is value.__globals__]  # of its own module
        return [*cells, *here, *(part for part in known if isinstance(part, nn.Module))]
    if is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in fields(value)]
        ours = type(value).__module__.split(".")[0] == __name__.split(".")[0]
        return [part for part in parts if not (ours and isinstance(part, nn.Module))]
    return list(vars(value).values()) if callable(value) and hasattr(value, "__dict__") else []
