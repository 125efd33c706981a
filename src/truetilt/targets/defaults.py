"""Defaults: the sampler of a model, and the plain guidance it is compared with.

`tt.sample`, the command line and the studio all call these, so that the methods they compare take the same steps.
"""

from __future__ import annotations

from ..core.types import Model, Process, Schedule
from ..diffusion.guidance import Guide, Guided, posterior_level, rate_level
from ..diffusion.kernels import Kernel, euler, tweedie
from .on_clock import Tempered, Tilted, Unweighted
from .potentials import check_conditional


def default_kernel(process: Process) -> Kernel:
    """The default kernel: `tweedie`, exact site by site, on processes where any score gives a proper law (masking);
    else `euler`.
    """
    return tweedie if process.bridge_keeps_support else euler


def default_guide(kernel: object) -> Guide:
    """The default guide: posterior level for tweedie steps, which ignore the scale of a row; else rate level."""
    return posterior_level if kernel is tweedie else rate_level


def default_sampler(
    model: Model, alpha: float, beta: float | Schedule | None = None, kernel: Kernel | None = None
) -> Tilted | Tempered | Unweighted:
    """`Tilted` for a model with a potential; else, or when a proposal strength is given, the paper's edge ratios.

    A model of p0 alone has one target, alpha = 0: unconditional samples, which need no weights.
    """
    kernel = default_kernel(model.process) if kernel is None else kernel
    if model.conditional is None and alpha == 0:
        return Unweighted(model, model.base, kernel=kernel)
    if beta is None and model.potential is not None:
        return Tilted(model, alpha, kernel=kernel)
    return Tempered(model, alpha, 1.0 if beta is None else beta, default_guide(kernel), kernel=kernel)


def default_guidance(model: Model, beta: float | Schedule, kernel: Kernel | None = None) -> Unweighted:
    """Plain guidance of strength beta with the steps of `default_sampler`: without weights, so it samples no stated
    target.
    """
    conditional = check_conditional("guidance", model)
    kernel = default_kernel(model.process) if kernel is None else kernel
    score = Guided(model.process, model.base, conditional, beta, default_guide(kernel))
    return Unweighted(model, score, kernel=kernel)
