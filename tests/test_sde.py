"""The experiment on diffusions: its problems, its rows, its figure, and what it must show, on a scale of seconds."""

import json

import pytest
import torch

from truetilt.commands.job_runner import Settings, run_experiment
from truetilt.paper import sde

KEYS = {"dimension", "alpha", "method", "steps", "particles", "ratio_to_floor", "log_z_error", "ess"}


def test_the_family_is_the_one_that_is_described():
    p = sde.problem(8, 3)
    assert p.p0.means.shape == (6, 8)
    assert torch.equal(torch.as_tensor(p.p0.std), torch.full((6, 8), 0.5).double())
    assert torch.allclose(p.seen.value, p.p0.means[:, :2].mean(0))
    assert (p.seen.std, p.seen.coordinates) == (1.0, (0, 1))
    assert (p.process.beta_min, p.process.beta_max) == (0.1, 20.0)
    assert float(sde.problem(32, 0).p0.means.std()) == pytest.approx(2, rel=0.15)
    assert not torch.equal(p.p0.means, sde.problem(8, 4).p0.means)


@pytest.mark.parametrize("quick", [True, False])
def test_every_dimension_and_alpha_is_there_and_the_shown_one_in_full(quick):
    cells = sde.cells(Settings(quick))
    assert {(c.dimension, c.alpha) for c in cells} == {(d, a) for d in (2, 8, 32) for a in (1.0, 2.0, 4.0, 8.0)}
    full = next(c for c in cells if c[:5] == (8, 4.0, 200, 2000, 8))
    assert {"guidance", "smc-tilted", "smc-edges", "smc-edges-guided"} <= set(full.methods)
    assert len({c.steps for c in cells if c[:2] == sde.SHOWN}) > 1
    assert len({c.particles for c in cells if c[:2] == sde.SHOWN}) > 1
    assert len({c.name for c in cells}) == len(cells)


def small(settings):
    lines = ("guidance", "smc-tilted", "smc-edges-guided")
    return [sde.Cell(d, a, 10, 200, 2, lines) for d in (2, 8, 32) for a in (1.0, 4.0)] + [
        sde.Cell(8, 4.0, 200, 300, 1, lines),
        sde.Cell(8, 4.0, 10, 2000, 1, lines),
    ]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr(sde, "cells", small)
    patch.setattr(sde, "REFERENCE", 2000)
    patch.setattr(sde, "VALUES", ("guidance at 1", "guidance", "smc-tilted-plain", "smc-edges"))
    patch.setattr("truetilt.commands.job_runner.os.cpu_count", lambda: 1)  # other processes would not see the patches
    folder = tmp_path_factory.mktemp("sde")
    found = run_experiment(sde.EXPERIMENT, Settings(True), folder, lambda: None)
    patch.undo()
    assert json.loads((folder / "result.json").read_text())["rows"] == found["rows"]
    assert (folder / "figure.png").read_bytes()[:4] == b"\x89PNG"
    return found


def test_rows_have_the_figures_asked_for(result):
    for row in result["rows"]:
        assert row.keys() >= KEYS
        assert (row["log_z_error"] is None) == (row["method"] in {"iid", "guidance"})
        assert 0 < row["ess"] <= 1 + 1e-12
    assert {row["ratio_to_floor"] for row in result["rows"] if row["method"] == "iid"} == {1.0}
    assert 0 < result["largest_prior_gap"] < 0.01


def test_at_one_guidance_is_the_conditional_diffusion_and_so_is_every_sampler(result):
    at = {(r["dimension"], r["alpha"], r["method"]): r["ratio_to_floor"] for r in reversed(result["rows"])}
    for d in (2, 8, 32):
        same = [at[d, 1.0, name] for name in ("guidance", "smc-tilted", "smc-edges-guided")]
        assert same == pytest.approx([same[0]] * 3)


def test_the_limit_converges_with_order_one_but_not_that_of_guidance(result):
    tv = {(r["value"], r["steps"]): r["tv"] for r in result["limits"]}
    for value in ("guidance at 1", "smc-tilted-plain", "smc-edges"):
        assert 1.6 < tv[value, 50] / tv[value, 100] < 2.6
        assert tv[value, 100] < 0.01
    assert 0.05 < tv["guidance", 50] < tv["guidance", 100] < 0.08


def test_a_problem_of_the_shown_cell():
    """One of the eight problems of the cell, at its full size: tilted near the floor, guidance far from it."""
    answer = sde.one_cell(sde.Cell(8, 4.0, 200, 2000, 1, ("guidance", "smc-tilted")), 2, Settings())
    far = {name: row["sliced_wasserstein"] for name, row in answer["methods"].items()}
    assert far["smc-tilted"] < 2 * far["iid"] < 5 * far["iid"] < far["guidance"]
    assert answer["methods"]["smc-tilted"]["log_z_error"] < 0.1
