"""The checks of a run's weights, ancestry and populations: each returns a fault with a remedy, or None.

The limits are the named constants. Remedies are those that the run's own sampler has (`Remedies`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from .diagnostics import Figures
from .uncertainty import RECOMMENDED

HARDLY_ANY = 10  # independent draws tell a probability of 1/2 to within 0.16 only
FEW = 25  # independent draws tell a probability of 1/2 to within 0.1
ALONE = 3.0  # mean effective particles at the worst step, below which a population says almost nothing about Z
THIN = 0.1  # effective share of particles below which the weights may have a tail that no particle has met
UNSURE = 0.5  # a standard error of log Z beyond which one or two populations decide what Z is said to be
TORN = 1.0  # spread of log Z in nats beyond which the mean of Z rests on populations too rare to occur in the run
VARIED = 0.25  # of Z-hat from population to population: beyond it 95 % intervals covered 88-93 % in trials
SCATTER = 3.0  # populations of a healthy run scatter up to this many times as much as their weights alone explain
_ROUNDING = 1e-9  # of a share


class Verdict(StrEnum):
    """The three answers, from good to bad."""

    trust = "trust"
    care = "use with care"
    doubt = "do not trust"


class Finding(NamedTuple):
    """A fault, how bad it is and what to do; or a remark, which leaves the verdict alone."""

    verdict: Verdict
    words: str


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


def use(*ways: str) -> str:
    """ "Use a, b or c", of the remedies that are not empty."""
    parts = list(dict.fromkeys(way for way in ways if way)) or ["more particles"]
    return f"Use {' or '.join(filter(None, [', '.join(parts[:-1]), parts[-1]]))}"


def _descent(f: Figures) -> Finding | None:
    # moves changed particles, so ancestral counts underestimate diversity: what populations say then counts
    if f.lines >= FEW or (f.moved and f.draws is not None) or f.dead == f.populations:
        return None
    what = f"The mass descends from {f.lines:.3g} effective first draws ({f.roots:.3g} roots a population)"
    if f.moved:
        return Finding(Verdict.care, f"{what}; whether the moves made up for it, only several populations can tell.")
    r = f.remedies
    remedy = use(r.particles, r.populations)
    if f.lines < f.populations * f.particles / 2:  # else resampling lost little: there were too few particles
        rarely = "; resample only when needed, tt.adaptive(...)" if f.resampling == "always" else ""
        remedy = f"{use(r.particles, r.populations, r.lower, r.weigh, r.move)}{rarely}"
    return Finding(Verdict.doubt if f.lines < HARDLY_ANY else Verdict.care, f"{what}. {remedy}.")


def _weights(f: Figures) -> Finding | None:
    everyone = f.populations * f.particles
    if f.dead == f.populations:
        words = f"Every one of {everyone} particles has weight zero: no allowed state was met. "
        return Finding(Verdict.doubt, f"{words}{use(f.remedies.particles, 'a reward that falls gently')}.")
    least = min(f.union_ess, f.ess_lowest * everyone)
    if f.ess_lowest >= THIN and least >= HARDLY_ANY:
        return None
    if f.ess_lowest >= THIN and f.union_ess >= THIN * everyone:
        return Finding(
            Verdict.doubt, f"{everyone} particles are too few to tell anything by. {use(f.remedies.particles)}."
        )
    at_end = f.ess_end == f.ess_lowest or f.union_ess == least
    when = "At the end" if at_end else f"At step {f.ess_lowest_step}"
    what = f"{when} all the weight sat on {least:.3g} effective particles of {everyone}"
    if not at_end and f.populations > 1:
        what = (
            f"At its worst step (step {f.ess_lowest_step} in the worst of {f.populations}) a population keeps "
            f"{f.ess_lowest * f.particles:.3g} effective particles of {f.particles} on average"
        )
    remedy = use(_resample(f), f.remedies.steps, f.remedies.lower, f.remedies.weigh)
    why = "the proposal misses the target there"
    if at_end and f.remedies.twist and f.ess_before_end >= THIN:
        why = f"until then the weights were even, so it is {f.remedies.twist} that misses the reward"
        remedy = use(f.remedies.weigh, f.remedies.lower)
    words = f"{what}: {why}. {remedy}."
    few = least < HARDLY_ANY or f.ess_lowest * f.particles < ALONE
    return Finding(Verdict.doubt if few else Verdict.care, words)


def _resample(f: Figures) -> str:
    """Advice for a run that never resampled."""
    return f.remedies.resample if f.resampling == "never" else ""


def _deaths(f: Figures) -> Finding | None:
    if f.dead in (0, f.populations):
        return None
    return Finding(
        Verdict.care,
        f"{f.dead} of {f.populations} populations died (weight zero). They count as mass 0, which is right on average. "
        f"{use(f.remedies.particles, 'a softer likelihood')}.",
    )


def _masses(f: Figures) -> Finding | None:
    if f.z_variation is None or f.dead == f.populations or f.z_variation <= VARIED:
        return None
    spread = math.inf if f.log_z_spread is None else f.log_z_spread  # all but one are dead
    who = f"the heaviest of {f.populations} holds {f.heaviest:.0%} of the mass"
    what = f"The populations disagree on Z: log Z varies by {spread:.2g} between them, and {who}"
    if f.z_variation / math.sqrt(f.populations) > UNSURE or spread > TORN:
        remedy = use(f.remedies.particles, f.remedies.weigh, f.remedies.lower)
        return Finding(Verdict.doubt, f"{what}. The truth may lie with one not seen. {remedy}.")
    return Finding(Verdict.care, f"{what}. Intervals come out too short. {use(f.remedies.particles)}.")


def _disagreement(f: Figures) -> Finding | None:
    if f.draws is None or f.draws_unlucky is None:
        return None
    what = f"Judged by how the populations' means differ, the whole is worth {f.draws:.3g} independent draws"
    if f.draws < HARDLY_ANY:
        return Finding(Verdict.doubt, f"{what}. {use(f.remedies.populations, f.remedies.move, f.remedies.lower)}.")
    if f.draws < FEW:
        return Finding(Verdict.care, f"{what}. {use(f.remedies.populations, f.remedies.move)}.")
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


WEIGHT_CHECKS: Sequence[Callable[[Figures], Finding | None]] = (
    _repeats,
    _astray,
    _descent,
    _weights,
    _masses,
    _disagreement,
    _deaths,
    _error_bar,
)
