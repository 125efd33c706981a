"""The run that a form describes, and the same run as Python and as a command, built together.

A test checks that the run and its Python give the same bits.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import continuous
from ..api import reveal, run
from ..commands.outputs import SNAPSHOTS
from ..commands.samplers import SAMPLERS, in_order
from ..core.bases import FeynmanKac
from ..core.errors import InvalidInput
from ..core.types import Model
from ..diffusion.grids import uniform_grid
from ..diffusion.guidance import Guided, posterior_level
from ..diffusion.kernels import tweedie
from ..result import Result
from ..targets.any_order import AnyOrder
from ..targets.composed import Composed
from ..targets.defaults import default_guide, default_kernel
from .choices import RESAMPLING, Scheme
from .form import RunForm
from .problems import Problem


class PlannedRun(NamedTuple):
    """A run ready to start: call it with `watch` and other options of `run`."""

    run: Callable[..., Result]
    python: str  # the call, up to its options
    resample: Scheme
    steps: int


def plan(problem: Problem, form: RunForm) -> PlannedRun:
    """The run that the form asks for."""
    if form.sampler == "guidance":
        return guidance(problem, form)
    scheme = RESAMPLING[form.resampling]
    if problem.target is not None:
        return _revealed(*problem.target(form.alpha), scheme)
    if form.sampler == "any-order":
        return _any_order(problem, form, scheme)
    if problem.order is not None:
        return _in_order(problem, form, scheme)
    if form.sampler == "in-order":
        raise InvalidInput("this model has no order of its own; choose another sampler")
    return _on_clock(problem, form, form.sampler, scheme)


def guidance(problem: Problem, form: RunForm) -> PlannedRun:
    """Plain guidance of the same model, with alpha as its strength; of a reward, draws without it."""
    if problem.target is not None:  # of a reward: the same draws without it
        return _revealed(*problem.target(None), RESAMPLING["half"])
    if problem.order is not None:
        return _guided_in_order(problem, form)
    return _on_clock(problem, form._replace(beta=form.alpha), "guidance", RESAMPLING["never"])


def options(problem: Problem, form: RunForm) -> dict[str, Any]:
    """The options that every run of a form gets."""
    told = {"particles": form.particles, "populations": form.populations, "seed": form.seed}
    return told | ({} if problem.chunk is None else {"chunk": problem.chunk}) | {"snapshots": SNAPSHOTS}


def python_of(problem: Problem, form: RunForm) -> str:
    """The Python that gives the same bits."""
    made = plan(problem, form)
    told = {key: repr(value) for key, value in options(problem, form).items()}
    lines = "".join(f"    {key}={value},\n" for key, value in (told | {"resample": made.resample.python}).items())
    view = f", view={problem.look}" if problem.look else ""
    return (
        f"{problem.python}\n\n{made.python}{lines})\nprint(result.log_z)\n"
        f'result.report("run.html"{view})  # the page with the verdict\n'
    )


def command_of(problem: Problem, form: RunForm) -> str | None:
    """The command that gives the same bits; None if there is none."""
    known = form.sampler in _COMMANDED and form.resampling == "half"
    if problem.command is None or not known or (problem.exact is not None and form.device != "cpu"):
        return None
    name = problem.command.model
    told = dict(problem.command.options) | {
        "alpha": form.alpha,
        "beta": form.beta if form.sampler == "tempered" else None,
    }
    steps = form.steps if problem.order is None else None
    told |= {"particles": form.particles, "populations": form.populations, "steps": steps, "seed": form.seed}
    told |= {"alpha": None} if problem.target or (problem.order is not None and form.condition is None) else {}
    told["device"] = None if form.device == "cpu" else form.device
    return f"{problem.prepare}{command_line('sample', name, told)}"


def command_line(command: str, name: str, options: Mapping[str, Any]) -> str:
    """A command of truetilt on a model, with the options that are not None."""
    words = [word for key, value in options.items() if value is not None for word in _option(key, str(value))]
    safe = f"./{name}" if name.startswith("-") else name  # not to be read as an option
    return shlex.join(["truetilt", command, safe, *words])


def _option(key: str, value: str) -> tuple[str, ...]:
    return (f"--{key}={value}",) if value.startswith("-") else (f"--{key}", value)  # not to be read as an option


_COMMANDED = ("tilted", "tempered", "in-order")  # samplers of `truetilt sample`


def no_command(problem: Problem, form: RunForm) -> str:
    """Why no command line gives this run."""
    if problem.command is None:
        return f"# `truetilt sample` has no {problem.lacks}; use the Python"
    if form.sampler not in _COMMANDED:
        return "# `truetilt sample` has the samplers tilted and tempered; use the Python"
    if form.resampling != "half":
        return "# `truetilt sample` resamples when ESS falls below half; use the Python"
    return "# `truetilt sample` computes tables on the CPU; use the Python"


def caution(problem: Problem, form: RunForm) -> str:
    """A warning to show before the run starts, or an empty string."""
    process = getattr(problem.model, "process", None)
    if form.sampler == "tempered" and form.alpha > 2 and not getattr(process, "edges_tolerate_grids", True):
        return "Ratios at α > 2 on this process need far smaller steps than a time grid has; tilting does not."
    return ""


def _leaned(model: Any, alpha: float, beta: float) -> FeynmanKac:
    return continuous.Tilted(model, alpha).leaned()


def _guided(model: Any, alpha: float, beta: float) -> FeynmanKac:
    return continuous.Unweighted(model, continuous.Guided(model.base, model.conditional, beta))


_REALS = {
    "tilted": (_leaned, "c.Tilted(model, {a!r}).leaned()"),
    "tempered": (continuous.Tempered, "c.Tempered(model, {a!r}, {b!r})"),
    "guidance": (_guided, "c.Unweighted(model, c.Guided(model.base, model.conditional, {b!r}))"),
}
_TOKENS = {
    "tilted": "tt.Tilted(model, {a!r}{kernel})",
    "tempered": "tt.Tempered(model, {a!r}, {b!r}{level}{kernel})",
    "guidance": "tt.Unweighted(model, tt.Guided(model.process, model.base, model.conditional, {b!r}{level}){kernel})",
}


def _on_clock(problem: Problem, form: RunForm, name: str, resample: Scheme) -> PlannedRun:
    """A sampler in clock time, over a uniform time grid."""
    model, a, b, grid = problem.model, form.alpha, form.beta, uniform_grid(form.steps)
    fk: FeynmanKac
    if problem.reals:
        make, python = _REALS[name]
        fk, told = make(model, a, b), python.format(a=a, b=b)
    else:
        fk = SAMPLERS[name].build(model, a, b)
        kernel = default_kernel(model.process)
        level = ", tt.posterior_level" if default_guide(kernel) is posterior_level else ""
        told = _TOKENS[name].format(a=a, b=b, level=level, kernel=", kernel=tt.tweedie" if kernel is tweedie else "")
    call = f"result = tt.run(\n    {told},\n    tt.uniform_grid({form.steps}),\n"
    return PlannedRun(lambda **more: run(fk, grid, resample=resample.made, **more), call, resample, form.steps)


def _any_order(problem: Problem, form: RunForm, resample: Scheme) -> PlannedRun:
    model, sites = problem.model, math.ceil(problem.model.length / form.steps)
    call = f"result = tt.reveal(\n    model,\n    {form.alpha!r},\n    sites_per_step={sites},\n"
    return PlannedRun(
        lambda **told: reveal(model, form.alpha, sites_per_step=sites, resample=resample.made, **told),
        call, resample, math.ceil(model.length / sites),
    )  # fmt: skip


def _in_order(problem: Problem, form: RunForm, resample: Scheme) -> PlannedRun:
    """The law of one decoding order: p0 itself, or tempered by the condition."""
    fk = in_order(problem.model, form.alpha, order=problem.order)
    made = "tt.Composed(model" if isinstance(fk, Composed) else f"tt.AnyOrder(model, {form.alpha!r}"
    return _revealed(fk, f"{made}, order=protein.order)", resample)


def _guided_in_order(problem: Problem, form: RunForm) -> PlannedRun:
    """Plain guidance in the same order: unweighted draws from guided posteriors."""
    model = problem.model
    guided = Guided(model.process, model.base, model.conditional, form.alpha, posterior_level)
    leaning = Model(model.process, model.length, guided, None, None, model.device)
    base = f"tt.Guided(model.process, model.base, model.conditional, {form.alpha!r}, tt.posterior_level)"
    made = f"tt.Model(model.process, model.length, {base})"
    fk = Composed(leaning, order=problem.order)
    return _revealed(fk, f"tt.Composed({made}, order=protein.order)", RESAMPLING["never"])


def _revealed(fk: Composed | AnyOrder, python: str, resample: Scheme) -> PlannedRun:
    return PlannedRun(
        lambda **told: run(fk, resample=resample.made, **told), f"result = tt.run(\n    {python},\n", resample,
        fk.model.length,
    )  # fmt: skip
