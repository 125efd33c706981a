"""Figure 3: class-conditional digits from every sampler, as pictures and as figures, and why the paper's SMC collapses.

Guidance of strength 1 to 3; the paper's SMC (edge ratios, proposal of strength 1), with full and with partial
resampling and as 16 populations of 4; the conditional network tilted by a bounded potential; Gibbs moves from guided
samples. 64 samples of each class. The last panel is the log-ratio log p(zeta|x)/p(zeta) that a path accumulates: the
true one is at most -log p(zeta). Anything beyond is error: of two networks added up, and of a time grid that reveals
several sites at once as if they were independent. Paths that reveal one site per step have only the first error, and a
potential at the end of a path has neither.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..core.errors import InvalidInput
from ..models.hub import Digits
from ..smc.resampling import effective_sample_size, never
from ..targets.any_order import AnyOrder
from ..targets.on_clock import Tempered
from ..viz.sheets import sheet
from . import digit_rows
from .digit_rows import conditions
from .digit_samplers import DIGIT_SAMPLERS, QUICK_STEPS, STEPS, DigitRun, joint_model, launch, sample_digits, shape_of
from .populations import part_of

ALPHA = 3.0
SAMPLES, QUICK_SAMPLES = 64, 16
QUICK_RUNS = (("guidance", 1.0), ("smc", 3.0), ("smc-partial", 3.0), ("tilted", 3.0))
RUNS = (
    ("guidance", 1.0), ("guidance-rate", 2.0), ("guidance-rate", 3.0), ("guidance-posterior", 2.0),
    ("guidance-posterior", 3.0), ("smc", 3.0), ("smc-partial", 3.0), ("smc-populations", 3.0), ("smc-deft", 3.0),
    ("tilted", 2.0), ("tilted", 3.0), ("tilted", 4.0), ("tilted", 5.0), ("tilted-full-exponent", 3.0),
    ("tilted-populations", 3.0), ("tilted-populations", 5.0), ("guidance-gibbs", 3.0), ("tilted-populations", 10.0),
    ("annealed", 10.0),
)  # fmt: skip
SHEETS = {"guidance": 1.0, "smc": 3.0, "smc-partial": 3.0, "smc-populations": 3.0, "tilted": 3.0}  # alpha by method
EDGES = {"deft": "DEFT, edges", "cfg": "label, edges", "cfg-one-site": "label, one site a step"}
ONE_SITE_SAMPLES = 32  # samples of each class: a path takes as many steps as there are sites
_COLOURS = {
    "guidance": "#e07b5a",
    "smc": "#7b4fa8",
    "tilted": "#2e8b57",
    "annealed": "#2e6f8b",
}  # by the first word of a method


def jobs(settings: Settings) -> list[Job]:
    """One job for each sampler; on the CPU one for each class too, so that both cores have work."""
    digit_rows.check_data(settings)
    every = conditions(settings)
    parts = [(c,) for c in every] if settings.device == "cpu" else [every]
    runs = QUICK_RUNS if settings.quick else RUNS
    out = [
        Job(f"{method}-{alpha:g}-{'-'.join(map(str, part))}", one_run, (method, alpha, part, settings))
        for method, alpha in sorted(runs, key=lambda run: not run[0].startswith("smc"))
        for part in parts
    ]
    return out if settings.quick else [Job(f"spread-{form}", spread, (form, settings)) for form in EDGES] + out


def one_run(method: str, alpha: float, classes: tuple[int, ...], settings: Settings) -> Answer:
    """One sampler on some classes: a row and a few pictures of each."""
    nets, sampler = digit_rows.bundle(settings.device), DIGIT_SAMPLERS[method]
    shape = shape_of(sampler, QUICK_SAMPLES if settings.quick else SAMPLES)
    first = conditions(settings).index(classes[0]) * shape[0]
    plan = DigitRun(classes, shape, QUICK_STEPS if settings.quick else STEPS, settings.seed, first)
    result, cost = sample_digits(nets, sampler, alpha, plan)
    rows, pictures = [], []
    for number, condition in enumerate(classes):
        part = part_of(result, number * shape[0], shape[0])
        figures = digit_rows.figures_of(
            nets, condition, part, digit_rows.real_digits(settings, condition), settings.seed
        )
        rows.append(digit_rows.row(method, alpha, shape, figures, cost))
        if SHEETS.get(method) == alpha and condition in digit_rows.QUICK_CLASSES:
            pictures.append(
                {"method": method, "alpha": alpha} | digit_rows.picture(nets, condition, part, settings.seed)
            )
    return {"rows": rows, "pictures": pictures}


@torch.no_grad()
def spread(form: str, settings: Settings) -> Answer:
    """log p(zeta|x)/p(zeta) accumulated along paths of the conditional model, and by the potential at their ends.

    At alpha = 2 and strength 1 the weight of a path is that ratio itself; nothing is resampled.
    """
    nets, classes = digit_rows.in_full_precision(settings.device), conditions(settings)
    model = joint_model(nets, classes, form.split("-")[0])
    if form == "cfg-one-site":
        plan = DigitRun(classes, (1, ONE_SITE_SAMPLES), model.length, settings.seed)
        fk = AnyOrder(model, 2.0, beta=1.0)
        result = launch(fk, plan, never, grid=fk.grid)
    else:
        plan = DigitRun(classes, (1, SAMPLES), STEPS, settings.seed)
        result = launch(Tempered(model, 2.0), plan, never)
    bound, potential = potential_ratio(nets, classes, result.particles)
    out = {form: ratio_figures(result.log_weights, bound)}
    return out | ({"potential": ratio_figures(potential, bound)} if form == "cfg" else {})


def potential_ratio(nets: Digits, classes: tuple[int, ...], x: Tensor) -> tuple[Tensor, Tensor]:
    """-log p(zeta) [classes, 1], the bound of every ratio, and log p(zeta|x)/p(zeta) of clean x [classes, N, D]."""
    model = joint_model(nets, classes, "potential")
    if model.potential is None:
        raise InvalidInput("the spread of the log-ratio needs a potential and the model has none")
    masked = torch.full_like(x[:, :1], model.process.states - 1)
    bound = -model.potential(masked, 1.0).double()
    return bound, model.potential(x, 0.0).double() + bound


def ratio_figures(log_ratio: Tensor, bound: Tensor) -> Answer:
    """The spread of log-ratios [classes, N] within a class, the share beyond the bound, and the ESS of their
    weights."""
    log_ess = effective_sample_size((ALPHA - 1) * log_ratio) / log_ratio.shape[-1]
    return {
        "std": float(log_ratio.var(-1).mean().sqrt()),
        "mean": float(log_ratio.mean()),
        "above_bound": float((log_ratio > bound + 1e-6).double().mean()),
        "bound": float(bound.mean()),
        "ess": float(log_ess.mean()),
        "values": [round(value, 4) for value in log_ratio.reshape(-1).tolist()],
    }


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Rows class by class, and their mean as condition "all"; what the figure claims, as numbers."""
    found = [row for name, answer in answers.items() if not name.startswith("spread") for row in answer["rows"]]
    rows = []
    for method, alpha in QUICK_RUNS if settings.quick else RUNS:
        own = [r for r in found if (r["method"], r["alpha"]) == (method, alpha)]
        own.sort(key=lambda r: r["condition"])
        rows += [digit_rows.mean_row(own), *own]
    pictures = [shown for name in sorted(answers) for shown in answers[name].get("pictures", ())]
    spreads = {
        form: own for name in sorted(answers) if name.startswith("spread") for form, own in answers[name].items()
    }
    return {
        "experiment": "figure3",
        "samples": QUICK_SAMPLES if settings.quick else SAMPLES,
        "steps": QUICK_STEPS if settings.quick else STEPS,
        "classes": list(conditions(settings)),
        "findings": findings(rows, spreads),
        "rows": rows,
        "log_ratio": spreads,
        "pictures": pictures,
        "notes": ["populations are counted equally; coverage needs --data" + ("" if settings.data else " (not given)")],
    }


