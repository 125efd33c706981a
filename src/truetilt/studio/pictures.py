"""A run as HTML: both samplers side by side, the exact target where it is known, the ESS so far, and the figures.

All text of the user's is escaped, here or by the views.
"""

from __future__ import annotations

import math
import time
from html import escape
from typing import Any

import numpy as np
import torch

from ..commands.sample_table import weighted_law
from ..continuous import Observed
from ..exact.tables import Table, enumerate_states
from ..metrics.divergences import total_variation
from ..runtime.snapshots import evenly
from ..smc.trust import Trust
from ..smc.weight_findings import Verdict
from ..viz.view_choice import suggested_view
from ..viz.views import View
from .background import CANCELLED, DONE, FAILED, RUNNING
from .final_texts import final_texts, mean_score
from .jobs import Lane, LaneFrame, StudioRun

SHOWN = {"picture": 32, "structure": 8, "text": 6, "line": 12}  # tiles per lane, by their kind
NAMES = {
    "tilted": "truetilt",
    "in-order": "truetilt",
    "tempered": "the paper’s SMC",
    "any-order": "any order",
    "guidance": "plain guidance",
}
VERDICTS = {Verdict.trust: "Trust", Verdict.care: "Use with care", Verdict.doubt: "Do not trust"}
_WIDE, _HIGH = 640, 130  # units of the ESS chart


def stage(job: StudioRun) -> str:
    """The display of a job: pictures, ESS curve, figures."""
    if not any(lane.frame for lane in job.lanes.values()):
        return ""
    rewarded = job.problem is not None and job.problem.score is not None
    names = {"run": NAMES[job.form.sampler], "plain": "without the reward" if rewarded else "plain guidance"}
    panes = [_pane(job, lane, names[key], key) for key, lane in job.lanes.items()]
    panes += _target(job)
    return f'<div class="panes n{len(panes)}">{"".join(panes)}</div>{_course(job.lanes["run"])}{_figures(job)}'


def status(job: StudioRun, ahead: int) -> str:
    """The state of a job in a line; errors as an alert."""
    if job.state == FAILED:
        return alert(job.message)
    note = f'<p class="note">{escape(job.note)}</p>' if job.note else ""
    if job.state == DONE:
        return f'<p class="state done" role="status">Done in {job.seconds:.1f} s.</p>{note}'
    if job.state == CANCELLED:
        return f'<p class="state" role="status">Cancelled after {job.steps} steps; nothing runs for you now.</p>{note}'
    if job.state == RUNNING:
        return f'<p class="state on" role="status">Running{_progress(job)}</p>{note}'
    before = "1 run is" if ahead == 1 else f"{ahead} runs are"
    return f'<p class="state" role="status">Waiting: {before} before yours.</p>'


def alert(words: str) -> str:
    """An error message, escaped."""
    return f'<p class="alert" role="alert">{escape(words)}</p>'


def links(job: StudioRun) -> str:
    """The link to the report, once it is written."""
    return report_links(job.token, f"truetilt-{job.form.model}.html")


def report_links(token: str, name: str) -> str:
    """Links to open a report and to download it under a name; none before it has a token."""
    if not token:
        return ""
    at, name = f"report/{token}", escape(name, quote=True)
    return (
        f'<p class="links"><a class="open" href="{at}" target="_blank" rel="noopener">Open the report</a>'
        f'<a href="{at}" download="{name}">Download it</a></p>'
    )


def veil(job: StudioRun) -> str:
    """The cover over texts that may be offensive, to be clicked away."""
    if job.problem is None or not job.problem.veiled:
        return ""
    asked = escape(str(job.problem.condition))
    return (
        f'<p class="veil" data-run="{id(job)}"><label><input type="checkbox" id="unveil" class="unveil"> Show texts'
        "</label> "
        f"<span>They were asked to be “{asked}”, and may hurt.</span></p>"
    )


SOON = 10.0  # seconds to the end, below which they are not told


def _progress(job: StudioRun) -> str:
    lane = job.lanes.get("run")
    if lane is None or not lane.ess:
        return ": making the model ready …"
    step = len(lane.ess) - 1
    left = (time.monotonic() - job.begun) * (lane.steps - step) / max(1, step)
    return (
        f": step {step} of {lane.steps}{f', about {left:.0f} s to go' if step and left > SOON else ''}"
        f'<span class="meter"><i style="width:{100 * step / max(1, lane.steps):.1f}%"></i></span>'
    )


