"""Networks as problems: digits, bundles of text nets, and single text nets, by a name or from a folder."""

from __future__ import annotations

from typing import Any

from ..core.types import InvalidInput
from ..models.hub import Digits, load
from ..models.reviews import Reviews
from ..models.text import Text
from .form import Wish
from .problem import Problem


def posed_nets(name: str, wish: Wish) -> Problem:
    """The problem of nets, which are loaded here."""
    nets = load(name, wish.device)
    if isinstance(nets, Reviews):
        return _reviews(name, nets, wish)
    return _text(name, nets, wish) if isinstance(nets, Text) else _digits(name, nets, wish)


def _loaded(what: str, name: str, wish: Wish, model: str) -> str:
    place = "" if wish.device == "cpu" else f", {wish.device!r}"
    return "\n".join(["import truetilt as tt", "", f"{what} = tt.load({name!r}{place})", f"model = {model}"])


def _form(wish: Wish) -> str:
    return "potential" if wish.sampler == "tilted" else "cfg"


def _digits(name: str, nets: Digits, wish: Wish) -> Problem:
    condition, form = int(float(wish.condition or 0)), _form(wish)
    return Problem(
        name, nets.model(condition, form), nets.view, _loaded("nets", name, wish, f"nets.model({condition}, {form!r})"),
        command=(name, {"condition": condition}), look="nets.view", chunk=nets.batch, condition=condition,
    )  # fmt: skip


def _reviews(name: str, nets: Reviews, wish: Wish) -> Problem:
    """Texts of a class, which goes by its name."""
    condition, form = nets.classes[nets.facts.number("" if wish.condition is None else wish.condition)], _form(wish)
    python = _loaded("nets", name, wish, f"nets.model({condition!r}, {form!r})")
    return Problem(
        name, nets.model(condition, form), nets.view, python,
        command=(name, {"condition": condition}), look="nets.view", chunk=nets.batch, condition=condition,
    )  # fmt: skip


def _text(name: str, text: Text, wish: Wish) -> Problem:
    """One text net under a class, or after a prompt in words."""
    condition: Any
    if wish.prompt:
        if text.tokenizer is None:
            raise InvalidInput(
                f"a prompt is words, and {name} has no tokenizer.json to read them by (or the package tokenizers is "
                "missing: install truetilt[hf]); copy it beside the net, or give a class"
            )
        condition, written = text.tokenizer.encode(wish.prompt), f"text.tokenizer.encode({wish.prompt!r})"
    else:
        condition = int(float(wish.condition or 0))
        written = repr(condition)
    return Problem(
        name, text.model(condition), text.view, _loaded("text", name, wish, f"text.model({written})"),
        look="text.view", chunk=text.batch, condition=wish.prompt or condition,
        lacks="single text nets", net="text",
    )  # fmt: skip
