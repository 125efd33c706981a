"""What is measured when a run is done, from its final particles and a few more network evaluations.

Up to 32 final states are drawn by weight. Whether the conditionals that moves use agree takes three rounds of
evaluation. Two further measures take one round a site on 16 of the states: log p0 in order, if moves redrew sites of a
law that has an order; and the networks' ratio in another order, if it is large and has no known bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from ..core.bases import FeynmanKac, MoveKernel, made_from
from ..core.evaluation import BatchScore
from ..core.logits import pick_at
from ..core.model_diagnostics import ModelDiagnostics, as_numbers, from_numbers
from ..core.twists import Learned
from ..core.types import NEG_INF, Particles, Potential, Tokens
from ..diffusion.processes import Masking
from ..smc.rejuvenation import Rejuvenation
from ..smc.resampling import log_mean_exp, normalised
from ..smc.shards import Shard
from .composed import Composed
from .consistency import STATES, disagreement
from .stage import SiteTarget, Stage
from .steered import Steered

SUSPECT = 2.0  # nats of (alpha - 1) * mean log-ratio, from which on the ratio is computed again in another order
_ROUNDING = 1e-12  # of a reward, relative
RETOLD = 16  # states whose ratio is computed again in another order


def shared_measures(fk: FeynmanKac, moves: Rejuvenation | None, particles: Particles, shard: Shard) -> ModelDiagnostics:
    """The measures of a run over several ranks: the first rank measures, and the others receive its numbers."""
    numbers = torch.zeros(len(ModelDiagnostics._fields), dtype=torch.float64)
    if shard.first == 0:
        numbers = as_numbers(measure(fk, moves, particles).as_settings())
    return ModelDiagnostics(**from_numbers(shard.summed(numbers)))


def measure(fk: FeynmanKac, moves: Rejuvenation | None, particles: Particles) -> ModelDiagnostics:
    """The measures of a finished run, from its final particles [populations, N, ...]."""
    kernels = [kernel for kernel in (fk.moves, None if moves is None else moves.by) if kernel is not None]
    made = moves is not None and moves.each_step + moves.at_end > 0  # the others depend on whether the run resampled
    found = ModelDiagnostics(moving=made or fk.moves is not None, most=fk.most_log_weight)
    if not bool((particles.log_w > NEG_INF).any()):
        return found
    found = found._replace(disagreement=_disagreement(kernels, particles), drift=_drift(kernels, particles))
    if isinstance(fk, Steered) and "log_tilt" in particles.aux:
        tilt = particles.aux["log_tilt"]
        top = _highest(particles, tilt - _learned(fk.twist, fk.strength, particles))
        return found._replace(rewarded=True, divergence=_divergence(particles, tilt), flat=_flat(tilt), residual=top)
    if isinstance(fk, SiteTarget) and fk.level and "log_ratios" in particles.aux:
        return _of_stage(fk, particles, found)
    return found


def _of_stage(fk: SiteTarget, particles: Particles, found: ModelDiagnostics) -> ModelDiagnostics:
    stage, aux = fk.stage(0.0), particles.aux
    base = Stage(0.0, 1.0, (0.0,) * len(stage.conditions), stage.potentials, (0.0,) * len(stage.factors))
    found = found._replace(
        rewarded=any(stage.factors), divergence=_divergence(particles, stage.grown(base, aux)), amplified=None,
    )  # fmt: skip
    if found.rewarded and not stage.conditions and isinstance(led := fk.revealer, Composed):
        tilt = stage.total(aux["values"])
        top = _highest(particles, tilt - _learned(led.twist, led.strength, particles))
        found = found._replace(flat=_flat(tilt), residual=top)
    ratios = aux["log_ratios"]
    each = [_of_ratio(fk, particles, ratios, k) for k, alpha in enumerate(stage.conditions) if alpha > 1]
    worst = max(each, key=_falsehood, default=ModelDiagnostics())
    return found._replace(
        log_ratio=worst.log_ratio,
        bound=worst.bound,
        beyond=worst.beyond,
        retold=worst.retold,
        amplified=worst.amplified,
    )


def _of_ratio(fk: SiteTarget, particles: Particles, ratios: Tensor, k: int) -> ModelDiagnostics:
    """The measures of the ratio of networks of one condition."""
    ratio, alpha = ratios[..., k], fk.stage(0.0).conditions[k]
    found = ModelDiagnostics(log_ratio=_mean(particles, ratio), amplified=alpha - 1)
    log_p = fk.model.log_p_condition if list(fk.scores.values())[k + 1] is fk.model.conditional else None
    if log_p is not None:
        return found._replace(bound=-log_p, beyond=_mean(particles, (ratio + log_p).clamp(min=0.0)))
    if cast("float", found.log_ratio) * (alpha - 1) <= SUSPECT:
        return found
    chosen = _drawn(particles, RETOLD)
    again = retold(fk, particles.x.flatten(0, -2)[chosen])[..., k]
    return found._replace(retold=float((ratio.reshape(-1)[chosen] - again).mean()))


def _falsehood(found: ModelDiagnostics) -> float:
    """Nats of the target's log-weight that no pair of consistent networks could give."""
    return (found.amplified or 0.0) * (found.beyond or found.retold or 0.0)


@runtime_checkable
class LawOfOneOrder(Protocol):
    """A score whose law depends on the order of revealing, and which can compute log p of finished states in another
    order.
    """

    def in_another_order(self, x: Tokens) -> Tensor: ...  # log p [B] of states [B, D]