def findings(rows: list[Answer], spreads: Answer) -> Answer:
    """The claims of the figure and whether they hold here."""
    mean = {(r["method"], r["alpha"]): r for r in rows if r["condition"] == "all"}
    ours, paper = mean["tilted", ALPHA], mean["smc", ALPHA]
    strong = [r for (m, a), r in mean.items() if m.startswith("tilted") and a <= 5]
    out = {
        "tilted_accuracy": ours["accuracy"],
        "tilted_diversity": ours["diversity_ratio"],
        "tilted_ess": ours["ess"],
        "no_collapse": ours["accuracy"] >= 0.98 and ours["diversity_ratio"] >= 0.95 and ours["ess"] >= 0.8,
        "accurate_and_diverse": any(r["accuracy"] >= 0.99 and r["diversity_ratio"] >= 0.93 for r in strong),
        "smc_roots": paper["roots"],
        "partial_raises_diversity": mean["smc-partial", ALPHA]["diversity_ratio"] > paper["diversity_ratio"],
    }
    if spreads:
        out["potential_within_bound"] = spreads["potential"]["above_bound"] == 0
        out["potential_ess_highest"] = spreads["potential"]["ess"] >= max(s["ess"] for s in spreads.values())
    return out


def draw(result: Answer) -> Any:
    """A line of contact sheets for each class shown, then bars of every sampler, then the log-ratios."""
    from matplotlib.figure import Figure

    methods = {m: alpha for m, alpha in SHEETS.items() if any(_is(p, m, alpha) for p in result["pictures"])}
    shown, has_ratios = sorted({p["condition"] for p in result["pictures"]}), bool(result["log_ratio"])
    figure = Figure(figsize=(2.4 * max(len(methods), 4), 2.25 * len(shown) + 4.2), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[2.25 * len(shown) + 0.01, 4.2])
    top, bottom = parts
    if shown:
        _sheets(top.subplots(len(shown), len(methods), squeeze=False), result, methods, shown)
    axes = list(bottom.subplots(1, 3 + has_ratios, width_ratios=[2, 2, 2, 3][: 3 + has_ratios]))
    _bars(axes[:3], [r for r in result["rows"] if r["condition"] == "all"])
    if has_ratios:
        _log_ratios(axes[3], result["log_ratio"])
    return figure


