"""The digits of `truetilt demo`, by guidance and by truetilt, and the HTML page that shows them with figures 1 and 2.

Both samplers evaluate the U-Net equally often: a step of guidance evaluates it twice, with the class and without, a
step of truetilt once. truetilt also evaluates its potential, a smaller network, once a step.
"""

from __future__ import annotations

import base64
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import torch

from ..api import run, sample
from ..core.errors import InvalidInput
from ..core.storage import write_text
from ..diffusion.grids import uniform_grid
from ..metrics.images import accuracy, diversity_ratio, grey_levels
from ..models.hub import Digits, load
from ..result import Result
from ..smc.resampling import never
from ..targets.defaults import default_guidance
from ..viz.sheets import sheet
from .costs import StateCounter, cost_of
from .job_runner import Answer
from .outputs import SNAPSHOTS, noted, write_outputs
from .real_digits import reference
from .sample import spread

DIGIT, ALPHA = 4, 3.0
BATCH = 16  # states in a network's batch
STEPS = 32  # steps of truetilt; guidance takes half as many
COLUMNS = 8
PAGE, REPORT = "index.html", "report.html"
TITLES = {"guidance": f"guidance, β = {ALPHA:g}", "truetilt": f"truetilt, α = {ALPHA:g}"}


class CountedRun(NamedTuple):
    """A run of one sampler, and its count of network evaluations."""

    result: Result
    meter: StateCounter


def draw_digits(count: int, seed: int, device: str, folder: Path) -> Answer:
    """Digits of one class by guidance and by truetilt; writes figure.png, result.json and a report."""
    if count < 2:
        raise InvalidInput(f"{count} digits cannot be compared; give at least 2")
    nets = load("mnist", device, batch=min(count, BATCH))
    runs = {"guidance": _guided(nets, count, seed), "truetilt": _tilted(nets, count, seed)}
    rows = [_row(nets, name, drawn) for name, drawn in runs.items()]
    result = runs["truetilt"].result
    result.save(folder, nets.view)
    result.report(folder / REPORT, nets.view)
    answer = {"digit": DIGIT, "alpha": ALPHA, "particles": count, "rows": rows, "verdict": result.trust().lines}
    write_outputs(folder, answer, _draw(nets, runs, rows, seed))
    return answer


@torch.no_grad()
def _guided(nets: Digits, count: int, seed: int) -> CountedRun:
    """Plain guidance of strength ALPHA, without weights, in half as many steps: each evaluates the U-Net twice."""
    meter = StateCounter()
    model = meter.watch(nets.model(DIGIT, "cfg"))
    fk, grid = default_guidance(model, ALPHA), uniform_grid(STEPS // 2)
    return CountedRun(run(fk, grid, particles=count, seed=seed, resample=never, chunk=BATCH), meter)


@torch.no_grad()
def _tilted(nets: Digits, count: int, seed: int) -> CountedRun:
    """truetilt, with the settings of `truetilt sample mnist`."""
    meter, (particles, populations) = StateCounter(), spread(count)
    result = sample(
        meter.watch(nets.model(DIGIT)), ALPHA, particles=particles, populations=populations,
        num_inference_steps=STEPS, seed=seed, chunk=BATCH, snapshots=SNAPSHOTS,
    )  # fmt: skip
    told = f"truetilt demo --digits {count} --seed {seed}"
    return CountedRun(noted(result, bundle="mnist", condition=DIGIT, command=told), meter)


def _row(nets: Digits, name: str, drawn: CountedRun) -> Answer:
    """Accuracy by the judge, diversity, and network evaluations of a weighted run."""
    x, weights = drawn.result.particles.flatten(0, 1), drawn.result.weights.reshape(-1)
    cost = cost_of(drawn.meter, len(x), 0.0)
    real = reference()[DIGIT]["test"]["distance"]
    return {
        "method": name,
        "accuracy": accuracy(nets.judge(x), DIGIT, weights),
        "diversity_ratio": diversity_ratio(x, real, weights, nets.process.vocabulary),
        "network_evaluations": cost.networks,
        "potential_evaluations": cost.potentials,
    }


def _draw(nets: Digits, runs: dict[str, CountedRun], rows: list[Answer], seed: int) -> Any:
    """Guidance on the left, truetilt on the right; digits that the judge assigns to another class are framed in red."""
    from matplotlib.figure import Figure

    from ..viz.disks import COLOURS

    count = len(runs["guidance"].result.particles.flatten(0, 1))
    lines = -(-count // COLUMNS)
    figure = Figure(figsize=(11, 0.66 * lines + 0.7), layout="constrained")
    for ax, (name, drawn), row in zip(figure.subplots(1, 2), runs.items(), rows, strict=True):
        x = drawn.result.draw(count, seed)
        wrong = (nets.judge(x).argmax(-1) != DIGIT).tolist()
        sheet(ax, grey_levels(x, nets.process.vocabulary).cpu().numpy(), min(COLUMNS, count), " ", wrong)
        told = f"judged a {DIGIT}: {row['accuracy']:.0%} · variety: {row['diversity_ratio']:.0%} of real digits’"
        ax.set_title(f"{TITLES[name]}\n{told}", fontsize=10, color=COLOURS[name])
    return figure


def misses(result: Answer) -> str:
    """A sentence with the total variation of each sampler to the exact targets."""
    miss = {kind: [r["tv"] for r in result["rows"] if r["method"] == kind] for kind in ("guidance", "truetilt")}
    return (
        f"guidance puts {min(miss['guidance']):.1%} to {max(miss['guidance']):.1%} of the probability in the wrong "
        f"place, truetilt {min(miss['truetilt']):.1%} to {max(miss['truetilt']):.1%}"
    )


def write_page(folder: Path, toys: Answer, digits: Answer) -> Path:
    """One HTML file with both pictures inside, the figures of this run in words, and links to the two reports."""
    rows = {row["method"]: row for row in digits["rows"]}
    told = {
        "misses": misses(toys),
        "toys": _picture(folder / "figure.png"),
        "digits": _picture(folder / "digits" / "figure.png"),
        "digit": DIGIT,
        "samples": f"{toys['samples']:,}",
        "digits_each": digits["particles"],
        "alpha": f"{ALPHA:g}",
        "rows": "".join(_line(name, rows[name]) for name in TITLES),
        "command": escape(toys["command"]),
        "version": toys["version"],
    }
    page = Template((files("truetilt.commands") / "assets" / PAGE).read_text(encoding="utf-8")).substitute(told)
    write_text(folder / PAGE, page)
    return folder / PAGE


def _line(name: str, row: Answer) -> str:
    shown = (f"{row['accuracy']:.1%}", f"{row['diversity_ratio']:.1%}")
    counted = (f"{row['network_evaluations']:g}", f"{row['potential_evaluations']:g}")
    return f"<tr><th>{TITLES[name]}</th>{''.join(f'<td>{cell}</td>' for cell in (*shown, *counted))}</tr>"


def _picture(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
