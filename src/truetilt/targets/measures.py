"""What a run looks at when it is done: its final particles, and a few more questions to its networks.

Up to 32 final states, drawn by weight, are asked about: three rounds for the conditionals that its moves read; for 16
of them one round a site, where moves redrew sites of a law that has an order, and as many for a ratio of networks that
is large and has no known bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from ..core.batch import BatchScore
from ..core.measures import Measures, as_numbers, from_numbers
from ..core.types import NEG_INF, FeynmanKac, Particles, Tokens
from ..diffusion.processes import Masking
from ..smc.rejuvenation import Rejuvenation
from ..smc.resampling import log_mean_exp, normalised
from ..smc.shards import Shard
from .any_order import AnyOrder
from .composed import Composed
from .consistency import STATES, disagreement
from .on_clock import Tempered, Tilted
from .stage import SiteTarget, Stage
from .steered import Steered

SUSPECT = 2.0  # nats: the mean log-ratio times the exponent less 1, from which on it is summed in another order
RETOLD = 16  # states whose ratio is summed again in another order


def shared_measures(fk: FeynmanKac, moves: Rejuvenation | None, particles: Particles, shard: Shard) -> Measures:
    """The measures of a run over several ranks, of which the first one looks and tells the others."""
    numbers = torch.zeros(len(Measures._fields), dtype=torch.float64)
    if shard.first == 0:
        numbers = as_numbers(measure(fk, moves, particles).told())
    return Measures(**from_numbers(shard.summed(numbers)))


def measure(fk: FeynmanKac, moves: Rejuvenation | None, particles: Particles) -> Measures:
    """The measures of a finished run, from its final particles [populations, N, ...]."""
    kernels = [kernel for kernel in (getattr(fk, "moves", None), moves and moves.kernel) if kernel is not None]
    made = moves is not None and moves.each_step + moves.at_end > 0  # others hang on resampling
    found = Measures(moving=made or hasattr(fk, "moves"), most=most_weight(fk))
    if not bool((particles.log_w > NEG_INF).any()):
        return found
    found = found._replace(disagreement=_disagreement(kernels, particles), drift=_drift(kernels, particles))
    if isinstance(fk, Steered) and "log_tilt" in particles.aux:
        return found._replace(rewarded=True, divergence=_divergence(particles, particles.aux["log_tilt"]))
    if isinstance(fk, SiteTarget) and fk.level and "log_ratios" in particles.aux:
        return _of_stage(fk, particles, found)
    return found


def _of_stage(fk: SiteTarget, particles: Particles, found: Measures) -> Measures:
    stage, aux = fk.stage(0.0), particles.aux
    base = Stage(0.0, 1.0, (0.0,) * len(stage.conditions), stage.potentials, (0.0,) * len(stage.factors))
    found = found._replace(
        rewarded=any(stage.factors), divergence=_divergence(particles, stage.grown(base, aux)), amplified=None
    )
    ratios = aux["log_ratios"]
    each = [_of_ratio(fk, particles, ratios, k) for k, alpha in enumerate(stage.conditions) if alpha > 1]
    worst = max(each, key=_falsehood, default=Measures())
    names = ("log_ratio", "bound", "beyond", "retold", "amplified")
    return found._replace(**{name: getattr(worst, name) for name in names})


def _of_ratio(fk: SiteTarget, particles: Particles, ratios: Tensor, k: int) -> Measures:
    """The measures of one condition's ratio."""
    ratio, alpha = ratios[..., k], fk.stage(0.0).conditions[k]
    found = Measures(log_ratio=_mean(particles, ratio), amplified=alpha - 1)
    log_p = fk.model.log_p_condition if list(fk.scores.values())[k + 1] is fk.model.conditional else None
    if log_p is not None:
        return found._replace(bound=-log_p, beyond=_mean(particles, (ratio + log_p).clamp(min=0.0)))
    if cast("float", found.log_ratio) * (alpha - 1) <= SUSPECT:
        return found
    chosen = _drawn(particles, RETOLD)
    again = retold(fk, particles.x.flatten(0, -2)[chosen])[..., k]
    return found._replace(retold=float((ratio.reshape(-1)[chosen] - again).mean()))


def most_weight(fk: Any) -> float | None:
    """The log of the most that a state can weigh, where that is known: of log-probabilities, and of bounded rewards."""
    model = getattr(fk, "model", None)
    if isinstance(fk, Tilted) and fk.alpha > 1:
        return 0.0
    if isinstance(fk, Tempered | AnyOrder) and fk.alpha > 1:
        return None if fk.model.log_p_condition is None else -(fk.alpha - 1) * fk.model.log_p_condition
    if isinstance(fk, Steered):
        return _most_reward(fk.reward, fk.strength, model)
    goal = getattr(fk, "goal", fk)
    if not isinstance(goal, Composed) or goal.sharpness != 1 or (goal.conditions and goal.factor):
        return None
    if not goal.conditions:
        return _most_reward(goal.reward, goal.factor, model)
    own = len(goal.conditions) == 1 and goal.conditions[0][0] is goal.model.conditional and goal.alphas[0] > 1
    log_p = goal.model.log_p_condition if own else None
    return None if log_p is None else -(goal.alphas[0] - 1) * log_p


