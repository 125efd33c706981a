"""What `steer` reports of its answer: what was done and why, what twice the budget would buy, and what is needed."""

from __future__ import annotations

import math
from typing import Any

from ..core.target import Remedies
from ..result import Result
from ..rewards.reward import Reward
from ..smc.diagnostics import Figures
from ..smc.weight_findings import FEW, VARIED, Verdict
from .account import Account
from .drift import Drift
from .evidence import MOVED, Evidence
from .problem import SteerProblem
from .routes import IMPORTANCE, TWISTED
from .stages import Reordered, Work, rounded
from .trials import Tried

LARGER = "a larger budget"
_SATURATED = 0.7  # share of the largest possible variation of Z-hat, above which the true variation may be any larger


MISSED, MOSTLY = 0.01, 0.1  # share of Z that an answer may miss: of care, and of doubt
TOLD = 5.0  # effective draws by which mass is told
EXCESS = 0.4  # nats by which log Z of all draws may exceed that of an answer that is believed
HEAVY = 0.5  # Pareto shape from which on weights have no variance, so that an interval covers less than it says


def findings(best: Tried, evidence: Evidence | None, work: Work) -> list[tuple[str, str]]:
    """Findings on an answer beyond its own figures, as verdicts with their explanation."""
    if evidence is None:
        return _drifting(best.drift)
    return [
        *_missing(evidence, best.result.log_z),
        *_ordered(work.reordered, best.result),
        *_heavy(evidence),
        *_drifting(best.drift),
        *_unexcluded(evidence, work.problem),
    ]


def remedies(best: Tried, work: Work) -> Remedies:
    """Advice for the user of a `steer`, who has no particles, populations or resampling to set."""
    less = "a smaller alpha" if work.problem.reward is None or work.problem.network else "a smaller strength"
    other = f'route="{TWISTED}"' if best.route.name == IMPORTANCE and TWISTED in work.left_out else ""
    return Remedies(less, other, steps="", particles=LARGER, populations=LARGER, resample="")


def _missing(found: Evidence, log_z: float) -> list[tuple[str, str]]:
    """Mass that draws met and the answer does not have."""
    over = found.log_z - log_z
    if over > EXCESS:
        times = rounded(math.exp(min(over, 700.0)))
        words = (
            f"All draws together have {times} times the Z of this answer: it misses mass that was met, though what "
            "leads to it may know of that. Use a larger budget, or another route."
        )
        return [(Verdict.doubt.value, words)]
    if found.missed < MISSED and found.told_by is not None and found.told_by < TOLD:
        words = (
            f"Moves from states that were met stay above all of the answer, and {found.met} draws led there are too "
            "few to tell what mass there is. Use a larger budget."
        )
        return [(Verdict.care.value, words)]
    if found.missed < MISSED:
        return []
    words = (
        f"{found.met} of all states drawn have a reward above what leads to this answer allows for, and by their own "
        f"weights hold {rounded(found.missed)} times its Z: it misses mass that was met. Use a larger budget, or a "
        "twist that knows these states."
    )
    return [((Verdict.doubt if found.missed >= MOSTLY else Verdict.care).value, words)]


def _ordered(found: Reordered | None, result: Result) -> list[tuple[str, str]]:
    """How log Z hangs on the order in which sites are revealed, if by more than its error."""
    if found is None or abs(found.change) < max(MOVED, 2 * found.stderr, 2 * (result.log_z_stderr or 0.0)):
        return []
    words = (
        "The model's conditionals disagree, so that p0 is another law in another order: in the reverse order log Z "
        f"would be {result.log_z + found.change:.4g} ± {found.stderr:.2g} instead of {result.log_z:.4g}. Both are "
        "right, each for its own p0; give the order that is meant."
    )
    return [(Verdict.care.value, words)]


def _heavy(found: Evidence) -> list[tuple[str, str]]:
    if found.tail is None or found.tail < HEAVY:
        return []
    words = (
        f"The largest weights fall off slowly (Pareto shape {found.tail:.2g}; from {HEAVY:g} on they have no finite "
        "variance, and the interval covers less than it says): rarer and heavier states may hold mass. Use a larger "
        "budget, or a smaller strength."
    )
    return [(Verdict.care.value, words)]


