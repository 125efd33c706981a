"""Networks in transformers folders, local or on the hub: the class that loads each, and one-line errors.

Code shipped with the weights runs only if the user allows it. Weights are read from safetensors; a .bin file is opened
by transformers with torch's reader of plain tensors (weights_only).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from ..core.arguments import shown
from ..core.errors import InvalidInput
from ..core.storage import check_plain, read_text
from .pretrained import CONFIG, MOST_BLOCKS, find_folder, read_json

_LONGEST = 10_000  # characters of a token in vocab.txt
_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_NEED = "pip install 'truetilt[hf]'"


class Loaded(NamedTuple):
    """A network in eval mode and its tokenizer, None if the folder has none."""

    net: Any
    tokenizer: Any


def is_transformers(folder: Path) -> bool:
    """Whether a folder's config.json is in the format of transformers."""
    path = Path(folder) / CONFIG
    return path.is_file() and not read_json(path).keys().isdisjoint({"model_type", "architectures", "auto_map"})


def load_folder(
    name: str | Path, device: torch.device | str, dtype: torch.dtype | None, trust_remote_code: bool
) -> Loaded:
    """The masked network of a folder or hub id, its weights in `dtype` (None: float32) on the device."""
    library = _library()
    folder = find_folder(name, [*_FILES, "*.py"] if trust_remote_code else _FILES)
    if not (folder / CONFIG).is_file():
        raise InvalidInput(f"{name} has no {CONFIG}; a model of transformers holds it beside its weights")
    settings = read_json(folder / CONFIG)
    if not any(folder.glob("*.safetensors")) and not Path(name).is_dir():
        folder = find_folder(name, [*_FILES, "*.bin", "*.py"] if trust_remote_code else [*_FILES, "*.bin"])
    kinds = _kinds_of_weights(folder)
    _check_settings(folder / CONFIG, settings, len(kinds) or MOST_BLOCKS)
    kind = _loader(library, name, folder, settings, trust_remote_code)
    how = {"trust_remote_code": trust_remote_code, "local_files_only": True}
    try:
        with _quiet(library):
            if trust_remote_code and settings.get("auto_map"):  # custom from_pretrained may not report missing weights
                net, told = kind.from_pretrained(folder, dtype=dtype or torch.float32, **how), {}
            else:
                net, told = kind.from_pretrained(folder, dtype=dtype or torch.float32, output_loading_info=True, **how)
    except Exception as error:  # remote code may raise anything
        raise InvalidInput(f"{name} cannot be loaded ({type(error).__name__}: {_first_line(error)})") from error
    _check_whole(name, settings, net, set(told.get("missing_keys", ())))
    if not settings.get("quantization_config"):
        _check_floats(name, net, kinds)
    return Loaded(net.to(device).eval(), _tokenizer(library, folder, how))


def _check_settings(path: Path, settings: dict[str, Any], most: int) -> None:
    """Raise for a config that no network can have: what transformers would take its time to find out, or its own error
    for.
    """
    listed = settings.get("architectures") or []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise InvalidInput(f"{path}: architectures is {shown(listed)}; it must be a list of names of classes")
    if not isinstance(settings.get("auto_map") or {}, dict):
        raise InvalidInput(f"{path}: auto_map is {shown(settings['auto_map'])}; it must name classes")
    for key, value in settings.items():
        if key.endswith(("layers", "blocks")) and isinstance(value, int) and value > most:
            raise InvalidInput(
                f"{path}: {key} is {value:,} and the weights are {most:,} tensors at most; copy it again"
            )


def _kinds_of_weights(folder: Path) -> dict[str, str]:
    """The number type of each tensor in a folder's safetensors files, by name; their headers alone are read."""
    found: dict[str, str] = {}
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(check_plain(path), framework="pt") as file:
                found |= {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InvalidInput(f"{path} is broken or cut short ({error}); copy it again") from error
    return found


def _check_floats(name: str | Path, net: Any, kinds: dict[str, str]) -> None:
    """Raise for weights stored as whole numbers: they would be read as such."""
    whole = {f".{key}" for key, kind in kinds.items() if kind.startswith(("I", "U", "B")) and kind != "BF16"}
    odd = [key for key, _ in net.named_parameters() if whole and any(_same(f".{key}", stored) for stored in whole)]
    if odd:
        raise InvalidInput(f"{name}: the weights {odd[0]} are stored as whole numbers; give the folder of its floats")


def _same(mine: str, stored: str) -> bool:
    """Whether two names are those of one tensor, perhaps of a network with and without its head."""
    return mine.endswith(stored) or stored.endswith(mine)


_UNREAD = {"pooler", "contact_head"}  # modules that the logits do not depend on


def _check_whole(name: str | Path, settings: dict[str, Any], net: Any, missing: set[str]) -> None:
    """Raise for weights missing from a folder, which would be random; one of a pair of tied weights suffices."""
    names: dict[int, list[str]] = {}
    for key, weight in net.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), []).append(key)
    lacking = [
        keys[0] for keys in names.values() if missing.issuperset(keys) and _UNREAD.isdisjoint(keys[0].split("."))
    ]
    if lacking:
        kinds = ", ".join(settings.get("architectures") or [str(settings.get("model_type"))])
        raise InvalidInput(
            f"{name} holds {kinds} without {lacking[0]} ({len(lacking)} of the weights of {type(net).__name__} are not "
            "there and would be random); give a folder saved with its language-model head"
        )


