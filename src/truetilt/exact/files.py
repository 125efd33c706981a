"""Tables of the user's own, read from JSON files."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from ..processes import Masking, Uniform
from ..schedules import LogLinear
from ..types import InvalidInput
from .tables import Table


def read_table(path: Path, process: str, sigma_eps: float, device: str = "cpu") -> Table:
    """A table from JSON with the keys p0 and likelihood; every fault is named."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        p0, likelihood = (torch.tensor(found[key], dtype=torch.float64, device=device) for key in ("p0", "likelihood"))
    except FileNotFoundError as e:
        raise InvalidInput(f"there is no file {path}; give a JSON table with the keys p0 and likelihood") from e
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise InvalidInput(f"{path} cannot be read as JSON ({e})") from e
    except (KeyError, TypeError, ValueError) as e:
        raise InvalidInput(f"{path} must hold p0 and likelihood as nested lists of numbers of one shape ({e})") from e
    size = p0.shape[0] if p0.dim() else 0
    made = {"masking": Masking, "uniform": Uniform}[process](size, LogLinear(sigma_eps))
    return Table(made, p0, likelihood)
