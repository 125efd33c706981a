"""A steering as HTML: draws before and after with rewards, both budgets, verdict and story, and the baselines.

All text of the user's is escaped, here or by the views.
"""

from __future__ import annotations

import math
from html import escape

import numpy as np
import torch

from ..viz.clouds import Disks
from ..viz.reward_gain import reward_bars
from ..viz.steer_story import BudgetRow, steer_words
from ..viz.view_choice import suggested_view
from ..viz.views import View
from .background import CANCELLED, DONE, FAILED, RUNNING
from .pictures import VERDICTS, alert, report_links
from .steer_baselines import AIMING, NAMES, OURS, Row
from .steer_curves import error_chart
from .steer_jobs import Exact, Shown, SteerRun

SHOWN = {"picture": 16, "structure": 8, "text": 6, "line": 8}  # tiles per pane, by their kind
_COLUMNS = {"reward": "mean reward", "naturalness": "naturalness", "diversity": "diversity", "error": "error"}


def steer_status(job: SteerRun, ahead: int) -> str:
    """The state of a job in a line; errors as an alert."""
    if job.state == FAILED:
        return alert(job.message)
    if job.state == DONE:
        return f'<p class="state done" role="status">Done in {job.seconds:.1f} s.</p>'
    if job.state == CANCELLED:
        kept = " What was finished is below." if job.result is not None else ""
        return f'<p class="state" role="status">Cancelled; nothing runs for you now.{kept}</p>'
    if job.state == RUNNING:
        return f'<p class="state on" role="status">Running: {escape(job.doing)}{_meter(job)}</p>'
    before = "1 run is" if ahead == 1 else f"{ahead} runs are"
    return f'<p class="state" role="status">Waiting: {before} before yours.</p>'


def _meter(job: SteerRun) -> str:
    """The share of the budget spent by our run; for a baseline, its network evaluations as a share of the budget."""
    if job.task is None:
        return ""
    share = min(max(job.asked / job.form.evaluations, job.share), 1.0)
    return (
        f'<span class="sub"> · {job.asked:,} evaluations</span>'
        f'<span class="meter"><i style="width:{100 * share:.1f}%"></i></span>'
    )


def steer_stage(job: SteerRun) -> str:
    """The display of a job."""
    panes = []
    if "base" in job.panes:
        panes.append(_pane(job, "plain", "before: the model’s own draws", job.panes["base"]))
    if "ours" in job.panes:
        panes.append(_pane(job, "run", "after: steered by the reward", job.panes["ours"]))
    if job.exact is not None and panes:
        panes.append(_exact_pane(job, job.exact))
    seen = f'<div class="panes n{len(panes)}">{"".join(panes)}</div>' if panes else ""
    return f"{seen}{_answer(job)}{_table(job)}{error_chart(job.curve, job.form)}"


def steer_links(job: SteerRun) -> str:
    """The link to the report, once it is written."""
    return report_links(job.token, f"truetilt-steer-{job.form.model}.html")


def steer_veil(job: SteerRun) -> str:
    """The cover over texts that may be offensive, to be clicked away."""
    if job.task is None or not job.task.veiled:
        return ""
    asked = "of any class" if job.task.condition is None else f"asked to be “{escape(str(job.task.condition))}”"
    return (
        f'<p class="veil" data-run="{id(job)}"><label><input type="checkbox" class="unveil"> Show texts</label> '
        f"<span>They are {asked}, and may hurt.</span></p>"
    )


def _view(job: SteerRun, shown: Shown) -> View:
    known = job.task.view if job.task else None
    return known or suggested_view(torch.as_tensor(shown.x))


def _pane(job: SteerRun, kind: str, name: str, shown: Shown) -> str:
    view = _view(job, shown)
    kind = f"{kind} veiled" if job.task and job.task.veiled else kind
    picture = _whole(view, shown.x, shown.weights) + reward_bars(shown.values, shown.weights, _range(job))
    chosen = _spread(shown, SHOWN[view.shape])
    tiles = "".join(
        f'<li>{view.tile(shown.drawn[k], None)}<span class="worth">{_sig(float(shown.rewards[k]), 3)}</span></li>'
        for k in chosen
    )
    foot = '<p class="sub">Drawn by weight; the reward stands under each.</p>'
    return (
        f'<section class="pane {kind}"><h3>{escape(name)}</h3>'
        f'<p class="sub">mean reward <b>{_sig(shown.mean, 4)}</b></p>{picture}'
        f'<ul class="tiles worths {view.shape}">{tiles}</ul>{foot}</section>'
    )


def _whole(view: View, x: np.ndarray, weights: np.ndarray) -> str:
    """Small tables as disks."""
    return f'<div class="whole">{view.picture(x, weights)}</div>' if isinstance(view, Disks) else ""


