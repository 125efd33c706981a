"""What a model's name means on the command line: networks (embedded, in a folder, on the hub), a table, or nothing."""

from __future__ import annotations

from pathlib import Path

from ..core.types import InvalidInput
from ..models.checkpoint_folders import is_transformers
from ..models.hub import EMBEDDED
from ..models.pretrained import CONFIG, find_folder, is_hub_id

MOLECULES = "molecules"  # which its own room loads


def is_nets(name: str | Path, others: str = "") -> bool:
    """Whether a name means networks; False: it means a table. One that means neither is refused; `others` may be given.

    An id of the hub is asked for there, unless a folder or file of that name is here.
    """
    path = Path(name)
    if str(name) in (*EMBEDDED, MOLECULES) or path.is_dir():
        return True
    if path.suffix == ".json" or path.is_file():
        return False
    if not is_hub_id(name):
        raise InvalidInput(
            f"there is no model {str(name)!r}; give {', '.join(EMBEDDED)}, {MOLECULES}, a folder of networks, a hub id "
            f"owner/name, a table (.json){others}"
        )
    find_folder(name, [CONFIG])
    return True


def is_strings(name: str | Path) -> bool:
    """Whether networks of this name are read by transformers, and take prompts."""
    return str(name) not in (*EMBEDDED, MOLECULES) and is_transformers(find_folder(name, [CONFIG]))
