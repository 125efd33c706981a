"""The choice of a view for a run: the one requested, the one saved with it, or one suggested by its states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.storage import read_json
from .clouds import LARGEST_TABLE, Disks, Points
from .logo import SequenceLogo
from .molecules import MoleculeView
from .views import Images, Numbers, TextView, View


def _text(found: dict[str, Any]) -> TextView:
    pieces = [str(piece) for piece in found["pieces"]]
    return TextView(pieces.__getitem__, len(pieces), found["mask"])


def _molecules(found: dict[str, Any]) -> MoleculeView:
    pieces, given = tuple(str(piece) for piece in found["pieces"]), found["given"]
    kept = None if given is None else tuple(None if token is None else int(token) for token in given)
    worth = tuple((str(smiles), float(reward)) for smiles, reward in found.get("rewards", ()))
    return MoleculeView(pieces, int(found["end"]), int(found["mask"]), str(found["notation"]), kept, worth)


_KINDS: Mapping[str, Callable[[dict[str, Any]], View]] = {
    "images": lambda found: Images(int(found["side"]), int(found["levels"])),
    "text": _text,
    "molecules": _molecules,
    "logo": lambda found: SequenceLogo(str(found["alphabet"]), tuple(str(name) for name in found.get("names", ()))),
    "disks": lambda found: Disks(int(found["vocabulary"])),
    "points": lambda found: Points((int(found["axes"][0]), int(found["axes"][1]))),
    "numbers": lambda found: Numbers(),
}


def view_of(described: Any) -> View:
    """The view described by `described()`."""
    kind = str(described.get("kind")) if isinstance(described, dict) else "none"
    if kind not in _KINDS:
        raise InvalidInput(f"a view of kind {kind!r}; known are {', '.join(_KINDS)}")
    try:
        return _KINDS[kind](described)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as e:
        raise InvalidInput(f"the view of kind {kind!r} is not whole ({e!r}); save the result with it again") from e


def saved_view(folder: Path) -> View | None:
    """The view that was saved with a result, if one was."""
    path = folder / "view.json"
    if not path.is_file():
        return None
    try:
        found = read_json(path)
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path} is not JSON ({e}); remove it, or save the result again with its view") from e
    return view_of(found)


def suggested_view(x: Tensor) -> View:
    """Points for real vectors, disks for one or two sites of few tokens, else numbers; x is [..., D]."""
    if x.is_floating_point():
        return Points() if x.shape[-1] > 1 and bool(torch.isfinite(x).all()) else Numbers()
    top = int(x.max()) + 1 if x.numel() else 0
    if x.shape[-1] <= 2 and int(x.min()) >= 0 and 2 <= top <= LARGEST_TABLE:
        return Disks(top)
    return Numbers()
