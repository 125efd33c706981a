"""Splitting a public network into trunk and head, found by hooks while it is evaluated once.

The head is the outermost module that takes features [B, L, C] alone and returns the network's logits. The trunk is the
network itself, run with an empty batch of sites for its head, so no code of the network is duplicated here. The split
is compared with the network's own output; if anything differs, there is no split and the whole network is the trunk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Asked = Callable[[], Tensor]  # evaluates the network once and returns its logits


@dataclass(frozen=True, eq=False)
class Head:
    """The module of a network that turns features of sites into logits."""

    module: nn.Module

    def features(self, ask: Asked) -> Tensor:
        """The features that the head would get in this evaluation; it is run on no site instead."""
        seen: list[Tensor] = []
        thread = threading.get_ident()  # evaluations in other threads are not intercepted

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
    """The head of a network, or None if no module is one; `ask` is called a few times."""
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
    """Every linear layer that is not part of a stack of layers, and the modules that contain it; outermost first."""
    found: dict[str, nn.Module] = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.Linear) and not any(part.isdigit() for part in name.split(".")[:-1]):
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                found[".".join(parts[:end])] = net.get_submodule(".".join(parts[:end]))
    return sorted(found.items(), key=lambda item: item[0].count("."))


def _makes(logits: Tensor, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> bool:
    """Whether a call took the features of the sites alone and returned these logits."""
    if named or len(args) != 1 or not isinstance(args[0], Tensor) or not isinstance(out, Tensor):
        return False
    features = args[0].is_floating_point() and args[0].dim() == 3 and args[0].shape[:2] == logits.shape[:2]
    return features and out.shape == logits.shape and torch.equal(out.float(), logits.float())


def _agrees(head: Head, ask: Asked, logits: Tensor) -> bool:
    """Whether trunk and head together reproduce the network's output."""
    try:
        made = head.module(head.features(ask))
    except Exception:  # a network that fails with an empty head is not split
        return False
    return made.shape == logits.shape and torch.allclose(made.float(), logits.float(), rtol=1e-5, atol=1e-6)
