"""How far to trust a run: its figures, a verdict, and the reasons in plain words with what to do about each.

A check is a function of the figures that either says nothing or finds a fault; the worst fault is the verdict. The
limits are the named constants below. No check can see the error of the time grid or of the networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.target import UNKNOWN, Remedies
from ..core.types import InvalidInput
from .genealogy import lineage, roots
from .resampling import effective_sample_size, log_mean_exp, normalised
from .uncertainty import RECOMMENDED, History, Interval, across_populations, genealogy, interval, of_log_z

HARDLY_ANY = 10  # independent draws tell a probability of 1/2 to within 0.16 only
FEW = 25  # independent draws tell a probability of 1/2 to within 0.1
ALONE = 3.0  # effective particles at its worst step, on average, with which a population knows next to nothing of Z
THIN = 0.1  # below this share of effective particles the weights may have a tail that no particle has met yet
UNSURE = 0.5  # a standard error of log Z beyond which one or two populations decide what Z is said to be
TORN = 1.0  # nats between populations' log Z beyond which the mean of Z rests on populations too rare to be among these
VARIED = 0.25  # of Z-hat from population to population: beyond it 95 % intervals covered 88-93 % in trials
SCATTER = 3.0  # populations of a healthy run scatter up to this many times as much as their weights alone explain
_ROUNDING = 1e-9  # of a share
CHANCE = 3.09  # normal deviates: the scatter of equal populations exceeds this once in a thousand runs


class Verdict(StrEnum):
    """The three answers, from good to bad."""

    trust = "trust"
    care = "use with care"
    doubt = "do not trust"


class Finding(NamedTuple):
    """A fault, how bad it is and what to do; or a remark, which leaves the verdict alone."""

    verdict: Verdict
    words: str


@dataclass(frozen=True)
class Figures:
    """What the verdict is read from. None: cannot be had from this run."""

    populations: int
    particles: int  # in each population
    dead: int  # populations without mass
    ess_end: float  # effective share of the particles at the end, mean over living populations
    ess_lowest: float  # the same at each population's own worst step
    ess_lowest_step: int  # the worst step of the worst population
    union_ess: float  # of all weights together: how many draws they claim to be worth
    roots: float  # first draws with living descendants, mean over living populations
    roots_fewest: int
    lines: float  # effective number of first draws the mass descends from, over the union
    heaviest: float  # share of the mass that the heaviest population holds
    effective_populations: float
    log_z: float
    log_z_interval: Interval | None
    log_z_spread: float | None  # standard deviation of log Z over living populations
    z_variation: float | None  # standard deviation over mean of Z-hat, population by population
    draws: float | None  # independent draws the union is worth, judged by how population means of the sites scatter
    draws_unlucky: float | None  # how few of them chance alone could make of `union_ess`
    moved: bool  # whether moves changed particles, so that lines understate
    repeated: bool  # whether two populations drew the same uniforms
    strayed: bool = False  # whether moves led to another target than the weights are of
    remedies: Remedies = UNKNOWN  # what this kind of run can do about bad weights
    found: tuple[Finding, ...] = ()  # what whoever made the run has found out besides


@dataclass(frozen=True)
class Trust:
    """A verdict, the reasons for it and the figures behind them."""

    verdict: Verdict
    reasons: tuple[str, ...]
    figures: Figures

    @property
    def lines(self) -> list[str]:
        """The verdict, then a line for each reason."""
        head = {
            Verdict.trust: "Trust: nothing speaks against this answer.",
            Verdict.care: "Use with care.",
            Verdict.doubt: "Do not trust this answer.",
        }[self.verdict]
        return [head, *(f"- {reason}" for reason in self.reasons)]

    def __str__(self) -> str:
        unseen = "Not seen here: the error of the time grid, and of the networks."
        return "\n".join([*self.lines, *_in_words(self.figures), unseen])


def judge(figures: Figures) -> Trust:
    """Put every check to the figures; the worst finding is the verdict."""
    findings = [*figures.found, *(found for check in CHECKS if (found := check(figures)))]
    verdict = max((f.verdict for f in findings), key=list(Verdict).index, default=Verdict.trust)
    ranked = sorted(findings, key=lambda f: -list(Verdict).index(f.verdict))
    return Trust(verdict, tuple(f.words for f in ranked), figures)


class Known(NamedTuple):
    """What the settings of a run tell its judge."""

    repeated: bool = False
    strayed: bool = False
    remedies: Remedies = UNKNOWN
    found: tuple[Finding, ...] = ()


NOTHING_KNOWN = Known()


def figures_of(history: History, x: Tensor, moved: Tensor, known: Known = NOTHING_KNOWN) -> Figures:
    """Read the figures off a run: its record, its final states [populations, N, D], and what its moves changed."""
    log_w, n = history.log_w, history.log_w.shape[-1]
    log_z = log_mean_exp(log_w)
    living = log_z > -torch.inf
    mass = normalised(log_z)
    path = _ess_path(history)[:, living] / n
    kept = roots(history.ancestors)[living]
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
        lines=_lines(history),
        heaviest=float(mass.max()),
        effective_populations=float(1 / mass.square().sum()),
        log_z=float(log_mean_exp(log_w.reshape(-1))),
        log_z_interval=_log_z_interval(history),
        log_z_spread=float(log_z[living].std()) if int(living.sum()) > 1 else None,
        z_variation=float(mass.std() * len(mass)) if len(mass) > 1 else None,
        draws=scatter and scatter[0],
        draws_unlucky=scatter and scatter[1],
        moved=bool((moved > 0).any()),
        repeated=known.repeated,
        strayed=known.strayed,
        remedies=known.remedies,
        found=known.found,
    )


def _ess_path(history: History) -> Tensor:
    """Effective sample size of each population at every step and at the end [steps + 2, populations]."""
    return torch.cat([history.ess, effective_sample_size(history.log_w)[None]])


def _lines(history: History) -> float:
    """1 / sum of squared shares of the mass, by first draw: 1 when all descend from one, at most the union's ESS."""
    share = normalised(history.log_w.reshape(-1)).reshape(history.log_w.shape)
    by_root = torch.zeros_like(share).scatter_add(-1, lineage(history.ancestors), share)
    return float(1 / by_root.square().sum())


