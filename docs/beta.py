"""How the proposal strength matters: ESS and error of `Tempered` by beta on random tables, for choosing.md.

python docs/beta.py [--out docs/beta.json]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean

import torch

import truetilt as tt
from truetilt.core.storage import write_json
from truetilt.metrics.divergences import total_variation
from truetilt.paper.table1 import random_table

SIZES, ALPHAS, TARGETS = ((2, 10), (4, 5)), (2.0, 4.0), 6
PARTICLES, POPULATIONS, STEPS = 500, 16, 100


def measured(table: tt.Table, alpha: float, beta: float, seed: int) -> tuple[float, float]:
    """Effective share of the particles at the end, and total variation of the weighted histogram to the target."""
    value = tt.Tempered(table.model(), alpha, beta)
    result = tt.run(value, tt.uniform_grid(STEPS), particles=PARTICLES, populations=POPULATIONS, seed=seed)
    size, length = table.process.vocabulary, table.length
    places = torch.tensor([size ** (length - 1 - i) for i in range(length)])
    cell = (result.particles.reshape(-1, length) * places).sum(-1)
    law = torch.zeros(size**length, dtype=torch.float64).index_add(0, cell, result.weights.reshape(-1))
    return float(result.final_ess.mean()) / PARTICLES, float(total_variation(table.target(alpha), law))


def rows() -> list[dict[str, float]]:
    out = []
    for length, size in SIZES:
        tables = [random_table("masking", length, size, k, 0, "cpu") for k in range(TARGETS)]
        for alpha in ALPHAS:
            for beta in sorted({0.0, 0.5, 1.0, 2.0, 1.5 * alpha if alpha == 2 else alpha}):
                found = [measured(table, alpha, beta, k) for k, table in enumerate(tables)]
                ess, tv = (mean(column) for column in zip(*found, strict=True))
                out.append({"sites": length, "tokens": size, "alpha": alpha, "beta": beta, "ess": ess, "tv": tv})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "beta.json")
    args = parser.parse_args()
    setting = {"targets": TARGETS, "particles": PARTICLES, "populations": POPULATIONS, "steps": STEPS}
    write_json(args.out, {"command": "python docs/beta.py", **setting, "rows": rows()})


if __name__ == "__main__":
    main()