def _most_reward(reward: Any, strength: float, model: Any) -> float | None:
    if strength <= 0:
        return None
    if reward is model.potential:
        return 0.0
    while reward is not None and not hasattr(reward, "highest"):
        reward = getattr(reward, "reward", None) or getattr(reward, "function", None)
    highest = getattr(reward, "highest", None)
    return None if highest is None else strength * float(highest)


def _falsehood(found: Measures) -> float:
    """Nats of the target's log-weight that no pair of consistent networks could give."""
    return (found.amplified or 0.0) * (found.beyond or found.retold or 0.0)


@runtime_checkable
class LawOfOneOrder(Protocol):
    """A score whose order is part of its law, and which knows what another order would say of finished states."""

    def in_another_order(self, x: Tokens) -> Tensor: ...  # log p [B] of states [B, D]


def retold(fk: SiteTarget, x: Tokens) -> Tensor:
    """log p(x|zeta_k) / p(x) of clean states [B, D], summed site by site in another order than the run's [B, K]."""
    scores = list(fk.scores.values())
    if all(isinstance(score, LawOfOneOrder) for score in scores):
        first, *rest = [cast("LawOfOneOrder", score).in_another_order(x) for score in scores]
        return torch.stack([given - first for given in rest], -1)
    process, length = cast("Masking", fk.model.process), x.shape[-1]
    order: Sequence[int] = tuple(reversed(getattr(_revealer(fk), "order", None) or range(length)[::-1]))
    seen, total = torch.full_like(x, process.mask), None
    for done, site in enumerate(order):
        at = torch.full_like(x[:, :1], site)
        ratios = fk.site_laws(seen, process.time_masked(length, length - done), at).parts(x.gather(-1, at))[1]
        total = ratios if total is None else total + ratios
        seen = seen.scatter(-1, at, x.gather(-1, at))
    return cast("Tensor", total)


def _revealer(fk: Any) -> Any:
    return getattr(fk, "begin", fk)


def _disagreement(kernels: Sequence[Any], particles: Particles) -> float | None:
    """Of the first kernel that redraws sites from a model's conditionals."""
    for kernel in kernels:
        source = getattr(kernel, "fk", None)
        if getattr(kernel, "redraws", False) and isinstance(source, SiteTarget) and source.model.length > 1:
            return float(disagreement(source, particles.x.flatten(0, -2)[_drawn(particles, STATES)]).mean())
    return None


def _drift(kernels: Sequence[Any], particles: Particles) -> float | None:
    """How far moves have taken log-weights from those of the order which p0 is defined by.

    A move changes the log p0 that particles carry by a difference of conditionals given all other sites; an exponent of
    p0 that grows puts it into the weights. None where it does not, without an order, or where the conditionals are
    worked out from one law.
    """
    for kernel in kernels:
        fk = getattr(kernel, "fk", None)
        if not getattr(kernel, "redraws", False) or not isinstance(fk, SiteTarget) or "log_p" not in particles.aux:
            continue
        begun, base = _revealer(fk), fk.scores["base"]
        order, grown = getattr(begun, "order", None), fk.stage(0.0).sharpness - begun.stage(0.0).sharpness
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
    """Numbers of about so many particles, systematically by weight, equally many and at least one of each population.

    The same ones each time. Conditions that share a run have equally many populations, and so equally many of these.
    """
    log_w = particles.log_w
    populations, n = log_w.shape
    alive = (log_w > NEG_INF).any(-1, keepdim=True)
    share = normalised(torch.where(alive, log_w, 0.0))
    each = min(max(count // populations, 1), n)
    heights = (torch.arange(each, dtype=torch.float64, device=log_w.device) + 0.5) / each
    inside = torch.searchsorted(share.cumsum(-1), heights.repeat(populations, 1)).clamp(max=n - 1)
    return (inside + n * torch.arange(populations, device=log_w.device)[:, None]).reshape(-1)


def _mean(particles: Particles, value: Tensor) -> float:
    share = normalised(particles.log_w.reshape(-1))
    return float(torch.where(share > 0, share * value.reshape(-1), 0.0).sum())


def _divergence(particles: Particles, log_tilt: Tensor) -> float:
    """KL of the target from the base: the mean of the log of its tilt, less log Z."""
    return _mean(particles, log_tilt) - float(log_mean_exp(particles.log_w.reshape(-1)))
