"""Checks of a resampler: mass is preserved, no offspring of zero weight, unbiased."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.arguments import function, whole_number
from ..core.types import NEG_INF, LogWeights, Resampled, Resampler
from ..smc.resampling import resampled
from .tables import TOP, uniforms
from .verdicts import require, used, z_limit, z_scores

REPLICATES = 20_000
ROUNDING, SINGLE = 1e-12, 1e-6  # of the log of a mass: what is allowed, and what float32 does
MEAN = (
    "equal weights after resampling are the mean, not 1, and a scheme that keeps mass on average alone (branching, "
    "chopthin) must rescale to the mass"
)
BESIDE = 64  # populations resampled twice, to detect random numbers drawn by the resampler itself


def check_resampler(resample: Resampler, particles: int = 9) -> None:
    """Reject a resampler that is not properly weighted: $E[sum w~ phi(x_a)] = sum w phi(x)$ for every phi.

    For every draw: ancestors are int64 indices of particles; weights are neither NaN nor +inf; the mass of each
    population is preserved (1e-12 of its log); a particle of weight zero has no offspring of positive weight; a
    population gives the same result alone and beside others, of which one may be dead; the input weights are not
    written to. On average: the mass that descends from each particle is its weight, by a z-test of 20,000 populations
    under four kinds of weights, with one false alarm in $10^8$ checks. A bias of a few percent of a particle's weight
    is noticed (offspring by the weights to the power of 1.05), one of a percent may pass.

    Parameters:
        resample: maps log-weights and uniforms, float64 [populations, N] each, to `Resampled`.
        particles: number of particles in a population.
    """
    function("resample", resample, "(log_w, u)", "such as tt.systematic")
    particles = whole_number("particles", particles, 2, 1000)
    for log_w in _extremes(particles):
        for u in (torch.zeros_like(log_w), torch.full_like(log_w, TOP), uniforms(1, *log_w.shape)):
            check_draw(log_w, _of(resample, log_w, u))
    _check_populations(resample, particles)
    kinds = _weights(particles)
    for name, log_w in kinds.items():
        out = _of(resample, log_w, uniforms(2, REPLICATES, particles))
        check_draw(log_w, out)
        z, limit = bias_scores(log_w, out), z_limit(len(kinds) * particles)
        worst = int(z.abs().argmax())
        require(
            z.abs().max() < limit,
            f"biased on {name} weights: the mass that descends from particle {worst} of {particles} is "
            f"{float(z[worst]):.1f} standard errors from its weight ({limit:.1f} are allowed)",
        )


def check_draw(log_w: LogWeights, out: Resampled) -> None:
    """The conditions on every draw: mass is preserved, and zero weight has no offspring."""
    ancestors, new = out
    n = log_w.shape[-1]
    require(((ancestors >= 0) & (ancestors < n)).all(), f"an ancestor is not among the particles 0 to {n - 1}")
    require(not new.isnan().any() and (new < torch.inf).all(), "a new log-weight is NaN or +inf")
    before, after = log_w.logsumexp(-1), new.logsumexp(-1)
    gap = torch.where(before == after, 0.0, (after - before).abs()) / before.abs().clamp(min=1.0, max=1e300)
    k = int(gap.argmax())
    single = "looks like float32; compute weights in float64" if gap.max() < SINGLE else ""
    require(
        gap.max() <= ROUNDING,
        f"mass is not kept: the weights of a population sum to exp({float(before.reshape(-1)[k]):.6g}) before and to "
        f"exp({float(after.reshape(-1)[k]):.6g}) after, {float(gap.max()):.1e} of its log apart ({ROUNDING:.0e} are "
        f"allowed); {single or MEAN}",
    )
    raised = (log_w.gather(-1, ancestors) == NEG_INF) & (new > NEG_INF)
    require(not raised.any(), f"{int(raised.sum())} particles of positive weight descend from one of weight zero")


def bias_scores(log_w: LogWeights, out: Resampled) -> Tensor:
    """z [N] of the mass that descends from each particle, over replicates [R, N], against its weight."""
    mass = torch.zeros_like(log_w).scatter_add(-1, out.ancestors, out.log_w.exp())
    return z_scores(mass - log_w.exp(), torch.zeros(log_w.shape[-1], dtype=torch.float64))


def _of(resample: Resampler, log_w: LogWeights, u: Tensor) -> Resampled:
    given = log_w.clone()
    with used("the resampler"):
        out = resampled(resample, given, u)
    require(torch.equal(given, log_w), "the log-weights that were given were written to; return new ones")
    return out


def _check_populations(resample: Resampler, n: int) -> None:
    """Check that a population is resampled the same way alone and beside others, of which one may have no mass."""
    log_w, u = _weights(n)["random"][:BESIDE].clone(), uniforms(3, BESIDE, n)
    log_w[1] = NEG_INF
    together, again = (_of(resample, log_w, u) for _ in range(2))
    require(torch.equal(together.ancestors, again.ancestors), "two calls with the same u differ: draw from u alone")
    require((together.log_w[1] == NEG_INF).all(), "a population without mass got some")
    for k in (0, 2):
        alone = _of(resample, log_w[k : k + 1], u[k : k + 1])
        same = torch.equal(alone.ancestors[0], together.ancestors[k]) and torch.equal(alone.log_w[0], together.log_w[k])
        require(same, "a population comes out otherwise beside others than alone: keep to the last axis")


def _weights(n: int) -> dict[str, LogWeights]:
    """Log-weights [replicates, n] by name; some are -inf, and no population is dead."""
    place = torch.arange(n, dtype=torch.float64)
    u = uniforms(4, 2, REPLICATES, n)
    spread = torch.special.ndtri(u[0].clamp(min=2.0**-53)) + 2 * place / n - 1
    spread = spread.masked_fill((u[1] < 0.2) & (place > 0), NEG_INF)
    skewed = torch.where(place % 4 == 1, NEG_INF, -0.5 * (place % 9))  # no positive weight is too small to be drawn
    tied = torch.where(place % 6 == 5, NEG_INF, (1 + place % 2).log())
    even = 0.2 * place / n  # even enough for an adaptive scheme not to resample
    return {"random": spread} | {
        name: log_w.expand(REPLICATES, n) for name, log_w in {"skewed": skewed, "tied": tied, "even": even}.items()
    }


def _extremes(n: int) -> list[LogWeights]:
    """Extreme log-weights [1, n]: equal, far apart, beyond exp, one alive, nearly none, none."""
    place = torch.arange(n, dtype=torch.float64)
    far = torch.tensor([-600.0, 0.0, 600.0], dtype=torch.float64)[place.long() % 3]
    one, last = (torch.where(place == k, 0.3 * place, NEG_INF) for k in (n // 2, n - 1))
    vanishing = torch.where(place == n - 1, -700.0, torch.where(place == n - 2, NEG_INF, -place))
    tiny, huge = -2000 - place, 2000 - place  # beyond the range of exp
    none = torch.full_like(place, NEG_INF)
    return [w[None] for w in (torch.full_like(place, -3.7), far, tiny, huge, one, last, vanishing, none)]