def _loader(library: Any, name: str | Path, folder: Path, settings: dict[str, Any], trusted: bool) -> Any:
    """The class of transformers that loads a folder's network."""
    own, kinds = settings.get("auto_map") or {}, list(settings.get("architectures") or [])
    named = str(settings.get("model_type"))
    if own and named not in library.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        if not trusted:
            raise InvalidInput(
                f"{name} brings code of its own ({', '.join(sorted({str(v).split('.')[0] for v in own.values()}))}), "
                "which would run here; read it, then say trust_remote_code=True"
            )
        for way in ("AutoModelForMaskedLM", "AutoModel"):
            if way in own:
                return getattr(library, way)
    if named in library.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return library.AutoModelForMaskedLM
    if named in library.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or "AutoModelForCausalLM" in own:
        raise InvalidInput(
            f"{name} is a causal model ({', '.join(kinds) or named}), which reads from left to right; masked diffusion "
            "needs one that sees both ways, such as BERT, ESM2 or LLaDA"
        )
    raise InvalidInput(
        f"{name} holds {', '.join(kinds) or named}, which transformers loads as no masked language model"
    )


def _tokenizer(library: Any, folder: Path, how: dict[str, Any]) -> Any:
    """The tokenizer of a folder; None if it has none."""
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt")):
        return None
    try:
        _check_vocabulary(folder)
        found = library.AutoTokenizer.from_pretrained(folder, **how)
        if callable(found):
            found("a text")  # what is wrong with its settings shows when it is first used
        return found
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(f"{folder} holds no tokenizer that can be read ({_first_line(error)})") from error


def _check_vocabulary(folder: Path) -> None:
    """Raise for a vocab.txt with a line that is no token, or whose lines have other numbers than tokenizer_config.json
    gives them.
    """
    path, named = folder / "vocab.txt", folder / "tokenizer_config.json"
    if not path.is_file():
        return
    tokens = [line.strip() for line in read_text(path).splitlines()]
    longest = max(map(len, tokens), default=0)
    if longest > _LONGEST:
        raise InvalidInput(f"{path} has a line of {longest:,} characters and holds a token a line; copy it again")
    told = read_json(named).get("added_tokens_decoder") if named.is_file() else None
    numbered = [(named, number, token.get("content")) for number, token in _items(told) if isinstance(token, dict)]
    settings = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if settings.get("pad_token_id") is not None:
        numbered += [(folder / CONFIG, settings["pad_token_id"], word) for word in ("[PAD]", "<pad>")]
    for file, number, word in numbered:
        if word in tokens and str(tokens.index(word)) != str(number):
            raise InvalidInput(
                f"{path} has {word!r} as token {tokens.index(word)} and {file.name} as token {shown(number)}: its "
                "lines are in another order than the net's tokens; copy it again"
            )


def _items(value: Any) -> Any:
    """The pairs of a mapping; none of anything else."""
    return value.items() if isinstance(value, dict) else ()


def load_tokenizer_of(name: str | Path) -> Any:
    """A tokenizer of transformers from a folder or a hub id of its own."""
    library = _library()
    folder = find_folder(name, _FILES)
    found = _tokenizer(library, folder, {"local_files_only": True})
    if found is None:
        raise InvalidInput(f"{name} has no tokenizer; give the folder or hub id that has it")
    return found


@contextmanager
def _quiet(library: Any) -> Generator[None]:
    """A context that silences the library's progress bars and reports."""
    said = library.utils.logging
    shown, loud = said.is_progress_bar_enabled(), said.get_verbosity()
    said.disable_progress_bar()
    said.set_verbosity_error()
    try:
        yield
    finally:
        said.set_verbosity(loud)
        if shown:
            said.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _library() -> Any:
    try:
        import transformers
        import transformers.models.auto.modeling_auto
    except ImportError as error:
        raise InvalidInput(f"a folder or hub id is loaded by the package transformers: {_NEED}") from error
    return transformers
