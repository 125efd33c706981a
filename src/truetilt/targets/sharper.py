"""A sharper base under a condition: p0(x)^gamma p(zeta|x)^alpha as a `Composed` target.

The law that a low temperature aims at, as a target with weights. With a potential h = log p(zeta|x) the conditional
model is the base: p0^gamma p(zeta|x)^alpha ~ p(x|zeta)^gamma exp((alpha - gamma) h(x)), one network evaluation a step
instead of two, and weights that do not add up the errors of two networks' ratios.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.errors import InvalidInput
from ..core.types import Model, check_model
from .composed import Composed, check_sharpness
from .on_clock import FULL, Ramp
from .potentials import check_alpha, check_conditional


def sharpened(model: Model, alpha: float = 1.0, sharpness: float = 1.0, ramp: Ramp = FULL) -> Composed:
    """The target $p0(x)^sharpness p(zeta|x)^alpha$, revealed site by site (`tt.run(tt.sharpened(...))`).

    Args:
        model: A `tt.Model` on `tt.Masking` with a conditional score; its potential is used if it has one.
        alpha: Exponent of the condition, 0 to 1e9; 1 by default.
        sharpness: Exponent $gamma$ of the base, above 0; 1, the base itself, by default.
        ramp: How the exponents grow with elapsed time; in full force from the start by default.
    """
    check_model(model)
    alpha, sharpness = check_alpha(alpha), check_sharpness(sharpness)
    if model.conditional is None and model.potential is None:
        raise InvalidInput("a condition is sharpened here, and this model has none; tt.Composed(model, sharpness=...)")
    conditional = check_conditional("sharpened", model)
    if model.potential is None:
        return Composed(model, sharpness=sharpness, conditions=[(conditional, alpha)], ramp=ramp)
    given = replace(model, base=conditional, conditional=None, potential=None)
    h = model.potential
    return Composed(
        given, sharpness=sharpness, reward=h, strength=alpha - sharpness, twist=h, candidates=1, ramp=ramp
    )  # fmt: skip
