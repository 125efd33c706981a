"""Diagnostics of a run, from which a verdict is derived: effective sample sizes, ancestry, masses, and the spread of
populations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.model_diagnostics import NOT_MEASURED, ModelDiagnostics
from ..core.target import UNKNOWN, Remedies
from .genealogy import lineage, roots
from .resampling import effective_sample_size, log_mean_exp, normalised
from .uncertainty import History, Interval, across_populations, genealogy, interval, of_log_z

CHANCE = 3.09  # normal deviates: the scatter of equal populations exceeds this once in a thousand runs
STIRRED = 0.1  # share of the particles that moves changed, over all steps, below which nothing was moved


@dataclass(frozen=True)
class Figures:
    """Diagnostics behind a verdict; None where the run does not allow one."""

    populations: int
    particles: int  # in each population
    dead: int  # populations without mass
    ess_end: float  # effective share of the particles at the end, mean over populations with mass
    ess_lowest: float  # the same at each population's own worst step
    ess_lowest_step: int  # the worst step of the worst population
    union_ess: float  # of all weights together: how many draws they claim to be worth
    roots: float  # first draws with living descendants, mean over living populations
    roots_fewest: int
    lines: float  # effective number of first draws that the mass descends from, all populations together
    heaviest: float  # share of the mass that the heaviest population holds
    effective_populations: float
    log_z: float
    log_z_interval: Interval | None
    log_z_spread: float | None  # standard deviation of log Z over living populations
    z_variation: float | None  # standard deviation over mean of Z-hat, population by population
    draws: float | None  # independent draws all populations are worth, by the spread of their means of the sites
    draws_unlucky: float | None  # lower limit of `draws` by chance alone, if `union_ess` is right
    moved: bool  # whether moves changed particles: ancestral counts then underestimate diversity
    repeated: bool  # whether two populations drew the same uniforms
    strayed: bool = False  # whether moves led to another target than the weights are of
    remedies: Remedies = UNKNOWN  # what this kind of run can do about bad weights
    ess_before_end: float = 1.0  # effective share at each population's worst step before the end
    weightless: float = 0.0  # share of the particles that end with weight zero, in living populations
    accepted: float | None = None  # mean acceptance probability of moves, over the steps with moves
    generations: float = 0.0  # steps at which particles were resampled, mean over populations
    resampling: str = ""  # "never", "adaptive" or "always"; empty where it was not recorded
    measured: ModelDiagnostics = NOT_MEASURED  # measured when the run was done (`core/model_diagnostics`)

    @property
    def headroom(self) -> float | None:
        """Log of the largest possible weight of a state over the mean weight; None where no bound is known."""
        return None if self.measured.most is None else self.measured.most - self.log_z


class Known(NamedTuple):
    """What the verdict needs to know from the settings of a run."""

    repeated: bool = False
    strayed: bool = False
    remedies: Remedies = UNKNOWN
    measured: ModelDiagnostics = NOT_MEASURED


NOTHING_KNOWN = Known()


class Stirring(NamedTuple):
    """The moves of a run [steps + 1, populations]: the share of particles they changed, and their acceptance
    probability.
    """

    moved: Tensor
    accepted: Tensor


def figures_of(history: History, x: Tensor, stirring: Stirring, known: Known = NOTHING_KNOWN) -> Figures:
    """The diagnostics of a run, from its record, its final states [populations, N, D] and its moves."""
    log_w, n = history.log_w, history.log_w.shape[-1]
    log_z = log_mean_exp(log_w)
    living = log_z > -torch.inf
    mass = normalised(log_z)
    of = living if bool(living.any()) else torch.ones_like(living)  # with no mass at all, the figures of all: zeros
    path = _ess_path(history)[:, of] / n
    kept = roots(history.ancestors)[of]
    scatter = _scatter(history, x)
    return Figures(
        populations=len(log_z),
        particles=n,
        dead=int((~living).sum()),
        ess_end=float(path[-1].mean()),
        ess_lowest=float(path.min(0).values.mean()),
        ess_lowest_step=int(path.min(1).values.argmin()),
        union_ess=float(effective_sample_size(log_w.reshape(-1))),
        roots=float(kept.double().mean()),
        roots_fewest=int(kept.min()),
        lines=lines_of(history),
        heaviest=float(mass.max()),
        effective_populations=float(1 / mass.square().sum()),
        log_z=float(log_mean_exp(log_w.reshape(-1))),
        log_z_interval=_log_z_interval(history),
        log_z_spread=float(log_z[living].std()) if int(living.sum()) > 1 else None,
        z_variation=float(mass.std() * len(mass)) if len(mass) > 1 else None,
        draws=scatter and scatter[0],
        draws_unlucky=scatter and scatter[1],
        moved=bool((stirring.moved.sum(0) >= STIRRED).any()),
        repeated=known.repeated,
        strayed=known.strayed,
        remedies=known.remedies,
        ess_before_end=float(path[:-1].min(0).values.mean()),
        weightless=float((log_w[of] == -torch.inf).double().mean()),
        accepted=_accepted(stirring) if known.measured.moving else None,
        generations=_generations(history),
        resampling=_resampling(history),
        measured=known.measured,
    )


def _accepted(stirring: Stirring) -> float:
    """Mean acceptance probability of the moves, over the steps with moves; 0 where none was ever accepted."""
    made = stirring.accepted[stirring.accepted > 0]
    return float(made.mean()) if made.numel() else 0.0


def _generations(history: History) -> float:
    own = torch.arange(history.ancestors.shape[-1], device=history.ancestors.device)
    return float((history.ancestors != own).any(-1).double().sum(0).mean())


def _resampling(history: History) -> str:
    """Whether the particles were resampled never, when needed, or at every step."""
    name = history.resampler.get("name", "") if isinstance(history.resampler, dict) else ""
    return name if name in ("never", "adaptive", "") else "always"


def _ess_path(history: History) -> Tensor:
    """Effective sample size of each population at every step and at the end [steps + 2, populations]."""
    return torch.cat([history.ess, effective_sample_size(history.log_w)[None]])


def lines_of(history: History) -> float:
    """1 / sum of squared shares of the mass, by first draw: 1 when all descend from one, at most the union's ESS."""
    share = normalised(history.log_w.reshape(-1)).reshape(history.log_w.shape)
    by_root = torch.zeros_like(share).scatter_add(-1, lineage(history.ancestors), share)
    return float(1 / by_root.square().sum())


