"""Checkpoints of a sampling run: particles and record, written atomically every few steps; the last two are kept.

A step is a function of the particles before it and of its number, so particles and record are the whole state of a run.
A checkpoint holds the particles of all ranks, so any number of ranks may continue from it.
"""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..core.arguments import shown
from ..core.errors import InvalidInput, Stopped
from ..core.storage import check_plain, read_json, remove_written, sha256_of, write_folder, write_json, write_with
from ..core.types import Particles, StepInfo
from ..smc.shards import Shard
from .snapshots import Record, spread
from .stopping import stops_at_once

_FORMAT, _VERSION = "truetilt-checkpoint", 1
_TENSORS, _FACTS = "state.safetensors", "state.json"
_PER_STEP = ("ess", "log_z", "ancestors", "moved", "accepted", "spent")
_NAMED, _PART = re.compile(r"step-\d{8,}"), re.compile(r"\.step-\d{8,}-\w+\.(part|old)")
_KEPT = 2
EVERY = 10  # default number of steps between checkpoints


class Checkpoints:
    """The checkpoints of one run in one folder.

    As a context manager it handles SIGTERM: the step is finished, the run saved, `Stopped` raised; within a `Stoppable`
    work stops at once.
    """

    def __init__(
        self, folder: str | Path, every: int, identity: dict[str, Any], shard: Shard, rewards: Sequence[Any] = ()
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InvalidInput(f"checkpoint_every is {shown(every)}; give a whole number of steps, at least 1")
        self.folder, self.every, self.shard, self.rewards = Path(folder), every, shard, rewards
        self.identity = json.loads(json.dumps(identity))
        self._stop_asked, self._before = False, None

    def __enter__(self) -> Checkpoints:
        main = threading.current_thread() is threading.main_thread()  # Python handles signals there only
        if main and not stops_at_once():
            self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, number: int, frame: object) -> None:
        self._stop_asked = True

    def after_step(self, record: Record, steps: int) -> None:
        """Save if a checkpoint is due. If the run was asked to stop before its end, save and raise `Stopped`."""
        stop = self.shard.agreed(self._stop_asked) and record.step < steps
        if stop or record.step == steps or (record.step > 0 and record.step % self.every == 0):
            self.save(record)
        if stop:
            self.shard.agreed(True)  # barrier: no rank leaves before the checkpoint is written
            raise Stopped(
                f"stopped after step {record.step} of {steps}, which is saved in {self.folder}; the same run with the "
                "same folder goes on from there"
            )

    def save(self, record: Record) -> None:
        """Write step-N, then remove all but the last two; of several ranks only the first writes."""
        whole = record.gathered(self.shard)
        if self.shard.first == 0:
            write_folder(self.folder / f"step-{record.step:08d}", lambda beside: self._write(beside, whole))
            for old in found(self.folder)[:-_KEPT]:
                remove_written(old, (_TENSORS, _FACTS))

    def _write(self, folder: Path, whole: Record) -> None:
        write_with(folder / _TENSORS, lambda path: save_file(_tensors(whole) | self._answers(), path))
        facts = {"format": _FORMAT, "version": _VERSION, "step": whole.step, "sha256": sha256_of(folder / _TENSORS)}
        write_json(folder / _FACTS, facts | {"identity": self.identity})

    def load(self, device: torch.device | str) -> Record:
        """The record of the last checkpoint, or an empty one if there is none.

        A damaged checkpoint, or one of another run, is refused.
        """
        saved = found(self.folder)
        if not saved:
            return Record()
        tensors = {name: value.to(device) for name, value in read(saved[-1], self.identity).items()}
        check_tensors(saved[-1], tensors, self.identity)
        for number, reward in enumerate(self.rewards):
            if f"reward.{number}.states" in tensors:
                reward.remember(tensors[f"reward.{number}.states"], tensors[f"reward.{number}.values"])
        if self.shard.first > 0:  # the first rank has the counts of all
            tensors["spent"] = torch.zeros_like(tensors["spent"])
        kept = sorted({int(name.split(".")[1]) for name in tensors if name.startswith("kept.")})
        aux = {name.removeprefix("aux."): value for name, value in tensors.items() if name.startswith("aux.")}
        rows = zip(*(tensors[name] for name in _PER_STEP), strict=True)
        return Record(
            spread(self._mine, Particles(tensors["x"], tensors["log_w"], aux)),
            [StepInfo(t, s, *row) for (t, s), row in zip(tensors["times"].tolist(), rows, strict=True)],
            [(k, spread(self._mine, Particles(tensors[f"kept.{k}.x"], tensors[f"kept.{k}.log_w"], {}))) for k in kept],
        )

    def _answers(self) -> dict[str, Tensor]:
        """The cached answers of the run's rewards, so that a resumed run does not call them again."""
        found = {}
        for number, reward in enumerate(self.rewards):
            states, values = reward.known()
            if len(states):
                found |= {f"reward.{number}.states": states, f"reward.{number}.values": values}
        return {name: value.contiguous() for name, value in found.items()}

    def _mine(self, everyone: Tensor) -> Tensor:
        return self.shard.mine(everyone).clone()


def _tensors(record: Record) -> dict[str, Tensor]:
    """The tensors of a whole record by name, each contiguous in memory of its own."""
    tensors = {"x": record.particles.x, "log_w": record.particles.log_w}
    tensors |= {f"aux.{key}": value for key, value in record.particles.aux.items()}
    for step, kept in record.kept:
        tensors |= {f"kept.{step}.x": kept.x, f"kept.{step}.log_w": kept.log_w}
    tensors |= {name: torch.stack([getattr(info, name) for info in record.infos]) for name in _PER_STEP}
    tensors["times"] = torch.tensor([[info.t, info.s] for info in record.infos], dtype=torch.float64)
    return {name: value.cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}


