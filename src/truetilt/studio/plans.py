"""How a problem is run: the library's own samplers by name, each beside the Python that calls it.

A plan runs what it writes: both are made here, side by side, and a test compares their bits.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import continuous
from ..api import reveal, run
from ..core.types import FeynmanKac, InvalidInput, Model, Resampler
from ..diffusion.guidance import posterior_level
from ..diffusion.kernels import tweedie
from ..diffusion.schedules import uniform_grid
from ..result import Result
from ..smc.resampling import never
from ..targets.defaults import default_guidance, default_guide, default_kernel, default_sampler
from ..targets.time_grid import Tilted
from .choices import RESAMPLING
from .form import Wish
from .problem import Problem

SNAPSHOTS = 8  # kept for the report, as on the command line


class Plan(NamedTuple):
    """A run ready to start: call it with `watch` and other options of `run`."""

    run: Callable[..., Result]
    python: str  # the call, up to its options
    resample: tuple[str, Resampler]
    steps: int


def plan(problem: Problem, wish: Wish) -> Plan:
    """What the wish asks for."""
    if wish.sampler == "guidance":
        return guidance(problem, wish)
    scheme = RESAMPLING[wish.resampling]
    how = (scheme.python, scheme.made)
    if wish.sampler == "any-order":
        return _any_order(problem, wish, how)
    fk, python = _reals(problem, wish) if problem.reals else _tokens(problem, wish)
    return _on_clock(fk, python, wish.steps, how)


def _reals(problem: Problem, wish: Wish) -> tuple[FeynmanKac, str]:
    model, a, b = problem.model, wish.alpha, wish.beta
    if wish.sampler == "tempered":
        return continuous.Tempered(model, a, b), f"c.Tempered(model, {a!r}, {b!r})"
    return continuous.Tilted(model, a).leaned(), f"c.Tilted(model, {a!r}).leaned()"


def _tokens(problem: Problem, wish: Wish) -> tuple[FeynmanKac, str]:
    """The plan of a token model, with the samplers of `truetilt sample`."""
    model, a, b = problem.model, wish.alpha, wish.beta
    level, kernel = _written(model)
    if wish.sampler == "tilted":
        return Tilted(model, a, kernel=default_kernel(model.process)), f"tt.Tilted(model, {a!r}{kernel})"
    return default_sampler(model, a, b), f"tt.Tempered(model, {a!r}, {b!r}{level}{kernel})"


def _written(model: Model) -> tuple[str, str]:
    """The level of guidance and the kernel that are run, as arguments in Python; nothing where they are the default."""
    kernel = default_kernel(model.process)
    level = ", tt.posterior_level" if default_guide(kernel) is posterior_level else ""
    return level, ", kernel=tt.tweedie" if kernel is tweedie else ""


def guidance(problem: Problem, wish: Wish) -> Plan:
    """Plain guidance of the same model, with alpha as its strength."""
    model = problem.model
    if model.conditional is None:
        raise InvalidInput("guidance needs a conditional model, and this one has none")
    if problem.reals:
        python = f"c.Unweighted(model, c.Guided(model.base, model.conditional, {wish.alpha!r}))"
        fk = continuous.Unweighted(model, continuous.Guided(model.base, model.conditional, wish.alpha))
    else:
        level, kernel = _written(model)
        guided = f"tt.Guided(model.process, model.base, model.conditional, {wish.alpha!r}{level})"
        python, fk = f"tt.Unweighted(model, {guided}{kernel})", default_guidance(model, wish.alpha)
    return _on_clock(fk, python, wish.steps, ("tt.never", never))


def options(problem: Problem, wish: Wish) -> dict[str, Any]:
    """The options that every run of a wish gets."""
    told = {"particles": wish.particles, "populations": wish.populations, "seed": wish.seed}
    return told | ({} if problem.chunk is None else {"chunk": problem.chunk}) | {"snapshots": SNAPSHOTS}


def python_of(problem: Problem, wish: Wish) -> str:
    """The Python that gives the same bits."""
    made = plan(problem, wish)
    told = {key: repr(value) for key, value in options(problem, wish).items()}
    lines = "".join(f"    {key}={value},\n" for key, value in (told | {"resample": made.resample[0]}).items())
    view = f", view={problem.look}" if problem.look else ""
    return (
        f"{problem.python}\n\n{made.python}{lines})\nprint(result.log_z)\n"
        f'result.report("run.html"{view})  # the page with the verdict\n'
    )


def command_of(problem: Problem, wish: Wish) -> str | None:
    """The command that gives the same bits, where there is one."""
    known = wish.sampler in ("tilted", "tempered") and wish.resampling == "half"
    if problem.command is None or not known or (problem.exact is not None and wish.device != "cpu"):
        return None
    name, needed = problem.command
    told = dict(needed) | {"alpha": wish.alpha, "beta": wish.beta if wish.sampler == "tempered" else None}
    told |= {"particles": wish.particles, "populations": wish.populations, "steps": wish.steps, "seed": wish.seed}
    told["device"] = None if wish.device == "cpu" else wish.device
    words = [word for key, value in told.items() if value is not None for word in _option(key, str(value))]
    safe = f"./{name}" if name.startswith("-") else name  # no option
    return f"{problem.prepare}{shlex.join(['truetilt', 'sample', safe, *words])}"


def _option(key: str, value: str) -> tuple[str, ...]:
    return (f"--{key}={value}",) if value.startswith("-") else (f"--{key}", value)  # no option of its own


def no_command(problem: Problem, wish: Wish) -> str:
    """Why no command line gives this run."""
    if problem.command is None:
        return f"# `truetilt sample` has no {problem.lacks}; use the Python"
    if wish.sampler not in ("tilted", "tempered"):
        return "# `truetilt sample` has the samplers tilted and tempered; use the Python"
    if wish.resampling != "half":
        return "# `truetilt sample` resamples when ESS falls below half; use the Python"
    return "# `truetilt sample` computes tables on the CPU; use the Python"


def caution(problem: Problem, wish: Wish) -> str:
    """A warning to show before the run starts, or nothing."""
    process = getattr(problem.model, "process", None)
    if wish.sampler == "tempered" and wish.alpha > 2 and not getattr(process, "edges_tolerate_grids", True):
        return "Ratios at α > 2 on this process need far smaller steps than a time grid has; tilting does not."
    return ""


def _on_clock(fk: FeynmanKac, python: str, steps: int, resample: tuple[str, Resampler]) -> Plan:
    grid: Sequence[float] = uniform_grid(steps)
    call = f"result = tt.run(\n    {python},\n    tt.uniform_grid({steps}),\n"
    return Plan(lambda **told: run(fk, grid, resample=resample[1], **told), call, resample, steps)


def _any_order(problem: Problem, wish: Wish, resample: tuple[str, Resampler]) -> Plan:
    model, sites = problem.model, math.ceil(problem.model.length / wish.steps)
    call = f"result = tt.reveal(\n    model,\n    {wish.alpha!r},\n    sites_per_step={sites},\n"
    return Plan(
        lambda **told: reveal(model, wish.alpha, sites_per_step=sites, resample=resample[1], **told),
        call, resample, math.ceil(model.length / sites),
    )  # fmt: skip
