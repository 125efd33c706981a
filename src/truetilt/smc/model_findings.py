"""Checks of the model behind a run: its moves, its conditionals, its ratio of networks, its distance from the base.

Good weights do not rule these faults out: a run may weigh its particles well for another target than the one asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .diagnostics import Figures
from .weight_findings import FEW, Finding, Verdict, use

ALLOWED = 0.05  # nats by which conditionals of a pair of neighbours may disagree
APART = 0.5  # nats beyond which no joint law has conditionals close to these
AMISS = 0.25  # mean nats of log-weight beyond what consistent networks can give, from which on it is reported
MADE_UP = 1.0  # the same, from which on network error dominates the target (weights are off by a factor e)
REFUSED = 0.01  # acceptance probability below which moves change next to nothing
UNMET = 0.1  # share of Z that unvisited states might hold, from which on it is reported
SAME = 1e-9  # nats between the target and p0, below which no particle was led anywhere
FORBIDDEN = 0.5  # of the particles that end with weight zero


def _conditionals(f: Figures) -> Finding | None:
    nats = f.measured.disagreement
    if nats is None or nats <= ALLOWED:
        return None
    return Finding(
        Verdict.doubt if nats > APART else Verdict.care,
        f"The conditionals that the moves redraw sites from disagree by {nats:.2g} nats for a pair of neighbours: the "
        "moves keep another law than the one that is revealed and weighed, and log Z is of neither. Use tt.Composed or "
        "tt.AnyOrder alone, in a fixed order and without these moves, or move by tt.WholeSequence with the log p0 of "
        "that order.",
    )


def _drifted(f: Figures) -> Finding | None:
    nats = f.measured.drift
    if nats is None or nats <= ALLOWED:
        return None
    return Finding(
        Verdict.doubt if nats > APART else Verdict.care,
        f"Moves took log-weights {nats:.2g} nats away from what the run's order gives, since the conditionals that "
        "they redraw sites from disagree, and the exponent of p0 grew: weights and log Z are of no law that can be "
        "named. Use the same target without moves, or take these as designs and not as a sample.",
    )


def _ratios(f: Figures) -> Finding | None:
    m = f.measured
    false = m.beyond if m.beyond is not None else m.retold
    if m.log_ratio is None or m.amplified is None or false is None or m.amplified * false <= AMISS:
        return None
    if m.beyond is not None:
        most = "" if m.bound is None else f", where no state can have more than {m.bound:.3g} (-log p(zeta))"
        what = f"The networks' log p(x|zeta)/p(x) is {m.log_ratio:.3g} nats on average{most}"
    else:
        what = (
            f"The networks' log p(x|zeta)/p(x) is {m.log_ratio:.3g} nats on average as the run summed it, and "
            f"{m.log_ratio - false:.3g} for the same states in another order"
        )
    rare = f"; a typical state is one in {math.exp(min(m.divergence, 700.0)):.1e} of p0" if m.divergence else ""
    words = (
        f"{what}: {m.amplified * false:.2g} nats of a state's log-weight are errors of the two networks (or of sites "
        f"revealed together), which the exponent multiplies{rare}. Use a bounded potential log p(zeta|x) instead of "
        "ratios (tt.Tilted, or as the reward of tt.Composed), or a smaller exponent."
    )
    return Finding(Verdict.doubt if m.amplified * false > MADE_UP else Verdict.care, words)


def _still(f: Figures) -> Finding | None:
    """Moves were asked for and changed nothing, although resampling lost diversity that they should have restored."""
    if f.accepted is None or (f.lines >= FEW and f.accepted > 0):
        return None
    if f.accepted == 0:
        return Finding(Verdict.care, "No move was ever accepted: the run is one without moves. Use other moves.")
    if f.accepted < REFUSED:
        words = f"Only {f.accepted:.1%} of the moves were accepted: relatives stay alike. Use smaller or better moves."
        return Finding(Verdict.care, words)
    return None


def _forbidden(f: Figures) -> Finding | None:
    if f.weightless <= FORBIDDEN or f.dead == f.populations:
        return None
    remedy = use("a reward that falls gently", f.remedies.weigh, f.remedies.particles)
    return Finding(
        Verdict.care,
        f"{f.weightless:.0%} of the particles end with weight zero: they were led to what is forbidden, and what is "
        f"allowed but rare may be missing. {remedy}.",
    )


def unmet_share(f: Figures) -> float | None:
    """The share of Z that states which no particle visited may hold; None where their weight has no known bound.

    By the rule of three, events not seen in n draws have probability up to 3 / n, and each weighs at most the largest
    weight. A population that resamples goes on from its best particles: after g resamplings it finds events of
    probability (1 / N)^g.
    """
    headroom = f.headroom
    if headroom is None:
        return None
    reach = math.log(f.populations * f.particles / 3) + math.floor(f.generations) * math.log(f.particles)
    return math.exp(min(headroom - reach, 700.0))


def _flat(f: Figures) -> Finding | None:
    """The reward said the same of every particle, and nothing led anywhere: it may differ where no particle was."""
    if not f.measured.flat or (f.measured.divergence or 0.0) > SAME:
        return None
    return Finding(
        Verdict.care,
        f"The reward is the same for all {f.populations * f.particles} particles: if it differs anywhere, no particle "
        "was there, and nothing leads to it. Use a reward that says how near a sequence is.",
    )


def _unmet(f: Figures) -> Finding | None:
    share = unmet_share(f)
    if share is None or f.headroom is None or share <= UNMET:
        return None
    ratio = math.exp(min(f.headroom, 700.0))
    return Finding(
        Verdict.care,
        f"A state that none of the {f.populations * f.particles} particles met could weigh {ratio:.2g} times the mean: "
        f"one as rare as {3 / (f.populations * f.particles):.1g} of what was drawn would change the answer. "
        f"{use(f.remedies.particles, f.remedies.weigh, f.remedies.lower)}.",
    )


def _far(f: Figures) -> Finding | None:
    """A remark that the target is far from the base, which is no fault: a reward may lead to states rare under the
    base.
    """
    nats, everyone = f.measured.divergence, f.populations * f.particles
    if nats is None or not f.measured.rewarded or nats < math.log(100 * everyone):
        return None
    rare = f"one in {math.exp(min(nats, 700.0)):.1e} of p0"
    words = f"The target lies {nats:.3g} nats from p0: a typical state of it is {rare}, where p0 itself may be poor."
    return Finding(Verdict.trust, words)


MODEL_CHECKS: Sequence[Callable[[Figures], Finding | None]] = (
    _conditionals,
    _drifted,
    _ratios,
    _still,
    _forbidden,
    _flat,
    _unmet,
    _far,
)
