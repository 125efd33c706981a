"""Continuous diffusions: real vectors in place of tokens, sampled by the same `smc/`.

Public names are imported when first used: `tt.continuous.Tilted`, `tt.continuous.VP`, ...
"""

from __future__ import annotations

from ..core.lazy_imports import lazy_names

_HOME = {
    "on_clock": ("Girsanov", "Steered", "Tempered", "Tilted", "Unweighted"),
    "kernels": ("euler_maruyama", "exponential", "heun"),
    "laws": ("Gaussian",),
    "mixtures": ("GaussianMixture", "Observation"),
    "models": ("Diffusion", "Guided", "Predictor", "gradient"),
    "net_scores": ("NetScore", "data", "noise", "trained_steps", "velocity"),
    "observed_mixture": ("Observed",),
    "processes": ("VE", "VP", "SubVP"),
    "quadrature": ("Line", "line_flow"),
}
__all__, __getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
