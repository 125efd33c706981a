"""Published SEDD checkpoints: a folder with the authors' config.json and weights, here or under a hub id.

Weights are read from model.safetensors; a pytorch_model.bin only with torch's reader of plain tensors (weights_only),
which refuses a pickle that would run code. Names, shapes and values are checked as for our own networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.pickled import read_pickled
from ..core.types import Process
from ..diffusion.processes import Geometric, LogLinear, Masking, NoiseSchedule, Uniform
from .pretrained import CONFIG, WEIGHTS, check_finite, check_shapes, find_folder, read_json, read_weights
from .transformer import SEDD, SEDDConfig

PICKLED = "pytorch_model.bin"
_SIZES = {  # our name, and the authors'
    "length": "length",
    "hidden": "hidden_size",
    "blocks": "n_blocks",
    "heads": "n_heads",
    "condition": "cond_dim",
}
_FREQUENCIES = "rotary_emb.inv_freq"  # absent in some versions: it follows from the sizes


def is_published(folder: Path) -> bool:
    """Whether the config.json of a folder has the format of the SEDD authors."""
    path = folder / CONFIG
    return path.is_file() and {"tokens", "graph", "model"} <= read_json(path).keys()


def read_published(name: str | Path) -> tuple[SEDD, Process]:
    """A net in eval mode and the process it was trained for, from a folder or a hub id owner/name."""
    folder = find_folder(name, (CONFIG, WEIGHTS))
    if not (folder / CONFIG).is_file():
        raise InvalidInput(f"{folder} has no {CONFIG}; a published model holds it beside its weights")
    config, schedule = read_settings(folder / CONFIG)
    if not (folder / WEIGHTS).is_file() and not Path(name).is_dir():
        folder = find_folder(name, (CONFIG, PICKLED))
    net = SEDD(config, seed=None)
    net.load_state_dict(_weights(folder, net))
    vocabulary = config.vocabulary
    return net.eval(), Masking(vocabulary, schedule) if config.masked else Uniform(vocabulary, schedule)


def read_settings(path: Path) -> tuple[SEDDConfig, NoiseSchedule]:
    """Sizes and noise schedule from the authors' settings."""
    values = read_json(path)
    graph, noise = _setting(values, "graph.type", str, path), _setting(values, "noise.type", str, path)
    if graph not in ("absorb", "uniform"):
        raise InvalidInput(f"{path}: graph.type is {graph!r}; known are absorb and uniform")
    sizes = {ours: _setting(values, f"model.{theirs}", int, path) for ours, theirs in _SIZES.items()}
    scaled = _setting(values, "model.scale_by_sigma", bool, path)
    vocabulary = _setting(values, "tokens", int, path)
    config = SEDDConfig(vocabulary, **sizes, masked=graph == "absorb", scale_by_sigma=scaled)
    if noise == "loglinear":
        return config, LogLinear()
    if noise == "geometric":
        low, high = (_setting(values, f"noise.sigma_{end}", float, path) for end in ("min", "max"))
        return config, Geometric(low, high)
    raise InvalidInput(f"{path}: noise.type is {noise!r}; known are loglinear and geometric")


def _setting(values: Mapping[str, Any], name: str, kind: type, path: Path) -> Any:
    """The value under a dotted name, which must have this type."""
    found: Any = values
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    found = float(found) if kind is float and type(found) is int else found
    if type(found) is not kind:
        raise InvalidInput(f"{path}: {name} is {found!r}; a published SEDD model gives a {kind.__name__}")
    return found


def _weights(folder: Path, net: SEDD) -> dict[str, Tensor]:
    expected, optional = net.state_dict(), {_FREQUENCIES}
    if (folder / WEIGHTS).is_file() or not (folder / PICKLED).is_file():
        weights = read_weights(folder, expected, optional)
    else:
        weights = unpickled(folder / PICKLED)
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        check_shapes(folder / PICKLED, shapes, {n: tuple(t.shape) for n, t in expected.items()}, optional)
        check_finite(folder / PICKLED, weights)
    speeds = weights.setdefault(_FREQUENCIES, expected[_FREQUENCIES])
    if not torch.allclose(speeds.float(), expected[_FREQUENCIES], rtol=1e-2):
        raise InvalidInput(f"{folder}: {_FREQUENCIES} turns positions at other speeds than SEDD's; it is another net")
    return weights


def unpickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a .bin file, read with weights_only=True: anything else in it is refused, never executed."""
    found = read_pickled(path)
    named = isinstance(found, dict) and all(isinstance(name, str) for name in found)
    if not named or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise InvalidInput(f"{path} holds no table of named tensors; it is no published network")
    return found
