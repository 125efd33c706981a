"""The files of a saved result, written and read: its tensors and their checksum, and the validation of both.

Names, shapes, dtypes and ranges of tensors and the types of settings are checked before they are used.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.model_diagnostics import is_measured
from ..core.spent import Spent
from ..core.storage import check_plain, check_writable, read_json, sha256_of, write_json, write_with
from ..core.target import Constant, Remedies

_FORMAT, _VERSION = "truetilt-result", 1
_TENSORS, _HEADER = "particles.safetensors", "particles.json"
_NEXT = "particles.next.safetensors"  # the tensors until the header is theirs: left by a process killed in between
_WEIGHTED = ("particles", "log_weights", "times", "ess", "log_z_path", "ancestors", "moved", "accepted", "counts")
_KEPT = ("snapshot_steps", "snapshot_particles", "snapshot_log_weights")  # all of them, or none
_REAL = (torch.float64, torch.float32)
_STATES = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.float64, torch.float32)


def names_of(snapshot_steps: Tensor) -> tuple[str, ...]:
    """The tensors of a result that are saved; those of its snapshots where there are any."""
    return _WEIGHTED + _KEPT * (len(snapshot_steps) > 0)


def save_tensors(folder: Path, tensors: Mapping[str, Tensor], log_z: float, settings: dict[str, Any]) -> None:
    """Write particles.safetensors, and particles.json with its checksum; a kill leaves the old result or the new."""
    told = log_z if math.isfinite(log_z) else None  # -inf: every particle is dead
    json.dumps([told, settings], allow_nan=False)  # fail before anything is replaced
    here, path = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, folder / _NEXT
    write_with(path, lambda temporary: save_file(here, temporary))
    header = {"format": _FORMAT, "version": _VERSION, "sha256": sha256_of(path), "log_z": told, "settings": settings}
    check_writable(folder / _TENSORS)
    write_json(folder / _HEADER, header)
    os.replace(path, folder / _TENSORS)


def load_tensors(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the settings that `save_tensors` wrote; a missing, foreign or damaged file is refused."""
    try:
        header = read_json(folder / _HEADER)
    except (FileNotFoundError, NotADirectoryError) as e:
        inside = sorted(path.parent.name for path in folder.glob(f"*/{_HEADER}"))
        which = f"one of the folders in it that do: {', '.join(inside[:3])}" if inside else "the folder of a saved run"
        raise InvalidInput(f"{folder} holds no {_HEADER}; give {which}") from e
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{folder / _HEADER} is not JSON ({e}); the file is damaged or foreign") from e
    ours = isinstance(header, dict) and header.get("format") == _FORMAT and header.get("version") == _VERSION
    if not ours or "settings" not in header:
        raise InvalidInput(f"{folder / _HEADER} is not a truetilt result of version {_VERSION}")
    path = folder / _TENSORS
    names = [name for name in (path, folder / _NEXT) if name.is_file() and sha256_of(name) == header.get("sha256")]
    if not names:
        raise InvalidInput(f"{path} is missing or does not match the checksum in {_HEADER}; save the result again")
    try:
        tensors = load_file(check_plain(names[0]))
    except (OSError, SafetensorError) as e:
        raise InvalidInput(f"{path} cannot be read ({e}); save the result again") from e
    check_tensors(path, tensors)
    check_header(folder / _HEADER, header["settings"], len(tensors["log_weights"]))
    return tensors, header["settings"]


def check_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not a result's: names, shapes, dtypes, NaN or +inf weights, ancestors out of range."""
    names = {*_WEIGHTED, *(_KEPT if any(name in tensors for name in _KEPT) else ())}
    if tensors.keys() != names:
        odd = sorted(tensors.keys() ^ names)
        raise InvalidInput(f"{path} lacks or has too many of {', '.join(odd[:4])}; it is no saved result")
    particles, log_w, steps = tensors["particles"], tensors["log_weights"], tensors["times"].numel()
    if particles.dim() < 3 or particles.dtype not in _STATES or particles.numel() == 0:
        raise InvalidInput(f"{path}: particles are {_told(particles)}; states are [populations, particles, sites]")
    both = tuple(particles.shape[:2])
    rows, none = (steps, both[0]), (0, 0)
    _expect(path, tensors, "times", [(steps,)] * (steps > 0), _REAL)
    _expect(path, tensors, "log_weights", [both], (torch.float64,))
    for name in ("ess", "log_z_path"):
        _expect(path, tensors, name, [rows], _REAL)
    for name in ("moved", "accepted"):
        _expect(path, tensors, name, [rows, none], _REAL)
    _expect(path, tensors, "counts", [(steps, 4), (0, 4)], (torch.int64,))
    if bool((tensors["counts"] < 0).any()):
        raise InvalidInput(f"{path}: counts are below 0, which no run has; save the result again")
    _expect(path, tensors, "ancestors", [(*rows, both[1])], (torch.int32, torch.int64))
    ancestors = tensors["ancestors"]
    if bool(((ancestors < 0) | (ancestors >= both[1])).any()):
        raise InvalidInput(f"{path}: ancestors name particles from 0 to {both[1] - 1}, and there are others")
    _check_weights(path, "log_weights", log_w)
    if "snapshot_steps" in tensors:
        _check_kept(path, tensors, tuple(particles.shape), steps)


