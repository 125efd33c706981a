"""Figures on matplotlib axes: what is drawn is what the run says, on axes given or new."""

import matplotlib as mpl

mpl.use("Agg")

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes

import truetilt as tt
from problems import table
from truetilt.viz import report_data

INF = math.inf


@pytest.fixture(scope="module")
def result():
    return tt.sample(
        table(tt.Masking, 3, 2).model(), 4.0, 3.0, particles=24, populations=5, num_inference_steps=30,
        resample=tt.adaptive(tt.systematic, 0.95),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


@pytest.mark.parametrize("name", ["ess", "log_z", "genealogy", "weights", "samples"])
def test_each_figure_draws_on_given_or_new_axes(result, name):
    given = pyplot.figure().subplots()
    assert getattr(result.plot, name)(ax=given) is given
    new = getattr(result.plot, name)()
    assert isinstance(new, Axes)
    assert new is not given
    new.set_title("restyled")
    new.figure.canvas.draw()


def line(ax, label):
    return next(one for one in ax.lines if one.get_label() == label).get_xydata()


def test_the_curves_are_those_of_the_run(result):
    drawn = line(result.plot.ess(), "mean of the populations")
    np.testing.assert_allclose(drawn[:, 1], result.ess.mean(1) / 24, rtol=1e-5)
    drawn = line(result.plot.log_z(), "all together")
    np.testing.assert_allclose(drawn[:, 1], torch.logsumexp(result.log_z_path, 1) - math.log(5), rtol=1e-4, atol=1e-6)
    assert drawn[-1, 1] == pytest.approx(result.log_z, rel=1e-5)


def test_the_band_ends_in_the_interval_of_the_result(result):
    told, exact = report_data.courses(result), result.log_z_interval()
    assert (told["low"][-1], told["high"][-1]) == pytest.approx((exact.low, exact.high), rel=1e-5)
    mean_of_logs = float(result.population_log_z.mean())
    assert abs(told["log_z"][-1] - mean_of_logs) > 1e-4  # the wrong union: it averages logs, not masses


def test_one_population_has_no_band(result):
    alone = tt.sample(table(tt.Masking, 3, 2).model(), 2.0, particles=6, num_inference_steps=4)
    assert report_data.courses(alone)["low"] == []
    alone.plot.log_z()


def test_thinning_hides_no_dip():
    curve = np.ones(5000)
    curve[[1, 1234, 4998]] = 0.1, 0.2, 0.3
    told = report_data.told_steps(curve)
    assert len(told) <= report_data.POINTS
    assert {0, 1, 1234, 4998, 4999} <= set(told)
    assert {1, 1234, 4998} - set(range(0, 5000, 17))  # every seventeenth step would have missed some


def test_weights_add_up(result):
    told = report_data.weight_bars(result)
    flat = sorted(result.weights.reshape(-1).tolist(), reverse=True)
    np.testing.assert_allclose(told["weights"], np.array(flat) * len(flat), rtol=1e-5)
    assert told["mass"][-1] == pytest.approx(1)
    assert sum(flat[: told["half"]]) >= 0.5 > sum(flat[: told["half"] - 1])
    assert told["heaviest"] == flat[0]


def test_population_rows_are_those_of_the_result(result):
    rows = report_data.population_rows(result)
    assert [row["log_z"] for row in rows] == result.population_log_z.tolist()
    assert sum(row["mass"] for row in rows) == pytest.approx(1)
    assert [row["roots"] for row in rows] == result.roots.tolist()


def test_a_dead_population_leaves_a_gap(result):
    log_w, path, ess = result.log_weights.clone(), result.log_z_path.clone(), result.ess.clone()
    log_w[1], path[5:, 1], ess[5:, 1] = -INF, -INF, 0.0
    dead = replace(result, log_weights=log_w, log_z_path=path, ess=ess)
    assert report_data.courses(dead)["log_z_each"][1][-1] is None
    assert report_data.family_tree(dead, 1)[1] == [0.0] * 24
    for figure in (dead.plot.ess, dead.plot.log_z, dead.plot.genealogy, dead.plot.weights):
        figure().figure.canvas.draw()


def test_a_genealogy_of_a_population_that_is_not_there_is_refused(result):
    with pytest.raises(tt.InvalidInput, match="population 5 of 5"):
        result.plot.genealogy(population=5)


VIEWS = {
    "images": (tt.Images(2, 4), torch.randint(0, 5, (1, 40, 4), generator=torch.Generator().manual_seed(0))),
    "text": (tt.TextView("$x^ <&".__getitem__, 6, 6), torch.arange(120).reshape(1, 40, 3) % 7),
    "logo": (tt.SequenceLogo("ACGT"), torch.arange(200).reshape(1, 40, 5) % 5),
    "disks": (tt.Disks(3), torch.arange(80).reshape(1, 40, 2) % 3),
    "points": (tt.Points(), torch.arange(80.0).reshape(1, 40, 2)),
    "numbers": (tt.Numbers(), torch.arange(120).reshape(1, 40, 3)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_samples_of_every_view_are_drawn(name):
    view, x = VIEWS[name]
    log_w = torch.linspace(-2, 0, 40, dtype=torch.float64)[None]
    ones = torch.ones(2, 1, dtype=torch.float64)
    own = torch.arange(40, dtype=torch.int32).expand(2, 1, 40).contiguous()
    run = tt.Result(x, log_w, torch.tensor([1.0, 0.0], dtype=torch.float64), ones, ones, own)
    ax = run.plot.samples(view=view)
    ax.figure.canvas.draw()
    assert ax.has_data() or ax.texts or ax.patches
