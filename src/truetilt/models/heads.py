"""Where a public network's trunk ends and its head begins: found by looking on while it answers once.

The head is the outermost module that is given features [B, L, C] alone and returns the network's logits. The trunk is
the network itself, asked with its head given no site, so that no code of the network is written again here. What is
found is compared with the network's own answer; where anything differs, the whole network is trunk and nothing is head.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Asked = Callable[[], Tensor]  # asks the network once and returns its logits


@dataclass(frozen=True, eq=False)
class Head:
    """The module of a network that turns features of sites into logits."""

    module: nn.Module

    def features(self, ask: Asked) -> Tensor:
        """What the head would be given when the network is asked; it is given no site instead."""
        seen: list[Tensor] = []
        thread = threading.get_ident()  # other threads that ask the same network are left alone

        def cut(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            if threading.get_ident() != thread:
                return None
            seen.append(args[0])
            return (args[0][:, :0],)

        handle = self.module.register_forward_pre_hook(cut)
        try:
            ask()
        finally:
            handle.remove()
        return seen[0]


@torch.no_grad()
def find_head(net: nn.Module, ask: Asked) -> Head | None:
    """The head of a network, or None where no module is one; `ask` is answered a few times."""
    calls: dict[str, list[tuple[tuple[Any, ...], dict[str, Any], Any]]] = {}
    handles = [
        module.register_forward_hook(
            lambda m, args, named, out, name=name: calls.setdefault(name, []).append((args, named, out)),
            with_kwargs=True,
        )
        for name, module in _candidates(net)
    ]
    try:
        logits = ask()
    finally:
        for handle in handles:
            handle.remove()
    for name, module in _candidates(net):
        if len(calls.get(name, ())) == 1 and _makes(logits, *calls[name][0]) and _agrees(Head(module), ask, logits):
            return Head(module)
    return None


def _candidates(net: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every linear layer that is no layer of a stack, and the modules that it is in; the outermost come first."""
    found: dict[str, nn.Module] = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.Linear) and not any(part.isdigit() for part in name.split(".")[:-1]):
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                found[".".join(parts[:end])] = net.get_submodule(".".join(parts[:end]))
    return sorted(found.items(), key=lambda item: item[0].count("."))


def _makes(logits: Tensor, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> bool:
    """Whether a call took features of the sites alone and returned these logits."""
    if named or len(args) != 1 or not isinstance(args[0], Tensor) or not isinstance(out, Tensor):
        return False
    features = args[0].is_floating_point() and args[0].dim() == 3 and args[0].shape[:2] == logits.shape[:2]
    return features and out.shape == logits.shape and torch.equal(out.float(), logits.float())


def _agrees(head: Head, ask: Asked, logits: Tensor) -> bool:
    """Whether trunk and head together give what the network gives."""
    try:
        made = head.module(head.features(ask))
    except Exception:  # a network that cannot do without its head's answer is asked whole
        return False
    return made.shape == logits.shape and torch.allclose(made.float(), logits.float(), rtol=1e-5, atol=1e-6)