def _check_kept(path: Path, tensors: Mapping[str, Tensor], shape: tuple[int, ...], steps: int) -> None:
    kept = tensors["snapshot_steps"]
    _expect(path, tensors, "snapshot_steps", [(len(kept),)] if kept.dim() == 1 else [], (torch.int64,))
    _expect(path, tensors, "snapshot_particles", [(len(kept), *shape)], (tensors["particles"].dtype,))
    _expect(path, tensors, "snapshot_log_weights", [(len(kept), *shape[:2])], (torch.float64,))
    found = kept.tolist()
    if found != sorted(set(found)) or not found or not 0 <= found[0] <= found[-1] < steps:
        raise InvalidInput(f"{path}: snapshot_steps are {found[:9]}; they rise, from 0 to {steps - 1} at most")
    _check_weights(path, "snapshot_log_weights", tensors["snapshot_log_weights"])


def _check_weights(path: Path, name: str, log_w: Tensor) -> None:
    if bool((log_w.isnan() | (log_w == torch.inf)).any()):
        raise InvalidInput(f"{path}: {name} hold NaN or +inf, which no run gives; save the result again")


def _expect(
    path: Path, tensors: Mapping[str, Tensor], name: str, shapes: list[tuple[int, ...]], kinds: tuple[torch.dtype, ...]
) -> None:
    tensor = tensors[name]
    if tuple(tensor.shape) not in shapes or tensor.dtype not in kinds:
        wanted = " or ".join(map(str, shapes)) or "at least one"
        raise InvalidInput(f"{path}: {name} is {_told(tensor)} and must be {wanted} of {kinds[0]}; save it again")


def _told(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {tensor.dtype}"


def check_header(path: Path, settings: Any, populations: int) -> None:
    """Refuse settings that are not a mapping, or that disagree with the number of populations."""
    if not isinstance(settings, dict):
        raise InvalidInput(f"{path}: the settings are of kind {type(settings).__name__}, not named values")
    parts = settings.get("united")
    if "united" in settings:
        if not isinstance(parts, list) or not parts:
            raise InvalidInput(f"{path}: united is {str(parts)[:80]}; it lists the settings of every run")
        for part in parts:
            check_header(path, part, populations)
    for name, least, most in (("seed", 0, 2**63), ("first_population", 0, 2**63), ("populations", 1, populations)):
        value = settings.get(name, least)
        if type(value) is not int or not least <= value <= most:
            raise InvalidInput(
                f"{path}: {name} is {str(value)[:80]}, and there are {populations} populations; it is damaged"
            )
    _check_told(path, settings)


def _check_told(path: Path, settings: dict[str, Any]) -> None:
    """Raise for settings of the wrong type among those that a result reads: the constant, the remedies, the moves."""
    constant, remedies, moves = (settings.get(name) for name in ("log_z", "remedies", "moves"))
    texts, share = dict.fromkeys(Remedies._fields, str), int | float | None
    known = {
        "log_z": constant is None or _named(constant, dict(zip(Constant._fields, (str, share), strict=True))),
        "remedies": "remedies" not in settings or _among(remedies, texts),
        "moves": moves is None or isinstance(moves, dict),
        "spent before": "spent before" not in settings
        or _named(settings["spent before"], dict.fromkeys(Spent._fields, int)),
        "measured": "measured" not in settings or is_measured(settings["measured"]),
    }
    for name, fits in known.items():
        if not fits:
            raise InvalidInput(f"{path}: {name} is {str(settings[name])[:80]}; it is damaged, save the result again")


def _among(value: Any, kinds: Mapping[str, Any]) -> bool:
    """Whether a value is a mapping of some of these names to these kinds."""
    return isinstance(value, dict) and all(k in kinds and isinstance(v, kinds[k]) for k, v in value.items())


def _named(value: Any, kinds: Mapping[str, Any]) -> bool:
    """Whether a value is a mapping of these names to these kinds."""
    return (
        isinstance(value, dict) and value.keys() == kinds.keys() and all(isinstance(value[k], kinds[k]) for k in kinds)
    )
