"""Networks as problems: digits, bundles of text nets, and single text nets, by a name or from a folder."""

from __future__ import annotations

from typing import Any

from ..core.types import InvalidInput
from ..models.hub import load
from ..models.reviews import Reviews
from ..models.text import Text
from .form import RunForm
from .problem import Problem, SampleCall


def nets_problem(name: str, form: RunForm) -> Problem:
    """The problem of nets, which are loaded here."""
    nets = load(name, form.device)
    return _text(name, nets, form) if isinstance(nets, Text) else _bundle(name, nets, form)


def _loaded(what: str, name: str, form: RunForm, model: str) -> str:
    place = "" if form.device == "cpu" else f", {form.device!r}"
    return "\n".join(["import truetilt as tt", "", f"{what} = tt.load({name!r}{place})", f"model = {model}"])


def _bundle(name: str, nets: Any, form: RunForm) -> Problem:
    """A class of a bundle: of digits by its number, of texts by its name."""
    if isinstance(nets, Reviews):
        condition = nets.classes[nets.facts.number("" if form.condition is None else form.condition)]
    else:
        condition = int(float(form.condition or 0))
    kind = "potential" if form.sampler == "tilted" else "cfg"
    python = _loaded("nets", name, form, f"nets.model({condition!r}, {kind!r})")
    return Problem(
        name, nets.model(condition, kind), nets.view, python,
        command=SampleCall(name, {"condition": condition}), look="nets.view", chunk=nets.batch, condition=condition,
    )  # fmt: skip


def _text(name: str, text: Text, form: RunForm) -> Problem:
    """One text net under a class, or after a prompt in words."""
    condition: Any
    if form.prompt:
        if text.tokenizer is None:
            raise InvalidInput(
                f"a prompt is words, and {name} has no tokenizer.json to read them by (or the package tokenizers is "
                "missing: install truetilt[hf]); copy it beside the net, or give a class"
            )
        condition, written = text.tokenizer.encode(form.prompt), f"text.tokenizer.encode({form.prompt!r})"
    else:
        condition = int(float(form.condition or 0))
        written = repr(condition)
    return Problem(
        name, text.model(condition), text.view, _loaded("text", name, form, f"text.model({written})"),
        look="text.view", chunk=text.batch, condition=form.prompt or condition,
        lacks="single text nets", net="text",
    )  # fmt: skip
