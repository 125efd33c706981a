"""Stopping and going on: what a run has so far, written every few steps, whole or absent, the last two kept.

A step is a function of the particles before it and of its number, so particles and record are all that a run is. A
checkpoint holds every particle, whoever computed it: any number of ranks may go on from it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .smc.shards import Shard
from .storage import write_folder, write_json, write_with
from .types import InvalidInput, Particles, StepInfo, Stopped

_FORMAT, _VERSION = "truetilt-checkpoint", 1
_TENSORS, _FACTS = "state.safetensors", "state.json"
_PER_STEP = ("ess", "log_z", "ancestors", "moved", "accepted")
_KEPT = 2
EVERY = 10  # steps between checkpoints where the user says nothing


_NOBODY = Particles(torch.empty(0), torch.empty(0), {})


@dataclass
class Record:
    """What a run has so far: its particles, what happened at each step, and the particles it was asked to keep."""

    particles: Particles = _NOBODY
    infos: list[StepInfo] = field(default_factory=list)
    kept: list[tuple[int, Particles]] = field(default_factory=list)
    keep: tuple[int, ...] = ()  # the steps whose particles are kept

    @property
    def step(self) -> int:
        """How many steps are done; -1 before the first draw."""
        return len(self.infos) - 1

    def whole(self, shard: Shard) -> Record:
        """The same with the particles of all ranks."""
        kept = [(step, _spread(shard.everyone, particles)) for step, particles in self.kept]
        return Record(_spread(shard.everyone, self.particles), self.infos, kept)

    def add(self, particles: Particles, info: StepInfo) -> None:
        """One more step."""
        self.particles = particles
        self.infos.append(info._replace(ancestors=info.ancestors.int()))
        if self.step in self.keep:
            self.kept.append((self.step, particles._replace(aux={})))


class Checkpoints:
    """The checkpoints of one run in one folder. While it is entered, SIGTERM means: finish the step, save, stop."""

    def __init__(self, folder: str | Path, every: int, identity: dict[str, Any], shard: Shard) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InvalidInput(f"checkpoint_every is {every!r}; give a whole number of steps, at least 1")
        self.folder, self.every, self.shard = Path(folder), every, shard
        self.identity = json.loads(json.dumps(identity))
        self._asked, self._before = False, None

    def __enter__(self) -> Checkpoints:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python hears no signal
            self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, number: int, frame: object) -> None:
        self._asked = True

    def after_step(self, record: Record, steps: int) -> None:
        """Save where it is due. Asked to end before the end, save and raise `Stopped`."""
        stop = self.shard.agreed(self._asked) and record.step < steps
        if stop or record.step == steps or (record.step > 0 and record.step % self.every == 0):
            self.save(record)
        if stop:
            self.shard.agreed(True)  # nobody leaves before all is written
            raise Stopped(
                f"stopped after step {record.step} of {steps}, which is saved in {self.folder}; the same run with the "
                "same folder goes on from there"
            )

    def save(self, record: Record) -> None:
        """Write step-N, then drop all but the last two; of several ranks the first writes."""
        whole = record.whole(self.shard)
        if self.shard.first == 0:
            write_folder(self.folder / f"step-{record.step:08d}", lambda beside: self._write(beside, whole))
            for old in found(self.folder)[:-_KEPT]:
                shutil.rmtree(old)

    def _write(self, folder: Path, whole: Record) -> None:
        write_with(folder / _TENSORS, lambda path: save_file(_tensors(whole), path))
        facts = {"format": _FORMAT, "version": _VERSION, "step": whole.step, "sha256": _digest(folder / _TENSORS)}
        write_json(folder / _FACTS, facts | {"identity": self.identity})

    def load(self, fresh: Record, device: torch.device | str) -> Record:
        """The last checkpoint's record, or the fresh one where there is none; a damaged or foreign one is refused."""
        saved = found(self.folder)
        if not saved:
            return fresh
        tensors = {name: value.to(device) for name, value in read(saved[-1], self.identity).items()}
        kept = sorted({int(name.split(".")[1]) for name in tensors if name.startswith("kept.")})
        aux = {name.removeprefix("aux."): value for name, value in tensors.items() if name.startswith("aux.")}
        rows = zip(*(tensors[name] for name in _PER_STEP), strict=True)
        return Record(
            _spread(self._mine, Particles(tensors["x"], tensors["log_w"], aux)),
            [StepInfo(t, s, *row) for (t, s), row in zip(tensors["times"].tolist(), rows, strict=True)],
            [(k, _spread(self._mine, Particles(tensors[f"kept.{k}.x"], tensors[f"kept.{k}.log_w"], {}))) for k in kept],
            fresh.keep,
        )

    def _mine(self, everyone: Tensor) -> Tensor:
        return self.shard.mine(everyone).clone()


def _spread(change: Callable[[Tensor], Tensor], particles: Particles) -> Particles:
    """Every tensor of the particles changed."""
    aux = {key: change(value) for key, value in particles.aux.items()}
    return Particles(change(particles.x), change(particles.log_w), aux)


def _tensors(record: Record) -> dict[str, Tensor]:
    """A whole record by names, in memory of its own."""
    tensors = {"x": record.particles.x, "log_w": record.particles.log_w}
    tensors |= {f"aux.{key}": value for key, value in record.particles.aux.items()}
    for step, kept in record.kept:
        tensors |= {f"kept.{step}.x": kept.x, f"kept.{step}.log_w": kept.log_w}
    tensors |= {name: torch.stack([getattr(info, name) for info in record.infos]) for name in _PER_STEP}
    tensors["times"] = torch.tensor([[info.t, info.s] for info in record.infos], dtype=torch.float64)
    return {name: value.cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}


def found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the oldest first."""
    return sorted(path for path in Path(folder).glob("step-*") if path.is_dir())


def read(path: Path, identity: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint, once its format, checksum and run are those expected."""
    remedy = f"remove {path} to go on from the one before, or choose another folder"
    try:
        facts = json.loads((path / _FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path / _FACTS} cannot be read ({e}); {remedy}") from e
    if not isinstance(facts, dict) or (facts.get("format"), facts.get("version")) != (_FORMAT, _VERSION):
        raise InvalidInput(f"{path} is not a truetilt checkpoint of version {_VERSION}; choose another folder")
    theirs = facts.get("identity") or {}
    differing = sorted(key for key in identity.keys() | theirs.keys() if identity.get(key) != theirs.get(key))
    if differing:
        raise InvalidInput(
            f"{path} belongs to another run: it differs in {', '.join(differing)}; go on with the same model, settings "
            "and versions, or choose another folder"
        )
    try:
        if _digest(path / _TENSORS) != facts.get("sha256"):
            raise InvalidInput(f"{path / _TENSORS} does not match its checksum: it is damaged or cut short; {remedy}")
        return load_file(path / _TENSORS)
    except (OSError, SafetensorError) as e:
        raise InvalidInput(f"{path / _TENSORS} cannot be read ({e}); {remedy}") from e


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