def retold(fk: SiteTarget, x: Tokens) -> Tensor:
    """log p(x|zeta_k) / p(x) of clean states [B, D], summed site by site in another order than the run's [B, K]."""
    scores = list(fk.scores.values())
    if all(isinstance(score, LawOfOneOrder) for score in scores):
        first, *rest = [cast("LawOfOneOrder", score).in_another_order(x) for score in scores]
        return torch.stack([given - first for given in rest], -1)
    process, length = cast("Masking", fk.model.process), x.shape[-1]
    order: Sequence[int] = tuple(reversed(fk.revealer.order or range(length)[::-1]))
    seen, total = torch.full_like(x, process.mask), None
    for done, site in enumerate(order):
        at = torch.full_like(x[:, :1], site)
        ratios = fk.site_laws(seen, process.time_masked(length, length - done), at).parts(x.gather(-1, at))[1]
        total = ratios if total is None else total + ratios
        seen = seen.scatter(-1, at, x.gather(-1, at))
    return cast("Tensor", total)


def _redrawn_from(kernel: MoveKernel) -> SiteTarget | None:
    """The value from whose conditionals a kernel redraws sites; None for a kernel that does not redraw sites so."""
    fk = made_from(kernel)
    return fk if kernel.redraws and isinstance(fk, SiteTarget) else None


def _disagreement(kernels: Sequence[MoveKernel], particles: Particles) -> float | None:
    """The disagreement of the conditionals that the first such kernel uses; None without one."""
    for kernel in kernels:
        source = _redrawn_from(kernel)
        if source is not None and source.model.length > 1:
            return float(disagreement(source, particles.x.flatten(0, -2)[_drawn(particles, STATES)]).mean())
    return None


def _drift(kernels: Sequence[MoveKernel], particles: Particles) -> float | None:
    """The error that moves brought into log-weights, relative to p0 in its own order of revealing, in nats.

    A move updates the log p0 that particles carry by conditionals of a site given all others, and a growing exponent of
    p0 puts that into the weights. None if that exponent does not grow, if p0 has no order, or if its conditionals are
    computed from one law.
    """
    for kernel in kernels:
        fk = _redrawn_from(kernel)
        if fk is None or "log_p" not in particles.aux:
            continue
        order, base = fk.revealer.order, fk.scores["base"]
        grown = fk.stage(0.0).sharpness - fk.revealer.stage(0.0).sharpness
        if order is None or grown == 0 or (isinstance(base, BatchScore) and base.consistent):
            continue
        chosen = _drawn(particles, RETOLD)
        exact = log_prob_in_order(fk, particles.x.flatten(0, -2)[chosen], order)
        return abs(grown) * float((particles.aux["log_p"].reshape(-1)[chosen] - exact).abs().mean())
    return None


def log_prob_in_order(fk: SiteTarget, x: Tokens, order: Sequence[int]) -> Tensor:
    """log p0 of clean states [B, D], summed site by site in an order [B]."""
    process, length = cast("Masking", fk.model.process), x.shape[-1]
    seen, total = torch.full_like(x, process.mask), torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for done, site in enumerate(order):
        at = torch.full_like(x[:, :1], site)
        total += fk.site_laws(seen, process.time_masked(length, length - done), at).parts(x.gather(-1, at))[0]
        seen = seen.scatter(-1, at, x.gather(-1, at))
    return total


def _drawn(particles: Particles, count: int) -> Tensor:
    """Indices of about `count` particles, drawn systematically by weight, equally many (1 or more) a population.

    The draw is deterministic. Conditions that share a run have equally many populations, and so equally many of these.
    """
    log_w = particles.log_w
    populations, n = log_w.shape
    alive = (log_w > NEG_INF).any(-1, keepdim=True)
    share = normalised(torch.where(alive, log_w, 0.0))
    each = min(max(count // populations, 1), n)
    heights = (torch.arange(each, dtype=torch.float64, device=log_w.device) + 0.5) / each
    inside = pick_at(share.cumsum(-1), heights.repeat(populations, 1))
    return (inside + n * torch.arange(populations, device=log_w.device)[:, None]).reshape(-1)


def _mean(particles: Particles, value: Tensor) -> float:
    share = normalised(particles.log_w.reshape(-1))
    return float(torch.where(share > 0, share * value.reshape(-1), 0.0).sum())


def _learned(twist: Potential | None, strength: float, particles: Particles) -> Tensor:
    """What a learned twist says of the particles, in nats; 0 without one, and for others, which may be networks."""
    if not isinstance(twist, Learned):
        return torch.zeros_like(particles.log_w)
    return strength * twist(particles.x.flatten(0, -2), 0.0).double().reshape(particles.log_w.shape)


def _highest(particles: Particles, value: Tensor) -> float:
    """The largest value of a particle that has weight."""
    return float(value[particles.log_w > NEG_INF].max())


def _flat(log_tilt: Tensor) -> bool:
    """Whether the reward is the same for all of several particles, but for rounding."""
    low, high = float(log_tilt.min()), float(log_tilt.max())
    return log_tilt.numel() > 1 and high - low <= _ROUNDING * max(abs(low), abs(high))


def _divergence(particles: Particles, log_tilt: Tensor) -> float:
    """KL of the target from the base: the mean of the log of its tilt minus log Z."""
    return _mean(particles, log_tilt) - float(log_mean_exp(particles.log_w.reshape(-1)))
