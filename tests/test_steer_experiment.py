"""The experiment that judges `steer`: its cells, how they are collected, what it claims, and the figure."""

from __future__ import annotations

import pytest

from truetilt.commands.job_runner import Settings
from truetilt.core.errors import InvalidInput
from truetilt.paper.steer import EXPERIMENT, RIVALS, one_chain, passed
from truetilt.paper.steer_tables import FIXED, OURS, SIZES, TABLES, one_table, random_table


def answers(error):
    """Made-up answers to every job; `error` gives the error of a job by its name."""
    found = {}
    for job in EXPERIMENT.jobs(Settings(quick=True)):
        row = {"tv": error(job.name), "log_z_error": 0.1, "evaluations": 10, "distinct": 5, "verdict": "trust"}
        found[job.name] = row | {"floor": 0.02, "off": 0.5, "route": "twisted"}
    return found


def jitter(name):
    """A little that differs between the runs of a method."""
    return 1e-4 * int(name.rsplit("-", 1)[1])


def good(name):
    return (0.02 if OURS in name else 0.3 if name.startswith("chain") else 0.03) + jitter(name)


def test_a_good_result_passes_and_each_claim_that_fails_is_noticed():
    settings = Settings(quick=True)

    def result(error):
        return EXPERIMENT.collect(settings, answers(error))

    assert passed(result(good))
    assert not passed(result(lambda name: 0.5 if "chain" in name and OURS in name else good(name)))
    assert not passed(result(lambda name: 0.05 if "table-3" in name and OURS in name else good(name)))
    dishonest = answers(good)
    dishonest[f"table-4-{OURS}-0"]["off"] = 3.5
    assert not passed(EXPERIMENT.collect(settings, dishonest))


def test_the_figure_is_drawn():
    figure = EXPERIMENT.draw(EXPERIMENT.collect(Settings(quick=True), answers(good)))
    assert len(figure.axes) == 2
    assert next(text.get_text() for text in figure.axes[0].get_legend().get_texts()) == OURS


def test_tables_are_laws_of_both_kinds():
    for number in range(TABLES):
        table = random_table(number)
        size, length = SIZES[number % len(SIZES)]
        assert table.p0.shape == (size,) * length
        law, _ = table.target(1.0)
        effective = 1 / float((law**2 / table.p0.reshape(-1)).sum())
        assert (effective < 0.05) == (number >= 10), number


def test_a_table_cell_of_ours_and_of_a_fixed_way():
    for method in (OURS, *FIXED):
        row = one_table(0, method, 0)
        assert row["route"] == ("importance" if method == OURS else method)
        assert 0 < row["tv"] < 0.1
        assert row["off"] < 3
        assert row["evaluations"] <= 2_000 * 5


def test_a_chain_cell_of_a_baseline_stays_within_its_budget():
    row = one_chain(32, 0, 200, RIVALS[1])
    assert row["distinct"] <= 200
    assert row["tv"] > 5 * row["floor"]


def test_data_without_the_landscape_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no folder tfbind8"):
        EXPERIMENT.jobs(Settings(quick=True, data=str(tmp_path)))
