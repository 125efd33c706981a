"""The settings of a run as JSON: stored with its result, compared between ranks and with checkpoints, read again."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

import torch

from ..core.bases import FeynmanKac, made_from
from ..core.model_diagnostics import worst
from ..core.target import Constant, Remedies
from ..core.types import Resampler
from ..smc.descriptions import described, name_of
from ..smc.diagnostics import Known
from ..smc.rejuvenation import Rejuvenation
from ..smc.sampler import Coupling

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def settings_of(
    fk: FeynmanKac, resample: Resampler, couple: Coupling, moves: Rejuvenation | None, sizes: dict[str, int]
) -> dict[str, Any]:
    """The model, resampler, moves and sizes of a run, which constant its log Z estimates, and the remedies for bad
    weights.
    """
    target = fk.spec
    settings: dict[str, Any] = {"model": describe(fk), "resampler": described(resample), "coupling": name_of(couple)}
    settings["moves"] = None if moves is None else _described(fk, moves)
    settings["model"] |= {"how": fk.how} if fk.how else {}
    settings["target"] = "" if target is None else target.formula
    if target is not None and isinstance(target.constant, Constant):
        settings["log_z"] = target.constant._asdict()
    remedies = fk.remedies if moves is None else fk.remedies._replace(move="")
    return settings | {"remedies": remedies._asdict()} | sizes


def weights_of(fk: FeynmanKac) -> str:
    """How a value forms its weights, in words ("potential", "edge ratios", ...); empty if it does not state it."""
    return "" if fk.target is None else str(fk.target.way.get("weights", ""))


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
    kernel, made = describe(moves.by), made_from(moves.by)
    if made is not None:
        kernel["fk"] = describe(made)
    plain = describe(moves) | {"kernel": kernel}
    strayed = moves.differences(fk.spec)
    return plain | ({"towards another target": strayed} if strayed else {})


def runs_of(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings of each run that was joined into a result."""
    united = settings.get("united")
    return [run for part in united for run in runs_of(part)] if isinstance(united, list) else [dict(settings)]


def constant_of(settings: Mapping[str, Any]) -> Constant | None:
    """The constant that log Z of the joined runs estimates, if all name the same."""
    found = [run.get("log_z") for run in runs_of(settings)]
    return None if found[0] is None or any(one != found[0] for one in found) else Constant(**found[0])


def known_of(settings: Mapping[str, Any]) -> Known:
    """What `Result.trust` needs from the settings of joined runs; remedies are those of the first."""
    runs = runs_of(settings)
    strayed = any("towards another target" in (run.get("moves") or {}) for run in runs)
    measured = worst([run.get("measured", {}) for run in runs])
    return Known(repeated(settings), strayed, Remedies(**runs[0].get("remedies", {})), measured)


def repeated(settings: Mapping[str, Any]) -> bool:
    """Whether two of the joined runs drew a population from the same uniforms."""
    runs = [r for r in runs_of(settings) if {"seed", "first_population", "populations"} <= r.keys()]
    drawn = sorted((r["seed"], r["first_population"], r["first_population"] + r["populations"]) for r in runs)
    return any(one[0] == next[0] and next[1] < one[2] for one, next in pairwise(drawn))