def found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the oldest first."""
    return sorted(path for path in Path(folder).glob("step-*") if _NAMED.fullmatch(path.name) and path.is_dir())


def forget(folder: Path) -> None:
    """Remove the checkpoints in a folder and no other file; then the folder, if it is empty."""
    parts = [path for path in Path(folder).glob(".step-*") if _PART.fullmatch(path.name) and path.is_dir()]
    for path in (*found(folder), *parts):  # with the temporary folders of killed processes
        remove_written(path, (_TENSORS, _FACTS, *(half.name for half in path.glob(".state-*"))))
    remove_written(Path(folder), ())


def read(path: Path, identity: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint, once its format, checksum and run are those expected."""
    remedy = f"remove {path} to go on from the one before, or choose another folder"
    try:
        facts = read_json(path / _FACTS)
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path / _FACTS} cannot be read ({e}); {remedy}") from e
    if not isinstance(facts, dict) or (facts.get("format"), facts.get("version")) != (_FORMAT, _VERSION):
        raise InvalidInput(f"{path} is not a truetilt checkpoint of version {_VERSION}; choose another folder")
    theirs = facts.get("identity")
    theirs = theirs if isinstance(theirs, dict) else {}
    differing = sorted(key for key in identity.keys() | theirs.keys() if identity.get(key) != theirs.get(key))
    if differing:
        raise InvalidInput(
            f"{path} belongs to another run: it differs in {', '.join(differing)}; go on with the same model, settings "
            "and versions, or choose another folder"
        )
    try:
        if sha256_of(path / _TENSORS) != facts.get("sha256"):
            raise InvalidInput(f"{path / _TENSORS} does not match its checksum: it is damaged or cut short; {remedy}")
        return load_file(check_plain(path / _TENSORS))
    except (OSError, SafetensorError) as e:
        raise InvalidInput(f"{path / _TENSORS} cannot be read ({e}); {remedy}") from e


def check_tensors(path: Path, tensors: dict[str, Tensor], identity: dict[str, Any]) -> None:
    """Raise unless names, shapes and numbers of a checkpoint are those of the run named in it."""
    step, wanted = int(path.name.removeprefix("step-")), {"x", "log_w", "times", *_PER_STEP}
    kept = [k for k in identity["snapshots"] if k <= step]
    wanted |= {f"kept.{k}.{part}" for k in kept for part in ("x", "log_w")}
    named = {name for name in tensors if not name.startswith(("aux.", "reward."))}
    if named != wanted or not 0 <= step <= identity["steps"]:
        raise InvalidInput(f"{path} holds other tensors than a run has after step {step}; {_AGAIN}")
    both, rows = (identity["populations"], identity["particles"]), (step + 1, identity["populations"])
    whole, real, count = (torch.int64, torch.float32, torch.float64), (torch.float64,), (torch.int32,)
    expected: dict[str, tuple[tuple[int, ...], tuple[torch.dtype, ...]]]
    expected = {"log_w": (both, real), "ancestors": ((*rows, both[1]), count), "times": ((step + 1, 2), real)}
    expected |= dict.fromkeys(("ess", "log_z", "moved", "accepted"), (rows, (torch.float64, torch.float32)))
    expected["spent"] = ((step + 1, 4), (torch.int64,))
    expected |= {f"kept.{k}.x": (tuple(tensors["x"].shape), (tensors["x"].dtype,)) for k in kept}
    expected |= {f"kept.{k}.log_w": (both, real) for k in kept}
    kinds = {name: (tuple(tensors[name].shape), tensors[name].dtype) for name in expected}
    wrong = [n for n, (shape, dtypes) in expected.items() if kinds[n][0] != shape or kinds[n][1] not in dtypes]
    apart = [name for name in tensors if name == "x" or name.startswith("aux.")]
    wrong += [name for name in apart if tensors[name].shape[:2] != both or tensors["x"].dtype not in whole]
    if wrong:
        raise InvalidInput(f"{path}: {wrong[0]} has a shape or kind that this run does not have; {_AGAIN}")
    grid, ancestors = torch.tensor(identity["grid"], dtype=torch.float64), tensors["ancestors"]
    times = torch.stack([grid[: step + 1].roll(1), grid[: step + 1]], -1)
    times[0] = grid[0]
    same = torch.equal(tensors["times"].cpu(), times)
    weights = [tensors[name] for name in wanted if name.endswith("log_w")]
    bad = any(bool((log_w.isnan() | (log_w == torch.inf)).any()) for log_w in weights)
    if bad or not same or bool((ancestors < 0).any()) or bool((ancestors >= both[1]).any()):
        raise InvalidInput(f"{path} holds numbers that this run cannot have; {_AGAIN}")


_AGAIN = "remove it to go on from the one before, or choose another folder"


def check_states(folder: Path | None, length: int, states: int) -> None:
    """Raise for a last checkpoint whose particles are not states of this many sites and tokens."""
    saved = found(folder) if folder is not None else []
    if not saved:
        return
    try:
        x = load_file(check_plain(saved[-1] / _TENSORS)).get("x")
    except (OSError, ValueError, SafetensorError) as e:
        raise InvalidInput(f"{saved[-1] / _TENSORS} cannot be read ({e}); {_AGAIN}") from e
    if x is None or x.dtype != torch.int64 or x.shape[-1] != length or not bool(((x >= 0) & (x < states)).all()):
        raise InvalidInput(f"{saved[-1]} holds no states of {length} sites and {states} tokens; {_AGAIN}")
