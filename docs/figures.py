"""The figures of guidance.md, smc.md and choosing.md, from exact answers, small runs and proofs/*.json.

python docs/figures.py [--out docs/images]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import truetilt as tt
from truetilt.metrics.divergences import total_variation
from truetilt.viz.disks import COLOURS, HATCHES

ROOT = Path(__file__).parent.parent
ALPHA, STEPS = 4.0, 100
GREY, MARKS = "#626a65", {"guidance": "s", "truetilt": "o", "target": "D"}
P0 = torch.tensor([[0.3, 0.1, 0.0], [0.1, 0.2, 0.1], [0.0, 0.1, 0.1]])
LIKELIHOOD = torch.tensor([[0.1, 0.9, 0.5], [0.6, 0.2, 0.8], [0.5, 0.4, 0.7]])
TABLE = tt.Table(tt.Masking(3), P0, LIKELIHOOD)


def guided(table: tt.Table, alpha: float) -> tt.Unweighted:
    """Plain guidance of strength alpha."""
    model = table.model()
    return tt.Unweighted(model, tt.Guided(table.process, model.base, model.conditional, alpha))


def limit(value, table: tt.Table, steps: int = STEPS) -> torch.Tensor:
    """The exact law of a sampler with infinitely many particles, over clean states."""
    law = tt.flow(value, tt.uniform_grid(steps), table.process.states, table.length).law
    return law.reshape((table.process.states,) * table.length)[(slice(table.process.vocabulary),) * table.length]


def new(width: float, height: float, columns: int, **options) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained", dpi=110)
    axes = np.atleast_1d(figure.subplots(1, columns, **options)).tolist()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    return figure, axes


def why() -> Figure:
    """The power of an average against the average of the power, at every half-revealed state."""
    figure, (left, right) = new(9.5, 3.4, 2, width_ratios=(1, 1.35))
    weights, values = P0[0] / P0[0].sum(), LIKELIHOOD[0]
    left.bar(range(2), values[:2] ** ALPHA, width=0.55, color=COLOURS["target"], edgecolor="white")
    mean, power = float((weights * values**ALPHA).sum()), float((weights * values).sum()) ** ALPHA
    left.axhline(mean, color=COLOURS["truetilt"], lw=2)
    left.axhline(power, color=COLOURS["guidance"], lw=2, ls="--")
    for height, kind, name in ((mean, "truetilt", "mean of the powers"), (power, "guidance", "power of the mean")):
        left.text(-0.5, height + 0.015, f"{name} {height:.3f}", color=COLOURS[kind], fontsize=9)
    left.set_xlim(-0.55, 1.45)
    left.set_xticks(range(2), [f"A{v}\nchance {w:.0%}" for v, w in zip("AB", weights.tolist(), strict=False)])
    left.set_ylabel(f"p(ζ | x)^{ALPHA:g}")
    left.set_title("What A? can become", fontsize=10)
    states = [(v, 3) for v in range(3)] + [(3, v) for v in range(3)]
    x = torch.tensor(states)
    true = TABLE.lookup(TABLE.expected(ALPHA, 0.5), x)
    believed = ALPHA * TABLE.potential(x, 0.5)
    gap = (true - believed).exp()
    bars = right.bar(range(6), gap, width=0.6, color=GREY)
    right.bar_label(bars, [f"{g:.1f}×" for g in gap.tolist()], fontsize=9, padding=2)
    right.axhline(1, color="black", lw=0.8)
    right.set_ylim(0, float(gap.max()) * 1.15)
    right.set_xticks(range(6), ["".join("ABC?"[v] for v in s) for s in states])
    right.set_ylabel("how much guidance undervalues it")
    right.set_title(f"Mean of the powers over power of the mean, α = {ALPHA:g}", fontsize=10)
    return figure


def guidance() -> Figure:
    """What guidance samples, and that neither more steps nor a smaller strength mend it."""
    figure, (states, by_steps, by_alpha) = new(11.5, 3.5, 3, width_ratios=(1.5, 1, 1))
    laws = {"target": TABLE.target(ALPHA), "guidance": limit(guided(TABLE, ALPHA), TABLE)}
    laws["truetilt"] = limit(tt.Tilted(TABLE.model(), ALPHA), TABLE)
    for k, (kind, law) in enumerate(laws.items()):
        where = np.arange(9) + 0.27 * (k - 1)
        states.bar(
            where, law.flatten(), 0.25, color=COLOURS[kind], hatch=HATCHES[kind], edgecolor="white", lw=0, label=kind
        )
    states.set_xticks(range(9), [a + b for a in "ABC" for b in "ABC"])
    states.set(ylabel="probability")
    states.set_title(f"Nine states, α = {ALPHA:g}", fontsize=10)
    states.legend(frameon=False, fontsize=9)
    grids = [10, 20, 50, 100, 200, 400]
    for kind in ("guidance", "truetilt"):
        make = (lambda a: guided(TABLE, a)) if kind == "guidance" else (lambda a: tt.Tilted(TABLE.model(), a))
        far = [float(total_variation(TABLE.target(ALPHA), limit(make(ALPHA), TABLE, n))) for n in grids]
        by_steps.loglog(grids, far, marker=MARKS[kind], color=COLOURS[kind], label=kind)
        alphas = [0.5, 1, 1.5, 2, 3, 4, 6, 8]
        far = [float(total_variation(TABLE.target(a), limit(make(a), TABLE))) for a in alphas]
        by_alpha.plot(alphas, far, marker=MARKS[kind], color=COLOURS[kind], label=kind)
    by_steps.set(xlabel="steps", ylabel="total variation to the target")
    by_steps.set_title(f"More steps, α = {ALPHA:g}", fontsize=10)
    by_alpha.set(xlabel="α")
    by_alpha.set_title(f"Other strengths, {STEPS} steps", fontsize=10)
    for ax in (by_steps, by_alpha):
        ax.legend(frameon=False, fontsize=9)
    return figure


def word_table() -> tt.Table:
    """Six sites of two tokens: smooth words are likely, and the condition wants many B."""
    states = torch.cartesian_prod(*[torch.arange(2)] * 6)
    changes = (states[:, 1:] != states[:, :-1]).sum(-1)
    likes = torch.sigmoid(1.5 * (states.sum(-1) - 4.0))
    return tt.Table(tt.Masking(2), (0.35**changes).reshape((2,) * 6), likes.reshape((2,) * 6))


def steps() -> Figure:
    """Ten particles over six steps: disks are weights, lines lead to the ancestor."""
    table, n = word_table(), 10
    value = tt.AnyOrder(table.model(), ALPHA, beta=0.0, order=tuple(range(6)))
    grid = tt.masked_fraction_grid(table.process.schedule, 6)
    scheme = tt.adaptive(tt.systematic, 0.6)
    result = tt.run(value, grid, particles=n, seed=5, snapshots=list(range(7)), resample=scheme)
    weights = torch.softmax(result.snapshots.log_weights[:, 0], -1)
    figure, (ax,) = new(10.5, 4.4, 1)
    for step in range(7):
        parents = result.ancestors[step, 0].tolist()
        if parents != list(range(n)):
            ax.axvspan(step - 0.66, step - 0.36, color="#e4ece6", zorder=0, lw=0)
            ax.text(step - 0.51, n - 0.2, "resampled", ha="center", fontsize=9, color=GREY)
        for i in range(n):
            if step:
                ax.plot([step - 0.66, step - 0.36], [parents[i], i], color=COLOURS["truetilt"], lw=1, zorder=1)
            size = 2000 * float(weights[step, i])
            ax.scatter(step - 0.2, i, s=size, color=COLOURS["target"], zorder=2, lw=0)
            word = "".join("AB?"[v] for v in result.snapshots.particles[step, 0, i].tolist())
            ax.text(step + 0.06, i, word, ha="center", va="center", fontsize=9, family="monospace", zorder=3)
    ax.set_xticks(range(7), ["start", *(f"step {k}" for k in range(1, 7))])
    ax.set_yticks([])
    ax.set(ylim=(-0.8, n + 0.4), xlim=(-0.45, 6.4))
    ax.spines["left"].set_visible(False)
    return figure


def smc() -> Figure:
    """Weights with and without resampling, and the error of an estimate against the number of particles."""
    chain, grid = hard_chain(), tt.masked_fraction_grid(tt.Masking(4).schedule, 32)
    value = tt.AnyOrder(chain.model(), 4.0)
    figure, (ess, error) = new(9.5, 3.5, 2)
    ways = {"never": (tt.never, GREY, "--"), "below half": (tt.adaptive(tt.systematic, 0.5), COLOURS["truetilt"], "-")}
    for name, (scheme, colour, line) in ways.items():
        result = tt.run(value, grid, particles=500, populations=8, seed=0, resample=scheme)
        ess.plot(result.ess.mean(-1) / 500, color=colour, ls=line, label=f"resampled: {name}")
    ess.set(xlabel="step", ylabel="effective share of 500 particles", ylim=(0, 1.03))
    ess.legend(frameon=False, fontsize=9)
    ess.set_title("Without resampling a few particles take all", fontsize=10)

    def equal(x):
        return (x[..., 0] == x[..., 1]).double()

    truth, sizes = float(TABLE.target(ALPHA).diag().sum()), [16, 64, 256, 1024, 4096]
    kinds = {"truetilt": (tt.Tilted(TABLE.model(), ALPHA), None), "guidance": (guided(TABLE, ALPHA), tt.never)}
    for kind, (model, scheme) in kinds.items():
        off = []
        for n in sizes:
            runs = tt.run(model, tt.uniform_grid(50), particles=n, populations=32, seed=1, resample=scheme)
            each = (torch.softmax(runs.log_weights, -1) * equal(runs.particles)).sum(-1)
            off.append(float((each - truth).square().mean().sqrt()))
        error.loglog(sizes, off, marker=MARKS[kind], color=COLOURS[kind], label=kind)
    error.set(xlabel="particles", ylabel="typical error of P(both sites equal)")
    error.legend(frameon=False, fontsize=9)
    error.set_title(f"More particles mend SMC, not guidance (α = {ALPHA:g})", fontsize=10)
    return figure


def hard_chain() -> tt.Chain:
    """A Markov chain of 32 sites and a condition on every site."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.softmax(1.5 * torch.randn(4, 4, generator=generator), -1)
    factors = torch.sigmoid(3 * torch.randn(32, 4, generator=generator))
    return tt.Chain(tt.Masking(4), torch.full((4,), 0.25), rows, factors)


