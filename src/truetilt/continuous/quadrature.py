"""The exact limit of a one-dimensional model (infinitely many particles): its mass on a fine grid of points, step by
step.

It uses the same moves as the sampler, so the time error can be separated from Monte-Carlo error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.arguments import reals, shown
from ..core.errors import InvalidInput
from ..core.types import Particles
from ..diffusion.grids import check_full_grid
from ..targets.on_clock import ClockMove, Clockwork


class Line(NamedTuple):
    """Mass on equally spaced points of a line.

    Args:
        points: Equally spaced points [G].
        log_mass: Log-density of the weighted law at each point [G]; its integral is Z.
    """

    points: Tensor  # [G]
    log_mass: Tensor  # [G], log-density of the weighted law; its integral is Z

    @property
    def width(self) -> float:
        return float(self.points[1] - self.points[0])

    @property
    def log_z(self) -> float:
        return float((self.log_mass + torch.log(self.points[1] - self.points[0])).logsumexp(0))

    @property
    def density(self) -> Tensor:
        """Density of the normalised law [G]."""
        return (self.log_mass - self.log_z).exp()

    def expectation(self, h: Callable[[Tensor], Tensor]) -> float:
        return float((self.density * h(self.points)).sum() * self.width)


@torch.no_grad()
def line_flow(fk: Clockwork, grid: Sequence[float], points: Tensor) -> Line:
    """The exact law of infinitely many particles for a model of one coordinate, by quadrature.

    Points must be no further apart than the smallest noise of a step. The trapezium rule on a Gaussian with points one
    standard deviation apart has a relative error of 5e-9; mass beyond the ends is lost.

    Args:
        fk: What to sample, such as `tt.continuous.Tilted(model, alpha)` of a model with `dimension=1`.
        grid: Times that fall strictly from 1 (noise) to 0 (data), those of the run to compare with.
        points: Points of the line, two or more, rising in equal steps.
    """
    if not isinstance(fk, Clockwork):
        raise InvalidInput(f"fk is {shown(fk)}; give a model in clock time, such as tt.continuous.Tilted(model, alpha)")
    grid, points = check_full_grid(grid), reals("points", points, "give two or more in a row, rising in equal steps")
    gaps = points.reshape(-1).diff()
    if points.dim() != 1 or len(points) < 2 or not bool((gaps > 0).all()) or float(gaps.max() / gaps.min()) > 1.001:
        raise InvalidInput(f"points of shape {tuple(points.shape)}; give two or more in a row, rising in equal steps")
    y = points.double()[None, :, None]
    start = fk.start((1, len(points)), grid[0])
    if start.uniforms != 1:
        raise InvalidInput(f"the model has {start.uniforms} coordinates; a line has one")
    log_after, aux = start.after(y)
    log_mass = start.law.log_prob(y) + log_after
    for t, s in pairwise(grid):
        move = fk.move(Particles(y, log_mass, aux), t, s)
        _resolved(move, float(gaps.max()), t, s)
        log_mass, aux = _push(move, log_mass, y)
    return Line(points.double(), log_mass[0])


def _push(move: ClockMove, log_mass: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Integral over x of mass(x) q(y|x) w(x, y), for every point y."""
    n = y.shape[1]
    parent = torch.arange(n, device=y.device).repeat_interleave(n)[None]
    child = y.repeat(1, n, 1)
    log_joint = sum(
        (c * law.take(parent).log_prob(child) for c, law in ((1.0, move.law), *move.proposal.ratios)),
        (log_mass - move.log_start)[:, parent[0]],
    )
    log_end = move.end(y) if move.end else torch.zeros_like(log_mass)
    width = torch.log(y[0, 1, 0] - y[0, 0, 0])
    return log_joint.reshape(1, n, n).logsumexp(1) + width + log_end, {"log_tilt": log_end}


def _resolved(move: ClockMove, width: float, t: float, s: float) -> None:
    std = move.law.std
    if width > std:
        raise InvalidInput(
            f"step t = {t:.6g} -> {s:.6g}: points are {width:.3g} apart and the noise is {std:.3g}; take more points"
        )
