"""The settings of a run as JSON: stored with its result, and compared between ranks and with checkpoints."""

from __future__ import annotations

import platform
import re
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from ..core.target import contract_of
from ..core.types import FeynmanKac, Resampler
from ..smc.coupling import Coupling
from ..smc.descriptions import described, name_of
from ..smc.rejuvenation import Rejuvenation

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def settings_of(
    fk: FeynmanKac, resample: Resampler, couple: Coupling, moves: Rejuvenation | None, sizes: dict[str, int]
) -> dict[str, Any]:
    """The model, the resampler, the moves and the sizes of a run; which constant log Z is, and what may help it."""
    contract = contract_of(fk)
    settings: dict[str, Any] = {"model": describe(fk), "resampler": described(resample), "coupling": name_of(couple)}
    settings["moves"] = None if moves is None else _described(fk, moves)
    settings["model"] |= {"how": contract.how} if contract.how else {}
    settings["target"] = contract.target.formula if contract.target is not None else ""
    if contract.target is not None and contract.target.constant is not None:
        settings["log_z"] = contract.target.constant._asdict()
    remedies = contract.remedies if moves is None else contract.remedies._replace(move="")
    return settings | {"remedies": remedies._asdict()} | sizes


def versions_of(device: torch.device | str, version: str) -> dict[str, Any]:
    """Versions and device, on which the bits of a result depend besides its settings."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    return {"version": version, "versions": versions, "device": str(device)}


def describe(value: Any) -> dict[str, Any]:
    """The name and the plain settings of a record, fit for JSON."""
    out: dict[str, Any] = {"name": type(value).__name__}
    for f in fields(value) if is_dataclass(value) else ():
        part = getattr(value, f.name)
        if isinstance(part, int | float | str):
            out[f.name] = part
        elif callable(part):
            plain = _ADDRESS.sub("", repr(part))  # addresses differ between processes
            out[f.name] = getattr(part, "__name__", None) or plain[:80]
    return out


def _described(fk: FeynmanKac, moves: Rejuvenation) -> dict[str, Any]:
    kernel, source = describe(moves.kernel), getattr(moves.kernel, "fk", None)
    plain = describe(moves) | {"kernel": kernel | ({} if source is None else {"fk": describe(source)})}
    strayed = moves.differences(contract_of(fk).target)
    return plain | ({"towards another target": strayed} if strayed else {})