def _is(entry: Answer, method: str, alpha: float) -> bool:
    return entry["method"] == method and entry["alpha"] == alpha


def _sheets(axes: Any, result: Answer, methods: Mapping[str, float], shown: list[int]) -> None:
    for line, condition in zip(axes, shown, strict=True):
        for ax, (method, alpha) in zip(line, methods.items(), strict=True):
            picture = next(p for p in result["pictures"] if _is(p, method, alpha) and p["condition"] == condition)
            row = next(r for r in result["rows"] if _is(r, method, alpha) and r["condition"] == condition)
            name = f"{method}, {_letter(method)} = {alpha:g}\n"
            title = f"acc {row['accuracy']:.2f} · div {row['diversity_ratio']:.2f} · roots {row['roots']}"
            sheet(ax, digit_rows.unpacked(picture), 4, name + title, picture["wrong"])
        line[0].set_ylabel(f"digit {condition}", fontsize=9)


def _bars(axes: Any, rows: list[Answer]) -> None:
    """A bar per sampler: accuracy, diversity and effective sample size."""
    places = range(len(rows))
    names = {"accuracy": "accuracy", "diversity_ratio": "diversity (1: real digits)", "ess": "ESS / N at the end"}
    for ax, (name, words) in zip(axes, names.items(), strict=True):
        values = [r[name] for r in rows]
        bars = ax.barh(places, values, 0.75, color=[_COLOURS[r["method"].split("-")[0]] for r in rows])
        ax.bar_label(bars, [f"{value:.3f}" for value in values], fontsize=6.5, padding=2)
        low = 0.0 if min(values) < 0.8 else 0.05 * int(min(values) / 0.05 - 0.5)
        ax.set(xlim=(low, low + 1.25 * max(max(values) - low, 0.05)), ylim=(len(rows) - 0.5, -0.5))
        ax.set_yticks([])
        ax.set_title(words, fontsize=9)
        ax.tick_params(axis="x", labelsize=7)
    labels = [f"{r['method']}, {_letter(r['method'])} = {r['alpha']:g}" for r in rows]
    axes[0].set_yticks(places, labels, fontsize=7)


def _letter(method: str) -> str:
    return "β" if method.startswith("guidance") else "α"


def _log_ratios(ax: Any, spreads: Answer) -> None:
    """The log-ratio that a path accumulates, by form, against the bound."""
    forms = [form for form in (*EDGES, "potential") if form in spreads]
    names = EDGES | {"potential": "potential"}
    for place, form in enumerate(forms):
        found = spreads[form]
        parts = ax.violinplot(found["values"], [place], orientation="horizontal", showextrema=True, widths=0.6)
        for part in (*parts["bodies"], *(parts[name] for name in ("cbars", "cmins", "cmaxes"))):
            part.set_color("#2e8b57" if form == "potential" else "#7b4fa8")
            part.set_linewidth(0.8)
        text = f"{names[form]}: sd {found['std']:.2f}, ESS/N {found['ess']:.2f}"
        ax.annotate(text, (0.02, place + 0.4), xycoords=("axes fraction", "data"), fontsize=7, va="center")
    bound = statistics.fmean(spreads[form]["bound"] for form in forms)
    ax.axvline(bound, color="#c8322b", lw=1.0, ls="--")
    ax.annotate("bound", (bound, -0.55), fontsize=7, color="#c8322b", ha="right", rotation=90, va="bottom")
    ax.set_yticks([])
    ax.set(xlabel="accumulated log p(ζ|x)/p(ζ), nats", ylim=(-0.6, len(forms) - 0.35))
    ax.set_title(f"log-ratio of conditional paths; ESS at α = {ALPHA:g}", fontsize=9)


COLUMNS = (
    "method",
    "condition",
    "alpha",
    "accuracy",
    "diversity_ratio",
    "coverage",
    "roots",
    "ess",
    "network_evaluations",
)
EXPERIMENT = Experiment("figure3", "Class-conditional digits from every sampler", jobs, collect, draw, COLUMNS)
