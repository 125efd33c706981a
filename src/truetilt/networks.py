"""How networks are asked, whatever they answer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def evaluating(net: Any) -> Generator[None, None, None]:
    """In eval mode meanwhile. Switching walks over every module, so it is done only where there is need."""
    training = getattr(net, "training", False)
    if training:
        net.eval()
    try:
        yield
    finally:
        if training:
            net.train()
