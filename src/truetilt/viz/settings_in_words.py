"""A run's settings in words, and as the call that gives the same run again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import __all__ as PUBLIC
from ..continuous import __all__ as REALS

_HARSH = ("toxic", "hate", "insult", "obscen", "threat", "abus", "offensive")
_KIND = ("non", "not", "no-", "no ", "no_")
_LITERAL_GRID = 5  # times that are written out in a call


class RunSettings(NamedTuple):
    """One run's settings: (quantity, value) rows to read, and the call."""

    target: str
    condition: str
    sampler: str
    seed: str
    rows: list[tuple[str, str]]
    call: str


def is_veiled(condition: Any) -> bool:
    """Whether texts of this condition may be offensive, by its name: they are hidden until the reader asks."""
    name = str(condition).lower()
    return any(stem in name for stem in _HARSH) and not name.startswith(_KIND)


def run_settings(settings: Mapping[str, Any], times: list[float]) -> RunSettings:
    """The settings of one run in words; settings that were not recorded are left out."""
    model = settings.get("model")
    model = model if isinstance(model, Mapping) else {}
    name = str(model.get("name", ""))
    target = str(settings.get("target") or (f"that of {name}" if name else "not recorded"))
    rows = [("Target", target)]
    for key, title in (("bundle", "Model"), ("condition", "Condition")):
        if settings.get(key) is not None:
            rows.append((title, str(settings[key])))
    if name:
        rows.append(("Sampler", f"{name}: {model['how']}" if model.get("how") else name))
    rows += [(key, _short(model[key])) for key in model if key not in {"name", "how"}]
    for key, title in _PLAIN.items():
        if settings.get(key) is not None:
            rows.append((title, call_of(settings[key])))
    told = dict(rows)
    words = (told.get(key, "") for key in ("Target", "Condition", "Sampler", "Seed"))
    return RunSettings(*words, rows, call(settings, times))


_PLAIN = {
    "particles": "Particles in a population",
    "populations": "Populations",
    "steps": "Steps",
    "resampler": "Resampling",
    "coupling": "Draws",
    "moves": "Moves",
    "seed": "Seed",
    "first_population": "First population",
    "device": "Device",
}


def call(settings: Mapping[str, Any], times: list[float]) -> str:
    """The Python that gives the same run; `model` is the reader's."""
    model = settings.get("model")
    if not isinstance(model, Mapping) or "seed" not in settings:
        return "# the settings of this run were not recorded"
    plain = ("particles", "populations", "seed", "first_population")
    options = {key: repr(settings[key]) for key in plain if key == "seed" or settings.get(key, 0) != 0}
    options["resample"] = call_of(settings.get("resampler", "unknown"))
    if settings.get("coupling", "independent") != "independent":
        options["couple"] = call_of(settings["coupling"])
    if settings.get("moves"):
        options["moves"] = call_of(settings["moves"])
    lines = "".join(f"    {key}={value},\n" for key, value in options.items())
    grid, kept = _grid(times), "times = tt.Result.load(folder).times  # of the run saved there\n"
    head = f"import truetilt as tt\n\n{_loaded(settings)}{kept * grid.startswith('times')}"
    ordered = model | {"order": _Code("protein.order")} if isinstance(settings.get("backbone"), Mapping) else model
    made = _sharpened(settings) or _model_call(ordered)
    return f"{head}result = tt.run(\n    {made},\n    {grid},\n{lines})\n"


def _sharpened(settings: Mapping[str, Any]) -> str:
    """The call of `tt.sharpened`, if the run was one of it."""
    told = settings.get("sharpened")
    exponents = [told.get(name) for name in ("alpha", "sharpness")] if isinstance(told, Mapping) else []
    numbers = [value for value in exponents if type(value) in (int, float)]
    return f"tt.sharpened(model, {numbers[0]!r}, {numbers[1]!r})" if len(numbers) == 2 else ""