def _log_z_interval(history: History) -> Interval | None:
    """Across populations where there are several, else from the genealogy where the resampler allows."""
    by = across_populations if history.log_w.shape[0] > 1 else genealogy()
    estimate = of_log_z(history.log_w)
    if not estimate.value.isfinite():  # no mass at all
        return None
    try:
        return interval(estimate, by(estimate, history), 0.95)
    except InvalidInput:
        return None


def _scatter(history: History, x: Tensor) -> tuple[float, float] | None:
    """`draws` and `draws_unlucky` of `Figures`: independent draws by the scatter of populations, and its lower limit.

    A population is worth the variance of one draw over the variance of the populations' means, all sites together. If
    the ESS is right, ESS over worth is chi-squared over its degrees of freedom; the limit is its upper end, by Wilson &
    Hilferty.
    """
    log_z = log_mean_exp(history.log_w)
    living = log_z > -torch.inf
    freedom = int(living.sum()) - 1
    if freedom < 1:
        return None
    w, value = normalised(history.log_w[living])[..., None], x[living].flatten(2).double()
    mean = (w * value).sum(1)
    between = mean.var(0).sum()
    one = between + (w * (value - mean[:, None]).square()).sum(1).mean(0).sum()
    if not one > 0:  # every particle is the same state
        return None
    width = 2 / (9 * freedom)
    unlucky = (1 - width + CHANCE * math.sqrt(width)) ** 3
    worth = one / between / normalised(log_z).square().sum()
    return float(worth), float(effective_sample_size(history.log_w.reshape(-1))) / unlucky
