"""The samplers of the commands, the paper and the studio: how each is built, its resampling and its time grid.

A builder makes a Feynman-Kac model from a model, `alpha` (the exponent of the target) and `beta` (the strength of
guidance). Without `beta`, plain guidance has the strength of the target (alpha), and a weighted proposal is the
conditional model (1). What `tt.sample` takes by default is in `targets/defaults`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from ..core.errors import InvalidInput
from ..core.types import FeynmanKac, Model
from ..diffusion.grids import Grid, masked_fraction_grid
from ..diffusion.guidance import Guide, Guided, rate_level
from ..diffusion.kernels import Kernel, euler
from ..diffusion.processes import Masking
from ..smc.resampling import adaptive, multinomial, partial, systematic
from ..targets.any_order import AnyOrder
from ..targets.composed import Composed
from ..targets.on_clock import Tempered, Tilted, Unweighted

HALF = adaptive(systematic, 0.5)  # where the effective sample size is below half of the particles
MULTINOMIAL = adaptive(multinomial, 0.5)
PARTIAL = adaptive(partial(systematic, 0.5), 0.5)


class Build(Protocol):
    """Builds the Feynman-Kac model of a method."""

    def __call__(self, model: Model, alpha: float, beta: float | None = None) -> FeynmanKac: ...


def guidance(guide: Guide = rate_level, kernel: Kernel = euler) -> Build:
    """Plain guidance, without weights. Strength 1 is the conditional network alone, 0 the base alone."""

    def build(model: Model, alpha: float, beta: float | None = None) -> FeynmanKac:
        beta = alpha if beta is None else beta
        if model.conditional is None:
            raise InvalidInput("guidance needs a conditional score, and the model has none")
        if beta in (0, 1):
            return Unweighted(model, model.conditional if beta else model.base, kernel=kernel)
        return Unweighted(model, Guided(model.process, model.base, model.conditional, beta, guide), kernel=kernel)

    return build


def conditional(model: Model, alpha: float, beta: float | None = None) -> FeynmanKac:
    """The conditional model alone, whatever alpha: guidance of strength 1."""
    return guidance()(model, 1.0)


def tempered(guide: Guide = rate_level, kernel: Kernel = euler) -> Build:
    """The paper's SMC: a guided proposal, weighted by edge ratios."""
    return lambda model, alpha, beta=None: Tempered(model, alpha, 1.0 if beta is None else beta, guide, kernel=kernel)


def tilted(kernel: Kernel = euler, **options: Any) -> Build:
    """The conditional model, weighted by a potential."""
    return lambda model, alpha, beta=None: Tilted(model, alpha, **options, kernel=kernel)


def any_order(**options: Any) -> Build:
    """One site per step, in a random order, from the adapted law."""
    return lambda model, alpha, beta=None: AnyOrder(model, alpha, **options)


def in_order(
    model: Model, alpha: float, beta: float | None = None, order: Sequence[int] | None = None
) -> AnyOrder | Composed:
    """One site per step in one order, from the first to the last if none is given; p0 itself if nothing conditions."""
    order = tuple(range(model.length) if order is None else order)
    return Composed(model, order=order) if model.conditional is None else AnyOrder(model, alpha, beta, order)


def reveal_grid(model: Model, steps: int | None = None) -> Grid:
    """The time grid of the any-order samplers: equally many sites in each step, by default one."""
    return masked_fraction_grid(cast("Masking", model.process).schedule, model.length if steps is None else steps)
