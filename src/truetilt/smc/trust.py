"""How far to trust a run: a verdict, and the reasons in plain words with what to do about each.

Every check reads the diagnostics (`Figures`); the worst fault found is the verdict. No check sees the error of the time
grid, nor an error that all networks share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .diagnostics import Figures
from .model_findings import MODEL_CHECKS, unmet_share
from .weight_findings import WEIGHT_CHECKS, Finding, Verdict


@dataclass(frozen=True)
class Trust:
    """A verdict, the reasons for it and the figures behind them.

    Args:
        verdict: How far the run can be trusted, a `tt.Verdict`.
        reasons: The reasons for it, a sentence each.
        figures: The diagnostics that the reasons were read from.
    """

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
        unseen = "Not seen here: the error of the time grid, of networks that agree, and states that no particle met."
        return "\n".join([*self.lines, *_in_words(self.figures), unseen])


def judge(figures: Figures, known: Sequence[Finding] = ()) -> Trust:
    """Run every check on the figures; the verdict is that of the worst finding, those already `known` included."""
    findings = [*known, *(found for check in (*MODEL_CHECKS, *WEIGHT_CHECKS) if (found := check(figures)))]
    verdict = max((f.verdict for f in findings), key=list(Verdict).index, default=Verdict.trust)
    ranked = sorted(findings, key=lambda f: -list(Verdict).index(f.verdict))
    return Trust(verdict, tuple(f.words for f in ranked), figures)


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
    rows += _measured_in_words(f)
    return rows


def _measured_in_words(f: Figures) -> list[str]:
    """What was measured when the run was done, a line each."""
    m, rows = f.measured, []
    if m.divergence is not None:
        rows.append(f"distance of the target from p0: {m.divergence:.3g} nats")
    if m.log_ratio is not None:
        most = "" if m.bound is None else f" ({m.bound:.3g} at most)"
        rows.append(f"log p(x|zeta)/p(x) of the networks: {m.log_ratio:.3g} nats on average{most}")
    if m.disagreement is not None:
        rows.append(f"disagreement of conditionals: {m.disagreement:.2g} nats for a pair of neighbours")
    if m.drift is not None:
        rows.append(f"drift of log-weights by moves: {m.drift:.2g} nats")
    if (share := unmet_share(f)) is not None:
        rows.append(f"states that no particle met: they may add up to {share:.2g} of Z")
    if f.accepted is not None:
        rows.append(f"moves accepted: {f.accepted:.1%}")
    return rows
