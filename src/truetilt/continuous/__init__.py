"""The continuous counterpart: diffusions of real vectors, sampled by the same `smc/` as tokens are.

Public names are imported when first used: `tt.continuous.Tilted`, `tt.continuous.VP`, ...
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "feynman_kac": ("Girsanov", "Steered", "Tempered", "Tilted", "Unweighted"),
    "kernels": ("euler_maruyama", "exponential", "heun"),
    "laws": ("Gaussian",),
    "mixtures": ("GaussianMixture", "Observation"),
    "models": ("Diffusion", "Guided", "Predictor", "gradient"),
    "nets": ("NetScore", "data", "noise", "trained_steps", "velocity"),
    "observed": ("Observed",),
    "processes": ("VE", "VP", "SubVP"),
    "quadrature": ("Line", "line_flow"),
}
_ROOM = {name: room for room, names in _HOME.items() for name in names}

__all__ = sorted(_ROOM)


def __getattr__(name: str) -> Any:
    if name not in _ROOM:
        raise AttributeError(f"module 'truetilt.continuous' has no attribute {name!r}")
    return getattr(import_module(f".{_ROOM[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
