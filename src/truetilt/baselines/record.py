"""The result of a baseline: states, weights if it has any, and its cost."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.spent import Spent
from ..core.types import LogWeights, Tokens
from ..smc.resampling import normalised


class Baseline(NamedTuple):
    """The result of a baseline.

    With `log_weights` the states are a weighted sample whose limit is the target p0(x) exp(strength r(x)), and `log_z`,
    if not None, estimates log E_p0[exp(strength r)]. Without, the states are equally weighted and follow a law of the
    method's own: no target, and no log Z.
    """

    states: Tokens  # int64 [n, D]
    log_weights: LogWeights | None  # float64 [n], unnormalised; None: there is no target
    log_z: float | None
    spent: Spent
    size: int = 1  # the size that the budget determined: number of particles, draws for each, or sweeps

    @property
    def weights(self) -> Tensor:
        """float64 [n], summing to 1."""
        if self.log_weights is None:
            return torch.full((len(self.states),), 1 / len(self.states), dtype=torch.float64, device=self.states.device)
        return normalised(self.log_weights)