def _pane(job: StudioRun, lane: Lane, name: str, kind: str) -> str:
    frame = lane.frame
    if frame is None:
        return f'<section class="pane {kind}"><h3>{escape(name)}</h3><p class="sub">starting …</p></section>'
    rewarded = job.problem is not None and job.problem.score is not None
    alike = job.form.sampler == "guidance" or (kind == "plain" and not rewarded)
    kind, weighted = (f"{kind} plain", "counted alike") if alike else (kind, "weighted")
    kind = f"{kind} veiled" if job.problem and job.problem.veiled else kind
    sub = f"step {frame.step} of {lane.steps} · {weighted}"
    miss, known = _miss(job, lane), job.problem.looked_at(frame.x, frame.weights) if job.problem else None
    view = known or suggested_view(torch.as_tensor(frame.x))
    over = view.shape == "text" and lane.result is not None
    look = final_texts(view, frame, lane, not alike) if over else _look(view, frame)
    miss += mean_score(lane, job.problem.condition if job.problem else None)
    return (
        f'<section class="pane {kind}" data-step="{frame.step}"><h3>{escape(name)}</h3><p class="sub">{sub}</p>'
        f"{look}{_sequences(job, view, frame)}{miss}</section>"
    )


def _look(view: View, frame: LaneFrame) -> str:
    """All particles in one picture if the view has one, else some of them."""
    whole = view.picture(frame.x, frame.weights)
    if whole:
        return f'<div class="whole">{whole}</div>'
    chosen = list(evenly(len(frame.x), SHOWN[view.shape]))
    share = frame.weights[chosen] / max(float(frame.weights.max()), 1e-300)
    before = [None] * len(chosen) if frame.before is None else frame.before[chosen]
    tiles = "".join(
        f'<li>{view.tile(x, was)}<i class="bar"><i style="width:{100 * w:.0f}%"></i></i></li>'
        for x, was, w in zip(frame.x[chosen], before, share.tolist(), strict=True)
    )
    some = "" if len(chosen) == len(frame.x) else f"{len(chosen)} of {len(frame.x):,} are shown. "
    marked = "Marked: revealed since the picture before. ▢: masked. ¶: the end." if view.shape == "text" else ""
    foot = f'<p class="sub">{some}{marked}</p>' if some or marked else ""
    return f'<ul class="tiles {view.shape}">{tiles}</ul>{foot}'


def _sequences(job: StudioRun, view: View, frame: LaneFrame) -> str:
    """Below a logo: the distinct sequences with their weights, the heaviest first."""
    if view.shape != "line" or not view.picture(frame.x[:1], frame.weights[:1]):
        return ""
    states, which = np.unique(frame.x, axis=0, return_inverse=True)
    weights = np.bincount(which.reshape(-1), frame.weights, len(states))
    chosen = np.argsort(-weights, kind="stable")[: SHOWN["line"]]
    spell = job.problem.spell if job.problem and job.problem.spell else lambda x: view.tile(x, None)
    most = max(float(weights.max()), 1e-300)
    rows = "".join(
        f'<li>{spell(states[k])}<span class="sub">{100 * weights[k]:.2g} %</span>'
        f'<i class="bar"><i style="width:{100 * weights[k] / most:.0f}%"></i></i></li>'
        for k in chosen.tolist()
    )
    some = f"The {len(chosen)} heaviest of {len(states):,} sequences" if len(chosen) < len(states) else "All sequences"
    return f'<p class="sub">{some}, and their share of the weight</p><ul class="tiles strings">{rows}</ul>'


def _target(job: StudioRun) -> list[str]:
    """The exact answer as one more picture, for tables and for the plane."""
    exact = job.problem.exact if job.problem else None
    if exact is None or job.problem is None or job.problem.view is None:
        return []
    drawn = _exact_states(exact, job.form.alpha)
    body = f'<div class="whole">{job.problem.view.picture(*drawn)}</div>'
    head = "<h3>the exact target</h3>"
    sub = f'<p class="sub">π ∝ p₀(x) · p(ζ | x)<sup>{job.form.alpha:g}</sup></p>'
    foot = '<p class="sub">“off” is the total variation</p>' if isinstance(exact, Table) else ""
    return [f'<section class="pane target">{head}{sub}{body}{foot}</section>']


