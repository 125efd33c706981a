"""Networks on disk, in the hub's layout: config.json and model.safetensors, in a folder or under a hub id.

A file is validated before use: architecture, every name, shape and number. Pickles are refused, because opening one can
run arbitrary code.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..core.arguments import path_of, shown
from ..core.errors import InvalidInput
from ..core.storage import check_plain, write_json, write_with
from ..core.storage import read_json as read_values
from ..runtime.memory import check_fits
from ..smc.sampler import check_seed
from .eight_bits import from_eight_bits, in_eight_bits, scale_of

CONFIG, WEIGHTS = "config.json", "model.safetensors"
CARD = "card.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_MOST_GRIDS = 16
MOST_BLOCKS = 1000  # of a network, and of each of its grids
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")

Config = TypeVar("Config")


class Pretrained(nn.Module, ABC, Generic[Config]):
    """A network built from its config and a seed (None: all weights zero), with methods to save and load it."""

    architecture: ClassVar[str]
    config_type: ClassVar[Any]
    config: Config

    def __init__(self, config: Config | None = None, seed: int | None = 0) -> None:
        super().__init__()
        config = self.config_type() if config is None else config
        if not isinstance(config, self.config_type):
            raise InvalidInput(f"config is {shown(config)}; give a {self.config_type.__name__}")
        self.config, seed = config, None if seed is None else check_seed(seed)
        least = self._least_parameters(config)
        check_fits(4 * least, f"a net of {least:,} weights ({str(config)[:300]})")
        with torch.device("meta"):
            self._build(config)
        self._start(seed)

    @staticmethod
    @abstractmethod
    def _least_parameters(config: Any) -> int:
        """A lower bound of the number of weights, known before any is allocated."""

    @abstractmethod
    def _build(self, config: Config) -> None:
        """Make the modules, on the meta device."""

    @abstractmethod
    def _start(self, seed: int | None) -> None:
        """Allocate and initialise the weights; zeros if seed is None."""

    def save_pretrained(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write config.json and model.safetensors, the weights in `dtype` (as they are if None).

        With `torch.int8` the rows of wide matrices are stored as integers with one scale each, all else as float32.
        """
        folder, small = Path(folder), dtype == torch.int8
        dtype = torch.float32 if small else dtype
        weights = {name: _stored(name, tensor, dtype) for name, tensor in self.state_dict().items()}
        weights = in_eight_bits(weights) if small else weights
        (folder / CONFIG).unlink(missing_ok=True)  # never leave the config of one network with the weights of another
        write_with(folder / WEIGHTS, lambda path: save_file(weights, path, metadata={"format": "pt"}))
        write_json(folder / CONFIG, {"architecture": self.architecture, **asdict(cast("Any", self.config))})

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str | Path) -> Self:
        """A net in eval mode, float32, from a folder or a hub id owner/name."""
        folder = find_folder(folder_or_hub_id, (CONFIG, WEIGHTS))
        config = read_config(folder, cls.architecture)
        net = cls(config_of(cls.config_type, config, str(folder / CONFIG)), seed=None)
        net.load_state_dict(read_weights(folder, net.state_dict()))
        return net.eval()


