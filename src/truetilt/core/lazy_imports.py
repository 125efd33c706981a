"""Public names of a package that are imported when first used, so that importing the package is quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a package, from the names that each of its modules holds."""
    home = {name: module for module, names in homes.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f".{home[name]}", package), name)

    return sorted(home), attribute
