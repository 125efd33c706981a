"""Checkpoints of a training run: its whole state in safetensors and JSON, written atomically; the last two are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..core.errors import InvalidInput
from ..core.storage import check_plain, read_json, remove_written, write_folder, write_json, write_with
from ..runtime.checkpoints import found

_TENSORS, _FACTS = "state.safetensors", "state.json"
_MOMENTS = ("exp_avg", "exp_avg_sq")
_KEPT = 2


class TrainingProgress(NamedTuple):
    """The counters of a run, which its checkpoint holds besides the tensors."""

    step: int = 0
    window: int = 0  # number of steps in the running sum of losses
    seconds: float = 0.0


class Learner(NamedTuple):
    """The state that a step changes: weights, their running mean, the optimiser's moments, the sum of losses."""

    net: nn.Module
    weights: dict[str, Tensor]  # the network's own tensors, by name: always written in place
    ema: dict[str, Tensor]
    optimizer: torch.optim.Optimizer
    loss_sum: Tensor  # float64 scalar


def save_checkpoint(folder: Path, learner: Learner, progress: TrainingProgress, fingerprint: str) -> Path:
    """Write step-N atomically, then remove all but the last two."""
    target = folder / f"step-{progress.step:08d}"
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _tensors(learner).items()}

    def write(beside: Path) -> None:
        write_with(beside / _TENSORS, lambda path: save_file(tensors, path))
        write_json(beside / _FACTS, {**progress._asdict(), "fingerprint": fingerprint})

    write_folder(target, write)
    for old in found(folder)[:-_KEPT]:
        remove_written(old, (_TENSORS, _FACTS))
    return target


def load_checkpoint(path: Path, learner: Learner, fingerprint: str) -> TrainingProgress:
    """Restore the state of a learner from a checkpoint of the same run."""
    try:
        facts: dict[str, Any] = read_json(path / _FACTS)
        tensors = load_file(check_plain(path / _TENSORS))
        progress = TrainingProgress(facts["step"], facts["window"], float(facts["seconds"]))
        if any(type(count) is not int or count < 0 for count in progress[:2]) or not 0 <= progress.seconds < 1e12:
            raise ValueError("its step, window or seconds are no such numbers")
    except (OSError, ValueError, KeyError, TypeError, OverflowError, SafetensorError) as e:
        raise InvalidInput(f"{path} cannot be read ({e}); remove it to go on from the one before") from e
    if facts.get("fingerprint") != fingerprint:
        raise InvalidInput(
            f"{path} belongs to another configuration, data set or base; resume with the same, or choose another --out"
        )
    _restore(learner, tensors, path)
    return progress


def _tensors(learner: Learner) -> dict[str, Tensor]:
    names = [name for name, _, _ in _learned(learner)]
    state = learner.optimizer.state_dict()["state"]
    tensors = {f"net.{name}": tensor for name, tensor in learner.weights.items()}
    tensors |= {f"ema.{name}": tensor for name, tensor in learner.ema.items()}
    for number, moments in state.items():
        tensors |= {f"{key}.{names[number]}": value for key, value in moments.items()}
    return tensors | {"loss_sum": learner.loss_sum}


def _learned(learner: Learner) -> list[tuple[str, Tensor, tuple[str, ...]]]:
    """The parameters that the optimiser moves, in its order, with the names of their moments."""
    names = {id(parameter): name for name, parameter in learner.net.named_parameters()}
    groups = learner.optimizer.param_groups
    return [(names[id(p)], p, group.get("moments", _MOMENTS)) for group in groups for p in group["params"]]


@torch.no_grad()
def _restore(learner: Learner, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy in place, so that every tensor keeps the layout it was trained in."""
    read: Callable[[str], Tensor] = tensors.__getitem__
    try:
        pairs = {f"net.{name}": (tensor, read(f"net.{name}")) for name, tensor in learner.weights.items()}
        pairs |= {f"ema.{name}": (tensor, read(f"ema.{name}")) for name, tensor in learner.ema.items()}
        pairs |= {"loss_sum": (learner.loss_sum, read("loss_sum"))}
        state: dict[int, dict[str, Tensor]] = {}
        for number, (name, parameter, moments) in enumerate(_learned(learner)):
            state[number] = {key: torch.zeros_like(parameter) for key in moments}
            pairs |= {f"{key}.{name}": (state[number][key], read(f"{key}.{name}")) for key in moments}
            state[number]["step"] = read(f"step.{name}")
            if state[number]["step"].shape != () or state[number]["step"].dtype != torch.float32:
                raise RuntimeError(f"step.{name} is no single number")
        for name, (own, saved) in pairs.items():  # check everything before changing anything
            if own.shape != saved.shape or own.dtype != saved.dtype:
                raise RuntimeError(f"{name} is {tuple(saved.shape)} of {saved.dtype}, not {tuple(own.shape)}")
        for own, saved in pairs.values():
            own.copy_(saved)
    except (KeyError, RuntimeError) as e:
        raise InvalidInput(f"{path} does not fit this network ({e}); resume with the same configuration") from e
    groups = learner.optimizer.state_dict()["param_groups"]
    learner.optimizer.load_state_dict({"state": state, "param_groups": groups})
