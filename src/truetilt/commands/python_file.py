"""Objects in the user's Python files, named `file.py:name` on the command line: models and rewards."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core.errors import InvalidInput
from ..core.types import Model
from ..core.user_functions import raised

_MINE = "_run_by_truetilt"  # the name that marks modules of users' files


def is_named(text: str) -> bool:
    """Whether a text has the form file.py:name."""
    file, colon, name = text.rpartition(":")
    return bool(colon) and file.endswith(".py") and name.isidentifier()


def load_named(text: str, what: str = "a function") -> Any:
    """The callable that `file.py:name` names; the file is run on each call.

    The file may import its neighbours. Running a file executes arbitrary code: name only files you trust.
    """
    found = load_any(text, what)
    if not callable(found):
        kind = type(found).__name__
        raise InvalidInput(
            f"{text.rpartition(':')[2]} in {_file(text)} is a {kind}, which cannot be called; name {what}"
        )
    return found


def load_model(text: str) -> Model:
    """The model that `file.py:name` names, or that a function of this name without arguments returns."""
    found = load_any(text, "a function that returns a tt.Model")
    if callable(found) and not isinstance(found, Model):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise InvalidInput(f"{text} cannot be called: {raised(error)}{line_of(error)}") from error
    if not isinstance(found, Model):
        raise InvalidInput(f"{text} gives a {type(found).__name__}; write a function that returns a tt.Model")
    return found


def load_any(text: str, what: str) -> Any:
    """The object of any kind that `file.py:name` names."""
    if not is_named(text):
        example = text if text.endswith(".py") else "mine.py"
        raise InvalidInput(f"{text!r} does not name {what}; write file.py:name, such as {example}:score")
    path, name = _file(text), text.rpartition(":")[2]
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}; write the path of a Python file, then a colon and {what} in it")
    module = _run(path)
    if not hasattr(module, name):
        own = [found for found, value in vars(module).items() if callable(value) and not found.startswith("_")]
        near = get_close_matches(name, own, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(own[:9])}" if own else ""
        raise InvalidInput(f"{path} has no {name!r}{hint}")
    return getattr(module, name)


def _file(text: str) -> Path:
    return Path(text.rpartition(":")[0])


def _run(path: Path) -> ModuleType:
    """The module of a file, executed afresh; under its own name if free, so that workers can import it."""
    path = path.resolve()
    taken = sys.modules.get(path.stem)
    free = taken is None or getattr(taken, "__file__", None) == str(path)
    if free and taken is None and str(path.parent) not in sys.path:
        free = importlib.util.find_spec(path.stem) is None if path.stem.isidentifier() else False
    name = path.stem if free else f"_file_{path.stem}"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is no Python file; give one whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    vars(module)[_MINE] = True
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        told = line_of(error)
        sys.modules.pop(name, None)
        raise InvalidInput(f"{path} cannot be run: {raised(error)}{told}") from error
    return module


def line_of(error: BaseException) -> str:
    """The line of a user's file that an error comes from, in words; nothing if it comes from none."""
    files = {str(module.__file__) for module in list(sys.modules.values()) if vars(module).get(_MINE)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
