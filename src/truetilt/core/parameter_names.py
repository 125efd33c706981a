"""Names of parameters: an unknown one is refused by a TypeError that says which one was meant."""

from __future__ import annotations

import inspect
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


def spelled(onward: Callable[[], Callable[..., Any]] | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function whose unknown parameters are refused by a TypeError that says which one was meant.

    `onward` names the function that its **options go to.
    """

    def checked(call: Callable[P, R]) -> Callable[P, R]:
        @wraps(call)
        def asked(*args: P.args, **options: P.kwargs) -> R:
            known = [name for name in inspect.signature(call).parameters if name != "options"]
            if onward is not None:
                further = inspect.signature(onward()).parameters.items()
                known += [name for name, one in further if one.default is not one.empty]
            unknown = [name for name in options if name not in known]
            if unknown:
                raise TypeError(_advice(getattr(call, "__name__", "this function"), unknown[0], known))
            return call(*args, **options)

        return asked

    return checked


def _advice(who: str, wrong: str, known: list[str]) -> str:
    meant = [name for name in _MEANT.get(wrong, ()) if name in known] or get_close_matches(wrong, known, 1)
    which = f"it means {meant[0]}" if meant else f"it takes {', '.join(known)}"
    return f"{who}() has no parameter {wrong!r}; {which}"
