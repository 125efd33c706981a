"""The run report: one self-contained HTML file, for a screen, a phone or a printer.

The template escapes text. The page's content security policy allows only our own script and styles, by hash, and no
requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..core.arguments import folder_of, shown
from ..core.errors import InvalidInput
from ..core.storage import write_text
from ..runtime.settings import runs_of
from ..runtime.snapshots import evenly
from ..smc.diagnostics import Figures
from ..smc.weight_findings import Verdict
from . import report_data
from .reward_gain import GainWords, gain_words, reward_bars, told, without_states
from .settings_in_words import is_veiled, run_settings
from .steer_story import steer_words
from .tiles import frames
from .view_choice import suggested_view
from .views import View, check_view

ROWS = 32  # populations in the table
MODEL_TILES = {"picture": 16, "structure": 8, "text": 4, "line": 12}  # draws of the model shown, by a tile's shape
CALLS = 4  # most runs of a joined result whose call is written out
HEADS = {
    Verdict.trust: ("good", "Trust", "Nothing speaks against this answer."),
    Verdict.care: ("care", "Use with care", "The answer stands, with what is said below."),
    Verdict.doubt: ("bad", "Do not trust", "This answer does not tell what was asked."),
}


def write_report(run: report_data.ResultLike, path: Path, view: View | None = None, title: str | None = None) -> Path:
    """Write the report of a run; the file is whole or absent."""
    check_view(view)
    folder_of("the folder of the report", path.parent)
    if title is not None and not isinstance(title, str):
        raise InvalidInput(f"title is {shown(title)}; give a text")
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder; give the name of an HTML file in it, such as {path / 'run.html'}")
    text = report(run, view, title)
    write_text(path, text)
    return path


def report(run: report_data.ResultLike, view: View | None = None, title: str | None = None) -> str:
    """The report of a run as HTML."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    styles, script = _asset("report.css"), _asset("report.js")
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {
        "sig": _sig,
        "raw": Markup,
        "share": lambda value: f"{100 * value:.3g} %",
        "times": _times,
        "full": repr,
        "told": told,
    }
    return page.from_string(_asset("report.html")).render(
        policy=_policy(styles, script),
        styles=Markup(styles),
        script=Markup(script),
        data=Markup(_embedded(_drawn(run))),
        title=title or _title(run),
        **_told(run, view),
    )


def _told(run: report_data.ResultLike, view: View | None) -> dict[str, Any]:
    """The values that the template writes as text."""
    trust, runs = run.trust(), runs_of(run.settings)
    times = run.times.tolist()
    first = run_settings(runs[0], times)
    populations, particles = run.log_weights.shape
    rows = report_data.population_rows(run)
    look = view or suggested_view(run.particles)
    found = frames(run, look)
    story, gained = steer_words(run.settings), gain_words(run.settings)
    return {
        "first": first,
        "story": story,
        "gained": gained,
        "bars": [] if gained is None else [_bars(gained, side.values) for side in gained.sides],
        "model_tiles": [] if gained is None else _model_tiles(gained, look),
        "runs": len(runs),
        "calls": [run_settings(one, times).call for one in runs[:CALLS]] if story is None else [story.call],
        "command": runs[0].get("command"),
        "versions": _versions(runs[0]),
        "settings": json.dumps(without_states(run.settings), indent=1, ensure_ascii=False, default=str),
        "sizes": {"populations": populations, "particles": particles, "steps": len(times) - 1},
        "trust": trust,
        "head": HEADS[trust.verdict],
        "came_out": _came_out(trust.figures, len(times) - 1, run.log_z_words) + _means(gained) + _spent(run),
        "rows": [rows[k] for k in report_data.evenly(len(rows), ROWS)],
        "tops": {key: max(row[key] for row in rows) or 1 for key in ("mass", "ess", "roots")},
        "row_count": len(rows),
        "frames": found,
        "lines": populations * particles,
        "shape": look.shape,
        "veiled": look.shape == "text" and any(is_veiled(one.get("condition")) for one in runs),
    }


def _lowest(f: Figures, last: int) -> str:
    """The step at which the effective sample size was lowest, in words."""
    when = "at the end" if f.ess_lowest_step > last else f"at step {f.ess_lowest_step}"
    return when if f.populations == 1 else f"at each population's worst step, on average; {when} in the worst"


def _came_out(f: Figures, last: int, constant: str) -> list[tuple[str, str, float, str]]:
    """(name, rounded value, full value, explanation) of the main figures."""
    bar = f.log_z_interval
    everyone = f.populations * f.particles
    if bar is None or bar.reason:
        spread = "no interval from a single population" if f.populations == 1 else "no interval"
    else:
        spread = f"95 % interval {_sig(bar.low)} to {_sig(bar.high)}"
    return [
        ("log Z", _sig(f.log_z), f.log_z, f"{spread}; it is {constant}"),
        ("effective particles", _sig(f.union_ess, 4), f.union_ess, f"of {everyone:,}; {f.ess_end:.0%} at the end"),
        ("lowest ESS on the way", f"{f.ess_lowest:.1%}", f.ess_lowest, _lowest(f, last)),
        ("first draws that survive", _sig(f.roots, 4), f.roots, f"of {f.particles} in a population"),
    ]