def _range(job: SteerRun) -> tuple[float, float]:
    """The smallest and the largest reward with positive weight in any pane."""
    parts = [(shown.values, shown.weights) for shown in job.panes.values()]
    parts += [] if job.exact is None else [(job.exact.values, job.exact.law)]
    found = [values[(weights > 1e-4 * weights.max()) & np.isfinite(values)] for values, weights in parts]
    return min(float(part.min()) for part in found), max(float(part.max()) for part in found)


def _spread(shown: Shown, count: int) -> list[int]:
    """Indices of the draws to show: evenly taken, so that no population is left out."""
    return [int(k) for k in np.linspace(0, len(shown.drawn) - 1, min(count, len(shown.drawn))).round()]


def _exact_pane(job: SteerRun, exact: Exact) -> str:
    some = exact.law > 0
    view = _view(job, next(iter(job.panes.values())))
    body = _whole(view, exact.x[some], exact.law[some]) + reward_bars(exact.values, exact.law, _range(job))
    return (
        f'<section class="pane target"><h3>the exact target</h3>'
        f'<p class="sub">mean reward <b>{_sig(exact.mean, 4)}</b></p>{body}'
        f'<p class="sub">p₀(x) · e<sup>{job.form.strength:g} r(x)</sup>, by enumeration; log Z {_sig(exact.log_z)}</p>'
        "</section>"
    )


def _answer(job: SteerRun) -> str:
    """The verdict, both budgets and the story, once our run is done; empty before."""
    result = job.result
    words = None if result is None else steer_words(result.settings)
    if result is None or words is None:
        return ""
    trust = result.trust()
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in trust.reasons)
    said = f"<ul>{reasons}</ul>" if reasons else "<p>Nothing speaks against this answer.</p>"
    bars = "".join(_bar(row) for row in words.budgets)
    lines = "".join(
        f"<li>{escape(line.split('. ', 1)[-1])}</li>" for line in result.story[:-2]
    )  # the spending and the outlook are shown separately
    exact = f"; exactly {_sig(job.exact.log_z)}" if job.exact is not None else ""
    error = "" if result.log_z_stderr is None else f" ± {_sig(result.log_z_stderr, 2)}"
    return (
        f'<div class="answer {trust.verdict.name}"><h3>{VERDICTS[trust.verdict]}</h3>{said}'
        f'<p class="sub">log Z {_sig(result.log_z)}{error}{exact}</p></div>'
        f'<div class="spent">{bars}</div>'
        f'<details class="story" open><summary>What was done, and why</summary><ol>{lines}</ol>'
        f"<p>{escape(words.check)}</p><p>{escape(words.outlook)}</p></details>"
    )


def _bar(row: BudgetRow) -> str:
    meter = "" if row.share is None else f'<span class="meter"><i style="width:{100 * row.share:.1f}%"></i></span>'
    words = f"{row.name}, without a limit" if row.limit is None else f"of {row.limit:,} {row.name}"
    return f"<div><p><b>{row.spent:,}</b> {words}</p>{meter}</div>"


def _table(job: SteerRun) -> str:
    """Every finished method, ours first, with the same metrics."""
    if not job.rows:
        return ""
    keys = [key for key in _COLUMNS if key != "error" or any(row.figures.get("error") is not None for row in job.rows)]
    heads = "".join(f'<th scope="col">{_COLUMNS[key]}</th>' for key in keys)
    body = "".join(_line(row, keys) for row in job.rows)
    error = "; error: of the marginals, total variation (no target, none)" if "error" in keys else ""
    return (
        '<section class="rivals"><h3>Beside what people use instead, at the same budget</h3>'
        f'<div class="scroll"><table><thead><tr><th scope="col">method</th>{heads}<th scope="col">evaluations</th>'
        f'<th scope="col">calls</th></tr></thead><tbody>{body}</tbody></table></div>'
        f'<p class="sub">Naturalness: mean log p₀ a site. Diversity: share of sites at which two draws differ{error}. '
        "A method without a target may have more reward: nothing holds it to p₀.</p></section>"
    )


def _line(row: Row, keys: list[str]) -> str:
    aims = "" if row.name in AIMING else ' <span class="sub">no target</span>'
    head = f'<th scope="row">{escape(NAMES[row.name])}{aims}</th>'
    mark = ' class="ours"' if row.name == OURS else ""
    if row.failed:
        return f'<tr{mark}>{head}<td colspan="{len(keys) + 2}">{escape(row.failed)}</td></tr>'
    cells = "".join(f"<td>{_cell(row, key)}</td>" for key in keys)
    return f"<tr{mark}>{head}{cells}<td>{row.evaluations:,}</td><td>{row.calls:,}</td></tr>"


def _cell(row: Row, key: str) -> str:
    value = row.figures.get(key)
    return "–" if value is None or (key == "error" and row.name not in AIMING) else _sig(float(value), 3)


def _sig(value: float, digits: int = 5) -> str:
    return "−∞" if value == -math.inf else f"{value:.{digits}g}".replace("-", "−")
