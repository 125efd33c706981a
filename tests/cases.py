"""Runs of every kind, small, with all the sampler's parts in use: what must come out the same however it is run."""

from __future__ import annotations

from typing import Any

import torch

import truetilt as tt
from problems import table
from truetilt import continuous as c

MASKED, UNIFORM = table(tt.Masking, 3, 3, seed=4), table(tt.Uniform, 3, 2, seed=4)
CLOCK, REVEALS = tt.uniform_grid(8), tt.masked_fraction_grid(MASKED.process.schedule, 3)
LINE = c.Observed(c.VP(1.0, 20.0), c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5), c.Observation([0.8], (0,), 1.0))
FIELDS = ("particles", "log_weights", "times", "ess", "log_z_path", "ancestors", "moved", "accepted")
KEPT = ("snapshot_steps", "snapshot_particles", "snapshot_log_weights")


def _moving(model: tt.Model) -> dict[str, Any]:
    any_order = tt.AnyOrder(model, 3.0)
    return {"moves": tt.Rejuvenation(tt.Gibbs(any_order), each_step=1, after_resampling=2, at_end=2)}


def cases() -> dict[str, tuple[Any, tuple[float, ...], dict[str, Any]]]:
    """Names to a model, its grid and options of `run`."""
    masked, uniform = MASKED.model(), UNIFORM.model()
    tilted = tt.Tilted(masked, 4.0)
    return {
        "clock": (tt.Tempered(masked, 3.0, 2.0), CLOCK, {}),
        "clock, every step": (tt.Tempered(masked, 3.0), CLOCK, {"resample": tt.multinomial}),
        "uniform": (tt.Tilted(uniform, 3.0), CLOCK, {"resample": tt.adaptive(tt.residual, 0.9)}),
        "any order": (tt.AnyOrder(masked, 4.0), REVEALS, {"resample": tt.systematic}),
        "any order, adaptive": (tt.AnyOrder(masked, 4.0), REVEALS, {"resample": tt.adaptive(tt.ssp, 0.95)}),
        "partial": (tt.Tempered(masked, 3.0, 2.0), CLOCK, {"resample": tt.partial(tt.stratified, 0.5)}),
        "populations": (tilted, CLOCK, {"populations": 5, "resample": tt.adaptive(tt.systematic, 0.9)}),
        "gibbs": (tt.AnyOrder(masked, 3.0), REVEALS, {"populations": 2, "resample": tt.multinomial, **_moving(masked)}),
        "metropolis": (
            tilted,
            CLOCK,
            {"resample": tt.systematic, "moves": tt.Rejuvenation(tt.Metropolis(tilted), each_step=1)},
        ),
        "real vectors": (c.Tilted(LINE.model(), 3.0), CLOCK, {"resample": tt.systematic, "populations": 2}),
        "snapshots": (tilted, CLOCK, {"snapshots": 4, "resample": tt.systematic}),
    }


def run(name: str, how: Any = tt.run, **options: Any) -> tt.Result:
    """A case, of 37 particles: more than one to a rank, and not divisible."""
    fk, grid, given = cases()[name]
    return how(fk, grid, **{"particles": 37, "seed": 5} | given | options)


def same(one: tt.Result, other: tt.Result) -> bool:
    """Whether two results agree in every bit and setting, and in what they measured of themselves."""
    return same_bits(one, other) and one.settings == other.settings


def same_bits(one: tt.Result, other: tt.Result) -> bool:
    """Whether two results agree in every bit and setting; ranks with populations of their own measure those."""
    tensors = all(torch.equal(getattr(one, name), getattr(other, name)) for name in FIELDS + KEPT)
    settings = [{name: told for name, told in run.settings.items() if name != "measured"} for run in (one, other)]
    return tensors and settings[0] == settings[1]


def text(length: int = 6) -> tt.Model:
    """A tiny transformer under a label, asked four texts at a time; widths of 16, so that no row's place matters."""
    net = tt.SEDD(tt.SEDDConfig(11, length, 32, 2, 2, 16, classes=2), seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return tt.Text(net, tt.Masking(11), batch=4).model(1)
