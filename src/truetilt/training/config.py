"""The configuration of a training run, read from YAML or JSON; unknown, missing or impossible values raise an error."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.storage import parse_json, read_text
from ..diffusion.processes import Masking, Uniform
from ..models.pretrained import check_keys

TASKS = ("unconditional", "conditional", "deft", "potential", "classifier")
_CHOICES = {
    "task": TASKS,
    "process": ("masking", "uniform"),
    "schedule": ("cosine", "constant"),
    "optimizer": ("adamw", "muon"),
    "augment": ("none", "shift", "mask"),
    "modality": ("digits", "text"),
    "rows": ("segments", "packed"),
    "export_dtype": ("float32", "float16", "bfloat16", "int8"),
}
_LONGEST, _DEEPEST = 1 << 20, 20  # largest size in bytes of a configuration, and its deepest nesting
_POSITIVE = ("steps", "batch", "lr", "clip", "log_every", "checkpoint_every", "evaluation_passes")
_WHOLE = ("steps", "batch", "seed", "data_seed", "warmup", "max_shift", "log_every", "checkpoint_every")
_NOT_NEGATIVE = ("seed", "data_seed", "warmup", "weight_decay", "max_shift")
_FREE = (  # settings that may change on resuming, because they do not affect what is learned
    "data",
    "base",
    "log_every",
    "checkpoint_every",
    "max_seconds",
    "evaluation_passes",
    "export_dtype",
)
_LATER = (
    "modality",
    "rows",
    "mix",
    "prompts",
    "lora",
    "max_blank",
    "suffix_share",
    "optimizer",
)  # part of a fingerprint only if set


@dataclass(frozen=True)
class TrainConfig:
    """One training run. `steps` plans the learning rate; `max_seconds`, if given, stops the run early."""

    task: str
    net: Mapping[str, Any]  # fields of UNetConfig or SEDDConfig; for potential and classifier, of their config
    steps: int
    data: str = ""  # folder of the IDX files, or of a prepared corpus; the command line may override it
    share: float = 1.0  # share of the training rows that is used
    data_seed: int = 0  # seed of the choice of that share
    process: str = "masking"
    batch: int = 256
    lr: float = 1e-3
    schedule: str = "cosine"
    optimizer: str = "adamw"  # or muon: the matrices in a transformer's blocks by Muon, all else by AdamW
    warmup: int = 500
    weight_decay: float = 0.0
    ema: float = 0.9995
    clip: float = 1.0
    bf16: bool = True  # on cuda only
    compile: bool = False
    label_dropout: float = 0.0  # conditional: probability of withholding the label, so that one net serves as both
    augment: str = "none"
    max_shift: int = 2  # pixels, for augment: shift
    base: str = ""  # deft: folder of the frozen network; text: the network to start from
    seed: int = 0
    log_every: int = 100
    checkpoint_every: int = 2000
    max_seconds: float | None = None
    evaluation_passes: int = 1  # number of passes over the whole test set
    export_dtype: str = "float32"
    modality: str = "digits"
    rows: str = "segments"  # text: one segment per row, padded; or "packed", for unconditional
    mix: Mapping[str, Any] = field(default_factory=dict)  # text: how often each source or group is repeated
    prompts: Mapping[str, Any] = field(default_factory=dict)  # text, conditional: words for a class, in place of labels
    lora: Mapping[str, Any] = field(default_factory=dict)  # text: {rank, alpha} of adapters; empty: train all weights
    max_blank: float = 0.3  # for augment: mask, the largest share of a row that is masked
    suffix_share: float = 0.0  # text, masking: share of the rows that are masked as in drawing from left to right
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(choices)}")
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be at least 0")
        for name in _WHOLE:
            if getattr(self, name) >= 2**63:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be below 2^63")
        self._check_ranges()
        self._check_modality()
        self._check_suffixes()

    def _check_ranges(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidInput(f"share is {self.share}; it is the part of the data to use, above 0 and at most 1")
        if not 0 <= self.ema < 1 or not 0 <= self.label_dropout <= 1:
            raise InvalidInput(f"ema is {self.ema}, label_dropout {self.label_dropout}; both lie in [0, 1), [0, 1]")
        if self.label_dropout and self.task != "conditional":
            raise InvalidInput(f"label_dropout is {self.label_dropout}; only the task conditional withholds labels")
        if self.augment != "none" and self.task not in ("potential", "classifier"):
            raise InvalidInput(f"augment is {self.augment}; a model of the data itself must see it unchanged")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise InvalidInput(f"max_seconds is {self.max_seconds}; leave it out to stop by steps alone")

    def _check_modality(self) -> None:
        text = self.modality == "text"
        wrong = {"shift": text, "mask": not text or self.task != "classifier"}
        if wrong.get(self.augment):
            raise InvalidInput(f"augment is {self.augment}; shift is for digits, mask for classifiers of clean text")
        if not 0 < self.max_blank < 1:
            raise InvalidInput(f"max_blank is {self.max_blank}; give a number between 0 and 1")
        for name in ("mix", "prompts", "lora"):
            if getattr(self, name) and not text:
                raise InvalidInput(f"{name} is for text; add `modality: text`, or leave it out")
        if self.optimizer == "muon" and not text:
            raise InvalidInput("muon is for transformers, which are the nets of text; choose adamw")
        if self.rows == "packed" and (not text or self.task != "unconditional"):
            raise InvalidInput("packed rows have no labels; they are for the task unconditional on text")
        if self.prompts and self.task != "conditional":
            raise InvalidInput(f"prompts are for the task conditional, not for {self.task}; leave them out")
        if self.lora and (not self.base or self.task not in ("conditional", "unconditional")):
            raise InvalidInput("lora adapts a diffusion net that is there already; name its folder as `base`")

    def _check_suffixes(self) -> None:
        if not 0 <= self.suffix_share <= 1:
            raise InvalidInput(f"suffix_share is {self.suffix_share}; it is a share of the rows, from 0 to 1")
        fits = self.modality == "text" and self.process == "masking" and self.task in ("unconditional", "conditional")
        if self.suffix_share and not fits:
            raise InvalidInput(
                f"suffix_share is {self.suffix_share}; it is for the tasks unconditional and conditional on text with "
                "the process masking, leave it out here"
            )

    def noising(self) -> Masking | Uniform:
        """The noising process over the network's vocabulary."""
        made = Masking if self.process == "masking" else Uniform
        size = self.net.get("vocabulary", 256)
        if isinstance(size, bool) or not isinstance(size, int):
            raise InvalidInput(f"net.vocabulary is {size!r}; give a whole number of grey levels or tokens")
        return made(size)

    def fingerprint(self) -> str:
        """A hash of all settings that affect what is learned."""
        kept = {name: value for name, value in asdict(self).items() if name not in (*_FREE, "note")}
        plain = {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields(self)}
        kept = {name: value for name, value in kept.items() if name not in _LATER or value != plain[name]}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def read_config(path: Path | str, **changes: Any) -> TrainConfig:
    """The configuration in a YAML or JSON file; `changes` replace its values."""
    path = Path(path)
    found = parse_file(path)
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} holds {type(found).__name__}; a configuration is a list of `key: value`")
    return config_of({**found, **changes}, str(path))


