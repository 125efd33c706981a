"""The user's tables, read from JSON files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.storage import read_json
from ..diffusion.processes import LogLinear, Masking, Uniform
from ..exact.tables import Table
from ..runtime.memory import check_fits

_COPIES = 4  # float64 tables over the noised space that a step holds at once, at least


def read_table(path: Path, process: str, sigma_eps: float, device: str = "cpu") -> Table:
    """A table from JSON with the keys p0 and likelihood; every error names what is wrong."""
    p0, likelihood = _numbers(path, ("p0", "likelihood"), device)
    return _table(path, process, sigma_eps, p0, likelihood)


def read_law(path: Path, process: str, sigma_eps: float, device: str = "cpu") -> Table:
    """A table to be steered by a reward: the likelihood may be left out, and is then 1 everywhere."""
    found = _opened(path, ("p0",))
    if isinstance(found, dict) and "likelihood" in found:
        return read_table(path, process, sigma_eps, device)
    (p0,) = _numbers(path, ("p0",), device)
    return _table(path, process, sigma_eps, p0, torch.ones_like(p0))


def _opened(path: Path, keys: Sequence[str]) -> Any:
    named = " and ".join(keys)
    try:
        return read_json(path)
    except FileNotFoundError as e:
        what = f"the key{'s' * (len(keys) > 1)} {named}"
        raise InvalidInput(f"there is no file {path}; give a JSON table with {what}") from e
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, InvalidInput) as e:
        raise InvalidInput(f"{path} cannot be read as JSON ({e})") from e
    except (TypeError, ValueError, RuntimeError, OverflowError) as e:
        raise InvalidInput(f"{path} must hold {named} as nested lists of numbers of one shape ({e})") from e


def _numbers(path: Path, keys: Sequence[str], device: str) -> list[Tensor]:
    """The nested lists under these keys, as tensors."""
    found = _opened(path, keys)
    try:
        return [torch.tensor(found[key], dtype=torch.float64, device=device) for key in keys]
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as e:
        named = " and ".join(keys)
        raise InvalidInput(f"{path} must hold {named} as nested lists of numbers of one shape ({e})") from e


def _table(path: Path, process: str, sigma_eps: float, p0: Tensor, likelihood: Tensor) -> Table:
    size = p0.shape[0] if p0.dim() else 0
    known: dict[str, Any] = {"masking": Masking, "uniform": Uniform}
    if process not in known:
        raise InvalidInput(f"the process is {process!r}; known are {' and '.join(known)}")
    made = known[process](size, LogLinear(sigma_eps))
    check_fits(8 * _COPIES * made.states ** p0.dim(), f"{path}: the noised space of {made.states}^{p0.dim()} states")
    return Table(made, p0, likelihood)
