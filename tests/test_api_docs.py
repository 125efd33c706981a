"""The API page names every public thing once, and each has words of its own."""

from __future__ import annotations

import importlib
import inspect
import re
from enum import Enum
from pathlib import Path
from types import ModuleType

import pytest

import truetilt as tt

PAGE = (Path(__file__).parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^::: (\S+)\n    options:\n      heading: (\S+)$", PAGE, re.MULTILINE)
ROOMS = {"tt": tt} | {f"tt.{n}": getattr(tt, n) for n in ("continuous", "distributed", "feynman_kac", "testing")}


def public(name: str, room: ModuleType) -> set[str]:
    """Full names of what a room offers, but for rooms inside it, the version, and what tt itself has by that name."""
    offered = {n: getattr(room, n) for n in room.__all__ if n != "__version__"}
    again = {n for n, thing in offered.items() if room is not tt and n in tt.__all__ and thing is getattr(tt, n)}
    return {f"{name}.{n}" for n, thing in offered.items() if not inspect.ismodule(thing) and n not in again}


def found(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def described(thing: object) -> bool:
    """Whether a thing has words of its own: not inherited ones, and not the signature a dataclass makes up."""
    words = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
    made_up = f"{getattr(thing, '__name__', '')}("
    return bool(words and words.strip() and not words.startswith(made_up))


def test_every_public_name_is_on_the_page_once() -> None:
    headings = [heading for _, heading in ENTRIES]
    offered = set().union(*(public(name, room) for name, room in ROOMS.items()))
    assert not offered - set(headings), "public, and not on docs/api.md"
    assert not set(headings) - offered, "on docs/api.md, and not public"
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize(("path", "heading"), ENTRIES, ids=[heading for _, heading in ENTRIES])
def test_entry_is_the_public_thing_and_says_what_it_is(path: str, heading: str) -> None:
    room, _, name = heading.rpartition(".")
    assert found(path) is getattr(ROOMS[room], name)
    assert described(found(path))


def test_no_entry_is_written_in_another_form() -> None:
    assert len(ENTRIES) == PAGE.count("\n::: ")


def test_what_has_no_words_is_noticed() -> None:
    """Wrong variants: no docstring, an inherited one, and one that a dataclass made up."""
    from dataclasses import make_dataclass

    silent = type("Silent", (), {})
    heir = type("Heir", (tt.Model,), {})
    assert not any(described(thing) for thing in (silent, heir, make_dataclass("Made", ["x"]), lambda: None))


FIRST = re.findall(r"^::: \S+\n    options:\n      heading: (\S+)$", PAGE.split("\n## ")[1], re.MULTILINE)
TWELVE = "load Model steer sample reveal run Result Tilted Table PosteriorScore Masking uniform_grid"


def explained(thing: object) -> dict[str, str]:
    """What the sections Args and Keyword Args of a docstring say of each parameter."""
    sections = re.findall(r"\n(?:Keyword )?Args:\n(.*?)(?=\n\n|$)", inspect.getdoc(thing) or "", re.DOTALL)
    return {name: " ".join(words.split()) for name, words in re.findall(
        r"^    \*{0,2}(\w+): ((?:.*(?:\n {5,}.*)*))", "\n".join(sections), re.MULTILINE)}  # fmt: skip


def test_a_beginner_meets_twelve_names_first() -> None:
    assert [f"tt.{name}" for name in TWELVE.split()] == FIRST


@pytest.mark.parametrize("name", TWELVE.split())
def test_every_parameter_of_the_twelve_is_explained(name: str) -> None:
    """Each in words of its own, also those that are handed on to `run`; what has a default says so."""
    thing = getattr(tt, name)
    parameters = inspect.signature(thing).parameters
    words = explained(thing)
    assert sorted(words) == sorted(parameters)
    assert all(len(said) > 20 for said in words.values())
    defaults = {key: p.default for key, p in parameters.items() if p.default is not inspect.Parameter.empty}
    assert [key for key in defaults if "default" not in words[key]] == []


def parameters(thing: object) -> dict[str, inspect.Parameter]:
    """The parameters of a function or a record, if it has two or more; none of an enumeration, error or protocol."""
    other = isinstance(thing, type) and (issubclass(thing, Enum | BaseException) or vars(thing).get("_is_protocol"))
    made = callable(thing) and not other
    found = dict(inspect.signature(thing).parameters) if made else {}
    return found if len(found) > 1 else {}


PUBLIC = {f"{room}.{name}": getattr(ROOMS[room], name) for room in ("tt", "tt.continuous", "tt.distributed")
          for name in ROOMS[room].__all__}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if parameters(thing)])
def test_every_parameter_of_what_is_public_is_explained(name: str) -> None:
    words, known = explained(PUBLIC[name]), parameters(PUBLIC[name])
    assert sorted(words) == sorted(known)
    told = {key: words[key] for key, p in known.items() if p.default is not inspect.Parameter.empty}
    assert [key for key, said in told.items() if "default" not in said] == []


def test_a_parameter_that_is_not_explained_is_noticed() -> None:
    def silent(a: int, b: int = 3) -> None:
        """Nothing much.

        Args:
            a: The first of the two, in
                two lines.

        Keyword Args:
            c: One that is handed on.

        Returns:
            d: Not a parameter.
        """

    assert explained(silent) == {"a": "The first of the two, in two lines.", "c": "One that is handed on."}