def _unexcluded(found: Evidence, problem: SteerProblem) -> list[tuple[str, str]]:
    """What no draw can exclude, as a remark."""
    room = (
        f"Not excluded: {found.draws:,} draws of p0 leave room for unmet states that hold {found.unmet_share:.1g} of it"
    )
    if not math.isfinite(found.unmet_reward):  # none met has weight
        return [(Verdict.trust.value, f"{room}.")]
    side = "or more" if problem.strength > 0 else "or less"
    words = f"{room}; a reward of {found.unmet_reward:.4g} {side} there would move log Z by {MOVED:g} and more"
    return [(Verdict.trust.value, f"{words}{_bounded(found, problem)}.")]


def _bounded(found: Evidence, problem: SteerProblem) -> str:
    """What the largest possible reward, where it is known, says of states that no draw met."""
    most = problem.reward.highest if isinstance(problem.reward, Reward) else None
    if most is None or problem.strength < 0:
        return ""
    if most < found.unmet_reward:
        return ", which highest rules out"
    return (
        f", which highest={most:g} allows. If none of them weighs more than the heaviest state met, they add at most "
        f"{found.unmet_at_most:.1g} of Z"
    )


def _drifting(drift: Drift | None) -> list[tuple[str, str]]:
    if drift is None or not drift.found:
        return []
    way = "up" if drift.mean > 0 else "down"
    why = "there is mass that it has missed" if drift.mean > 0 else "it leans too far"
    words = (
        f"Moves that leave the target alone lead draws of this answer {way} by {abs(drift.mean):.2g} ± "
        f"{drift.stderr:.2g} nats of strength x reward: {why}. Use a larger budget, or another route."
    )
    return [(Verdict.doubt.value, words)]


def outlook(result: Result, account: Account, lacking: list[str]) -> str:
    """What twice the budget would buy; if the answer cannot be trusted, how much would be needed."""
    trust = result.trust()
    figures, stderr = trust.figures, result.log_z_stderr
    factor, least = needed(figures)
    if lacking and trust.verdict != Verdict.trust:
        return f"What is needed to trust this: {', or '.join(lacking)}; a smaller strength needs less."
    if trust.verdict == Verdict.doubt or factor > 2:
        return (
            f"Twice the budget would not be enough to trust this. By what was measured it takes "
            f"{'at least' if least else 'about'} {factor:.2g} times as much: {_scarce(account, factor)}."
        )
    bar = "" if stderr is None else f"log Z to ± {stderr / math.sqrt(2):.2g} instead of ± {stderr:.2g}, and "
    draws = figures.union_ess if figures.draws is None else min(figures.draws, figures.union_ess)
    return f"Twice the budget would buy {bar}about {2 * draws:,.3g} independent draws instead of {draws:,.3g}."


def _scarce(account: Account, factor: float) -> str:
    """The scarce part of the budget times a factor, in words: evaluations, calls, or both if both were nearly spent."""
    spent = (account.spent.evaluations, account.spent.distinct)
    each = zip(("evaluations", "calls"), account.limits, spent, strict=True)
    shares = [(name, limit, used / limit) for name, limit, used in each if limit is not None]
    most = max(share for _, _, share in shares)
    return ", ".join(f"{math.ceil(factor * limit):,} {name}" for name, limit, share in shares if 2 * share >= most)


def needed(figures: Figures) -> tuple[float, bool]:
    """The factor of the budget at which the answer can be trusted, by how figures scale; and whether it is a lower
    bound."""
    draws = figures.union_ess if figures.draws is None else min(figures.draws, figures.union_ess)
    varied = figures.z_variation or 0.0
    factors = [FEW / max(draws, 1.0), (varied / VARIED) ** 2]
    return max(1.0, *factors), varied > _SATURATED * math.sqrt(figures.populations) or draws <= 2


def record(asked: dict[str, Any], work: Work, best: Tried, result: Result) -> dict[str, Any]:
    """The whole story as plain data, fit for JSON."""
    return {
        "asked": asked,
        "stages": [stage._asdict() | {"spent": stage.spent._asdict()} for stage in work.stages],
        "route": best.route.name,
        "check": None if best.drift is None else best.drift._asdict(),
        "spent": work.account.spent._asdict(),
        "left out": {} if result.trust().verdict == Verdict.trust else work.left_out,
        "outlook": outlook(result, work.account, work.lacking),
    }
