"""Names of parameters: an unknown one is refused by a TypeError that says which one was meant."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_MEANT = {  # what others call it
    "steps": ("num_inference_steps", "grid", "sites_per_step"),
    "num_steps": ("num_inference_steps", "grid", "sites_per_step"),
    "n_steps": ("num_inference_steps", "grid", "sites_per_step"),
    "inference_steps": ("num_inference_steps", "grid", "sites_per_step"),
    "n": ("particles",),
    "num_particles": ("particles",),
    "n_particles": ("particles",),
    "num_samples": ("particles",),
    "n_samples": ("particles",),
    "batch_size": ("chunk", "particles"),
    "n_populations": ("populations",),
    "num_populations": ("populations",),
    "random_state": ("seed",),
    "guidance_scale": ("beta",),
    "strength": ("beta",),
    "temperature": ("alpha",),
    "callback": ("callback_on_step_end",),
    "resampler": ("resample",),
    "resampling": ("resample",),
    "n_chains": ("chains",),
    "num_sweeps": ("sweeps",),
    "n_sweeps": ("sweeps",),
}


def spelled(onward: Callable[..., Any] | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function whose unknown parameters are refused by a TypeError that says which one was meant.

    `onward` is the function that its **options go to: their parameters become part of this one's signature, and the
    words that explain them there part of its docstring, as Keyword Args before what it returns.
    """

    def checked(call: Callable[P, R]) -> Callable[P, R]:
        signature, name = _joined(inspect.signature(call), onward), getattr(call, "__name__", "this function")

        @wraps(call)
        def asked(*args: P.args, **options: P.kwargs) -> R:
            unknown = [one for one in options if one not in signature.parameters]
            if unknown:
                raise TypeError(_advice(name, unknown[0], list(signature.parameters)))
            return call(*args, **options)

        vars(asked)["__signature__"] = signature
        if onward is not None:
            asked.__doc__ = _explained(call, onward, list(signature.parameters))
        return asked

    return checked


def _joined(own: inspect.Signature, onward: Callable[..., Any] | None) -> inspect.Signature:
    """A signature with the keyword parameters of another in place of its **options."""
    if onward is None:
        return own
    named = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    known = {one.name for one in named}
    further = inspect.signature(onward).parameters.values()
    return own.replace(
        parameters=[*named, *(one for one in further if one.kind is one.KEYWORD_ONLY and one.name not in known)]
    )


def _explained(call: Callable[..., Any], onward: Callable[..., Any], names: list[str]) -> str | None:
    """The docstring of a function with what another says of the parameters that are handed on to it."""
    if call.__doc__ is None or onward.__doc__ is None:  # python -OO
        return call.__doc__
    found = re.findall(r"^( {8}(\w+): .*(?:\n {12}.*)*)$", onward.__doc__, re.MULTILINE)
    entries = {name: entry for entry, name in found}
    own = inspect.signature(call).parameters
    handed = [entries[name] for name in names if name not in own and name in entries]
    before, returns, after = call.__doc__.partition("\n\n    Returns:")
    return "\n".join([before, "", "    Keyword Args:", *handed]) + returns + after


def _advice(who: str, wrong: str, known: list[str]) -> str:
    meant = [name for name in _MEANT.get(wrong, ()) if name in known] or get_close_matches(wrong, known, 1)
    which = f"it means {meant[0]}" if meant else f"it takes {', '.join(known)}"
    return f"{who}() has no parameter {wrong!r}; {which}"