def _loaded(settings: Mapping[str, Any]) -> str:
    """The code that loads the model: a named bundle, or a comment in place of the reader's own."""
    if not {"bundle", "condition"} <= settings.keys():
        return "# model: the one that was sampled\n"
    if "text" in settings:
        return "# model: that of the gaps in the text, as the command makes it\n"
    if settings.get("net") == "text":
        return _text_net(settings["bundle"], settings["condition"])
    if isinstance(settings.get("backbone"), Mapping):
        return _protein(settings)
    if settings.get("net") == "strings":
        return _strings(settings)
    by_potential = settings.get("weights", "potential") == "potential" or _sharpened(settings)
    form = "potential" if by_potential else "cfg"
    return f"model = tt.load({settings['bundle']!r}).model({settings['condition']!r}, {form!r})\n"


def _protein(settings: Mapping[str, Any]) -> str:
    """A backbone with its open residues, leaning to other weights or not."""
    told = {name: value for name, value in settings["backbone"].items() if str(name).isidentifier()}
    words = "".join(f", {name}={value!r}" for name, value in told.items())
    condition = "" if settings["condition"] is None else repr(settings["condition"])
    return f"protein = tt.load({settings['bundle']!r}{words})\nmodel = protein.model({condition})\n"


def _strings(settings: Mapping[str, Any]) -> str:
    """A public network after a prompt, in the gaps of a text, under a class, or without any."""
    told, length = settings["condition"], settings.get("length")
    parts = [f"condition={told}" if isinstance(told, int) else repr(told)] if told is not None else []
    parts += [] if length is None else [f"length={length}"]
    return f"nets = tt.load({settings['bundle']!r})\nmodel = nets.model({', '.join(parts)})\n"


def _text_net(name: Any, condition: Any) -> str:
    """One text net under a class, or after a prompt in words."""
    told = repr(condition) if isinstance(condition, int) else f"text.tokenizer.encode({condition!r})"
    return f"text = tt.load({name!r})\nmodel = text.model({told})\n"


def call_of(value: Any, room: str = "tt") -> str:
    """A description as the call that makes it: {"name": "adaptive", ...} as tt.adaptive(...)."""
    if not isinstance(value, Mapping):
        return _named(value, room) if isinstance(value, str) else _short(value)
    if "fk" in value:  # moves of a model: the run's own
        value = value | {"fk": _Code(_model_call(value["fk"]))}
    told = [key for key in value if key not in {"name", "how"} and key.isidentifier()]
    parts = [f"{key}={call_of(value[key], room)}" for key in told]
    return _named(str(value.get("name", "unknown")), room) + (f"({', '.join(parts)})" if parts else "")


def _model_call(model: Mapping[str, Any]) -> str:
    """The Feynman-Kac value over the reader's model; those of real vectors live in tt.continuous."""
    name, kernel = str(model.get("name")), str(model.get("kernel", "euler"))
    of_reals = name in REALS and (name not in PUBLIC or kernel in REALS)
    return call_of({"name": name, "model": _Code("model")} | dict(model), "tt.continuous" if of_reals else "tt")


class _Code(str):
    """Python code to be inserted unquoted."""


def _named(name: str, room: str) -> str:
    """The name with its module, if it is public; anything but names and calls with plain numbers becomes `...`."""
    if isinstance(name, _Code):
        return name
    known = name.split("(")[0]
    if room != "tt" and known in REALS:
        return f"{room}.{name}" if known == name else "..."
    if known in PUBLIC and re.fullmatch(r"\w+(\([\w=.,() +-]*\))?", name):
        return f"tt.{name}"
    return name if all(part.isidentifier() for part in name.split(".")) else "..."


def _grid(times: list[float]) -> str:
    steps = len(times) - 1
    if steps > 0 and times == [1 - k / steps for k in range(steps)] + [0.0]:
        return f"tt.uniform_grid({steps})"
    if steps <= _LITERAL_GRID:
        return repr(times)
    return "times.tolist()"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
