"""How particles were resampled and coupled, as plain data for a file and as words for a reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.types import Resampler
from .resampling import Adaptive, Partial


def described(resample: Resampler) -> dict[str, Any]:
    """A resampler as plain data, fit for JSON."""
    if isinstance(resample, Adaptive):
        return {"name": "adaptive", "scheme": described(resample.scheme), "threshold": resample.threshold}
    if isinstance(resample, Partial):
        return {"name": "partial", "scheme": described(resample.scheme), "size": resample.size}
    return {"name": name_of(resample)}


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function: bare for this package's own, with its module for any other."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", None) or type(function).__module__
    return name if module.startswith(f"{__package__}.") else f"{module}.{name}"


def in_words(description: dict[str, Any]) -> str:
    """A description as one would write it: adaptive(multinomial, 0.5)."""
    parts = [in_words(v) if isinstance(v, dict) else f"{v}" for k, v in description.items() if k != "name"]
    return description["name"] + (f"({', '.join(parts)})" if parts else "")