def _means(gained: GainWords | None) -> list[tuple[str, str, float, str]]:
    """The mean reward of a steered run, beside what it was before."""
    if gained is None or gained.after.mean is None:
        return []
    before = "" if gained.before.mean is None else f"; {told(gained.before.mean)} before, of draws of the model"
    return [("mean reward", told(gained.after.mean), gained.after.mean, f"{gained.after.interval}{before}")]


def _bars(gained: GainWords, values: np.ndarray) -> str:
    return reward_bars(values, np.ones(len(values)), gained.span)


def _model_tiles(gained: GainWords, look: View) -> list[tuple[str, float | None]]:
    """Draws of the model with their rewards, fewer where texts are long."""
    some = evenly(len(gained.states), MODEL_TILES[look.shape])
    return [(look.tile(gained.states[k], None), gained.rewards[k]) for k in some]


def _spent(run: report_data.ResultLike) -> list[tuple[str, str, float, str]]:
    """The cost of the run in words, pilots and fits included; empty if it was not counted."""
    spent, everyone = run.spent, run.log_weights.numel()
    found = []
    if spent.evaluations:
        each = f"{spent.evaluations / everyone:,.3g} a particle"
        words = f"sequences through a network, {each}, in {spent.rounds:,} rounds"
        found.append(("evaluations", f"{spent.evaluations:,}", float(spent.evaluations), words))
    if spent.calls:
        words = f"states that its function was asked about; {spent.calls:,} with those that were known"
        found.append(("reward calls", f"{spent.distinct:,}", float(spent.distinct), words))
    return found


def _drawn(run: report_data.ResultLike) -> dict[str, Any]:
    """The data that the script draws."""
    shown = report_data.shown_populations(run)
    limit = report_data.COLUMNS if len(shown) <= 4 else report_data.COLUMNS // 2
    trees = []
    for k in shown:
        tree, weights = report_data.family_tree(run, k, limit)
        places = {particle: i for i, particle in enumerate(tree.shown)}
        trees.append(
            {
                "population": k,
                "steps": tree.steps,
                "chains": [[c.parent, c.start, c.places, c.leads_to, c.particle] for c in tree.chains],
                "ends": [[particle, float(f"{weights[i]:.4g}")] for particle, i in places.items()],
                "lost": tree.lost,
                "families": tree.families,
                "dying": tree.dying,
            }
        )
    resampler = runs_of(run.settings)[0].get("resampler")
    threshold = resampler.get("threshold") if isinstance(resampler, dict) else None
    populations, particles = run.log_weights.shape
    sizes = {"last": len(run.times) - 1, "particles": particles, "populations": populations, "threshold": threshold}
    return {
        "sizes": sizes,
        "courses": report_data.courses(run),
        "weights": report_data.weight_bars(run),
        "trees": trees,
    }


def _title(run: report_data.ResultLike) -> str:
    one = runs_of(run.settings)[0]
    parts = [str(one[key]) for key in ("bundle", "chain") if key in one]
    parts += [f"condition {one['condition']}"] if one.get("condition") is not None else []
    model = one.get("model")
    alpha = model.get("alpha") if isinstance(model, dict) else None
    parts += [f"α = {alpha:g}"] if isinstance(alpha, int | float) else []
    return ", ".join(parts) or ("A steered run" if steer_words(run.settings) else "A run")


def _versions(settings: Any) -> list[tuple[str, str]]:
    """The versions that the run was made with, where they are recorded, and that of this report."""
    known = settings.get("versions")
    rows = [("truetilt", settings.get("version", "not recorded")), *(known.items() if isinstance(known, dict) else ())]
    return [(f"{name}", f"{value}") for name, value in rows] + [
        ("report by", f"truetilt {__version__}, python {platform.python_version()}, torch {torch.__version__}")
    ]


def _policy(styles: str, script: str) -> str:
    """The content security policy: nothing is loaded from outside this file."""
    allowed = f"script-src '{_sha(script)}'; style-src '{_sha(styles)}'; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _sha(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _embedded(value: Any) -> str:
    """JSON escaped so that it cannot close the element it is embedded in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (files("truetilt.viz") / "assets" / name).read_text(encoding="utf-8")


def _sig(value: Any, digits: int = 5) -> str:
    """A number to a few significant digits, with a true minus sign."""
    return f"{float(value):.{digits}g}".replace("-inf", "−∞").replace("-", "−")


def _times(weight: float) -> str:
    return "< 0.001 ×" if 0 < weight < 1e-3 else f"{weight:.3g} ×"
