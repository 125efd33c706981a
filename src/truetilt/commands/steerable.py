"""Resolving what to steer, and by what: a model and a reward named on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..core.errors import InvalidInput
from ..core.types import Model, Tokens
from ..diffusion.processes import Masking
from ..exact.tables import Table
from ..models.gaps import has_gaps
from ..models.hub import Digits, load
from ..models.sequences import Sequences
from ..models.text_bundle import Reviews
from ..molecules.bundle import Molecules
from ..rewards.reward import Reward
from ..viz.views import View
from .named_nets import MOLECULES, is_nets
from .python_file import is_named, load_model, load_named
from .sample_molecules import load_fixed, molecule_reward, score_of
from .table_files import read_law, read_table

LENGTH = 32  # default number of open sites of a public network


class Steerable(NamedTuple):
    """A model whose base is steered, its table if it has one, and how its states are shown and spelled."""

    model: Model
    table: Table | None = None
    view: View | None = None
    spell: Callable[[Tokens], list[str]] | None = None
    tokenizer: Any = None  # given if the user's function takes strings
    written: Callable[[list[str]], tuple[str, str]] | None = None  # a file of such strings: its ending and its text
    name: str = "samples"  # name of that file


class StringsAsked(NamedTuple):
    """Options of a public network of strings: the prompt, the number of open tokens, whether its own code may run."""

    prompt: str | None = None
    length: int | None = None
    trust_remote_code: bool = False
    fix: str | None = None  # a fragment of molecules to keep


ALONE = StringsAsked()


def steerable(
    name: str, device: str = "cpu", condition: str | None = None, around: StringsAsked = ALONE, tempered: bool = False
) -> Steerable:
    """The masking model of a name: a table (JSON), mnist, tiny-reviews, a folder, or file.py:function.

    The function takes no arguments and returns a `tt.Model`; a model defined in the file can be named as well. Without
    a class the base of the networks is used. A public network of strings is steered given its prompt; with `tempered`
    the prompt is the condition. A table needs a likelihood only if its condition is used.
    """
    if is_named(name):
        return Steerable(_masking(name, load_model(name)))
    if not is_nets(name, ", or file.py:function"):
        table = (read_table if tempered else read_law)(Path(name), "masking", 1e-3, device)
        return Steerable(table.model(), table)
    if name == MOLECULES:
        return _of_molecules(load_fixed(around.fix, device), condition, around)
    if around.fix is not None:
        raise InvalidInput(f"a fragment is kept in molecules, and {name} is another model; leave out --fix")
    nets = load(name, device, trust_remote_code=around.trust_remote_code)
    if isinstance(nets, Sequences):
        return _of_strings(name, nets, around, tempered)
    if around.prompt is not None or around.length is not None:
        raise InvalidInput(f"{name} takes no prompt; a folder that transformers reads does")
    spell = nets.decode if isinstance(nets, Reviews) else None
    return Steerable(_masking(name, _of_nets(name, nets, condition)), None, nets.view, spell)


def _of_molecules(nets: Molecules, condition: str | None, around: StringsAsked) -> Steerable:
    """Molecules, around a fragment to keep if there is one."""
    if condition is not None or around.prompt is not None or around.length is not None:
        raise InvalidInput(f"{MOLECULES} has no classes and takes no prompt; give --reward, and --fix for a fragment")
    return Steerable(nets.model(), None, nets.view, nets.decode, nets, nets.written)


def _of_strings(name: str, nets: Sequences, around: StringsAsked, tempered: bool) -> Steerable:
    """A public network, given its prompt or tempered by it; a text with gaps is spelled whole."""
    prompt, gaps = around.prompt, around.prompt is not None and has_gaps(around.prompt)
    length = open_length(nets, prompt, around.length)
    if tempered and prompt is None:
        raise InvalidInput(f"alpha is of a condition, and {name} was given none; give a --prompt")
    model = nets.model(prompt, length=length) if tempered or prompt is None else nets.given(prompt, length=length)
    tokenizer = GapSpelling(nets, prompt) if gaps and prompt is not None else nets

    def spell(x: Tokens) -> list[str]:
        return nets.filled(prompt, x) if gaps and prompt is not None else nets.decode(x)

    return Steerable(_masking(name, model), None, nets.view, spell, tokenizer, nets.written)


def open_length(nets: Sequences, prompt: str | None, length: int | None) -> int | None:
    """The number of open sites: as requested, else `LENGTH` or as many as fit; None if the text's gaps determine it."""
    if prompt is not None and has_gaps(prompt):
        return length  # the network raises if one was requested
    return min(LENGTH, nets.room(prompt)) if length is None else length


@dataclass(frozen=True, eq=False)
class GapSpelling:
    """A tokenizer for gap fillings: decodes them to the whole text."""

    nets: Sequences
    text: str

    @property
    def vocabulary(self) -> int:
        return self.nets.vocabulary

    def decode(self, tokens: list[int]) -> str:
        return self.nets.filled(self.text, torch.tensor(tokens))


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
    """The requested class of digits."""
    if not re.fullmatch(r"-?[0-9]{1,9}", str(condition)):
        raise InvalidInput(f"the condition is {condition!r}; digits have numbers for classes, such as --condition 4")
    return int(condition or 0)


def _masking(name: str, model: Model) -> Model:
    if not isinstance(model.process, Masking):
        raise InvalidInput(f"{name} is a model on {type(model.process).__name__}; rewards steer masking models here")
    return model


def named_reward(name: str, model: Model, tokenizer: Any = None) -> Reward:
    """The reward of `file.py:name`: a `tt.Reward` as it is, a function of tokens [B, D] wrapped in one for this model.

    A function of strings must be wrapped in a `tt.Reward` with a tokenizer, in the file. If the network has a tokenizer
    of its own (`tokenizer`), a plain function takes a list of strings; for molecules, an RDKit molecule.
    """
    if isinstance(tokenizer, Molecules):
        return molecule_reward(tokenizer, score_of(name))
    found = load_named(name, "a reward: a function of tokens [B, D], or a tt.Reward")
    vocabulary = model.process.vocabulary
    if not isinstance(found, Reward) and tokenizer is not None:
        return Reward(found, tokenizer=tokenizer)
    if not isinstance(found, Reward):
        return Reward(found, vocabulary=vocabulary)
    if found.vocabulary is not None and found.vocabulary < vocabulary:
        raise InvalidInput(
            f"{name} knows {found.vocabulary} tokens and the model {vocabulary}; give its tokenizer as many letters"
        )
    return found
