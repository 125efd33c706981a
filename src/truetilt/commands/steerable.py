"""What a user wants steered, and by what: a model and a reward, named on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..core.types import InvalidInput, Model, Tokens
from ..diffusion.processes import Masking
from ..exact.files import read_law
from ..exact.tables import Table
from ..models.hub import EMBEDDED, Digits, load
from ..models.reviews import Reviews
from ..rewards.reward import Reward
from ..viz.views import View
from .python_file import is_named, load_any, load_named


class Steerable(NamedTuple):
    """A model whose base is steered, the table it is made of, where it is one, and how its states look and read."""

    model: Model
    table: Table | None = None
    view: View | None = None
    spell: Callable[[Tokens], list[str]] | None = None


def steerable(
    name: str, device: str = "cpu", condition: str | None = None, read: Callable[..., Table] = read_law
) -> Steerable:
    """The masking model of a name: a table (JSON), mnist, tiny-reviews, a folder or hub id, or file.py:function.

    The function takes nothing and returns a `tt.Model`; a model that stands in the file itself can be named as well.
    Of networks the base is taken where no class is asked for. `read` reads tables: by default those that a reward
    steers, without a likelihood.
    """
    if is_named(name):
        found = load_any(name, "a function that returns a tt.Model")
        made = found() if callable(found) and not isinstance(found, Model) else found
        if not isinstance(made, Model):
            raise InvalidInput(f"{name} gives a {type(made).__name__}; write a function that returns a tt.Model")
        return Steerable(_masking(name, made))
    if str(name).endswith(".json"):
        table = read(Path(name), "masking", 1e-3, device)
        return Steerable(table.model(), table)
    if str(name) not in EMBEDDED and not Path(name).is_dir():
        raise InvalidInput(
            f"there is no model {name!r}; give {', '.join(EMBEDDED)}, a folder of networks, a table (.json), or "
            "file.py:function"
        )
    nets = load(name, device)
    spell = nets.decode if isinstance(nets, Reviews) else None
    return Steerable(_masking(name, _of_nets(name, nets, condition)), None, nets.view, spell)


def _of_nets(name: str, nets: Any, condition: str | None) -> Model:
    if condition is not None and isinstance(nets, Digits | Reviews):
        return nets.model(class_number(condition) if isinstance(nets, Digits) else condition)
    if condition is not None:
        raise InvalidInput(f"{name} is one net, and a condition is a class of a bundle; steer it by a reward")
    if isinstance(nets, Digits):
        made = nets.model(0, "cfg")
        return Model(made.process, made.length, made.base, None, None, made.device)
    if isinstance(nets, Reviews):
        return Model(nets.process, nets.length, nets.base(), None, None, nets.device)
    return nets.model()


def class_number(condition: str | int | None) -> int:
    """The class of digits that was asked for."""
    if not re.fullmatch(r"-?[0-9]{1,9}", str(condition)):
        raise InvalidInput(f"the condition is {condition!r}; digits have numbers for classes, such as --condition 4")
    return int(condition or 0)


def _masking(name: str, model: Model) -> Model:
    if not isinstance(model.process, Masking):
        raise InvalidInput(f"{name} is a model on {type(model.process).__name__}; rewards steer masking models here")
    return model


def named_reward(name: str, model: Model) -> Reward:
    """The reward of `file.py:name`: a `tt.Reward` as it is, a function of tokens [B, D] made one for this model.

    A function of strings stands in a `tt.Reward` with a tokenizer, in the file.
    """
    found = load_named(name, "a reward: a function of tokens [B, D], or a tt.Reward")
    vocabulary = model.process.vocabulary
    if not isinstance(found, Reward):
        return Reward(found, vocabulary=vocabulary)
    if found.vocabulary is not None and found.vocabulary < vocabulary:
        raise InvalidInput(
            f"{name} knows {found.vocabulary} tokens and the model {vocabulary}; give its tokenizer as many letters"
        )
    return found