def config_of(values: Mapping[str, Any], where: str = "the configuration") -> TrainConfig:
    """A configuration from plain values; every key must be known and of the right kind."""
    kinds = check_keys(TrainConfig, values, where)
    return TrainConfig(**{name: _typed(name, kinds[name], value, where) for name, value in values.items()})


def parse_file(path: Path) -> Any:
    """The plain values of a YAML or JSON file."""
    try:
        text = read_text(path, _LONGEST)
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path} cannot be read as text ({e}); name a YAML or JSON file") from e
    if path.suffix == ".json":
        try:
            return parse_json(text)
        except ValueError as e:
            raise InvalidInput(f"{path} is no JSON: {e}") from e
    try:
        import yaml
    except ImportError as e:
        raise InvalidInput(f"reading {path} needs pyyaml; install it, or give the configuration as JSON") from e
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):  # reject deep nesting before it is built
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise InvalidInput("it uses aliases (*name), which a configuration does not; write the values out")
            if depth > _DEEPEST:
                raise InvalidInput(f"lists or names lie within one another more than {_DEEPEST} deep")
        return yaml.safe_load(text)
    except Exception as e:  # YAML's reader also raises errors of its parts: RecursionError, KeyError, ...
        raise InvalidInput(f"{path} is no YAML: {' '.join(str(e).split())[:300] or type(e).__name__}") from e


def _typed(name: str, kind: Any, value: Any, where: str) -> Any:
    """The value in its field's type; YAML reads 1e-3 as a string, so strings of numbers count as numbers."""
    if kind == "float | None" and value is None:
        return None
    try:
        if kind.startswith("float") and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number):
                return number
        if kind == "int" and not isinstance(value, bool) and float(value) == int(value):
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    wanted = {"str": str, "bool": bool}.get(kind, dict if kind.startswith("Mapping") else None)
    if wanted is not None and isinstance(value, wanted):
        return _plain(value) if wanted is dict else value
    raise InvalidInput(f"{where}: {name} is {repr(value)[:200]}; it must be of kind {kind}")


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Lists turned into tuples, for frozen records."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
