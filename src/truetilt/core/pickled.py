"""Files of weights that other projects published as pickles: tensors and plain values are read, nothing is executed."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from .errors import InvalidInput
from .storage import check_plain


def read_pickled(path: Path) -> Any:
    """What such a file holds, by torch's reader of tensors and plain values; anything else in it is refused."""
    try:
        return torch.load(check_plain(path), map_location="cpu", weights_only=True)
    except InvalidInput:
        raise
    except UnpicklingError as error:
        raise InvalidInput(
            f"{path} is cut short, or holds more than tensors and would run code when opened ({_first_line(error)}); "
            "download it again, or ask its authors for safetensors"
        ) from error
    except Exception as error:  # torch's reader raises whatever its parts do: struct.error, AttributeError, ...
        raise InvalidInput(f"{path} is broken or cut short ({_first_line(error)}); download it again") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
