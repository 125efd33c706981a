"""Resolving a model's name on the command line: networks (embedded, in a folder, on the hub), a table, or an error."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import InvalidInput
from ..models.checkpoint_folders import is_transformers
from ..models.hub import EMBEDDED
from ..models.pretrained import CONFIG, find_folder, is_hub_id

MOLECULES = "molecules"  # loaded by `truetilt.molecules`


def is_nets(name: str | Path, others: str = "") -> bool:
    """Whether a name means networks (True) or a table (False); raises for any other name, quoting `others` as
    alternatives.

    A hub id is looked up there, unless a local folder or file has that name.
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
    """Whether networks of this name are loaded by transformers and take prompts."""
    return str(name) not in (*EMBEDDED, MOLECULES) and is_transformers(find_folder(name, [CONFIG]))