def choosing() -> Figure:
    """Digits: accuracy against diversity (figure3.json). Chains: error against cost (chain.json)."""
    digits = json.loads((ROOT / "proofs" / "figure3.json").read_text(encoding="utf-8"))["rows"]
    chains = json.loads((ROOT / "proofs" / "chain.json").read_text(encoding="utf-8"))["rows"]
    figure, (left, right) = new(11.5, 4.2, 2, width_ratios=(1.1, 1))
    shown = {
        ("smc-deft", 3.0): ("the paper's SMC, DEFT", "target"),
        ("smc", 3.0): ("the paper's SMC", "target"),
        ("smc-populations", 3.0): ("the paper's SMC, 16 × 4", "target"),
        ("guidance-rate", 3.0): ("guidance, β = 3", "guidance"),
        ("guidance", 1.0): ("conditional network alone", "guidance"),
        ("tilted-full-exponent", 3.0): ("tilted, no ramp", "truetilt"),
        ("tilted", 3.0): ("tilted", "truetilt"),
    }
    rows = {(r["method"], r["alpha"]): r for r in digits if r["condition"] == "all"}
    for place, (key, (_, kind)) in enumerate(shown.items()):
        row = rows[key]
        left.barh(place, row["diversity_ratio"], color=COLOURS[kind], hatch=HATCHES[kind], edgecolor="white", lw=0)
        left.text(1.02, place, f"{row['accuracy']:.3f}, {row['roots']:.3g}", va="center", fontsize=9)
    left.text(1.02, len(shown) - 0.3, "accuracy, roots of 64", fontsize=8.5, color=GREY)
    left.set_yticks(range(len(shown)), [name for name, _ in shown.values()])
    left.set(
        xlabel="diversity (1: as real digits)", xlim=(0, 1.35), ylim=(-0.6, len(shown)), xticks=[0, 0.25, 0.5, 0.75, 1]
    )
    left.set_title("MNIST, α = 3, 64 samples a class", fontsize=10)
    names = {
        "guidance-rate": ("guidance", "s", "guidance"),
        "smc-clock": ("the paper's SMC", "^", "target"),
        "any-order": ("any order", "v", "truetilt"),
        "any-order-in-order": ("in order", "o", "truetilt"),
        "any-order-moves": ("in order, 1 to 3 sweeps of moves", "D", "truetilt"),
    }
    for method, (label, mark, kind) in names.items():
        found = [r for r in chains if r["dimension"] == 64 and r["method"] == method]
        cost, far = [r["network_evaluations"] for r in found], [r["ratio_to_floor"] for r in found]
        right.plot(cost, far, marker=mark, color=COLOURS[kind], ls="-" if len(found) > 1 else "none")
        below = (0, -14) if method != "any-order-moves" else (-60, 8)
        right.annotate(label, (cost[0], far[0]), below, textcoords="offset points", fontsize=9, color=COLOURS[kind])
    right.axhline(1, color="black", lw=0.8)
    right.set(xscale="log", yscale="log", ylim=(0.9, 20))
    right.set(xlabel="rounds of network evaluation", ylabel="error over that of exact draws")
    right.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    right.minorticks_off()
    right.set_xticks([25, 64, 128, 256, 400], ["25", "64", "128", "256", "400"])
    right.set_title("Markov chains of 64 sites, α = 3, 500 particles", fontsize=10)
    return figure


FIGURES = {"why": why, "guidance": guidance, "smc-steps": steps, "smc": smc, "choosing": choosing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--only", choices=FIGURES, nargs="*", default=list(FIGURES))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.only:
        FIGURES[name]().savefig(args.out / f"{name}.png")


if __name__ == "__main__":
    main()
