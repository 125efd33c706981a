"""Tables of the user's own, read from JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ..core.storage import read_json
from ..core.types import InvalidInput
from ..diffusion.processes import Masking, Uniform
from ..diffusion.schedules import LogLinear
from ..runtime.memory import check_fits
from .tables import Table

_COPIES = 4  # float64 tables over the noised space that a step has at a time, at the least


def read_table(path: Path, process: str, sigma_eps: float, device: str = "cpu") -> Table:
    """A table from JSON with the keys p0 and likelihood; every fault is named."""
    try:
        found = read_json(path)
        p0, likelihood = (torch.tensor(found[key], dtype=torch.float64, device=device) for key in ("p0", "likelihood"))
    except FileNotFoundError as e:
        raise InvalidInput(f"there is no file {path}; give a JSON table with the keys p0 and likelihood") from e
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, InvalidInput) as e:
        raise InvalidInput(f"{path} cannot be read as JSON ({e})") from e
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as e:
        raise InvalidInput(f"{path} must hold p0 and likelihood as nested lists of numbers of one shape ({e})") from e
    size = p0.shape[0] if p0.dim() else 0
    known: dict[str, Any] = {"masking": Masking, "uniform": Uniform}
    if process not in known:
        raise InvalidInput(f"the process is {process!r}; known are {' and '.join(known)}")
    made = known[process](size, LogLinear(sigma_eps))
    check_fits(8 * _COPIES * made.states ** p0.dim(), f"{path}: the noised space of {made.states}^{p0.dim()} states")
    return Table(made, p0, likelihood)
