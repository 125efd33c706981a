"""The samplers of tokens by name: how each is built and resampled, and its time grid.

Commands, paper and studio choose names from `SAMPLERS`; an experiment whose published rows have other names says which
samplers they are. Plain names take the steps that suit the process (`targets/defaults`); -euler guides rates and takes
Euler steps, as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial as with_options
from typing import NamedTuple, Protocol, cast

from ..core.bases import FeynmanKac
from ..core.errors import InvalidInput
from ..core.types import Model, Resampler
from ..diffusion.grids import Grid, masked_fraction_grid, uniform_grid
from ..diffusion.guidance import Guide, Guided, posterior_level, rate_level
from ..diffusion.kernels import Kernel, euler, tweedie
from ..diffusion.processes import Masking
from ..smc.coupling import systematic_draws
from ..smc.resampling import adaptive, multinomial, never, partial, systematic
from ..smc.sampler import Coupling, independent
from ..targets.any_order import AnyOrder, SiteChoice, adapted_sites, uniform_sites
from ..targets.composed import Composed
from ..targets.defaults import default_guidance, default_kernel, default_sampler
from ..targets.on_clock import FULL, SQUARE, Ramp, Tilted, Unweighted

HALF = adaptive(systematic, 0.5)  # where the effective sample size is below half of the particles
MULTINOMIAL = adaptive(multinomial, 0.5)
PARTIAL = adaptive(partial(systematic, 0.5), 0.5)


class Build(Protocol):
    """Builds a Feynman-Kac model; `alpha` is the exponent of the target, `beta` the strength of guidance.

    Without `beta`, plain guidance has the strength of the target, and a weighted proposal is the conditional model (1).
    """

    def __call__(self, model: Model, alpha: float, beta: float | None = None) -> FeynmanKac: ...


def reveal_grid(model: Model, steps: int | None = None) -> Grid:
    """The time grid of the any-order samplers: equally many sites in each step, by default one."""
    return masked_fraction_grid(cast("Masking", model.process).schedule, model.length if steps is None else steps)


def equal_times(model: Model, steps: int) -> Grid:
    """A uniform time grid."""
    return uniform_grid(steps)


def equal_reveals(model: Model, steps: int) -> Grid:
    """About `steps` steps that reveal equally many sites each, and at least one."""
    return reveal_grid(model, math.ceil(model.length / max(1, round(model.length / steps))))


class NamedSampler(NamedTuple):
    """What a sampler does, how it is built and resampled, its time grid, and how its particles' draws are coupled."""

    words: str
    build: Build
    resample: Resampler = never
    grid: Callable[[Model, int], Grid] = equal_times
    couple: Coupling = independent


def base(model: Model, alpha: float, beta: float | None = None) -> Unweighted:
    return Unweighted(model, model.base, kernel=tweedie)


def guided(
    model: Model, alpha: float, beta: float | None = None, guide: Guide = rate_level, kernel: Kernel = euler
) -> Unweighted:
    """Plain guidance, without weights. Strength 1 is the conditional network alone, 0 the base alone."""
    beta = alpha if beta is None else beta
    if model.conditional is None:
        raise InvalidInput("guidance needs a conditional score, and the model has none")
    if beta in (0, 1):
        return Unweighted(model, model.conditional if beta else model.base, kernel=kernel)
    return Unweighted(model, Guided(model.process, model.base, model.conditional, beta, guide), kernel=kernel)


def conditional(model: Model, alpha: float, beta: float | None = None) -> Unweighted:
    return guided(model, 1.0)


def guidance(model: Model, alpha: float, beta: float | None = None) -> Unweighted:
    """Plain guidance by the steps of `tt.sample`; both networks are evaluated at every strength."""
    return default_guidance(model, alpha if beta is None else beta)


def tempered(model: Model, alpha: float, beta: float | None = None, kernel: Kernel | None = None) -> FeynmanKac:
    return default_sampler(model, alpha, 1.0 if beta is None else beta, kernel)


def tilted(
    model: Model, alpha: float, beta: float | None = None, kernel: Kernel | None = None, ramp: Ramp = SQUARE
) -> Tilted:
    return Tilted(model, alpha, ramp, kernel=default_kernel(model.process) if kernel is None else kernel)


def any_order(model: Model, alpha: float, beta: float | None = None, choose: SiteChoice = uniform_sites) -> AnyOrder:
    return AnyOrder(model, alpha, choose=choose)


def in_order(
    model: Model, alpha: float, beta: float | None = None, order: Sequence[int] | None = None
) -> AnyOrder | Composed:
    """One site per step in one order, from the first to the last if none is given; p0 itself if nothing conditions."""
    order = tuple(range(model.length) if order is None else order)
    return Composed(model, order=order) if model.conditional is None else AnyOrder(model, alpha, beta, order)


_EULER = with_options(tempered, kernel=euler)
_TILTED_EULER = with_options(tilted, kernel=euler)
_TWEEDIE = with_options(guided, guide=posterior_level, kernel=tweedie)
_ADAPTED = with_options(any_order, choose=adapted_sites)
_EDGES = "Moves by guidance of strength β, weighs by ratios of the two models"
_POTENTIAL = "Moves by the conditional model, weighs by a potential that grows"
_REVEALS = "Reveals masked sites in random order and weighs before it draws: no time error"
_ORDERED = "Reveals sites as the network decodes them, weighs before it draws"
SAMPLERS: Mapping[str, NamedSampler] = {
    "base": NamedSampler("The base model alone.", base),
    "conditional": NamedSampler("The conditional model alone, whatever α.", conditional),
    "guidance": NamedSampler("No weights: what everybody does, with α as its strength.", guidance),
    "guidance-rate": NamedSampler("Guidance of rates, by Euler steps.", guided),
    "guidance-posterior": NamedSampler(
        "Guidance of posteriors, by Euler steps.", with_options(guided, guide=posterior_level)
    ),
    "guidance-tweedie": NamedSampler("Guidance of posteriors, by exact steps.", _TWEEDIE),
    "tempered": NamedSampler(f"{_EDGES}.", tempered, HALF),
    "tempered-partial": NamedSampler(f"{_EDGES}; resamples half.", tempered, PARTIAL),
    "tempered-euler": NamedSampler(f"{_EDGES}; Euler steps.", _EULER, HALF),
    "tempered-euler-multinomial": NamedSampler(f"{_EDGES}; Euler steps, resamples independently.", _EULER, MULTINOMIAL),
    "tempered-euler-partial": NamedSampler(f"{_EDGES}; Euler steps, resamples half.", _EULER, PARTIAL),
    "tilted": NamedSampler(f"{_POTENTIAL}.", tilted, HALF),
    "tilted-euler": NamedSampler(f"{_POTENTIAL}; Euler steps.", _TILTED_EULER, HALF),
    "tilted-euler-full": NamedSampler(
        "The same, with all of the potential from the start.", with_options(_TILTED_EULER, ramp=FULL), HALF
    ),
    "any-order": NamedSampler(f"{_REVEALS}.", any_order, HALF, equal_reveals),
    "any-order-adapted": NamedSampler(f"{_REVEALS}; sites by their mass.", _ADAPTED, HALF, equal_reveals),
    "any-order-systematic": NamedSampler(
        f"{_REVEALS}; sites by their mass, coupled draws.", _ADAPTED, systematic, equal_reveals, systematic_draws
    ),
    "in-order": NamedSampler(f"{_ORDERED}.", in_order, HALF, equal_reveals),
    "in-order-systematic": NamedSampler(
        f"{_ORDERED}; coupled draws.", in_order, systematic, equal_reveals, systematic_draws
    ),
}