def _log_z_interval(history: History) -> Interval | None:
    """Across populations where there are several, else from the genealogy where the resampler allows."""
    by = across_populations if history.log_w.shape[0] > 1 else genealogy()
    estimate = of_log_z(history.log_w)
    try:
        return interval(estimate, by(estimate, history), 0.95)
    except InvalidInput:
        return None


def _scatter(history: History, x: Tensor) -> tuple[float, float] | None:
    """How many draws the union is worth by the scatter of its populations, and how few chance could make of its ESS.

    A population is worth the variance of one draw over that of the populations' means, all sites together. If its ESS
    told the truth, ESS over worth would be chi-squared over its freedom (Wilson & Hilferty for the unlucky end).
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


def _repeats(f: Figures) -> Finding | None:
    if f.repeated:
        return Finding(
            Verdict.doubt,
            "Two of the united runs share a seed and a population number: they are copies, not further evidence. Run "
            "them with different seeds, or with first_population.",
        )
    return None


def _astray(f: Figures) -> Finding | None:
    if f.strayed and f.ess_end < 1 - _ROUNDING:
        return Finding(
            Verdict.doubt,
            "The moves lead to another target than the weights are of. Start them from unweighted particles "
            "(tt.Unweighted), or build them from the run's own target.",
        )
    return None


def _use(first: str, *others: str) -> str:
    """ "Use a, b or c.", of what there is."""
    parts = [part for part in (first, *others) if part]
    return f"Use {' or '.join(filter(None, [', '.join(parts[:-1]), parts[-1]]))}"


def _descent(f: Figures) -> Finding | None:
    if f.lines >= FEW or (f.moved and f.draws is not None):  # moves make relatives differ: populations then tell more
        return None
    what = f"The mass descends from {f.lines:.3g} effective first draws ({f.roots:.3g} roots a population)"
    if f.moved:
        return Finding(Verdict.care, f"{what}; whether the moves made up for it, only several populations can tell.")
    remedy = "Use more particles or populations"
    if f.lines < f.populations * f.particles / 2:  # else little was lost: there were too few
        remedy = f"{_use('more particles', 'more populations', *f.remedies)}; resample only when needed"
    return Finding(Verdict.doubt if f.lines < HARDLY_ANY else Verdict.care, f"{what}. {remedy}.")


def _weights(f: Figures) -> Finding | None:
    everyone = f.populations * f.particles
    least = min(f.union_ess, f.ess_lowest * everyone)
    if f.ess_lowest >= THIN and least >= HARDLY_ANY:
        return None
    if f.ess_lowest >= THIN and f.union_ess >= THIN * everyone:
        return Finding(Verdict.doubt, f"{everyone} particles are too few to tell anything by. Use more.")
    at_end = f.ess_end == f.ess_lowest or f.union_ess == least
    when = "At the end" if at_end else f"At step {f.ess_lowest_step}"
    what = f"{when} all the weight sat on {least:.3g} effective particles of {everyone}"
    if not at_end and f.populations > 1:
        what = (
            f"At its worst step (step {f.ess_lowest_step} in the worst of {f.populations}) a population keeps "
            f"{f.ess_lowest * f.particles:.3g} effective particles of {f.particles} on average"
        )
    remedy = _use("smaller steps", f.remedies.lower, f.remedies.weigh)
    words = f"{what}: the proposal misses the target there. {remedy}."
    few = least < HARDLY_ANY or f.ess_lowest * f.particles < ALONE
    return Finding(Verdict.doubt if few else Verdict.care, words)


def _deaths(f: Figures) -> Finding | None:
    if f.dead == 0:
        return None
    return Finding(
        Verdict.care,
        f"{f.dead} of {f.populations} populations died (weight zero). They count as mass 0, which is right on average; "
        "use more particles in each, or a softer likelihood.",
    )


def _masses(f: Figures) -> Finding | None:
    if f.z_variation is None or f.z_variation <= VARIED:
        return None
    spread = math.inf if f.log_z_spread is None else f.log_z_spread  # all but one are dead
    who = f"the heaviest of {f.populations} holds {f.heaviest:.0%} of the mass"
    what = f"The populations disagree on Z: log Z varies by {spread:.2g} between them, and {who}"
    if f.z_variation / math.sqrt(f.populations) > UNSURE or spread > TORN:
        words = f"{what}. The truth may lie with one not seen. {_use('more particles in each', f.remedies.lower)}."
        return Finding(Verdict.doubt, words)
    return Finding(Verdict.care, f"{what}. Intervals come out too short. Use more particles in each.")


def _disagreement(f: Figures) -> Finding | None:
    if f.draws is None or f.draws_unlucky is None:
        return None
    what = f"Judged by how the populations' means differ, the whole is worth {f.draws:.3g} independent draws"
    if f.draws < HARDLY_ANY:
        return Finding(Verdict.doubt, f"{what}. {_use('more populations', f.remedies.move, f.remedies.lower)}.")
    if f.draws < FEW:
        return Finding(Verdict.care, f"{what}. {_use('more populations', f.remedies.move)}.")
    if f.draws * SCATTER < f.draws_unlucky:
        words = f"{what}, and its weights claim {f.union_ess:.3g}: more than chance explains"
        return Finding(Verdict.care, f"{words}. Believe intervals across populations, not the ESS.")
    return None


def _error_bar(f: Figures) -> Finding | None:
    if f.populations == 1:
        return Finding(
            Verdict.trust,
            f"One population cannot disagree with itself; {RECOMMENDED} would show whether runs agree, and give every "
            "estimate an error bar.",
        )
    if f.populations < RECOMMENDED:
        return Finding(Verdict.trust, f"Error bars from {f.populations} populations are rough; use {RECOMMENDED}.")
    return None


CHECKS: Sequence[Callable[[Figures], Finding | None]] = (
    _repeats,
    _astray,
    _descent,
    _weights,
    _masses,
    _disagreement,
    _deaths,
    _error_bar,
)


def _in_words(f: Figures) -> list[str]:
    """The figures, a line each."""
    several = f.populations > 1
    bar = f"{f.log_z:.6g}, no interval" if f.log_z_interval is None else str(f.log_z_interval)
    rows = [
        f"{f.populations} population{'s' * several} of {f.particles} particles" + (f", {f.dead} dead" * (f.dead > 0)),
        f"log Z: {bar}",
        f"effective sample size: {f.ess_end:.1%} at the end, {f.ess_lowest:.1%} at the lowest",
        f"surviving first draws: {f.roots:.3g} a population ({f.roots_fewest} or more), {f.lines:.3g} by mass in all",
    ]
    if several:
        spread = "" if f.log_z_spread is None else f"; log Z varies by {f.log_z_spread:.2g} between them"
        rows.append(f"populations by mass: {f.effective_populations:.3g}, heaviest {f.heaviest:.1%}{spread}")
    if f.draws is not None:
        rows.append(f"independent draws, by disagreement: {f.draws:.3g}; by weights: {f.union_ess:.3g}")
    return rows