def _exact_states(exact: Table | Observed, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(exact, Table):
        target = exact.target(alpha).reshape(-1).cpu().numpy()
        return enumerate_states(exact.process.vocabulary, exact.length).numpy(), target
    count = 500
    law = exact.target(alpha)
    u = torch.stack([_spread(count, 1.2207440846 ** -(axis + 1)) for axis in range(1 + law.dimension)], -1)
    return law.draw(u.to(law.means.device)).cpu().numpy(), np.full(count, 1 / count)


def _spread(count: int, step: float) -> torch.Tensor:
    """Evenly spread numbers in (0, 1) instead of random ones, so that the picture is deterministic."""
    return (0.5 + step * torch.arange(1, count + 1, dtype=torch.float64)) % 1


def _miss(job: StudioRun, lane: Lane) -> str:
    """The distance of a finished lane from the exact table."""
    exact = job.problem.exact if job.problem else None
    if lane.result is None or not isinstance(exact, Table):
        return ""
    far = float(total_variation(exact.target(job.form.alpha).cpu(), weighted_law(exact, lane.result).cpu()))
    return f'<p class="miss" title="total variation">off the target by <b>{far:.3f}</b></p>'


def _course(lane: Lane) -> str:
    """The ESS curve: mean, and range over populations."""
    ess = list(lane.ess)
    if not ess:
        return ""
    shown = list(evenly(len(ess), 300))
    x = [_WIDE * k / max(1, lane.steps) for k in shown]
    mean, low, high = np.array([ess[k] for k in shown]).T
    band = _points(x, high) + " " + _points(x[::-1], low[::-1])
    half = _HIGH / 2
    now = f"{100 * mean[-1]:.0f} %"
    return (
        f'<figure class="course"><figcaption><b>Effective sample size</b> {now} of the particles'
        f"{', range over populations shaded' if (high > low).any() else ''}; dashed: half</figcaption>"
        f'<svg viewBox="0 -6 {_WIDE} {_HIGH + 12}" preserveAspectRatio="none" role="img" aria-label="ESS now {now}">'
        f'<path class="frame" d="M0 0V{_HIGH}H{_WIDE}"/><path class="dash" d="M0 {half}H{_WIDE}"/>'
        f'<polygon class="band" points="{band}"/><polyline class="mean" points="{_points(x, mean)}"/></svg>'
        f'<div class="ends"><span>step 0</span><span>step {lane.steps}</span></div></figure>'
    )


def _points(x: list[float], share: np.ndarray) -> str:
    return " ".join(f"{a:.1f},{_HIGH * (1 - b):.1f}" for a, b in zip(x, share.tolist(), strict=True))


def _figures(job: StudioRun) -> str:
    """log Z so far; at the end the verdict and the other figures."""
    lane = job.lanes["run"]
    rows: list[tuple[str, str, str]] = []
    if lane.log_z is not None and job.form.sampler != "guidance":
        rows.append(("log Z", _sig(lane.log_z), _exact_log_z(job)))
    if lane.result is not None:
        count, trust = lane.result.log_weights.numel(), lane.result.trust()
        rows.append(("effective particles", _sig(trust.figures.union_ess, 4), f"of {count:,}"))
        rows.append(("first draws that survive", f"{int(lane.result.roots.sum()):,}", f"of {count:,}"))
        rows.append(("verdict", *_verdict(trust, job.form.sampler)))
    cells = "".join(f"<div><dt>{a}</dt><dd>{b}</dd><dd class='sub'>{escape(c)}</dd></div>" for a, b, c in rows)
    return f'<dl class="figures">{cells}</dl>' if cells else ""


def _verdict(trust: Trust, sampler: str) -> tuple[str, str]:
    if sampler == "guidance":
        return "None", "without weights nothing says how far off it is"
    return VERDICTS[trust.verdict], trust.reasons[0] if trust.reasons else "nothing speaks against it"


def _exact_log_z(job: StudioRun) -> str:
    exact: Any = job.problem.exact if job.problem else None
    if exact is None:
        return "so far" if job.state == RUNNING else ""
    of = exact.log_z_tilted if job.form.sampler == "tilted" else exact.log_z_tempered
    return f"exactly {_sig(float(of(job.form.alpha)))}"


def _sig(value: float, digits: int = 5) -> str:
    return "−∞" if value == -math.inf else f"{value:.{digits}g}".replace("-", "−")