def config_of(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """A config of this kind from plain values, as JSON or YAML have them."""
    check_keys(kind, values, where)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def check_keys(kind: Any, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The types of a dataclass's fields by name; raises if values have unknown names or lack a required one."""
    known = {f.name: f for f in fields(kind)}
    unknown = sorted(map(str, values.keys() - known.keys()))
    if unknown:
        raise InvalidInput(f"{where} has unknown keys: {', '.join(unknown)}; known are {', '.join(known)}")
    needed = [name for name, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in values]
    if missing:
        raise InvalidInput(f"{where} lacks {', '.join(missing)}; add them")
    return {name: f.type for name, f in known.items()}


def check_sizes(config: Any) -> None:
    """Validate the sizes that every grid network has in its config."""
    check_whole_sizes(config, side=1, vocabulary=2, classes=0, blocks=1, embedding=1, condition=1)
    channels = config.channels
    if not isinstance(channels, tuple) or not channels or any(type(c) is not int or c < 1 for c in channels):
        raise InvalidInput(f"channels is {shown(channels)}; give one whole number for each grid, from the finest")
    if len(channels) > _MOST_GRIDS:
        raise InvalidInput(f"channels names {len(channels):,} grids; give at most {_MOST_GRIDS}, each halves the side")
    if not isinstance(config.attention, bool):
        raise InvalidInput(f"attention is {shown(config.attention)}; give true or false")


def check_whole_sizes(config: Any, **least: int) -> None:
    """Raise for a size that is not a whole number of at least the given value, and for too many blocks."""
    for name, low in least.items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InvalidInput(f"{name} is {shown(value)}; give a whole number of at least {low}")
    if config.blocks > MOST_BLOCKS:
        raise InvalidInput(f"blocks is {config.blocks:,}; give at most {MOST_BLOCKS:,}")


def is_hub_id(name: str | Path) -> bool:
    """Whether a name looks like an id of the hub, owner/name."""
    return _HUB_ID.fullmatch(str(name)) is not None


def find_folder(name: str | Path, patterns: Iterable[str]) -> Path:
    """The folder of this name, or the downloaded one of this hub id."""
    path = path_of("the folder", name)
    if path.is_dir():
        return path
    if path.suffix in _PICKLES:
        raise InvalidInput(f"{name} is a pickle, and opening one runs what it contains; {_REMEDY}")
    if path.exists():
        raise InvalidInput(f"{name} is a file; give the folder that holds {CONFIG} and {WEIGHTS}")
    if not is_hub_id(name):
        raise InvalidInput(f"there is no folder {name}; give a folder that exists, or a hub id owner/name")
    return _download(str(name), list(patterns))


_REMEDY = f"convert it to {WEIGHTS} where it was made (save_pretrained does)"


def _download(hub_id: str, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=patterns))
    except Exception as error:  # connection errors are those of the hub's HTTP client, which has changed
        why = " ".join(f"{type(error).__name__}: {error}".split())[:_QUOTED]
        raise InvalidInput(
            f"there is no folder {hub_id} here, and the hub did not give one of that id ({why}); {_refusal(error)}"
        ) from error


_QUOTED = 160  # characters of a hub error that are quoted


def _refusal(error: Exception) -> str:
    """The meaning of a hub error, and what to do; classes are matched by name, because they move between modules."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return "it is gated: accept its terms on its page, then log in here (hf auth login)"
    if "RepositoryNotFoundError" in kinds:
        return "there is no such repository, or it is private: check the name, or log in (hf auth login)"
    if kinds & {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectionError", "ConnectError"}:
        return "there is no network: go online once, or download it elsewhere and give the folder"
    return "check the name, or go online once, or download it elsewhere and give the folder"


def read_config(folder: Path, architecture: str) -> dict[str, Any]:
    """The values of config.json without its architecture, which must be the expected one."""
    found = read_architecture(folder)
    if found != architecture:
        raise InvalidInput(f"{folder} holds a net of architecture {found!r}, and {architecture!r} was asked for")
    return {name: value for name, value in read_json(folder / CONFIG).items() if name != "architecture"}


def read_architecture(folder: Path) -> str:
    """The architecture that config.json names."""
    path = folder / CONFIG
    if not path.is_file():
        raise InvalidInput(
            f"{folder} has no {CONFIG}; it is not a saved net, or its writing was interrupted{_pickles_in(folder)}"
        )
    found = read_json(path).get("architecture")
    if not isinstance(found, str):
        raise InvalidInput(f'{path} names no "architecture"; it was not written by save_pretrained')
    return found


def read_card(folder: Path) -> dict[str, Any]:
    """The values of card.json, which training writes beside a network; empty if there is none."""
    path = folder / CARD
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, as a dictionary."""
    try:
        values = read_values(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is not JSON ({error}); save the net again") from error
    if not isinstance(values, dict):
        raise InvalidInput(f"{path} holds {type(values).__name__}, not named values; save the net again")
    return values


def read_weights(folder: Path, expected: Mapping[str, Tensor], optional: Collection[str] = ()) -> dict[str, Tensor]:
    """The tensors of model.safetensors, if their names and shapes are the expected ones and every number is finite."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise InvalidInput(f"{folder} has no {WEIGHTS}{_pickles_in(folder)}")
    try:
        with safe_open(check_plain(path), framework="pt") as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in found.items()}
            small = [name for name, part in found.items() if part.get_dtype() == "I8" and name in expected]
        wanted = {name: tuple(tensor.shape) for name, tensor in expected.items()}
        check_shapes(path, shapes, wanted | {scale_of(name): wanted[name][:1] for name in small}, optional)
        weights = from_eight_bits(load_file(path))
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"{path} is broken or cut short ({error}); copy it again") from error
    check_finite(path, weights)
    return weights


def check_finite(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Raise unless every tensor holds finite real numbers."""
    odd = [name for name, tensor in weights.items() if tensor.dtype not in _NUMBERS or tensor.layout != torch.strided]
    if odd:
        raise InvalidInput(f"{path}: {odd[0]} is of {weights[odd[0]].dtype}; weights are floats of 16 to 64 bits")
    bad = [name for name, tensor in weights.items() if not tensor.float().isfinite().all()]  # as nets compute
    if bad:
        raise InvalidInput(f"{path}: {bad[0]} holds NaN or infinity; the training diverged or the file is damaged")


def _pickles_in(folder: Path) -> str:
    """A hint for the error message if the folder holds a pickle instead."""
    names = sorted(p.name for p in folder.iterdir() if p.suffix in _PICKLES) if folder.is_dir() else []
    return f"; {names[0]} is a pickle, and opening one runs what it contains: {_REMEDY}" if names else ""


def check_shapes(
    path: Path, found: Mapping[str, tuple], expected: Mapping[str, tuple], optional: Collection[str] = ()
) -> None:
    """Raise unless a file has the expected names and shapes; optional names may be absent."""
    expected = {name: shape for name, shape in expected.items() if name in found or name not in optional}
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or extra:
        raise InvalidInput(
            f"{path} does not fit its {CONFIG}: {len(missing)} tensors missing (first {missing[:1]}), "
            f"{len(extra)} too many (first {extra[:1]}); keep the two files together"
        )
    for name, shape in expected.items():
        if found[name] != shape:
            raise InvalidInput(
                f"{path}: {name} has shape {found[name]} where {CONFIG} asks for {shape}; keep the two files together"
            )


def _stored(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A copy of a weight for the file, in `dtype`; raises if `dtype` cannot represent it."""
    stored = tensor.detach().to("cpu", dtype or tensor.dtype).contiguous().clone()
    if not stored.isfinite().all():
        largest = float(tensor.abs().max())
        reason = "is not finite" if not math.isfinite(largest) else f"reaches {largest:.3g}, too large for {dtype}"
        raise InvalidInput(f"{name} {reason}; store the weights in bfloat16 or float32, or look at the training")
    return stored
